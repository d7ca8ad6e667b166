// The last stage of lower_group: the loops and stores of a group, around the values that they ask for.
//
// Outputs whose outer loops are the same share them: a normalisation stores its mean in the row loop, and its
// result in the column loop inside.
#include <algorithm>
#include <functional>

#include "backend/convolutions/winograd.h"
#include "backend/lower/attention.h"
#include "backend/lower/values.h"

namespace ipex::graph {

using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::ScalarOp;

namespace {

using Jobs = std::vector<const StoreJob*>;

// For a store: a number that was widened from `dtype` need not be rounded to it again.
Expr as_stored(Dtype dtype, const Expr& x) {
  const bool was_half = x->is(loop::ExprKind::kCast) && x->args[0]->type.dtype == dtype && is_half(dtype);
  return was_half ? x->args[0] : make_cast(dtype, x);
}

ScalarOp combine_op(Combine combine, Dtype dtype) {
  const bool is_bool = dtype == Dtype::kBool;  // a sum is true where one of its terms is
  switch (combine) {
    case Combine::kAdd:
      return is_bool ? ScalarOp::bitor_ : ScalarOp::add_;
    case Combine::kMul:
      return is_bool ? ScalarOp::bitand_ : ScalarOp::mul_;
    case Combine::kMin:
      return is_bool ? ScalarOp::bitand_ : ScalarOp::min_;
    case Combine::kMax:
      return is_bool ? ScalarOp::bitor_ : ScalarOp::max_;
    case Combine::kSet:
      break;
  }
  throw InternalError("scatter: set combines nothing");
}

class NestEmitter {
 public:
  NestEmitter(const PlacedGroup& group, const ReductionAnalysis& analysis, const NestPlan& plan)
      : group_(group),
        body_(group.body),
        analysis_(analysis),
        plan_(plan),
        emitter_(loop::symbol_ranges(body_.symbols, body_.symbol_lows)),
        coordinates_{group},
        values_(group, analysis, plan, coordinates_, emitter_) {}

  loop::Function run(const std::string& name) {
    for (int32_t n = 0; n < static_cast<int32_t>(body_.nodes.size()); ++n)
      if (is_computed_whole(body_.nodes[n].op())) write_whole(n);
    Jobs jobs;
    for (const StoreJob& job : plan_.jobs) jobs.push_back(&job);
    write_jobs(jobs, 0);

    loop::Function f;
    f.name = name;
    f.symbols = body_.symbols;
    f.symbol_lows = body_.symbol_lows;
    for (int32_t n : body_.inputs) {
      const auto& [buffer, layout] = group_.inputs.at({n, 0});
      f.buffers.push_back({buffer, body_.nodes[n].types[0].dtype, loop::Access::kIn, layout.extent});
    }
    for (size_t k = 0; k < body_.outputs.size(); ++k) {
      const auto& [buffer, layout] = group_.outputs[k];
      const loop::Access access = values_.loads_from(buffer) ? loop::Access::kInOut : loop::Access::kOut;
      f.buffers.push_back({buffer, body_.type(body_.outputs[k].value).dtype, access, layout.extent});
    }
    f.body = loop::make_block(emitter_.finish());
    return f;
  }

 private:
  // ---- outputs ----

  // The jobs whose first `level` loops are being written.
  void write_jobs(const Jobs& jobs, size_t level) {
    write_reductions(jobs);
    std::vector<std::pair<Axis, Jobs>> inner;  // by the axis of the next loop
    for (const StoreJob* job : jobs) {
      if (!Axes::distinct(job->loops)) {
        write_by_dims(*job);
      } else if (job->loops.size() == level) {
        store(*job, *coordinates_.index_of(job->value));
      } else {
        const Axis axis = job->loops[level];
        auto it = std::ranges::find_if(inner, [&](const auto& nest) { return nest.first == axis; });
        if (it == inner.end()) it = inner.insert(inner.end(), {axis, {}});
        it->second.push_back(job);
      }
    }
    if (level == 0) sort_nests(inner);
    for (const auto& [axis, nest] : inner) {
      emitter_.loop("i" + std::to_string(level), group_.axes.extent(axis), emitter_.depth(), [&](Expr var) {
        coordinates_.variables[axis] = var;
        write_jobs(nest, level + 1);
        coordinates_.variables.erase(axis);
      });
      if (level > 0) continue;
      for (const StoreJob* job : nest)
        if (body_.node(job->value).op() == Op::kPointwise && job->fills_output())
          values_.set_stored(job->value, job->output);
    }
  }

