// Half-precision products where the library has none: in fp32 between casts. A kernel of ours would multiply
// with a fraction of the library's speed; the casts are pointwise ops, which fuse with their neighbours or,
// of a weight, are computed once.
#include <map>

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

class LibraryWidener {
 public:
  LibraryWidener(Graph graph, Isa isa) : old_(std::move(graph)), isa_(isa) {}

  Graph run() {
    bool any = false;
    for (const Node& node : old_.nodes) any |= widens(node);
    if (!any) return std::move(old_);
    new_ = old_.without_nodes();
    for (int32_t i = 0; i < static_cast<int32_t>(old_.nodes.size()); ++i) {
      Node node = old_.nodes[i];
      const bool wide = widens(node);
      for (Value& v : node.operands) v = mapped_.at(v);
      const std::vector<Type> types = node.types;
      const std::string source = node.source;
      if (wide) widen(node);
      const Value value = new_.add(std::move(node));
      for (int32_t r = 0; r < static_cast<int32_t>(types.size()); ++r)
        mapped_[{i, r}] = cast({value.node, r}, types[r].dtype, source);
    }
    new_.end_like(old_, [&](Value v) { return mapped_.at(v); });
    return canonicalize(std::move(new_));
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

  void widen(Node& node) {
    for (Value& v : node.operands)
      if (is_half(new_.type(v).dtype)) v = cast(v, Dtype::kF32, node.source);
    for (Type& type : node.types) type.dtype = Dtype::kF32;
  }

  Value cast(Value v, Dtype dtype, const std::string& source) {
    if (new_.type(v).dtype == dtype) return v;
    return new_.add({Pointwise{PointwiseOp::cast_}, {v}, {{dtype, new_.type(v).shape}}, {}, source});
  }

  Graph old_, new_;
  Isa isa_;
  std::map<Value, Value> mapped_;
};

}  // namespace

Graph widen_library(Graph graph, const loop::Target& target) {
  return LibraryWidener(std::move(graph), target.isa).run();
}

}  // namespace ipex::graph
