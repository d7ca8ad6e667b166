// Recognises matrix products: finds the three loops, the two operands and what is done with each sum.
#include "codegen/analyses/product_nest.h"

#include <algorithm>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/simplify.h"
#include "codegen/product_tile.h"

namespace ipex::loop {

namespace {

constexpr int64_t kMinK = 16;

// Packs the bf16 values `a` (lower half) and `b` (upper half) into the bits of an f32.
Expr pack(const Expr& a, const Expr& b) {
  const Type word{Dtype::kI32, a->type.lanes};
  const auto bits = [&](const Expr& e) {
    return make_apply_as(ScalarOp::bitcast_int_, {make_cast(Dtype::kF32, e)}, word);
  };
  const Expr low = make_apply(ScalarOp::shr_, {bits(a), make_int(word, 16)});
  const Expr both =
      make_apply(ScalarOp::bitor_, {make_apply(ScalarOp::bitand_, {low, make_int(word, 0xffff)}), bits(b)});
  return make_apply_as(ScalarOp::bitcast_float_, {both}, {Dtype::kF32, a->type.lanes});
}

Expr with_lets(const Expr& e, const Product& p) {
  Substitution lets;
  for (const std::vector<Stmt>* stmts : {&p.index_lets, &p.epilogue})
    for (const Stmt& stmt : *stmts)
      if (const auto* let = std::get_if<Let>(&stmt); let && let->value->type == kIndex)
        inline_let(stmt, lets);
  return substitute(e, lets);
}

bool is_widened_bf16(const Expr& e) {
  return e->is(ExprKind::kCast) && e->type == Type{Dtype::kF32} && e->args[0]->type.dtype == Dtype::kBF16;
}

}  // namespace

std::optional<int64_t> extent(const For& loop) { return as_const_int(simplify(loop.end - loop.begin)); }

Expr Operand::at(Substitution variables, const std::string& k_var, const Expr& k) const {
  const auto load = [&](const Expr& at) {
    variables[k_var] = at;
    return make_load(buffer, dtype, simplify(substitute(index, variables)));
  };
  if (!packs_on_load) return load(k);
  const Expr first = k * index_const(2);
  return pack(load(first), load(first + index_const(1)));
}

// An input buffer may be declared as pairs if only one load reads it.
ProductMatcher::ProductMatcher(const Function& f, const Target& target) : tree_(f), target_(target) {
  std::map<std::string, int> loads = count_loads(f.body);
  for (const Buffer& buffer : f.buffers)
    if (buffer.access == Access::kIn && buffer.dtype == Dtype::kBF16 && provably_even(buffer.extent) &&
        loads[buffer.name] == 1)
      packable_.insert(buffer.name);
}

std::optional<Product> ProductMatcher::match(const For& root) {
  Product p;
  const For* innermost = &root;
  for (;; innermost = &std::get<For>(innermost->body->stmts[0])) {
    if (innermost->kind != ForKind::kSerial || innermost->reduction ||
        !tree_.reorderable(tree_.id_of(*innermost)))
      return std::nullopt;
    for (const For& outer : p.levels)
      if (uses(innermost->begin, outer.var) || uses(innermost->end, outer.var)) return std::nullopt;
    p.levels.push_back(*innermost);
    p.levels.back().body = nullptr;
    const std::vector<Stmt>& stmts = innermost->body->stmts;
    if (stmts.size() != 1 || !std::holds_alternative<For>(stmts[0]) || std::get<For>(stmts[0]).reduction)
      break;
  }
  if (!match_body(*innermost->body, p) || !find_operands(p) || !find_dimensions(p)) return std::nullopt;
  for (const Operand* operand : {&p.a, &p.b})
    if (p.packed_bf16 && !operand->packs_on_load) packed_.insert(operand->buffer);
  return p;
}

// Accepts lets of indices, then one reduction, then lets and stores.
bool ProductMatcher::match_body(const BlockNode& body, Product& p) {
  size_t i = 0;
  for (; i < body.stmts.size(); ++i) {
    const auto* let = std::get_if<Let>(&body.stmts[i]);
    if (!let || let->value->type != kIndex || loads(let->value)) break;
    p.index_lets.push_back(*let);
  }
  if (i == body.stmts.size() || !std::holds_alternative<For>(body.stmts[i])) return false;
  p.k_loop = std::get<For>(body.stmts[i]);
  p.epilogue.assign(body.stmts.begin() + static_cast<std::ptrdiff_t>(i) + 1, body.stmts.end());
  return p.k_loop.kind == ForKind::kSerial && p.k_loop.reduction &&
         std::all_of(p.epilogue.begin(), p.epilogue.end(), [](const Stmt& stmt) {
           return std::holds_alternative<Let>(stmt) || std::holds_alternative<Store>(stmt);
         });
}

// Accepts sums s + a*b of one float type that start from 0.
bool ProductMatcher::find_operands(Product& p) const {
  const Reduction& r = *p.k_loop.reduction;
  const auto k_extent = as_const_int(p.k_loop.end);
  if (r.states.size() != 1 || as_const_int(p.k_loop.begin) != 0 || !k_extent || *k_extent < kMinK)
    return false;
  const State& s = r.states[0];
  if (s.type != Type{Dtype::kF32} && s.type != Type{Dtype::kF64}) return false;
  if (!equal(s.init, make_const(s.type, 0)) || !equal(s.identity, s.init)) return false;
  Substitution lets;
  for (const Stmt& stmt : p.index_lets) inline_let(stmt, lets);
  const auto found = summed_factors(p.k_loop, std::move(lets));
  if (!found) return false;
  p.packed_bf16 =
      target_.native_bf16 && is_widened_bf16(found->a) && is_widened_bf16(found->b) && *k_extent % 2 == 0;
  const auto a = operand_of(found->a, p.k_loop, p.packed_bf16),
             b = operand_of(found->b, p.k_loop, p.packed_bf16);
  if (!a || !b) return false;
  p.a = *a;
  p.b = *b;
  if (p.packed_bf16) p.k_loop.end = index_const(*k_extent / 2);
  return true;
}

std::optional<Operand> ProductMatcher::operand_of(const Expr& e, const For& k_loop, bool packed_bf16) const {
  const Expr& load = packed_bf16 ? e->args[0] : e;
  if (!load->is(ExprKind::kLoad) || load->args.size() != 1 || loads(load->args[0])) return std::nullopt;
  Operand out{load->name, load->type.dtype, load->args[0]};
  if (!packed_bf16 || LoopTree::constant_stride(out.index, k_loop.var) != 1) {
    out.packs_on_load = packed_bf16;
    return out;
  }
  const Expr begin = substitute(out.index, {{k_loop.var, index_const(0)}});
  if (!provably_even(begin) || packable_.count(out.buffer) == 0) return std::nullopt;
  out.dtype = Dtype::kF32;
  out.index = simplify(floordiv(begin, index_const(2))) + make_var(k_loop.var);
  return out;
}

// Columns are the loop along which the results are contiguous; b depends on it and a does not. Rows are the
// innermost loop that a depends on and b does not. b is packed again for each iteration of all other loops.
bool ProductMatcher::find_dimensions(Product& p) const {
  const auto column = [&](size_t level) {
    return std::all_of(p.epilogue.begin(), p.epilogue.end(), [&](const Stmt& stmt) {
      const auto* store = std::get_if<Store>(&stmt);
      return !store || LoopTree::constant_stride(with_lets(store->index, p), p.levels[level].var) == 1;
    });
  };
  p.column = p.levels.size();
  while (p.column-- > 0 && !column(p.column)) {
  }
  if (p.column >= p.levels.size()) return false;
  const std::string& j = p.columns().var;
  if (uses(p.a.index, j)) std::swap(p.a, p.b);
  if (uses(p.a.index, j) || !LoopTree::constant_stride(p.b.index, j)) return false;
  p.row = p.levels.size();
  for (size_t level = p.levels.size(); level-- > 0 && p.row == p.levels.size();)
    if (uses(p.a.index, p.levels[level].var) && !uses(p.b.index, p.levels[level].var)) p.row = level;
  if (p.row == p.levels.size()) return false;
  for (const Operand* operand : {&p.a, &p.b})
    if (!LoopTree::stride(operand->index, p.k_loop.var)) return false;
  // Packing builds whole vectors, so it works on b only.
  if (p.a.packs_on_load || (p.b.packs_on_load && LoopTree::constant_stride(p.b.index, j) != 1)) return false;
  const auto columns = extent(p.columns()), rows = extent(p.rows());
  const int64_t min_columns = (p.packed_bf16 ? kMaxPackedVectors : kTileVectors) * target_.lanes(p.dtype());
  return columns && *columns >= min_columns && (!rows || *rows >= kMinRows);
}

}  // namespace ipex::loop
