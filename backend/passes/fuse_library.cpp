// Fuses epilogues into matmul and conv: a pointwise op that is the only consumer of the result becomes a
// post-op, by the table of kernels/post_ops. The fused node is placed where the pointwise op was, so all
// operands are already computed.
#include <algorithm>
#include <map>

#include "backend/graph/constants.h"
#include "backend/graph/parameters.h"
#include "backend/graph/rewriter.h"
#include "backend/passes/passes.h"
#include "codegen/loop/simplify.h"
#include "codegen/product_tile.h"
#include "kernels/library.h"

namespace ipex::graph {
namespace {

using loop::as_const_int;

constexpr size_t kMaxPostOps = 4;  // more would occupy the accumulators' registers for too long

class LibraryFuser : GraphRewriter {
 public:
  LibraryFuser(Graph graph, Isa isa) : GraphRewriter(std::move(graph)), isa_(isa) {}

  Graph run() {
    if (std::ranges::none_of(old_.nodes, [](const Node& node) { return gives_f32(node.op()); }))
      return std::move(old_);
    count_uses();
    return canonicalize(rebuild([&](int32_t n) {
      Node node = with_mapped_operands(n);
      std::optional<Value> fused;
      if (node.is(PointwiseOp::cast_) && !readers_.count({n, 0})) fused = give_f32(node);
      if (node.op() == Op::kPointwise && !fused) fused = fuse(node, only_reader(n));
      fused ? replace(n, *fused) : keep(n, std::move(node));
      for (int32_t r = 0; r < std::ssize(old_.nodes[n].types); ++r) uses_[mapped({n, r})] = old_uses_[{n, r}];
    }));
  }

 private:
  static bool is_library(Op op) { return op == Op::kMatMul || op == Op::kConv; }
  static void on_library(Node& node, auto change) {
    node.op() == Op::kMatMul ? change(node.get<MatMul>()) : change(node.get<Conv>());
  }
  static bool gives_f32(Op op) { return is_library(op) || op == Op::kConvBackward; }

  void count_uses() {
    for (int32_t i = 0; i < static_cast<int32_t>(old_.nodes.size()); ++i)
      for (Value v : old_.nodes[i].operands) {
        ++old_uses_[v];
        readers_[v] = i;
      }
    for (const GraphOutput& output : old_.outputs)
      old_uses_[output.value] += 2;  // outputs are never used once
    for (const InputMutation& m : old_.mutations) old_uses_[m.value] += 2;
  }

  bool used_once(Value v) const {
    auto it = uses_.find(v);
    return it != uses_.end() && it->second == 1;
  }

  // The library node whose only consumer is the consumer of `v`, through at most one reshape.
  std::optional<Value> library_below(Value v) const {
    if (!used_once(v)) return std::nullopt;
    if (is_library(new_.node(v).op())) return v;
    if (new_.node(v).op() != Op::kReshape) return std::nullopt;
    const Value below = new_.node(v).operands[0];
    if (!is_library(new_.node(below).op()) || !used_once(below)) return std::nullopt;
    // The reshape must only regroup the rows of a matmul and keep the last dim.
    const Shape &a = new_.type(v).shape, &b = new_.type(below).shape;
    const bool rows_only =
        new_.node(below).op() == Op::kMatMul && !a.empty() && loop::provably_equal(a.back(), b.back());
    return rows_only ? std::optional(below) : std::nullopt;
  }

  // The only consumer of node n; null if there are several or none.
  const Node* only_reader(int32_t n) const {
    const auto uses = old_uses_.find({n, 0});
    if (uses == old_uses_.end() || uses->second != 1) return nullptr;
    return &old_.nodes[readers_.at({n, 0})];
  }

  static bool is_epilogue(const Node& node) {
    const std::string_view name = text(node.get<Pointwise>().fn);
    return std::ranges::any_of(kernels::post_op_rows(), [&](const kernels::PostOpRow& row) {
      return row.pointwise == name && row.keeps_nan && row.pays;
    });
  }

  // A half-precision result whose only use is a cast to f32 for the caller, such as a parameter's gradient
  // under autocast, is computed in f32, without the intermediate rounding.
  std::optional<Value> give_f32(const Node& cast) {
    const Value v = cast.operands[0];
    const Node& node = new_.node(v);
    const bool has_epilogue = has_bias(node) || !post_ops(node).empty();
    if (!gives_f32(node.op()) || has_epilogue || !used_once(v) || !is_half(node.types[0].dtype) ||
        cast.types[0].dtype != Dtype::kF32)
      return std::nullopt;
    Node wide = node;
    wide.types[0].dtype = Dtype::kF32;
    add_sources(wide.source, cast.source);
    return place(std::move(wide), cast.types[0]);
  }