  // A nest that reduces may read what another nest has stored, so the others go first. Among nests of a kind,
  // the largest goes first: sums of columns then come right behind the loops over the rows.
  void sort_nests(std::vector<std::pair<Axis, Jobs>>& nests) const {
    const auto rank = [&](const Jobs& jobs) {
      int64_t elements = 0;
      bool reduces = false;
      for (const StoreJob* job : jobs) {
        reduces |= !job->reductions.empty();
        elements = std::max(elements, group_.hint(numel(body_.type(job->value).shape)));
      }
      return std::pair(reduces, -elements);
    };
    std::ranges::stable_sort(nests, {}, [&](const auto& nest) { return rank(nest.second); });
  }

  // The reductions that the jobs need and whose rows all have a loop now.
  void write_reductions(const Jobs& jobs) {
    std::set<int32_t> needed;
    for (const StoreJob* job : jobs) needed.insert(job->reductions.begin(), job->reductions.end());
    std::vector<int32_t> order(needed.begin(), needed.end());
    std::ranges::stable_sort(order, {}, [&](int32_t n) { return analysis_.reductions.at(n).level; });
    for (int32_t n : order)
      if (analysis_.reductions.at(n).has_distinct_axes)
        if (std::optional<Index> index = coordinates_.index_of({n, 0})) values_.element({n, 0}, *index);
  }

  // For a value of which two dims have one axis (x + x.T): loops of its own.
  void write_by_dims(const StoreJob& job) {
    Index index(body_.type(job.value).shape.size());
    for_each(job.value, dims_by_stride(job.output.layout.strides), 0, index, [&] { store(job, index); });
  }

  void store(const StoreJob& job, const Index& index) {
    Index at = index;
    for (size_t d = 0; d < at.size(); ++d) at[d] = at[d] + job.offset[d];
    const Expr x = as_stored(body_.type(job.value).dtype, values_.element(job.value, index));
    emitter_.emit(loop::Store{job.output.buffer, job.output.position(at), x, nullptr});
  }

  // ---- scans and scatters ----

  // Computes all results of a scan or scatter.
  void write_whole(int32_t n) {
    const Node& node = body_.nodes[n];
    for (size_t r = 0; r < node.types.size(); ++r) {
      const Value v{n, static_cast<int32_t>(r)};
      if (!plan_.allocated.count(v)) continue;
      const auto& [buffer, layout] = plan_.whole.at(v);
      emitter_.emit(loop::Alloc{buffer, node.types[r].dtype, layout.extent});
    }
    for (const Dim& dim : node.types[0].shape)
      if (loop::as_const_int(dim) == 0) return;
    if (node.op() == Op::kScan) return scan(n);
    scatter({n, 0}, plan_.whole.at({n, 0}));
  }

