// See nest_plan.h.
//
// The loops of an output follow its memory, the largest stride outermost. Only the rows of reductions that
// the output needs go further out, so that each reduction runs once a row.
#include "backend/lower/nest_plan.h"

#include <algorithm>
#include <functional>

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;

namespace {

constexpr int64_t kScratchBytes = 64 << 10;  // a row of scratch stays in the first two cache levels

// Does the body of a row call a function, such as exp?
bool is_expensive(PointwiseOp fn) {
  const ops::PointwiseRow& row = ops::row(fn);
  if (!row.floats) return false;
  std::vector<Expr> args;
  for (int i = 0; i < row.arity; ++i)
    args.push_back(
        loop::make_var("x", fn == PointwiseOp::where_ && i == 0 ? loop::kBool1 : loop::Type{Dtype::kF32}));
  std::function<bool(const Expr&)> calls = [&](const Expr& e) {
    if (e->is(loop::ExprKind::kApply) && loop::is_function(e->op)) return true;
    return std::any_of(e->args.begin(), e->args.end(), calls);
  };
  return calls(row.body(args));
}

class NestPlanner {
 public:
  NestPlanner(const PlacedGroup& group, const ReductionAnalysis& analysis)
      : group_(group), body_(group.body), analysis_(analysis) {}

  NestPlan run() {
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      const Value v = body_.outputs[k].value;
      if (is_computed_whole(body_.node(v).op()) && !plan_.whole.count(v))
        plan_.whole[v] = group_.outputs[k];
      else
        add_jobs(v, group_.outputs[k], Index(body_.type(v).shape.size(), index_const(0)));
      if (is_half(body_.type(v).dtype) && is_only_reduced(v)) plan_.rounded.insert(v);
    }
    for (int32_t n = 0; n < static_cast<int32_t>(body_.nodes.size()); ++n)
      if (is_computed_whole(body_.nodes[n].op())) allocate_results(n);
    plan_rows();
    return std::move(plan_);
  }

 private:
  // A concatenation is stored part by part: no select, no masked load.
  void add_jobs(Value v, const BufferView& output, Index offset) {
    const Node& node = body_.node(v);
    for (const Dim& dim : body_.type(v).shape)
      if (as_const_int(dim) == 0) return;
    if (node.op() == Op::kCat) {
      const int64_t axis = node.get<Cat>().axis;
      for (Value operand : node.operands) {
        add_jobs(operand, output, offset);
        offset[axis] = offset[axis] + body_.type(operand).shape[axis];
      }
      return;
    }
    const std::set<int32_t>& needs = analysis_.needs[v.node];
    StoreJob job{v, output, std::move(offset), {}, {needs.begin(), needs.end()}};
    job.loops = loops_of(job);
    plan_.jobs.push_back(std::move(job));
  }

  std::vector<Axis> loops_of(const StoreJob& job) const {
    std::map<Axis, int64_t> strides = axis_strides(group_, job.value, job.output.layout.strides);
    const auto key = [&](Axis axis) {
      int64_t rows_of = 0;  // so many reductions
      for (int32_t n : job.reductions) rows_of += std::ranges::count(analysis_.reductions.at(n).rows, axis);
      return std::pair(-rows_of, -strides[axis]);
    };
    std::vector<Axis> loops = group_.axes.of(job.value);
    std::ranges::stable_sort(loops, {}, key);
    return loops;
  }

  // The group reduces v, and none of its nodes combines v with a result of that. If one did, rounding v for
  // the reductions would cost a conversion in each of their loops.
  bool is_only_reduced(Value v) const {
    const auto& needs = analysis_.needs;
    std::vector<bool> reads(body_.nodes.size());  // by node: is it v, or does it read v without a reduction?
    reads[v.node] = true;
    bool reduced = false;
    for (size_t n = v.node + 1; n < body_.nodes.size(); ++n) {
      const Node& node = body_.nodes[n];
      const auto any = [&](auto test) { return std::ranges::any_of(node.operands, test); };
      if (!any([&](Value operand) { return reads[operand.node]; })) continue;
      if (any([&](Value operand) { return !std::ranges::includes(needs[v.node], needs[operand.node]); }))
        return false;
      if (node.op() == Op::kReduce)
        reduced = true;
      else
        reads[n] = true;
    }
    return reduced;
  }

