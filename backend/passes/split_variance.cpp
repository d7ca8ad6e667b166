// The variance of short rows in two passes: the mean, then the mean square of the distance to it. A row that
// is in a cache is read twice sooner than Welford's recurrence divides, and with less error (Chan, Golub and
// LeVeque, Algorithms for computing the sample variance, 1983). Long rows keep the one pass over memory.
#include <algorithm>
#include <map>

#include "backend/passes/passes.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

constexpr int64_t kRowBytes = 64 << 10;  // what a second-level cache keeps beside weights and results

class VarianceSplitter {
 public:
  explicit VarianceSplitter(Graph graph) : old_(std::move(graph)) {}

  Graph run() {
    if (std::none_of(old_.nodes.begin(), old_.nodes.end(), [&](const Node& n) { return splits(n); }))
      return std::move(old_);
    new_ = old_.without_nodes();
    for (int32_t i = 0; i < static_cast<int32_t>(old_.nodes.size()); ++i) {
      Node node = old_.nodes[i];
      for (Value& v : node.operands) v = mapped_.at(v);
      if (splits(old_.nodes[i])) {
        split(i, node);
        continue;
      }
      const size_t results = node.types.size();
      const Value value = new_.add(std::move(node));
      for (int32_t r = 0; r < static_cast<int32_t>(results); ++r) mapped_[{i, r}] = {value.node, r};
    }
    new_.end_like(old_, [&](Value v) { return mapped_.at(v); });
    return canonicalize(std::move(new_));
  }

 private:
  // Of rows that lie side by side and are known to be short.
  bool splits(const Node& node) const {
    if (node.op != Op::kReduce || (node.name != "var" && node.name != "var_mean" && node.name != "std"))
      return false;
    const Type& x = old_.type(node.operands[0]);
    const auto& axes = node.attr<std::vector<int64_t>>("axes");
    const auto first = static_cast<int64_t>(x.shape.size() - axes.size());
    const bool trailing = std::all_of(axes.begin(), axes.end(), [&](int64_t d) { return d >= first; });
    const auto count = loop::as_const_int(columns(x.shape, axes.size()));
    return trailing && count && *count * static_cast<int64_t>(itemsize(opmath(x.dtype))) <= kRowBytes;
  }

  static Dim columns(const Shape& shape, size_t axes) {
    return numel(Shape(shape.end() - static_cast<std::ptrdiff_t>(axes), shape.end()));
  }

  void split(int32_t index, const Node& node) {
    const auto& axes = node.attr<std::vector<int64_t>>("axes");
    source_ = node.source;
    const Value x = cast(node.operands[0], opmath(new_.type(node.operands[0]).dtype));
    const Type full = new_.type(x);
    Type row = full;
    for (int64_t d : axes) row.shape[d] = loop::index_const(1);
    const auto reduce = [&](const char* name, Value v) {
      return add(Op::kReduce, name, {v}, row, {{"axes", axes}, {"keepdim", true}});
    };
    const Value mean = reduce("mean", x);
    const Value centred = add(Op::kPointwise, "sub", {x, expand(mean, full)}, full);
    const Value squares = reduce("sum", add(Op::kPointwise, "mul", {centred, centred}, full));
    const auto count = static_cast<double>(*loop::as_const_int(columns(full.shape, axes.size())));
    const Value divisor =
        add(Op::kConstant, "", {}, {full.dtype, {}}, {{"value", std::max(count - correction_of(node), 0.0)}});
    Value variance = add(Op::kPointwise, "div", {squares, expand(divisor, row)}, row);
    if (node.name == "std") variance = add(Op::kPointwise, "sqrt", {variance}, row);
    mapped_[{index, 0}] = as(variance, node.types[0]);
    if (node.name == "var_mean") mapped_[{index, 1}] = as(mean, node.types[1]);
  }

  Value add(Op op, std::string name, std::vector<Value> operands, Type type, Attrs attrs = {}) {
    Node node;
    node.op = op;
    node.name = std::move(name);
    node.operands = std::move(operands);
    node.types = {std::move(type)};
    node.attrs = std::move(attrs);
    node.source = source_;
    return new_.add(std::move(node));
  }

  Value cast(Value v, Dtype dtype) {
    const Type& type = new_.type(v);
    return type.dtype == dtype ? v : add(Op::kPointwise, "cast", {v}, {dtype, type.shape});
  }

  Value expand(Value v, const Type& type) {
    std::vector<int64_t> dims(new_.type(v).shape.size());
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
    return add(Op::kExpand, "", {v}, type, {{"dims", dims}});
  }

  // Without the dims of size 1, in the result's dtype.
  Value as(Value v, const Type& type) {
    const Value rounded = cast(v, type.dtype);
    return equal(new_.type(rounded), type) ? rounded : add(Op::kReshape, "", {rounded}, type);
  }

  Graph old_, new_;
  std::string source_;
  std::map<Value, Value> mapped_;
};

}  // namespace

Graph split_variance(Graph graph) { return VarianceSplitter(std::move(graph)).run(); }

}  // namespace ipex::graph