  std::optional<Value> fuse(const Node& node, const Node* reader) {
    for (size_t side = 0; side < node.operands.size() && side < 2; ++side) {
      const auto library = library_below(node.operands[side]);
      if (!library) continue;
      Node fused = new_.node(*library);
      const Dtype dtype = node.types[0].dtype;
      if (dtype != fused.types[0].dtype) {
        if (!may_give(fused, dtype)) continue;
        fused.types[0].dtype = dtype;
        if (node.is(PointwiseOp::cast_)) return place(std::move(fused), node.types[0]);
        if (!extend_by_vector(fused, node, side)) continue;
      } else if (!extend_by_vector(fused, node, side)) {
        // If a kernel follows in any case, another operand is cheaper there than in the library.
        const bool kernel_next = reader && reader->op() == Op::kPointwise && !is_epilogue(*reader);
        if (node.operands.size() > 1 && kernel_next) continue;
        if (!extend(fused, node, side)) continue;
      }
      add_sources(fused.source, node.source);
      return place(std::move(fused), node.types[0]);
    }
    return std::nullopt;
  }

  // Whether the library node may have a result of this dtype. A batch norm after a half-precision convolution
  // computes in f32 and rounds at its end; a convolution that is widened later can do the same.
  bool may_give(const Node& fused, Dtype dtype) const {
    const Dtype narrow = new_.type(fused.operands[0]).dtype;
    if (!is_half(narrow) || !is_widened(fused)) return false;
    return fused.types[0].dtype == narrow ? dtype == Dtype::kF32 : dtype == narrow;
  }

  // Folds an addition, subtraction or multiplication by one number per output feature into the bias and, for
  // parameters, into the weights, which are hoisted. (As post-ops of oneDNN they cost more than the kernel
  // that they save.)
  bool extend_by_vector(Node& fused, const Node& node, size_t side) {
    const bool factor = node.is(PointwiseOp::mul_), negative = node.is(PointwiseOp::sub_);
    if (node.operands.size() != 2 || (negative && side != 0)) return false;
    if (!factor && !negative && !node.is(PointwiseOp::add_)) return false;
    if (!post_ops(fused).empty()) return false;
    auto vector = feature_vector(fused, node.operands[1 - side]);
    if (!vector) return false;
    const bool biased = has_bias(fused);
    if ((factor || biased) && !(is_parameter_(*vector) && (!biased || is_parameter_(fused.operands[2]))))
      return false;
    const Dtype dtype = fused.types[0].dtype;
    if (dtype == Dtype::kF32 && is_half(new_.type(*vector).dtype))
      vector = cast(*vector, dtype, fused.source);
    if (new_.type(*vector).dtype != dtype) return false;
    if (factor) {
      if (!is_parameter_(fused.operands[1]) || !scale_weights(fused, *vector)) return false;
      if (biased)
        fused.operands[2] = pointwise(PointwiseOp::mul_, {fused.operands[2], *vector}, dtype, fused.source);
      return true;
    }
    if (biased) {
      fused.operands[2] = pointwise(negative ? PointwiseOp::sub_ : PointwiseOp::add_,
                                    {fused.operands[2], *vector}, dtype, fused.source);
      return true;
    }
    if (negative) vector = pointwise(PointwiseOp::neg_, {*vector}, dtype, fused.source);
    fused.operands.insert(fused.operands.begin() + 2, *vector);
    on_library(fused, [](auto& library) { library.bias = true; });
    return true;
  }

  bool is_widened(const Node& fused) const {
    return fused.op() == Op::kConv && !kernels::runs_on(isa_, new_.type(fused.operands[0]).dtype);
  }

  // Half-precision weights are scaled only if they are widened in any case, because rounding them again would
  // double the model's error.
  bool scale_weights(Node& fused, Value factors) {
    const Type weights = new_.type(fused.operands[1]);
    const auto* conv = fused.get_if<Conv>();
    const bool transposed = conv && conv->transposed;
    if (transposed && conv->groups != 1) return false;
    if (fused.types[0].dtype != Dtype::kF32 || (weights.dtype != Dtype::kF32 && !is_widened(fused)))
      return false;
    const int64_t last = static_cast<int64_t>(weights.shape.size()) - 1;
    const int64_t features = fused.op() == Op::kMatMul ? last : transposed ? 1 : 0;
    const Value spread = add({Expand{{features}}, {factors}, {{new_.type(factors).dtype, weights.shape}}});
    fused.operands[0] = cast(fused.operands[0], Dtype::kF32, fused.source);
    fused.operands[1] =
        pointwise(PointwiseOp::mul_, {cast(fused.operands[1], Dtype::kF32, fused.source), spread},
                  Dtype::kF32, fused.source);
    return true;
  }

