// Half-precision products where the library has none: in fp32 between casts. A kernel of ours would multiply
// with a fraction of the library's speed; the casts are pointwise ops, which fuse with their neighbours or,
// of a weight, are computed once.
#include <algorithm>

#include "backend/graph/rewriter.h"
#include "backend/passes/passes.h"
#include "codegen/loop/simplify.h"
#include "kernels/library.h"

namespace ipex::graph {
namespace {

// Under it a product streams its second operand: half as many bytes are worth more than the library's speed
// (768 x 3072 on AVX2, bf16 against widened: 1 row 0.29 and 0.36 ms, 4 rows 0.64 and 0.56, 16 rows 2.29
// and 1.30).
constexpr int64_t kFewRows = 4;

bool at_most(const Dim& dim, int64_t limit) {
  const auto number = loop::as_const_int(dim);
  return number && *number <= limit;
}

class LibraryWidener : GraphRewriter {
 public:
  LibraryWidener(Graph graph, Isa isa) : GraphRewriter(std::move(graph)), isa_(isa) {}

  Graph run() {
    if (std::ranges::none_of(old_.nodes, [&](const Node& node) { return widens(node); }))
      return std::move(old_);
    return canonicalize(rebuild([&](int32_t n) {
      const Node& old = old_.nodes[n];
      if (!widens(old)) return keep(n);
      const int32_t wide = add(widened(with_mapped_operands(n))).node;
      for (int32_t r = 0; r < std::ssize(old.types); ++r)
        replace({n, r}, cast({wide, r}, old.types[r].dtype, old.source));
    }));
  }

 private:
  bool widens(const Node& node) const {
    if (node.op() != Op::kMatMul && node.op() != Op::kConv && node.op() != Op::kConvBackward &&
        node.op() != Op::kLstm)
      return false;
    const Dtype dtype = old_.type(node.operands[0]).dtype;
    if (!is_half(dtype) || kernels::runs_on(isa_, dtype)) return false;
    if (node.op() != Op::kMatMul) return true;
    const Shape& result = node.types[0].shape;
    return !at_most(result.back(), kFewRows) && !at_most(result[result.size() - 2], kFewRows);
  }

  Node widened(Node node) {
    for (Value& v : node.operands)
      if (is_half(new_.type(v).dtype)) v = cast(v, Dtype::kF32, node.source);
    for (Type& type : node.types) type.dtype = Dtype::kF32;
    return node;
  }

  Isa isa_;
};

}  // namespace

Graph widen_library(Graph graph, const loop::Target& target) {
  return LibraryWidener(std::move(graph), target.isa).run();
}

}  // namespace ipex::graph