  // Sums and products of f32 accumulate in f64, as in eager.
  void scan(int32_t n) {
    const Node& node = body_.nodes[n];
    const ops::ReductionRow& row = ops::row(node.get<Scan>().fn);
    const Dtype dtype = body_.type(node.operands[0]).dtype;
    const bool widens = row.promotion == ops::Promotion::kDefault && dtype == Dtype::kF32;
    const Dtype accumulates = widens ? Dtype::kF64 : opmath(dtype);
    std::vector<std::pair<size_t, const BufferView*>> results;  // that somebody reads, by number
    for (size_t r = 0; r < node.types.size(); ++r)
      if (auto it = plan_.whole.find({n, static_cast<int32_t>(r)}); it != plan_.whole.end())
        results.emplace_back(r, &it->second);
    if (results.empty()) return;

    const int axis = static_cast<int>(node.get<Scan>().axis);
    std::vector<int> dims = dims_by_stride(results[0].second->layout.strides);
    std::erase(dims, axis);
    Index index(node.types[0].shape.size(), index_const(0));
    Emitter::ReductionSpec spec;
    spec.extents = {node.types[0].shape[axis]};
    const Dtype at = position_dtype(spec.extents, accumulates);
    spec.states = row.states(accumulates, at);
    for (loop::State& state : spec.states) state.name = "s" + std::to_string(n) + "_" + state.name.substr(1);
    spec.step = [&](const Exprs& vars, const Exprs& states) {
      index[axis] = vars[0];
      Expr x = loop::make_cast(accumulates, values_.element(node.operands[0], index));
      Exprs next = row.update(states, x, loop::make_cast(at, vars[0]));
      for (Expr& state : next) state = emitter_.let(label({n, 0}), state);
      const Exprs so_far = row.finish(next, vars[0] + index_const(1), 0);
      for (const auto& [r, result] : results)
        emitter_.emit(loop::Store{result->buffer, result->position(index),
                                  loop::make_cast(node.types[r].dtype, so_far[r]), nullptr});
      return next;
    };
    spec.merge = [&](const Exprs& states, const Exprs& others) { return row.merge(states, others); };
    for_each({n, 0}, dims, 0, index, [&] { emitter_.reduce(spec, emitter_.depth()); });
  }

  // First a copy of x, then one update for each element of src. Updates that may meet stay in order. Dims of
  // src that the map uses directly never meet and go outermost. Only the last dim, which is contiguous, stays
  // innermost where a whole row goes to one place.
  void scatter(Value v, const BufferView& result) {
    const Node& node = body_.node(v);
    const Dtype dtype = node.types[0].dtype;
    const Combine combine = node.get<Scatter>().combine;
    Index index(node.types[0].shape.size());
    for_each(v, dims_by_stride(result.layout.strides), 0, index, [&] {
      const Expr x = as_stored(dtype, values_.element(node.operands[0], index));
      emitter_.emit(loop::Store{result.buffer, result.position(index), x, nullptr});
    });

    const Value src = node.operands.back();
    const int rank = static_cast<int>(body_.type(src).shape.size());
    const Ints& map = node.get<Scatter>().map;
    auto is_direct = [&](int d) { return std::count(map.begin(), map.end(), d) != 0; };
    const bool in_rows = rank > 0 && is_direct(rank - 1) &&
                         std::all_of(node.operands.begin() + 1, node.operands.end() - 1,
                                     [&](Value position) { return repeats_along(position, rank - 1); });
    std::vector<int> dims;
    for (int d = 0; d < rank; ++d)
      if (is_direct(d) && !(in_rows && d == rank - 1)) dims.push_back(d);
    for (int d = 0; d < rank; ++d)
      if (!is_direct(d)) dims.push_back(d);
    if (in_rows) dims.push_back(rank - 1);
    Index u(rank);
    for_each(src, dims, 0, u, [&] {
      Expr valid;
      Index at = values_.mapped_index(node, node.types[0].shape, u, nullptr, &valid);
      // Only valid positions are stored to. All are brought into range, because then a later pass can prove
      // that rows of different positions do not overlap; and where x has rows at all, any position may be
      // read.
      bool readable = true;
      for (size_t d = 0; valid && d < at.size(); ++d)
        if (map[d] < 0) {
          const Dim& size = node.types[0].shape[d];
          readable = readable && loop::provably_less(index_const(0), size);
          at[d] = emitter_.let(
              "row", make_apply(ScalarOp::min_, {make_apply(ScalarOp::max_, {at[d], index_const(0)}),
                                                 size - index_const(1)}));
        }
      Expr x = loop::make_cast(opmath(dtype), values_.element(src, u));
      if (combine != Combine::kSet) {
        const Expr old = values_.load(result, dtype, at, readable ? nullptr : valid);
        x = make_apply(combine_op(combine, dtype), {old, x});
      }
      emitter_.emit(loop::Store{result.buffer, result.position(at), as_stored(dtype, x), valid});
    });
  }

