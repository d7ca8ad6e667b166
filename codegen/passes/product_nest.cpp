#include "codegen/passes/product_nest.h"

#include <algorithm>

#include "codegen/loop/simplify.h"
#include "codegen/passes/loop_nest.h"
#include "codegen/product_tile.h"

namespace ipex::loop {

namespace {

constexpr int64_t kLeastTerms = 16;

// The pair whose lower half is bf16 `a` and whose upper half is `b`, as an f32.
Expr paired(const Expr& a, const Expr& b) {
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
  for (const std::vector<Stmt>* stmts : {&p.before, &p.rest})
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

Expr Factor::at(Substitution variables, const std::string& term_variable, const Expr& term) const {
  const auto load = [&](const Expr& at) {
    variables[term_variable] = at;
    return make_load(buffer, dtype, simplify(substitute(index, variables)));
  };
  if (!apart) return load(term);
  const Expr first = term * index_const(2);
  return paired(load(first), load(first + index_const(1)));
}

// Input buffers that one load reads may be declared as pairs.
ProductMatcher::ProductMatcher(const Function& f, const Target& target) : tree_(f), target_(target) {
  std::map<std::string, int> loads = count_loads(f.body);
  for (const Buffer& buffer : f.buffers)
    if (buffer.access == Access::kIn && buffer.dtype == Dtype::kBF16 && provably_even(buffer.extent) &&
        loads[buffer.name] == 1)
      pairable_.insert(buffer.name);
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
  if (!take_apart(*innermost->body, p) || !find_factors(p) || !find_roles(p)) return std::nullopt;
  for (const Factor* factor : {&p.a, &p.b})
    if (p.pairs && !factor->apart) paired_.insert(factor->buffer);
  return p;
}

// Lets of indices, one reduction, then lets and stores.
bool ProductMatcher::take_apart(const BlockNode& body, Product& p) {
  size_t i = 0;
  for (; i < body.stmts.size(); ++i) {
    const auto* let = std::get_if<Let>(&body.stmts[i]);
    if (!let || let->value->type != kIndex || loads(let->value)) break;
    p.before.push_back(*let);
  }
  if (i == body.stmts.size() || !std::holds_alternative<For>(body.stmts[i])) return false;
  p.terms = std::get<For>(body.stmts[i]);
  p.rest.assign(body.stmts.begin() + static_cast<std::ptrdiff_t>(i) + 1, body.stmts.end());
  return p.terms.kind == ForKind::kSerial && p.terms.reduction &&
         std::all_of(p.rest.begin(), p.rest.end(), [](const Stmt& stmt) {
           return std::holds_alternative<Let>(stmt) || std::holds_alternative<Store>(stmt);
         });
}

// s + a*b of one float type, from 0.
bool ProductMatcher::find_factors(Product& p) const {
  const Reduction& r = *p.terms.reduction;
  const auto terms = as_const_int(p.terms.end);
  if (r.states.size() != 1 || as_const_int(p.terms.begin) != 0 || !terms || *terms < kLeastTerms)
    return false;
  const State& s = r.states[0];
  if (s.type != Type{Dtype::kF32} && s.type != Type{Dtype::kF64}) return false;
  if (!equal(s.init, make_const(s.type, 0)) || !equal(s.identity, s.init)) return false;
  Substitution lets;
  for (const Stmt& stmt : p.before) inline_let(stmt, lets);
  const auto found = summed_factors(p.terms, std::move(lets));
  if (!found) return false;
  p.pairs = target_.native_bf16 && is_widened_bf16(found->a) && is_widened_bf16(found->b) && *terms % 2 == 0;
  const auto a = factor_of(found->a, p.terms, p.pairs), b = factor_of(found->b, p.terms, p.pairs);
  if (!a || !b) return false;
  p.a = *a;
  p.b = *b;
  if (p.pairs) p.terms.end = index_const(*terms / 2);
  return true;
}

std::optional<Factor> ProductMatcher::factor_of(const Expr& e, const For& terms, bool pairs) const {
  const Expr& load = pairs ? e->args[0] : e;
  if (!load->is(ExprKind::kLoad) || load->args.size() != 1 || loads(load->args[0])) return std::nullopt;
  Factor out{load->name, load->type.dtype, load->args[0]};
  if (!pairs || LoopTree::constant_stride(out.index, terms.var) != 1) {
    out.apart = pairs;
    return out;
  }
  const Expr begin = substitute(out.index, {{terms.var, index_const(0)}});
  if (!provably_even(begin) || pairable_.count(out.buffer) == 0) return std::nullopt;
  out.dtype = Dtype::kF32;
  out.index = simplify(floordiv(begin, index_const(2))) + make_var(terms.var);
  return out;
}

// Columns are what the results lie side by side along; b has them and a does not. Of the loops that a has
// and b does not, the innermost is the rows; b is packed anew for each iteration of all the others.
bool ProductMatcher::find_roles(Product& p) const {
  const auto column = [&](size_t level) {
    return std::all_of(p.rest.begin(), p.rest.end(), [&](const Stmt& stmt) {
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
  for (const Factor* factor : {&p.a, &p.b})
    if (!LoopTree::stride(factor->index, p.terms.var)) return false;
  // Pairs are put together in vectors, of b only.
  if (p.a.apart || (p.b.apart && LoopTree::constant_stride(p.b.index, j) != 1)) return false;
  const auto columns = extent(p.columns()), rows = extent(p.rows());
  const int64_t least = (p.pairs ? kPairVectors : kTileVectors) * target_.lanes(p.dtype());
  return columns && *columns >= least && (!rows || *rows >= kLeastRows);
}

}  // namespace ipex::loop