  // Memory for the results of node n that other nodes of the group read and that are no output.
  void allocate_results(int32_t n) {
    for (size_t r = 0; r < body_.nodes[n].types.size(); ++r) {
      const Value v{n, static_cast<int32_t>(r)};
      if (plan_.whole.count(v) || !group_.is_read(v)) continue;
      const Shape& shape = body_.type(v).shape;
      const std::string buffer = "whole" + std::to_string(n) + (r ? "_" + std::to_string(r) : "");
      plan_.whole[v] = {buffer, {contiguous_strides(shape), index_const(0), numel(shape)}};
      plan_.allocated.insert(v);
    }
  }

  // Fills kept_in_rows, for the reductions over each set of rows. The loops over a row run in this order: one
  // for each level of reductions, then the one that stores. A value is kept when two of these loops reach it.
  // What only a kept value needs is then needed by the first loop alone.
  void plan_rows() {
    std::map<std::vector<Axis>, std::vector<int32_t>> by_rows;
    for (const auto& [node, reduce] : analysis_.reductions)
      if (reduce.has_distinct_axes) by_rows[reduce.rows].push_back(node);
    for (const auto& [rows, nodes] : by_rows) plan_rows_of(nodes);
  }

  void plan_rows_of(const std::vector<int32_t>& reductions) {
    std::vector<std::set<int>> reached_by(body_.nodes.size());  // by node: levels of loops
    std::set<Axis> columns;
    for (int32_t n : reductions) {
      const ReduceInfo& reduce = analysis_.reductions.at(n);
      reached_by[body_.nodes[n].operands[0].node].insert(reduce.level);
      columns.insert(reduce.columns.begin(), reduce.columns.end());
    }
    const int stores = static_cast<int>(body_.nodes.size());  // above the level of every reduction
    for (const StoreJob& job : plan_.jobs)
      if (std::any_of(reductions.begin(), reductions.end(),
                      [&](int32_t n) { return analysis_.needs[job.value.node].count(n); }) &&
          !analysis_.reductions.count(job.value.node))
        reached_by[job.value.node].insert(stores);
    for (int32_t n = stores - 1; n >= 0; --n) {
      const Node& node = body_.nodes[n];
      const bool is_view = node.op() == Op::kPermute || node.op() == Op::kExpand ||
                           node.op() == Op::kReshape || node.op() == Op::kReorder;
      if (reached_by[n].empty() || (node.op() != Op::kPointwise && !is_view)) continue;
      std::set<int> levels = reached_by[n];
      if (levels.size() > 1 && node.op() == Op::kPointwise && is_worth_a_row(n, columns)) {
        plan_.kept_in_rows.insert({n, 0});
        levels = {*levels.begin()};
      }
      for (Value operand : node.operands) reached_by[operand.node].insert(levels.begin(), levels.end());
    }
  }

  bool is_worth_a_row(int32_t n, const std::set<Axis>& columns) const {
    if (!is_expensive(body_.nodes[n].get<Pointwise>().fn)) return false;
    int64_t elements = 1;
    bool spans_columns = false;
    for (Axis axis : group_.axes.of({n, 0})) {
      if (!columns.count(axis)) continue;
      spans_columns = true;
      elements *= group_.hint(group_.axes.extent(axis));
    }
    return spans_columns && elements * itemsize(group_.compute_dtype({n, 0})) <= kScratchBytes;
  }

  const PlacedGroup& group_;
  const Graph& body_;
  const ReductionAnalysis& analysis_;
  NestPlan plan_;
};

}  // namespace

bool StoreJob::fills_output() const {
  return std::all_of(offset.begin(), offset.end(), [](const Expr& e) { return as_const_int(e) == 0; });
}

NestPlan plan_nests(const PlacedGroup& group, const ReductionAnalysis& analysis) {
  return NestPlanner(group, analysis).run();
}

}  // namespace ipex::graph