  // Does v have one value all along `dim`, as far as its nodes tell?
  bool repeats_along(Value v, int dim) const {
    const Node& node = body_.node(v);
    switch (node.op()) {
      case Op::kConstant:
      case Op::kFull:
        return true;
      case Op::kIota:
        return node.get<Iota>().axis != dim;
      case Op::kExpand: {
        const Ints& dims = node.get<Expand>().dims;
        const auto from = std::find(dims.begin(), dims.end(), dim);
        return from == dims.end() || repeats_along(node.operands[0], static_cast<int>(from - dims.begin()));
      }
      case Op::kPointwise:
        return std::all_of(node.operands.begin(), node.operands.end(),
                           [&](Value operand) { return repeats_along(operand, dim); });
      default:
        return is_one(body_.type(v).shape[dim]);
    }
  }

  // ---- loops over dims of a value ----

  void for_each(Value v, const std::vector<int>& dims, size_t level, Index& index,
                const std::function<void()>& body) {
    if (level == dims.size()) return body();
    const Dim& extent = body_.type(v).shape[dims[level]];
    emitter_.loop("i" + std::to_string(level), extent, emitter_.depth(), [&](Expr var) {
      index[dims[level]] = var;
      for_each(v, dims, level + 1, index, body);
    });
  }

  std::vector<int> dims_by_stride(const Strides& strides) const {
    std::vector<int> dims;
    for (size_t d = 0; d < strides.size(); ++d) dims.push_back(static_cast<int>(d));
    std::stable_sort(dims.begin(), dims.end(),
                     [&](int a, int b) { return group_.hint(strides[a]) > group_.hint(strides[b]); });
    return dims;
  }

  const PlacedGroup& group_;
  const Graph& body_;
  const ReductionAnalysis& analysis_;
  const NestPlan& plan_;
  Emitter emitter_;
  Coordinates coordinates_;
  Values values_;
};

PlacedGroup place(const Graph& body, const std::vector<OperandLayout>& inputs,
                  const std::vector<OperandLayout>& outputs) {
  IPEX_CHECK(inputs.size() == body.inputs.size() && outputs.size() == body.outputs.size(),
             "lower_group: one layout an input and an output");
  PlacedGroup group{body, Axes(body)};
  for (size_t k = 0; k < inputs.size(); ++k)
    group.inputs[{body.inputs[k], 0}] = {"in" + std::to_string(k), inputs[k]};
  for (size_t k = 0; k < outputs.size(); ++k)
    group.outputs.push_back({"out" + std::to_string(k), outputs[k]});
  return group;
}

}  // namespace

loop::Function lower_group(const Graph& body, const std::vector<OperandLayout>& inputs,
                           const std::vector<OperandLayout>& outputs, const std::string& name) {
  const PlacedGroup group = place(body, inputs, outputs);
  const ReductionAnalysis analysis = analyse_reductions(group);
  const NestPlan plan = plan_nests(group, analysis);
  return NestEmitter(group, analysis, plan).run(name);
}

loop::Function lower(const Graph& body, const std::vector<OperandLayout>& inputs,
                     const std::vector<OperandLayout>& outputs, const std::string& name,
                     const loop::Target& target) {
  switch (body.nodes.back().op()) {
    case Op::kAttention:
      return lower_attention(body, inputs, outputs, name, target);
    case Op::kAttentionBackward:
      return lower_attention_backward(body, inputs, outputs, name, target);
    case Op::kWinograd:
      return lower_winograd(body, inputs, outputs, name, target);
    case Op::kWeightGradient:
      return lower_weight_gradient(body, inputs, outputs, name, target);
    case Op::kWinogradFilter:
      return lower_winograd_filter(body, inputs, outputs, name, target);
    default:
      return lower_group(body, inputs, outputs, name);
  }
}

}  // namespace ipex::graph
