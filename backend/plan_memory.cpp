// See plan_memory.h. The runtime places buffers in memory (plan_arena), because sizes may be unknown until
// then.
#include "backend/plan_memory.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "backend/views.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::ScalarOp;

namespace {

SizeExpr::Code code_of(ScalarOp op, const Expr& whole) {
  switch (op) {
    case ScalarOp::add_:
      return SizeExpr::Code::kAdd;
    case ScalarOp::sub_:
      return SizeExpr::Code::kSub;
    case ScalarOp::mul_:
      return SizeExpr::Code::kMul;
    case ScalarOp::floordiv_:
      return SizeExpr::Code::kFloorDiv;
    case ScalarOp::floormod_:
      return SizeExpr::Code::kFloorMod;
    case ScalarOp::min_:
      return SizeExpr::Code::kMin;
    case ScalarOp::max_:
      return SizeExpr::Code::kMax;
    default:
      throw Unsupported("a size computed as " + loop::print(whole) + "  cannot be computed at run time");
  }
}

void append(const Expr& e, const std::vector<std::string>& symbols, std::vector<SizeExpr::Instr>& program) {
  if (auto value = as_const_int(e)) return program.push_back({SizeExpr::Code::kConst, *value});
  if (e->is(loop::ExprKind::kVar)) {
    auto it = std::find(symbols.begin(), symbols.end(), e->name);
    IPEX_CHECK(it != symbols.end(), "size depends on '" + e->name + "', which is not a symbol of the graph");
    return program.push_back({SizeExpr::Code::kSymbol, it - symbols.begin()});
  }
  if (e->is(loop::ExprKind::kApply) && e->op == ScalarOp::neg_) {
    program.push_back({SizeExpr::Code::kConst, 0});
    append(e->args[0], symbols, program);
    return program.push_back({SizeExpr::Code::kSub});
  }
  if (!e->is(loop::ExprKind::kApply) || e->args.size() != 2)
    throw Unsupported("a size computed as " + loop::print(e) + "  cannot be computed at run time");
  append(e->args[0], symbols, program);
  append(e->args[1], symbols, program);
  program.push_back({code_of(e->op, e)});
}

}  // namespace

SizeExpr to_size_expr(const Dim& dim, const std::vector<std::string>& symbols) {
  std::vector<SizeExpr::Instr> program;
  append(loop::simplify(dim), symbols, program);
  return SizeExpr(std::move(program));
}

Dim span(const Shape& shape, const Strides& strides) {
  Dim last = index_const(1);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (as_const_int(shape[d]) == 0) return index_const(0);
    last = last + (shape[d] - index_const(1)) * strides[d];
  }
  return loop::simplify(last);
}

bool is_dense(const Shape& shape, const Strides& strides) {
  std::vector<size_t> left;
  for (size_t d = 0; d < shape.size(); ++d)
    if (as_const_int(shape[d]) != 1) left.push_back(d);
  // Removes dims from the innermost outwards; each must have the number of elements inside it as its stride.
  for (Dim expected = index_const(1); !left.empty();) {
    auto next = std::find_if(left.begin(), left.end(),
                             [&](size_t d) { return loop::provably_equal(strides[d], expected); });
    if (next == left.end()) return false;
    expected = loop::simplify(expected * shape[*next]);
    left.erase(next);
  }
  return true;
}

bool same_strides(const Shape& shape, const Strides& a, const Strides& b) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (as_const_int(shape[d]) != 1 && !loop::provably_equal(a[d], b[d])) return false;
  return true;
}

OperandLayout layout_of(const Graph& graph, Value v) {
  const View view = resolve_view(graph, v);
  return {view.strides, view.offset, span(graph.type(view.root).shape, graph.layout(view.root))};
}

TensorSpec spec_of(const Graph& graph, Value v, int buffer) {
  const View view = resolve_view(graph, v);
  const auto size = [&](const Dim& dim) { return to_size_expr(dim, graph.symbols); };
  TensorSpec spec{buffer, graph.type(v).dtype};
  for (const Dim& dim : graph.type(v).shape) spec.sizes.push_back(size(dim));
  for (const Dim& stride : view.strides) spec.strides.push_back(size(stride));
  spec.offset = size(view.offset);
  return spec;
}

bool may_share(const loop::Function& f, const std::string& in, const std::string& out) {
  std::map<std::string, Expr> lets;
  std::vector<Expr> reads;
  const loop::Store* write = nullptr;
  int writes = 0;
  bool hazard = false, written = false;
  loop::visit(
      f.body,
      [&](const loop::Stmt& stmt) {
        written = write != nullptr;  // by an earlier statement
        if (auto* let = std::get_if<loop::Let>(&stmt)) lets[let->name] = let->value;
        if (auto* store = std::get_if<loop::Store>(&stmt); store && store->buffer == out) {
          write = store;
          ++writes;
          hazard |= store->mask != nullptr;
        }
      },
      [&](const loop::ExprNode& e) {
        if (!e.is(loop::ExprKind::kLoad)) return;
        hazard |= e.name == out;
        if (e.name != in) return;
        hazard |= written || e.args.size() > 1;
        reads.push_back(e.args[0]);
      });
  if (reads.empty()) return true;
  if (hazard || writes != 1 || reads.size() != 1 || !loop::provably_equal(reads[0], write->index))
    return false;
  // The stored value must depend on the load, so that instruction scheduling cannot move the load after the
  // store.
  std::set<std::string> seen;
  std::function<bool(const Expr&)> comes_from = [&](const Expr& e) {
    bool found = false;
    loop::visit(e, [&](const loop::ExprNode& part) {
      if (part.is(loop::ExprKind::kLoad) && part.name == in) found = true;
      if (part.is(loop::ExprKind::kVar) && lets.count(part.name) && seen.insert(part.name).second)
        found |= comes_from(lets.at(part.name));
    });
    return found;
  };
  return comes_from(write->value);
}

}  // namespace ipex::graph