  // Products that implementations/matmul.cpp will mostly assign to kernels, where any epilogue is free.
  bool is_for_a_kernel(const Node& fused) const {
    constexpr int64_t kMinTerms = 64;
    const Type &a = new_.type(fused.operands[0]), &b = new_.type(fused.operands[1]);
    if (fused.op() != Op::kMatMul || a.dtype != Dtype::kF32 || a.shape.size() != 2) return false;
    const auto known = [](const Dim& dim) { return as_const_int(dim).value_or(0); };
    return known(a.shape[1]) >= kMinTerms &&
           loop::blocking_beats_library(loop::target_for(isa_), known(a.shape[0]), known(b.shape[0]),
                                        known(b.shape[1]));
  }

  // Adds the pointwise op to the library node as a post-op.
  bool extend(Node& fused, const Node& node, size_t side) {
    Strings post = post_ops(fused);
    const PointwiseOp fn = node.get<Pointwise>().fn;
    if (post.size() >= kMaxPostOps) return false;
    for (const kernels::PostOpRow& row : kernels::post_op_rows()) {
      if (row.pointwise != text(fn) || !row.keeps_nan) continue;
      if (!row.pays && !is_for_a_kernel(fused)) continue;
      if (row.takes_operand) {
        if (node.operands.size() != 2 || (side == 1 && !ops::row(fn).has(ops::kCommutes))) return false;
        const Value other = node.operands[1 - side];
        if (new_.type(other).dtype != fused.types[0].dtype || is_broadcast(other) || is_cast(other))
          return false;
        fused.operands.push_back(reshape(other, fused.types[0].shape));
        post.emplace_back(row.name);
      } else {
        if (side != 0) return false;
        const auto written = with_parameters(row, node);
        if (!written) return false;
        post.push_back(*written);
      }
      on_library(fused, [&](auto& library) { library.post = std::move(post); });
      return true;
    }
    return false;
  }

  // "hardtanh:0:6" when the operands after the first are literals.
  std::optional<std::string> with_parameters(const kernels::PostOpRow& row, const Node& node) const {
    if (static_cast<int>(node.operands.size()) != 1 + row.parameters) return std::nullopt;
    std::string text(row.name);
    for (size_t i = 1; i < node.operands.size(); ++i) {
      const auto literal = literal_value(new_, node.operands[i]);
      if (!literal) return std::nullopt;
      text += ":" + std::visit([](auto value) { return print_number(static_cast<double>(value)); }, *literal);
    }
    return text;
  }

  bool is_broadcast(Value v) const {
    while (new_.node(v).op() == Op::kReshape || new_.node(v).op() == Op::kPermute)
      v = new_.node(v).operands[0];
    return new_.node(v).op() == Op::kExpand || new_.node(v).op() == Op::kConstant;
  }

  // A widening cast, for example of a dropout mask. A kernel fuses the cast; the library would need its
  // result in memory.
  bool is_cast(Value v) const {
    if (!used_once(v)) return false;
    while (new_.node(v).op() == Op::kReshape) v = new_.node(v).operands[0];
    const Node& node = new_.node(v);
    return node.is(PointwiseOp::cast_) &&
           itemsize(new_.type(node.operands[0]).dtype) < itemsize(node.types[0].dtype);
  }

  // The vector that `v` repeats over all dims but the output features (the last dim of a matmul, the second
  // of a convolution).
  std::optional<Value> feature_vector(const Node& fused, Value v) {
    Value at = v;
    if (new_.node(at).op() == Op::kReshape && fused.op() == Op::kMatMul) at = new_.node(at).operands[0];
    const Node& expand = new_.node(at);
    if (expand.op() != Op::kExpand) return std::nullopt;
    const Shape& from = new_.type(expand.operands[0]).shape;
    const Ints& dims = expand.get<Expand>().dims;
    const Shape& result = fused.types[0].shape;
    const Dim& features = fused.op() == Op::kMatMul ? result.back() : result[1];
    const int64_t wanted =
        fused.op() == Op::kMatMul ? static_cast<int64_t>(expand.types[0].shape.size()) - 1 : 1;
    bool found = false;
    for (size_t d = 0; d < from.size(); ++d) {
      if (dims[d] == wanted && loop::provably_equal(from[d], features)) {
        found = true;
      } else if (as_const_int(from[d]) != 1) {
        return std::nullopt;
      }
    }
    if (!found) return std::nullopt;
    const Value source = expand.operands[0];
    return reshape(source, Shape{features});
  }

  // Adds the fused node, and a reshape to the shape that the consumers expect.
  Value place(Node fused, const Type& type) {
    const Value value = add(std::move(fused));
    if (equal(new_.type(value).shape, type.shape)) return value;
    uses_[value] = 1;
    return reshape(value, type.shape);
  }

  Isa isa_;
  std::map<Value, int> old_uses_, uses_;
  std::map<Value, int32_t> readers_;  // the last consumer, in old_
  ParameterAnalysis is_parameter_{new_, old_};
};

}  // namespace

Graph fuse_library(Graph graph, const PassContext& context) {
  return LibraryFuser(std::move(graph), context.target.isa).run();
}

}  // namespace ipex::graph
