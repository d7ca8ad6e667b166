// The typing rules of Graph IR, one case for each op. Debug builds run it after every pass and name the pass
// that breaks a rule.
#include <algorithm>

#include "backend/graph/ir.h"
#include "backend/graph/names.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {
namespace {

class NodeVerifier {
 public:
  NodeVerifier(const Graph& graph, int32_t index) : graph_(graph), node_(graph.nodes[index]), index_(index) {}

  void run() {
    for (const Value& v : node_.operands) {
      require(v.node >= 0 && v.node < index_, "operands come before their use");
      require(v.result >= 0 && v.result < static_cast<int32_t>(graph_.node(v).types.size()),
              "operand result exists");
    }
    require(!node_.types.empty(), "a node has a result");
    require(node_.layouts.empty() || node_.layouts.size() == node_.types.size(),
            "one layout for each result");
    for (size_t r = 0; r < node_.layouts.size(); ++r)
      require(node_.layouts[r].empty() || node_.layouts[r].size() == node_.types[r].shape.size(),
              "one stride for each dim");
    for (const Type& type : node_.types) known_symbols(type.shape);
    for (const Strides& strides : node_.layouts) known_symbols(strides);
    known_symbols(dims_in(node_.operation));
    by_op();
  }

 private:
  [[noreturn]] void fail(const std::string& rule) const {
    throw InternalError("graph verifier: " + value_name(graph_, {index_, 0}) + " = " +
                        name_of(node_.operation) + ": " + rule +
                        (node_.source.empty() ? "" : " (from " + node_.source + ")"));
  }
  void require(bool condition, const char* rule) const {
    if (!condition) fail(std::string("breaks the rule: ") + rule);
  }
  void operands(size_t count) const {
    if (node_.operands.size() != count)
      fail("takes " + std::to_string(count) + " operands, has " + std::to_string(node_.operands.size()));
  }
  const Type& operand(size_t i) const { return graph_.type(node_.operands[i]); }
  const Type& result(size_t i = 0) const { return node_.types[i]; }
  size_t rank(const Type& type) const { return type.shape.size(); }

  // Sizes use only symbols of the graph.
  void known_symbols(const std::vector<Dim>& dims) const {
    for (const Dim& dim : dims) {
      if (loop::as_const_int(dim)) continue;
      for (const std::string& name : loop::free_vars(dim))
        if (std::find(graph_.symbols.begin(), graph_.symbols.end(), name) == graph_.symbols.end())
          fail("'" + name + "' is not among the graph's symbols");
    }
  }
  static bool same(const Dim& a, const Dim& b) { return equal(Shape{a}, Shape{b}); }
  // Sizes may be unknown. Only a known contradiction fails.
  static bool may_equal(const Dim& a, const Dim& b) {
    const auto x = loop::as_const_int(loop::simplify(a)), y = loop::as_const_int(loop::simplify(b));
    return !x || !y || *x == *y;
  }
  void axis_in_range(int64_t axis, const Type& type) const {
    require(axis >= 0 && axis < static_cast<int64_t>(rank(type)), "axis is in range");
  }

  void results_of(const ops::ReductionRow& row) const {
    require(static_cast<int>(node_.types.size()) == row.results, "has the row's number of results");
  }
  void one_result() const { require(node_.types.size() == 1, "has one result"); }
  void same_dtype() const { require(operand(0).dtype == result().dtype, "keeps the dtype"); }

  void constant() const {
    const auto& [value, data] = node_.get<Constant>();
    require(data || (value && result().shape.empty()), "is 0-d with value= or has data");
    if (!data) return;
    int64_t count = 1;
    for (int64_t size : static_shape(result().shape)) count *= size;
    require(std::ssize(data->bytes) == count * itemsize(result().dtype), "data fits its type");
  }

