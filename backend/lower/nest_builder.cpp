// See nest_builder.h.
#include "backend/lower/nest_builder.h"

#include <algorithm>
#include <limits>

#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::Expr;
using loop::For;
using loop::ForKind;
using loop::index_const;
using loop::Let;
using loop::make_apply;
using loop::make_block;
using loop::make_load;
using loop::make_var;
using loop::ScalarOp;
using loop::simplify;
using loop::Store;

NestBuilder::NestBuilder(const Graph& body, const std::vector<OperandLayout>& inputs,
                         const std::vector<OperandLayout>& outputs, const loop::Target& target)
    : graph_(body), node_(body.nodes.back()), target_(target) {
  for (size_t k = 0; k < inputs.size(); ++k) {
    const Type& type = body.nodes[body.inputs[k]].types[0];
    inputs_.push_back({"in" + std::to_string(k), type.dtype, type.shape, inputs[k]});
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Type& type = body.type(body.outputs[k].value);
    outputs_.push_back({"out" + std::to_string(k), type.dtype, type.shape, outputs[k]});
  }
  for (const std::vector<Tensor>* tensors : {&inputs_, &outputs_})
    for (const Tensor& x : *tensors) names_.reserve(x.buffer);
  for (const std::string& symbol : body.symbols) names_.reserve(symbol);
  dtype_ = opmath(outputs_[0].dtype);
}

loop::Function NestBuilder::function(const std::string& name, Body body) const {
  loop::Function f;
  f.name = name;
  f.symbols = graph_.symbols;
  f.symbol_lows = graph_.symbol_lows;
  for (const Tensor& x : inputs_)
    f.buffers.push_back({x.buffer, x.dtype, loop::Access::kIn, x.layout.extent});
  for (const Tensor& x : outputs_)
    f.buffers.push_back({x.buffer, x.dtype, loop::Access::kOut, x.layout.extent});
  f.body = make_block(std::move(body));
  return f;
}

Expr NestBuilder::lowest() const { return number(-std::numeric_limits<double>::infinity()); }

Expr NestBuilder::apply(ScalarOp op, Expr a, Expr b) { return make_apply(op, {std::move(a), std::move(b)}); }

Expr NestBuilder::let(Body& out, std::string_view base, const Expr& value) {
  const Expr simple = simplify(value);
  if (simple->is(loop::ExprKind::kConst) || simple->is(loop::ExprKind::kVar)) return simple;
  out.push_back(Let{names_.fresh(base), simple});
  return make_var(std::get<Let>(out.back()).name, simple->type);
}

std::string NestBuilder::alloc(Body& out, std::string_view base, const Expr& extent) {
  out.push_back(loop::Alloc{names_.fresh(base), dtype_, simplify(extent)});
  return std::get<loop::Alloc>(out.back()).buffer;
}

void NestBuilder::store(Body& out, const std::string& buffer, const Expr& index, const Expr& value) const {
  out.push_back(Store{buffer, simplify(index), value, nullptr});
}

Expr NestBuilder::load(const std::string& buffer, const Expr& index) const {
  return make_load(buffer, dtype_, simplify(index));
}

void NestBuilder::clear(Body& out, const std::string& buffer, const Expr& extent, const Expr& begin) {
  vectors(out, "cleared", extent,
          [&](const Expr& at, Body& body) { store(body, buffer, begin + at, number(0)); });
}

void NestBuilder::serial(Body& out, std::string_view base, const Expr& begin, const Expr& end,
                         const Each& each) {
  For loop{.var = names_.fresh(base), .begin = begin, .end = simplify(end)};
  Body body;
  each(make_var(loop.var), body);
  loop.body = make_block(std::move(body));
  out.emplace_back(std::move(loop));
}

void NestBuilder::vectors(Body& out, std::string_view base, const Expr& end, const Each& each, int unroll) {
  serial(out, base, index_const(0), end, each);
  auto& loop = std::get<For>(out.back());
  loop.kind = ForKind::kVector;
  loop.lanes = static_cast<int>(lanes());
  loop.unroll = unroll;
}

Expr NestBuilder::reduce(Body& out, std::string_view base, const Expr& end, ScalarOp op, const Expr& init,
                         const std::function<Expr(const Expr& var, Body& body)>& each, bool in_vectors) {
  const std::string name = names_.fresh(op == ScalarOp::max_ ? "most" : "sum");
  const loop::Type type{dtype_};
  const Expr state = make_var(name, type), identity = op == ScalarOp::max_ ? lowest() : number(0);
  Expr next;
  const Each body = [&](const Expr& var, Body& inner) { next = apply(op, state, each(var, inner)); };
  if (in_vectors)
    vectors(out, base, end, body);
  else
    serial(out, base, index_const(0), end, body);
  auto& loop = std::get<For>(out.back());
  loop.reduction.emplace();
  loop.reduction->states = {{name, type, init, identity}};
  loop.reduction->yield = {next};
  loop.reduction->merge = {apply(op, state, make_var(name + ".other", type))};
  return state;
}

void NestBuilder::parallel(Body& out, const Expr& parts, const Expr& cost_of_part, const Each& each) {
  serial(out, "part", index_const(0), parts, each);
  auto& loop = std::get<For>(out.back());
  loop.kind = ForKind::kParallel;
  loop.grain = std::max<int64_t>(target_.grain_fmas / std::max<int64_t>(hint(cost_of_part, graph_), 1), 1);
}

Expr NestBuilder::vector_at(const Expr& at, int64_t v) const {
  return loop::make_ramp(simplify(at + index_const(v * lanes())), index_const(1), static_cast<int>(lanes()));
}

Expr NestBuilder::least(const Expr& a, const Expr& b) { return simplify(make_apply(ScalarOp::min_, {a, b})); }

}  // namespace ipex::graph
