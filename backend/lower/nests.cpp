// The nests that store a group's outputs, lower_group itself, and lower.
//
// Outputs whose loops start alike share them: a normalisation stores its mean in the row loop and its result
// in the column loop inside. The loops of an output follow its memory, largest stride outermost, except that
// rows of the reductions it needs come first, so that each reduction runs once a row.
#include <algorithm>

#include "backend/convolutions/winograd.h"
#include "backend/lower/attention.h"
#include "backend/lower/lowering.h"

namespace ipex::graph {

using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::ScalarOp;

Lowering::Lowering(const Graph& body, const std::vector<OperandLayout>& inputs,
                   const std::vector<OperandLayout>& outputs)
    : body_(body),
      input_layouts_(inputs),
      output_layouts_(outputs),
      axes_(body),
      emitter_(loop::symbol_ranges(body.symbols, body.symbol_lows)),
      memos_(1) {
  IPEX_CHECK(inputs.size() == body.inputs.size() && outputs.size() == body.outputs.size(),
             "lower_group: one layout an input and an output");
  for (size_t k = 0; k < body.inputs.size(); ++k) input_position_[body.inputs[k]] = static_cast<int>(k);
  emitter_.on_close = [this](int depth) {
    const size_t left = static_cast<size_t>(depth);
    if (memos_.size() > left) memos_.resize(left);
    if (scratch_.size() > left) scratch_.resize(left);
  };
}

loop::Function Lowering::run(const std::string& name) {
  analyse_reductions();
  for (size_t k = 0; k < body_.outputs.size(); ++k) {
    const Value v = body_.outputs[k].value;
    const std::string buffer = "out" + std::to_string(k);
    const Op op = body_.node(v).op();
    if ((op == Op::kScan || op == Op::kScatter) && !materialised_.count(v)) {
      materialised_[v] = {buffer, output_layouts_[k]};
    } else {
      add_jobs(v, buffer, output_layouts_[k], Index(body_.type(v).shape.size(), index_const(0)));
    }
  }
  plan_scratch();
  // Whole tensors first, operands before users: what is not an output goes to scratch memory.
  for (int32_t n = 0; n < static_cast<int32_t>(body_.nodes.size()); ++n) {
    const Op op = body_.nodes[n].op();
    if (op != Op::kScan && op != Op::kScatter) continue;
    for (size_t r = 0; r < body_.nodes[n].types.size(); ++r) {
      const Value v{n, static_cast<int32_t>(r)};
      if (materialised_.count(v) || !is_read(v)) continue;
      const Type& type = body_.type(v);
      const OperandLayout layout{contiguous_strides(type.shape), index_const(0), numel(type.shape)};
      const std::string buffer = "whole" + std::to_string(n) + (r ? "_" + std::to_string(r) : "");
      materialised_.emplace(v, std::pair(buffer, layout));
      emitter_.emit(loop::Alloc{buffer, type.dtype, layout.extent});
    }
    materialise(n);
  }
  std::vector<Job*> jobs;
  for (Job& job : jobs_) jobs.push_back(&job);
  run_jobs(jobs, 0);

  loop::Function f;
  f.name = name;
  f.symbols = body_.symbols;
  f.symbol_lows = body_.symbol_lows;
  for (size_t k = 0; k < body_.inputs.size(); ++k)
    f.buffers.push_back({"in" + std::to_string(k), body_.nodes[body_.inputs[k]].types[0].dtype,
                         loop::Access::kIn, input_layouts_[k].extent});
  for (size_t k = 0; k < body_.outputs.size(); ++k) {
    const std::string buffer = "out" + std::to_string(k);
    f.buffers.push_back({buffer, body_.type(body_.outputs[k].value).dtype,
                         read_back_.count(buffer) ? loop::Access::kInOut : loop::Access::kOut,
                         output_layouts_[k].extent});
  }
  f.body = loop::make_block(emitter_.finish());
  return f;
}

// A concatenation is stored part by part: no select, no masked load.
void Lowering::add_jobs(Value v, const std::string& buffer, const OperandLayout& layout, Index offset) {
  const Node& node = body_.node(v);
  for (const Dim& dim : body_.type(v).shape)
    if (loop::as_const_int(dim) == 0) return;
  if (node.op() == Op::kCat) {
    const int64_t axis = node.get<Cat>().axis;
    for (Value operand : node.operands) {
      add_jobs(operand, buffer, layout, offset);
      offset[axis] = offset[axis] + body_.type(operand).shape[axis];
    }
    return;
  }
  Job job{v, buffer, layout, std::move(offset), {}, {needs_[v.node].begin(), needs_[v.node].end()}};
  std::vector<std::pair<std::pair<int, int64_t>, Axis>> keyed;
  for (size_t d = 0; d < layout.strides.size(); ++d) {
    const std::vector<Axis> parts = axes_.of(v, static_cast<int>(d));
    int64_t stride = hint(layout.strides[d]);
    std::vector<int64_t> strides(parts.size());
    for (size_t k = parts.size(); k-- > 0; stride *= hint(axes_.extent(parts[k]))) strides[k] = stride;
    for (size_t k = 0; k < parts.size(); ++k) {
      int rows_of = 0;
      for (int32_t n : job.reductions) {
        const std::vector<Axis>& rows = reductions_.at(n).rows;
        rows_of += static_cast<int>(std::count(rows.begin(), rows.end(), parts[k]));
      }
      keyed.push_back({{-rows_of, -strides[k]}, parts[k]});
    }
  }
  std::stable_sort(keyed.begin(), keyed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [key, axis] : keyed) job.order.push_back(axis);
  jobs_.push_back(std::move(job));
}

void Lowering::run_jobs(const std::vector<Job*>& jobs, size_t level) {
  std::set<int32_t> needed;
  for (const Job* job : jobs) needed.insert(job->reductions.begin(), job->reductions.end());
  reduce_ready({needed.begin(), needed.end()});
  std::vector<std::pair<Axis, std::vector<Job*>>> inner;
  for (Job* job : jobs) {
    if (!Axes::distinct(job->order)) {
      // Two dims with one axis (x + x.T): loops of its own.
      Index index(body_.type(job->value).shape.size());
      for_each(job->value, dims_by_stride(job->layout.strides), 0, index, [&] {
        Index at = index;
        for (size_t d = 0; d < at.size(); ++d) at[d] = at[d] + job->offset[d];
        const Expr x = as_stored(body_.type(job->value).dtype, value(job->value, index));
        emitter_.emit(loop::Store{job->buffer, position(job->layout, at), x, nullptr});
      });
    } else if (job->order.size() == level) {
      store(*job);
    } else {
      const Axis axis = job->order[level];
      auto it =
          std::find_if(inner.begin(), inner.end(), [&](const auto& group) { return group.first == axis; });
      if (it == inner.end()) it = inner.insert(inner.end(), {axis, {}});
      it->second.push_back(job);
    }
  }
  // A reduction with a nest of its own reads what another nest has stored: that one goes first. Sums down
  // columns come right behind the loops over the rows.
  if (level == 0) {
    const auto rank = [&](const std::vector<Job*>& group) {
      int64_t elements = 0;
      bool reduces = false;
      for (const Job* job : group) {
        reduces |= !job->reductions.empty();
        elements = std::max(elements, hint(numel(body_.type(job->value).shape)));
      }
      return std::pair(reduces, -elements);
    };
    std::stable_sort(inner.begin(), inner.end(),
                     [&](const auto& a, const auto& b) { return rank(a.second) < rank(b.second); });
  }
  for (const auto& [axis, group] : inner) {
    emitter_.loop("i" + std::to_string(level), axes_.extent(axis), emitter_.depth(), [&](Expr var) {
      coords_[axis] = var;
      run_jobs(group, level + 1);
      coords_.erase(axis);
    });
    if (level > 0) continue;
    for (const Job* job : group)
      if (body_.node(job->value).op() == Op::kPointwise && is_whole(*job))
        stored_.emplace(job->value, std::pair(job->buffer, job->layout));
  }
}

bool Lowering::is_whole(const Job& job) {  // no part of a concatenation
  return std::all_of(job.offset.begin(), job.offset.end(),
                     [](const Expr& e) { return loop::as_const_int(e) == 0; });
}

void Lowering::store(const Job& job) {
  const Index index = *canonical(job.value);
  Index at = index;
  for (size_t d = 0; d < at.size(); ++d) at[d] = at[d] + job.offset[d];
  const Expr x = as_stored(body_.type(job.value).dtype, value(job.value, index));
  emitter_.emit(loop::Store{job.buffer, position(job.layout, at), x, nullptr});
}

std::vector<int> Lowering::dims_by_stride(const Strides& strides) const {
  std::vector<int> dims;
  for (size_t d = 0; d < strides.size(); ++d) dims.push_back(static_cast<int>(d));
  std::stable_sort(dims.begin(), dims.end(),
                   [&](int a, int b) { return hint(strides[a]) > hint(strides[b]); });
  return dims;
}

void Lowering::for_each(Value v, const std::vector<int>& dims, size_t level, Index& index,
                        const std::function<void()>& body) {
  if (level == dims.size()) return body();
  const Dim& extent = body_.type(v).shape[dims[level]];
  emitter_.loop("i" + std::to_string(level), extent, emitter_.depth(), [&](Expr var) {
    index[dims[level]] = var;
    for_each(v, dims, level + 1, index, body);
  });
}

bool Lowering::is_read(Value v) const {
  return std::any_of(body_.nodes.begin(), body_.nodes.end(), [&](const Node& node) {
    return std::find(node.operands.begin(), node.operands.end(), v) != node.operands.end();
  });
}

void Lowering::materialise(int32_t n) {
  for (const Dim& dim : body_.nodes[n].types[0].shape)
    if (loop::as_const_int(dim) == 0) return;
  if (body_.nodes[n].op() == Op::kScan) return scan(n);
  const auto& [buffer, layout] = materialised_.at({n, 0});
  scatter({n, 0}, buffer, layout);
}

// Sums of f32 and what is like them accumulate in f64, as eager's do.
void Lowering::scan(int32_t n) {
  const Node& node = body_.nodes[n];
  const ops::ReductionRow& row = ops::row(node.get<Scan>().fn);
  const Dtype dtype = body_.type(node.operands[0]).dtype;
  const bool widens = row.promotion == ops::Promotion::kDefault && dtype == Dtype::kF32;
  const Dtype accumulates = widens ? Dtype::kF64 : opmath(dtype);
  struct Result {
    size_t number;
    std::string buffer;
    OperandLayout layout;
  };
  std::vector<Result> results;
  for (size_t r = 0; r < node.types.size(); ++r)
    if (auto it = materialised_.find({n, static_cast<int32_t>(r)}); it != materialised_.end())
      results.push_back({r, it->second.first, it->second.second});
  if (results.empty()) return;

  const int axis = static_cast<int>(node.get<Scan>().axis);
  std::vector<int> dims = dims_by_stride(results[0].layout.strides);
  std::erase(dims, axis);
  Index index(node.types[0].shape.size(), index_const(0));
  Emitter::ReductionSpec spec;
  spec.extents = {node.types[0].shape[axis]};
  const Dtype at = position_dtype(spec.extents, accumulates);
  spec.states = row.states(accumulates, at);
  for (loop::State& state : spec.states) state.name = "s" + std::to_string(n) + "_" + state.name.substr(1);
  spec.step = [&](const Exprs& vars, const Exprs& states) {
    index[axis] = vars[0];
    Expr x = loop::make_cast(accumulates, value(node.operands[0], index));
    Exprs next = row.update(states, x, loop::make_cast(at, vars[0]));
    for (Expr& state : next) state = emitter_.let("t" + std::to_string(n), state);
    const Exprs so_far = row.finish(next, vars[0] + index_const(1), 0);
    for (const Result& result : results)
      emitter_.emit(loop::Store{result.buffer, position(result.layout, index),
                                loop::make_cast(node.types[result.number].dtype, so_far[result.number]),
                                nullptr});
    return next;
  };
  spec.merge = [&](const Exprs& states, const Exprs& others) { return row.merge(states, others); };
  for_each({n, 0}, dims, 0, index, [&] { emitter_.reduce(spec, emitter_.depth()); });
}

namespace {

ScalarOp combine_op(Combine combine, Dtype dtype) {
  const bool is_bool = dtype == Dtype::kBool;  // a sum is true where anything in it is
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

}  // namespace

// Does v have one value all along `dim`, as its graph shows?
bool Lowering::repeats_along(Value v, int dim) const {
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

// First the copy of x, then one update an element of src, in order where two of them may meet: dims of src
// that the map uses directly never collide and go outermost; the last, which is contiguous, stays innermost
// where a whole row goes to one place.
void Lowering::scatter(Value v, const std::string& buffer, const OperandLayout& layout) {
  const Node& node = body_.node(v);
  const Dtype dtype = node.types[0].dtype;
  const Combine combine = node.get<Scatter>().combine;
  Index index(node.types[0].shape.size());
  for_each(v, dims_by_stride(layout.strides), 0, index, [&] {
    const Expr x = as_stored(dtype, value(node.operands[0], index));
    emitter_.emit(loop::Store{buffer, position(layout, index), x, nullptr});
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
    Index at = mapped_index(node, node.types[0].shape, u, nullptr, &valid);
    // Within bounds for the proof that rows of different positions do not overlap; only valid ones are
    // stored. Any may be read where there are rows at all.
    bool readable = true;
    for (size_t d = 0; valid && d < at.size(); ++d)
      if (map[d] < 0) {
        const Dim& size = node.types[0].shape[d];
        readable = readable && loop::provably_less(index_const(0), size);
        at[d] = emitter_.let(
            "row", make_apply(ScalarOp::min_,
                              {make_apply(ScalarOp::max_, {at[d], index_const(0)}), size - index_const(1)}));
      }
    Expr x = loop::make_cast(opmath(dtype), value(src, u));
    if (combine != Combine::kSet) {
      read_back_.insert(buffer);
      Expr old = load(buffer, dtype, layout, at, readable ? nullptr : valid);
      x = make_apply(combine_op(combine, dtype), {old, x});
    }
    emitter_.emit(loop::Store{buffer, position(layout, at), as_stored(dtype, x), valid});
  });
}

loop::Function lower_group(const Graph& body, const std::vector<OperandLayout>& inputs,
                           const std::vector<OperandLayout>& outputs, const std::string& name) {
  return Lowering(body, inputs, outputs).run(name);
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