  void pointwise() const {
    const PointwiseOp fn = node_.get<Pointwise>().fn;
    const ops::PointwiseRow& row = ops::row(fn);
    operands(row.arity);
    one_result();
    const bool has_condition = fn == PointwiseOp::where_;
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      require(equal(operand(i).shape, result().shape),
              "operands have the result's shape (broadcasts are explicit)");
      if (has_condition && i == 0) {
        require(operand(0).dtype == Dtype::kBool, "the condition is b1");
        continue;
      }
      const size_t first = has_condition ? 1 : 0;
      require(opmath(operand(i).dtype) == opmath(operand(first).dtype), "operands share one compute dtype");
    }
    const Dtype computes = operand(has_condition ? 1 : 0).dtype;
    require(is_float(computes) ? row.floats
            : is_int(computes) ? row.integers
                               : row.booleans,
            "the row accepts the compute dtype");
    if (row.promotion == ops::Promotion::kAlwaysBool) require(result().dtype == Dtype::kBool, "gives b1");
    if (fn == PointwiseOp::reinterpret_)
      require(itemsize(computes) == itemsize(result().dtype) && result().dtype != Dtype::kBool,
              "gives a number of the operand's size");
  }

  void reduce() const {
    const Reduce& reduce = node_.get<Reduce>();
    operands(1);
    results_of(ops::row(reduce.fn));
    Ints axes = reduce.axes;
    std::sort(axes.begin(), axes.end());
    require(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), "axes are distinct");
    Shape expected;
    for (size_t d = 0; d < rank(operand(0)); ++d) {
      const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
      if (!reduced) expected.push_back(operand(0).shape[d]);
      if (reduced && reduce.keepdim) expected.push_back(loop::index_const(1));
    }
    for (int64_t axis : axes)
      require(axis >= 0 && axis < static_cast<int64_t>(rank(operand(0))), "axes are in range");
    for (const Type& type : node_.types)
      require(equal(type.shape, expected), "result shape is the operand's without the axes");
  }

  void expand() const {
    operands(1);
    same_dtype();
    const Ints& dims = node_.get<Expand>().dims;
    require(dims.size() == rank(operand(0)), "dims maps each operand dim");
    require(std::is_sorted(dims.begin(), dims.end()) &&
                std::adjacent_find(dims.begin(), dims.end()) == dims.end(),
            "dims ascend");
    for (size_t d = 0; d < dims.size(); ++d) {
      require(dims[d] >= 0 && dims[d] < static_cast<int64_t>(rank(result())), "dims are in range");
      const Dim& from = operand(0).shape[d];
      require(loop::as_const_int(from) == 1 || equal(Shape{from}, Shape{result().shape[dims[d]]}),
              "an operand dim is 1 or equals the result's");
    }
  }

  void permute() const {
    operands(1);
    same_dtype();
    Ints dims = node_.get<Permute>().dims;
    require(dims.size() == rank(operand(0)) && dims.size() == rank(result()),
            "dims has an entry for each dim");
    for (size_t i = 0; i < dims.size(); ++i) {
      require(dims[i] >= 0 && dims[i] < static_cast<int64_t>(dims.size()), "dims are in range");
      require(equal(Shape{operand(0).shape[dims[i]]}, Shape{result().shape[i]}),
              "result dim i is operand dim dims[i]");
    }
    std::sort(dims.begin(), dims.end());
    require(std::adjacent_find(dims.begin(), dims.end()) == dims.end(), "dims is a permutation");
  }

  void slice() const {
    operands(1);
    same_dtype();
    const auto& [starts, steps] = node_.get<Slice>();
    require(
        starts.size() == rank(operand(0)) && steps.size() == starts.size() && rank(result()) == starts.size(),
        "has a start and a step for each dim");
    for (size_t d = 0; d < starts.size(); ++d) {
      const auto start = loop::as_const_int(starts[d]), from = loop::as_const_int(operand(0).shape[d]),
                 count = loop::as_const_int(result().shape[d]);
      if (!start || !from || !count || *count == 0) continue;
      const int64_t last = *start + (*count - 1) * steps[d];
      require(*start >= 0 && *start < *from && last >= 0 && last < *from, "stays inside its operand");
    }
  }

  void pad() const {
    operands(2);
    same_dtype();
    require(operand(1).shape.empty() && operand(1).dtype == result().dtype, "value is 0-d of x's dtype");
    const auto& [low, high] = node_.get<Pad>();
    require(low.size() == rank(result()) && high.size() == low.size() && rank(operand(0)) == low.size(),
            "has low and high for each dim");
    for (size_t d = 0; d < low.size(); ++d)
      require(same(operand(0).shape[d] + loop::index_const(low[d] + high[d]), result().shape[d]),
              "a result dim is the operand's plus low and high");
  }

  // The window of a convolution. Winograd and WeightGradient leave out attributes that have the default
  // value.
  ConvWindow window_of(size_t spatial) const {
    if (node_.op() == Op::kConv || node_.op() == Op::kConvBackward) return conv_window(node_);
    const Ints ones(spatial, 1), zeros(spatial, 0);
    if (const auto* winograd = node_.get_if<Winograd>()) return {ones, winograd->padding, ones, zeros};
    const WeightGradient& gradient = node_.get<WeightGradient>();
    return {gradient.stride, gradient.padding, ones, zeros};
  }

  // winograd and weight_gradient take 2-d convolutions in f32 with known sizes.
  void convolution(const Shape& x, const Shape& w, const Shape& y) const {
    const size_t n = x.size();
    require(n >= 3 && n <= 5 && w.size() == n && y.size() == n, "is 1-d to 3-d, with batch and channels");
    const bool ours = node_.op() == Op::kWinograd || node_.op() == Op::kWeightGradient;
    const auto [stride, padding, dilation, output_padding, group_count, transposed] = window_of(n - 2);
    for (const Ints* each : {&stride, &padding, &dilation, &output_padding})
      require(each->size() == n - 2, "has stride, padding, dilation and output_padding for each spatial dim");
    const Dim groups = loop::index_const(group_count);
    for (size_t i = 0; ours && i < node_.operands.size(); ++i)
      require(operand(i).dtype == Dtype::kF32, "is in f32");
    require(!ours || (n == 4 && std::min(padding[0], padding[1]) >= 0), "is 2-d, without cropping");
    require(may_equal(x[0], y[0]), "keeps the batch");
    require(may_equal(x[1], transposed ? w[0] : w[1] * groups), "channels of x are those of w");
    require(may_equal(y[1], transposed ? w[1] * groups : w[0]), "channels of the result are those of w");
    for (size_t d = 0; d < n - 2; ++d) {
      require(stride[d] > 0 && dilation[d] > 0, "stride and dilation are positive");
      require(!ours || loop::as_const_int(x[d + 2]), "has known spatial dims");
      auto k = [](int64_t value) { return loop::index_const(value); };
      const Dim reach = (w[d + 2] - k(1)) * k(dilation[d]);
      const Dim extent =
          transposed ? (x[d + 2] - k(1)) * k(stride[d]) - k(2 * padding[d]) + reach + k(output_padding[d] + 1)
                     : loop::floordiv(x[d + 2] + k(2 * padding[d]) - reach - k(1), k(stride[d])) + k(1);
      require(may_equal(extent, y[d + 2]), "spatial dims follow from the window");
    }
  }

  void pool() const {
    const Pool& pool = node_.get<Pool>();
    const bool is_max = pool.kind == PoolKind::kMax, covers = pool.window == PoolWindow::kCovering;
    require(node_.types.size() == (is_max ? 2u : 1u), "max gives values and indices, avg values");
    const size_t spatial = pool.kernel.size();
    require(spatial >= 1 && spatial <= 3 && rank(operand(0)) >= spatial, "is 1-d to 3-d, spatial dims last");
    require(!covers || (!is_max && pool.divisor != 0), "covering windows are averages with a divisor");
    operands(covers && node_.operands.size() == 2 ? 2 : 1);
    require(node_.operands.size() == 1 || equal(operand(1), {Dtype::kI64, operand(0).shape}),
            "indices are i64 and have x's shape");
    for (size_t r = 0; r < node_.types.size(); ++r) {
      require(node_.types[r].dtype == (r ? Dtype::kI64 : operand(0).dtype),
              "values of x's dtype, indices i64");
      require(rank(node_.types[r]) == rank(operand(0)), "keeps the rank");
      for (size_t d = 0; d + spatial < rank(operand(0)); ++d)
        require(same(node_.types[r].shape[d], operand(0).shape[d]), "only spatial dims change");
    }
  }

  void segment() const {
    operands(3);
    results_of(ops::row(node_.get<Segment>().fn));
    require(rank(operand(0)) >= 1, "x has a dim of positions");
    for (size_t i : {1, 2}) {
      require(operand(i).dtype == Dtype::kI64 && rank(operand(i)) == 1, "begins and ends are i64 vectors");
      require(same(operand(i).shape[0], result().shape[0]), "one begin and one end for each result");
    }
    for (const Type& type : node_.types) {
      require(rank(type) == rank(operand(0)), "keeps the rank");
      for (size_t d = 1; d < rank(type); ++d)
        require(same(type.shape[d], operand(0).shape[d]), "only the first dim changes");
    }
  }

  void sort() const {
    operands(1);
    const Sort& sort = node_.get<Sort>();
    require(node_.types.size() == 2 && result(0).dtype == operand(0).dtype && result(1).dtype == Dtype::kI64,
            "gives values of x's dtype and i64 indices");
    require(equal(result(0).shape, result(1).shape), "values and indices have one shape");
    require(rank(result()) == rank(operand(0)), "keeps the rank");
    axis_in_range(sort.axis, result());
    const auto axis = static_cast<size_t>(sort.axis);
    for (size_t d = 0; d < rank(result()); ++d)
      require(d == axis || same(operand(0).shape[d], result().shape[d]), "only the axis changes");
    const bool keeps = sort.kind == SortKind::kAll, chooses = sort.kind == SortKind::kTop;
    require(!keeps || same(operand(0).shape[axis], result().shape[axis]), "all keeps the axis");
    require(keeps || chooses || loop::as_const_int(result().shape[axis]) == 1,
            "reduces the axis to one element");
    require((sort.kind == SortKind::kKth) == sort.k.has_value(), "only kth has k");
  }

  void lstm() const {
    const bool biased = node_.get<Lstm>().bias;
    operands(biased ? 6 : 5);
    const Type &x = operand(0), &h = operand(3);
    require(rank(x) == 3 && rank(h) == 2, "x is [T, N, I], h is [N, H]");
    const Dim &batch = x.shape[1], &inputs = x.shape[2], &hidden = h.shape[1];
    const Dim gates = loop::simplify(loop::index_const(4) * hidden);
    require(equal(operand(1), {x.dtype, {gates, inputs}}) && equal(operand(2), {x.dtype, {gates, hidden}}),
            "weights are [4 H, I] and [4 H, H]");
    const Type state{x.dtype, {batch, hidden}}, cell{Dtype::kF32, {batch, hidden}};
    require(equal(h, state) && equal(operand(4), cell), "states are [N, H], the cells f32");
    require(!biased || equal(operand(5), {Dtype::kF32, {gates}}), "the bias is f32 [4 H]");
    require(node_.types.size() == 3 && equal(result(0), {x.dtype, {x.shape[0], batch, hidden}}) &&
                equal(result(1), state) && equal(result(2), cell),
            "gives [T, N, H] and the states' types");
  }

  // The rules for q, k and v of both attention ops.
  void attention_operands(const Type& q, const Type& k, const Type& v) const {
    for (const Type* x : {&q, &k, &v})
      require(rank(*x) == 4 && x->dtype == q.dtype, "q, k and v are 4-d and of one dtype");
    require(loop::as_const_int(q.shape[3]) && equal(Shape{q.shape[3]}, Shape{k.shape[3]}) && equal(k, v),
            "q, k and v have one static number of columns, k and v one type");
    require(equal(Shape{q.shape[0]}, Shape{k.shape[0]}), "batches agree");
    const auto heads = loop::as_const_int(q.shape[1]), shared = loop::as_const_int(k.shape[1]);
    require(equal(Shape{q.shape[1]}, Shape{k.shape[1]}) ||
                (heads && shared && *shared > 0 && *heads % *shared == 0),
            "the heads of k and v divide those of q");
  }

  void attention_mask(size_t first, const Type& q, const Type& k) const {
    if (node_.operands.size() == first) return;
    operands(first + 1);
    require(equal(operand(first).shape, {q.shape[0], q.shape[1], q.shape[2], k.shape[2]}) &&
                is_float(operand(first).dtype),
            "the mask is floating point, [batch, heads, queries, keys]");
  }

  void attention() const {
    require(node_.operands.size() >= 3, "has q, k and v");
    const Type &q = operand(0), &k = operand(1);
    attention_operands(q, k, operand(2));
    attention_mask(3, q, k);
    require(!node_.types.empty() && node_.types.size() <= 2 && equal(result(0), q), "gives q's type");
    require(node_.types.size() == 1 || equal(result(1), logsumexp_of(q)), "gives a logsumexp for each query");
  }

  void attention_backward() const {
    require(node_.operands.size() >= 6, "has grad, q, k, v, out and logsumexp");
    const Type &q = operand(1), &k = operand(2);
    attention_operands(q, k, operand(3));
    attention_mask(6, q, k);
    require(equal(operand(0), q) && equal(operand(4), q) && equal(operand(5), logsumexp_of(q)),
            "grad and out have q's type, logsumexp a value for each query");
    require(node_.types.size() == 3 && equal(result(0), q) && equal(result(1), k) && equal(result(2), k),
            "gives the types of q, k and v");
  }

  static Type logsumexp_of(const Type& q) { return {opmath(q.dtype), {q.shape[0], q.shape[1], q.shape[2]}}; }

  void search() const {
    require(node_.operands.size() == 2 || node_.operands.size() == 3,
            "takes sorted, values and optionally sorter");
    one_result();
    const Shape &sorted = operand(0).shape, &values = operand(1).shape;
    require(operand(0).dtype == operand(1).dtype, "sorted and values have one dtype");
    require(result().dtype == Dtype::kI64 || result().dtype == Dtype::kI32, "gives i64 or i32");
    require(equal(result().shape, values), "gives one position for each value");
    require(!sorted.empty() && (sorted.size() == 1 || sorted.size() == values.size()),
            "sorted is one row, or has values' rank");
    for (size_t d = 0; sorted.size() > 1 && d + 1 < sorted.size(); ++d)
      require(same(sorted[d], values[d]), "sorted has values' leading dims");
    if (node_.operands.size() == 3)
      require(operand(2).dtype == Dtype::kI64 && equal(operand(2).shape, sorted),
              "sorter is i64 of sorted's shape");
  }

  void cat() const {
    require(!node_.operands.empty(), "has operands");
    axis_in_range(node_.get<Cat>().axis, result());
    const auto axis = static_cast<size_t>(node_.get<Cat>().axis);
    Dim total = loop::index_const(0);
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      require(operand(i).dtype == result().dtype && rank(operand(i)) == rank(result()),
              "operands match the result");
      for (size_t d = 0; d < rank(result()); ++d)
        require(d == axis || equal(Shape{operand(i).shape[d]}, Shape{result().shape[d]}), "other dims agree");
      total = total + operand(i).shape[axis];
    }
    // A guard may fix a size beyond what its formula shows (it is 1 in every call). Then the hints from
    // tracing decide.
    const Dim& extent = result().shape[axis];
    require(equal(Shape{total}, Shape{extent}) ||
                (!loop::as_const_int(total - extent) && hint(total, graph_) == hint(extent, graph_)),
            "extents along axis add up");
  }

  // Operands are x, then index operands of shape `space`. map addresses x by dims of `space` and by index
  // operands.
  void indexed(size_t index_count, const Shape& space) const {
    const Indexing indexing = indexing_of(node_);
    const Ints& map = indexing.map;
    require(map.size() == rank(operand(0)), "map has an entry for each dim of x");
    for (int64_t entry : map) {
      require(entry < static_cast<int64_t>(space.size()), "map entries are dims of the index space");
      require(entry >= 0 || -entry - 1 < static_cast<int64_t>(index_count),
              "map entries name index operands");
    }
    for (size_t i = 1; i <= index_count; ++i)
      require(operand(i).dtype == Dtype::kI64 && equal(operand(i).shape, space),
              "indices are i64 over the index space");
    require(indexing.error_dims.size() == map.size(), "error_dims has an entry for each dim of x");
  }

  void group() const {
    const auto& body = node_.get<Group>().body;
    require(body != nullptr, "has a body");
    require(body->inputs.size() == node_.operands.size(), "operands match the body's inputs");
    require(body->outputs.size() == node_.types.size(), "results match the body's outputs");
    for (size_t i = 0; i < node_.operands.size(); ++i)
      require(equal(body->nodes[body->inputs[i]].types[0], operand(i)), "operand types match");
    for (size_t i = 0; i < node_.types.size(); ++i)
      require(equal(body->type(body->outputs[i].value), node_.types[i]), "result types match");
    for (const Node& inner : body->nodes)
      require(info(inner.op()).fusion != Fusion::kStep, "holds only fusible ops");
    verify(*body);
  }

  void by_op() const {
    switch (node_.op()) {
      case Op::kInput:
        operands(0);
        require(std::find(graph_.inputs.begin(), graph_.inputs.end(), index_) != graph_.inputs.end(),
                "is listed");
        return;
      case Op::kConstant:
        operands(0);
        one_result();
        return constant();
      case Op::kPointwise:
        return pointwise();
      case Op::kReduce:
        return reduce();
      case Op::kScan:
        operands(1);
        results_of(ops::row(node_.get<Scan>().fn));
        for (const Type& type : node_.types) require(equal(operand(0).shape, type.shape), "keeps the shape");
        return axis_in_range(node_.get<Scan>().axis, result());
      case Op::kPermute:
        return permute();
      case Op::kExpand:
        return expand();
      case Op::kReshape:
        operands(1);
        same_dtype();
        require(!is_static(operand(0).shape) || !is_static(result().shape) ||
                    equal(Shape{numel(operand(0).shape)}, Shape{numel(result().shape)}),
                "keeps the number of elements");
        return;
      case Op::kSlice:
        return slice();
      case Op::kPad:
        return pad();
      case Op::kCat:
        return cat();
      case Op::kIota:
        operands(0);
        return axis_in_range(node_.get<Iota>().axis, result());
      case Op::kFull:
        operands(0);
        require(result().shape.empty(), "is 0-d");
        return;
      case Op::kGather:
        require(!node_.operands.empty(), "has x");
        same_dtype();
        return indexed(node_.operands.size() - 1, result().shape);
      case Op::kScatter:
        require(node_.operands.size() >= 2, "has x and src");
        same_dtype();
        require(equal(operand(0), result()), "result has x's type");
        require(operand(node_.operands.size() - 1).dtype == result().dtype, "src has x's dtype");
        return indexed(node_.operands.size() - 2, operand(node_.operands.size() - 1).shape);
      case Op::kMatMul: {
        require(node_.operands.size() >= (has_bias(node_) ? 3u : 2u), "has a, b and its bias");
        one_result();
        require(operand(0).dtype == operand(1).dtype, "a and b have one dtype");
        const Shape &a = operand(0).shape, &b = operand(1).shape, &c = result().shape;
        require(a.size() >= 2 && a.size() == b.size() && a.size() == c.size(),
                "operands and result have one rank >= 2");
        const size_t n = a.size();
        require(equal(Shape{a[n - 1]}, Shape{b[n - 2]}) && equal(Shape{a[n - 2]}, Shape{c[n - 2]}) &&
                    equal(Shape{b[n - 1]}, Shape{c[n - 1]}),
                "[.., M, K] x [.., K, N] gives [.., M, N]");
        require(std::equal(a.begin(), a.end() - 2, b.begin(),
                           [](const Dim& x, const Dim& y) { return equal(Shape{x}, Shape{y}); }),
                "batch dims agree");
        return;
      }
      case Op::kSort:
        return sort();
      case Op::kSearch:
        return search();
      case Op::kReorder:
        operands(1);
        require(equal(operand(0), result()), "keeps the type");
        return;
      case Op::kGroup:
        return group();
      case Op::kConv:
        require(node_.operands.size() >= (has_bias(node_) ? 3u : 2u), "has x, w and its bias");
        one_result();
        require(operand(0).dtype == operand(1).dtype, "x and w have one dtype");
        return convolution(operand(0).shape, operand(1).shape, result().shape);
      case Op::kConvBackward: {
        operands(3);
        one_result();
        require(equal(result().shape,
                      operand(node_.get<ConvBackward>().which == GradientOf::kData ? 1 : 2).shape),
                "gives the shape of x or of w");
        return convolution(operand(1).shape, operand(2).shape, operand(0).shape);
      }
      case Op::kWinograd: {
        require(node_.operands.size() >= (has_bias(node_) ? 3u : 2u), "has x, u and its bias");
        one_result();
        const Shape& u = operand(1).shape;
        require(u.size() == 4, "has u of 4 dims");
        const Dim three = loop::index_const(3);
        return convolution(operand(0).shape, {u[1] * u[3], u[2], three, three}, result().shape);
      }
      case Op::kWeightGradient: {
        operands(2);
        one_result();
        const Shape& w = result().shape;
        require(result().dtype == Dtype::kF32 && is_static(w) && w.size() == 4, "gives f32 in 4 known dims");
        const WeightGradient& gradient = node_.get<WeightGradient>();
        require(!gradient.winograd || (loop::as_const_int(w[2] * w[3]) == 9 && gradient.stride == Ints{1, 1}),
                "winograd needs 3 x 3 windows and stride 1");
        return convolution(operand(1).shape, w, operand(0).shape);
      }
      case Op::kWinogradFilter: {
        operands(1);
        one_result();
        const Shape &w = operand(0).shape, &u = result().shape;
        const size_t out = node_.get<WinogradFilter>().gradient ? 1 : 0;
        require(operand(0).dtype == Dtype::kF32 && result().dtype == Dtype::kF32, "is in f32");
        require(w.size() == 4 && is_static(w) && u.size() == 4 && is_static(u), "has 4 known dims");
        for (size_t d : {2, 3}) require(loop::as_const_int(w[d]) == 3, "transforms windows of 3 x 3");
        require(
            loop::as_const_int(u[0]) == 16 && may_equal(u[1] * u[3], w[out]) && may_equal(u[2], w[1 - out]),
            "gives 16 planes of panels of input channels by output channels");
        return;
      }
      case Op::kLstm:
        return lstm();
      case Op::kAttention:
        return attention();
      case Op::kAttentionBackward:
        return attention_backward();
      case Op::kSegment:
        return segment();
      case Op::kPool:
        return pool();
      case Op::kExtern:
        return;  // ATen checks it
    }
  }

  const Graph& graph_;
  const Node& node_;
  int32_t index_;
};

}  // namespace

void verify(const Graph& graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) NodeVerifier(graph, static_cast<int32_t>(i)).run();
  auto exists = [&](Value v) {
    return v.node >= 0 && v.node < static_cast<int32_t>(graph.nodes.size()) && v.result >= 0 &&
           v.result < static_cast<int32_t>(graph.nodes[v.node].types.size());
  };
  for (int32_t input : graph.inputs)
    IPEX_CHECK(exists({input, 0}) && graph.nodes[input].op() == Op::kInput,
               "graph verifier: inputs are input nodes");
  for (const GraphOutput& output : graph.outputs) {
    IPEX_CHECK(exists(output.value), "graph verifier: an output is a value of the graph");
    IPEX_CHECK(output.strides.empty() || output.strides.size() == graph.type(output.value).shape.size(),
               "graph verifier: an output has a stride for each dim");
  }
  for (const InputMutation& m : graph.mutations) {
    IPEX_CHECK(m.input >= 0 && m.input < static_cast<int>(graph.inputs.size()) && exists(m.value),
               "graph verifier: a mutation writes a value into an input");
    IPEX_CHECK(equal(graph.nodes[graph.inputs[m.input]].types[0], graph.type(m.value)),
               "graph verifier: a mutation keeps its input's type");
  }
}

}  // namespace ipex::graph
