// Collects loops and accesses, and proves that iterations are independent. For the proof, an index is read as
// a number whose digits are the loop variables (delinearization).
#include "codegen/analyses/loop_tree.h"

#include <algorithm>
#include <functional>
#include <set>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/rewrite.h"

namespace ipex::loop {

double op_cost(ScalarOp op, Dtype dtype) {
  if (op == ScalarOp::pow_ || op == ScalarOp::atan2_) return 20;
  if (is_function(op)) return 10;
  switch (op) {
    case ScalarOp::div_:
    case ScalarOp::rem_:
    case ScalarOp::floordiv_:
    case ScalarOp::floormod_:
    case ScalarOp::sqrt_:
    case ScalarOp::rsqrt_:
      return is_float(dtype) ? 4 : 8;
    default:
      return 1;
  }
}

// The integer lets in scope, inlined (`symbolic`: all but indirect indices), and the loop that owns each
// scratch buffer. A let that is not an integer is replaced by an expression that uses the loop variables and
// states it depends on, and that is affine in none of them.
struct LoopTree::Scope {
  Substitution integers, symbolic;
  // For each name, the loop variables and reduction states that its value depends on.
  std::map<std::string, std::set<std::string>> varies;
  std::map<std::string, IndirectIndex> indirect;
  std::map<std::string, int> owner;
  std::map<std::string, Dtype> dtype;
};

LoopTree::LoopTree(const Function& f) : ranges_(variable_ranges(f)) {
  Scope scope;
  for (const Buffer& b : f.buffers) scope.dtype[b.name] = b.dtype;
  walk(f.body, -1, scope);
  independent_.resize(loops_.size());
  for (int i = static_cast<int>(loops_.size()) - 1; i >= 0; --i) {
    if (const int parent = loops_[i].parent; parent >= 0) {
      loops_[parent].has_call |= loops_[i].has_call;
      loops_[parent].has_math |= loops_[i].has_math;
    }
  }
}

namespace {

// The other operand of a min or max if one operand is `known`.
Expr other_operand(const Expr& e, ScalarOp op, const std::function<bool(const Expr&)>& known) {
  if (!e->is(ExprKind::kApply) || e->op != op) return nullptr;
  if (known(e->args[0])) return e->args[1];
  return known(e->args[1]) ? e->args[0] : nullptr;
}

// The limit of min(max(x, 0), limit), whatever the order of the operands.
Expr clamp_limit(const Expr& e) {
  const auto is_zero = [](const Expr& x) { return as_const_int(x) == 0; };
  return other_operand(e, ScalarOp::min_,
                       [&](const Expr& x) { return other_operand(x, ScalarOp::max_, is_zero) != nullptr; });
}

}  // namespace

void LoopTree::record(bool is_store, const std::string& buffer, Dtype dtype, const Expr& index, int loop,
                      const Scope& scope) {
  const auto owner = scope.owner.find(buffer);
  Access access{.is_store = is_store,
                .buffer = buffer,
                .dtype = dtype,
                .index = substitute(index, scope.integers),
                .loop = loop,
                .owner = owner == scope.owner.end() ? -1 : owner->second,
                .symbolic = nullptr};
  access.symbolic = scope.indirect.empty() ? access.index : substitute(index, scope.symbolic);
  if (!scope.indirect.empty())
    for (const std::string& name : free_vars(access.symbolic))
      if (const auto it = scope.indirect.find(name); it != scope.indirect.end())
        access.indirect.push_back(it->second);
  accesses_.push_back(std::move(access));
  if (loop >= 0) loops_[loop].accesses.push_back(static_cast<int>(accesses_.size()) - 1);
}

void LoopTree::read(const Expr& e, int loop, Scope& scope) {
  if (!e) return;
  visit(e, [&](const ExprNode& n) {
    if (n.is(ExprKind::kLoad)) {
      record(false, n.name, n.type.dtype, n.args[0], loop, scope);
    } else if (n.is(ExprKind::kApply) && loop >= 0 && n.type.dtype != Dtype::kI64) {
      const double cost = op_cost(n.op, n.type.dtype);
      loops_[loop].work += cost;
      loops_[loop].has_math |= cost > 1;
    }
  });
}

std::set<std::string> LoopTree::varies_with(const Expr& e, const Scope& scope) {
  std::set<std::string> vars;
  for (const std::string& name : free_vars(e))
    if (const auto known = scope.varies.find(name); known != scope.varies.end())
      vars.insert(known->second.begin(), known->second.end());
  return vars;
}

void LoopTree::walk(const Block& block, int loop, Scope& scope) {
  if (!block) return;
  for (const Stmt& stmt : block->stmts) {
    if (const auto* inner = std::get_if<Block>(&stmt)) {
      walk(*inner, loop, scope);
    } else if (const auto* f = std::get_if<For>(&stmt)) {
      const int id = static_cast<int>(loops_.size());
      const Expr begin = substitute(f->begin, scope.integers), end = substitute(f->end, scope.integers);
      loops_.push_back({.node = f,
                        .parent = loop,
                        .children = {},
                        .accesses = {},
                        .extent = simplify(f->end - f->begin),
                        .begin = begin,
                        .span = simplify(end - begin - index_const(1))});
      (loop < 0 ? roots_ : loops_[loop].children).push_back(id);
      scope.varies[f->var] = {f->var};
      if (f->reduction)
        for (const State& s : f->reduction->states) scope.varies[s.name] = {s.name};
      walk(f->body, id, scope);
      if (f->reduction)
        for (const Expr& y : f->reduction->yield) read(y, id, scope);
    } else if (const auto* let = std::get_if<Let>(&stmt)) {
      read(let->value, loop, scope);
      const std::set<std::string>& vars = scope.varies[let->name] = varies_with(let->value, scope);
      if (let->value->type != kIndex) {
        if (vars.empty() || let->value->type.is_vector()) continue;
        Expr sum;
        for (const std::string& var : vars) sum = sum ? sum + make_var(var) : make_var(var);
        scope.integers[let->name] = scope.symbolic[let->name] = make_cast(let->value->type.dtype, sum);
        continue;
      }
      scope.integers[let->name] = substitute(let->value, scope.integers);
      scope.symbolic.erase(let->name);
      scope.indirect.erase(let->name);
      if (const Expr span = clamp_limit(let->value))
        scope.indirect[let->name] = {let->name, substitute(span, scope.integers), loop};
      else
        scope.symbolic[let->name] = substitute(let->value, scope.symbolic);
    } else if (const auto* store = std::get_if<Store>(&stmt)) {
      written_.insert(store->buffer);
      read(store->value, loop, scope);
      read(store->index, loop, scope);
      read(store->mask, loop, scope);
      record(true, store->buffer, scope.dtype.at(store->buffer), store->index, loop, scope);
    } else if (const auto* alloc = std::get_if<Alloc>(&stmt)) {
      scope.owner[alloc->buffer] = loop;
      scope.dtype[alloc->buffer] = alloc->dtype;
    } else if (const auto* branch = std::get_if<If>(&stmt)) {
      read(branch->condition, loop, scope);
      walk(branch->then_body, loop, scope);
      walk(branch->else_body, loop, scope);
    } else if (const auto* call = std::get_if<Call>(&stmt)) {
      for (const Expr& arg : call->args) read(arg, loop, scope);
      if (loop >= 0)
        loops_[loop].has_call |= call->function != "ipex_report_index" && call->function != kPrefetch;
    }
  }
}

bool LoopTree::encloses(int outer, int inner) const {
  while (inner >= 0 && inner != outer) inner = loops_[inner].parent;
  return inner == outer;
}

std::vector<int> LoopTree::path_to(int loop, int inner) const {
  std::vector<int> path;
  for (; inner != loop; inner = loops_[inner].parent) path.push_back(inner);
  path.push_back(loop);
  return path;
}

std::optional<Expr> LoopTree::stride(const Expr& index, const std::string& var) {
  if (!uses(index, var)) return index_const(0);
  const std::optional<Affine> a = affine(index, {var});
  if (!a) return std::nullopt;
  const auto it = a->coefficients.find(var);
  return it == a->coefficients.end() ? index_const(0) : simplify(it->second);
}

namespace {

// One digit of an index: its weight, and by how much it can be larger or smaller in the first of two
// accesses.
struct Digit {
  Expr weight;     // as written, to match the digits of two accesses
  Expr magnitude;  // |weight|
  Expr more, less;
};

bool proves_less(const Expr& less, const Expr& than, const Ranges& ranges) {
  const Expr a = simplify(less), b = simplify(than);
  const auto x = as_const_int(a), y = as_const_int(b);
  return x && y ? *x < *y : provably_less(a, b, ranges);
}

std::optional<Expr> magnitude(const Expr& weight, const Ranges& ranges) {
  if (const auto c = as_const_int(weight)) return index_const(*c < 0 ? -*c : *c);
  if (proves_less(index_const(-1), weight, ranges)) return weight;
  return std::nullopt;
}

}  // namespace

// Proves that two accesses in the nest under `loop` touch different locations whenever `digit` differs
// between them. An index is a sum of digits: loop variables and indirect indices, each multiplied by a
// weight. A digit is decided (equal indices imply equal digits) when its weight exceeds what all undecided
// digits together can add up to. A weight that is 0 for some sizes is 0 only where a loop has no iterations.
bool LoopTree::disjoint(const Access& a, const Access& b, int loop, const std::string& digit) const {
  std::set<std::string> varies;  // states differ between iterations in unknown ways
  for (int i = 0; i < static_cast<int>(loops_.size()); ++i)
    if (encloses(loop, i) && loops_[i].node->reduction)
      for (const State& s : loops_[i].node->reduction->states) varies.insert(s.name);
  struct Form {
    Expr weight, span, offset;
    std::vector<Digit> digits;
  };
  const auto read_form = [&](const Access& access) -> std::optional<Form> {
    struct Source {
      std::string name;
      Expr begin, span;
    };
    std::vector<Source> sources;
    for (int i : path_to(loop, access.loop))
      sources.push_back({loops_[i].node->var, loops_[i].begin, loops_[i].span});
    for (const IndirectIndex& indirect_index : access.indirect)
      if (encloses(loop, indirect_index.loop))
        sources.push_back({indirect_index.name, index_const(0), indirect_index.span});
    std::set<std::string> vars;
    for (const Source& source : sources) vars.insert(source.name);
    // Only terms that are equal in both iterations may cancel. A value loaded from a buffer that the nest
    // writes is not.
    const auto is_fixed = [&](const Expr& e) {
      bool fixed = true;
      visit(e, [&](const ExprNode& n) {
        if (n.is(ExprKind::kVar)) fixed &= !vars.count(n.name) && !varies.count(n.name);
        if (n.is(ExprKind::kLoad)) fixed &= !written_.count(n.name);
      });
      return fixed;
    };
    const std::optional<Affine> form = affine(access.symbolic, vars);
    if (!form || !is_fixed(form->rest)) return std::nullopt;
    Form out{index_const(0), nullptr, form->rest, {}};
    for (const Source& source : sources) {
      const auto it = form->coefficients.find(source.name);
      if (it == form->coefficients.end()) continue;
      const Expr weight = simplify(it->second);
      const std::optional<Expr> size = magnitude(weight, ranges_);
      if (!size || !is_fixed(weight) || !is_fixed(source.begin) || !is_fixed(source.span))
        return std::nullopt;
      if (source.name == digit) {
        out.weight = weight;
        out.span = source.span;
      } else {
        out.offset = out.offset + weight * source.begin;
        out.digits.push_back({weight, *size, source.span, index_const(0)});
      }
    }
    if (!out.span || as_const_int(out.weight) == 0) return std::nullopt;
    return out;
  };
  const auto fa = read_form(a), fb = read_form(b);
  if (!fa || !fb || !provably_equal(fa->weight, fb->weight)) return false;
  const auto offset = as_const_int(simplify(fa->offset - fb->offset));
  const std::optional<Expr> own = magnitude(fa->weight, ranges_);
  if (!offset || !own) return false;

  // Digits of equal weight are combined.
  std::vector<Digit> digits;
  const auto collect = [&](const std::vector<Digit>& found, bool first) {
    for (Digit d : found) {
      const auto weight = as_const_int(d.weight);
      if (first == (weight && *weight < 0)) std::swap(d.more, d.less);
      const auto same = std::find_if(digits.begin(), digits.end(),
                                     [&](const Digit& s) { return provably_equal(s.weight, d.weight); });
      if (same == digits.end()) {
        digits.push_back(d);
      } else {
        same->more = simplify(same->more + d.more);
        same->less = simplify(same->less + d.less);
      }
    }
  };
  collect(fa->digits, true);
  collect(fb->digits, false);
  digits.push_back({fa->weight, *own, fa->span, fa->span});  // the last one is the digit that differs

  // The range of the distance between the two accesses, without the contribution of one digit.
  const auto distance = [&](const Digit* without) {
    Expr low = index_const(*offset), high = low;
    for (const Digit& d : digits) {
      if (&d == without) continue;
      low = low - d.magnitude * d.less;
      high = high + d.magnitude * d.more;
    }
    return std::pair{low, high};
  };
  const Expr zero = index_const(0);
  while (!digits.empty()) {
    // The remaining digits may be too small to bridge the distance. This proves, for example, that parts of a
    // concatenation do not overlap.
    const auto [low, high] = distance(nullptr);
    if (proves_less(zero, low, ranges_) || proves_less(high, zero, ranges_)) return true;
    const auto decided = std::find_if(digits.rbegin(), digits.rend(), [&](const Digit& d) {
      const auto [least, most] = distance(&d);
      return proves_less(most, d.magnitude, ranges_) && proves_less(zero - d.magnitude, least, ranges_);
    });
    if (decided == digits.rend()) return false;
    if (decided == digits.rbegin()) return true;
    digits.erase(std::next(decided).base());
  }
  return false;
}

bool LoopTree::reorderable(int loop) const {
  if (loops_[loop].has_call) return false;
  if (!independent_[loop]) independent_[loop] = independent(loop);
  return *independent_[loop];
}

namespace {

using NameSet = std::set<std::string>;

bool depends(const Expr& e, const NameSet& names) {
  bool found = false;
  if (e) visit(e, [&](const ExprNode& n) { found |= n.is(ExprKind::kVar) && names.count(n.name) > 0; });
  return found;
}

// Whether something stored in `block` depends on `partial`, values that exist only while a reduction is
// running. The loop is then a scan. Names that are bound to such values are added to the set.
bool stores_partial(const Block& block, NameSet& partial) {
  if (!block) return false;
  for (const Stmt& stmt : block->stmts) {
    if (const auto* inner = std::get_if<Block>(&stmt)) {
      if (stores_partial(*inner, partial)) return true;
    } else if (const auto* let = std::get_if<Let>(&stmt)) {
      if (depends(let->value, partial)) partial.insert(let->name);
    } else if (const auto* store = std::get_if<Store>(&stmt)) {
      if (depends(store->value, partial) || depends(store->index, partial) || depends(store->mask, partial))
        return true;
    } else if (const auto* branch = std::get_if<If>(&stmt)) {
      if (depends(branch->condition, partial)) return true;
      if (stores_partial(branch->then_body, partial) || stores_partial(branch->else_body, partial))
        return true;
    } else if (const auto* loop = std::get_if<For>(&stmt)) {
      if (loop->reduction)
        for (const State& state : loop->reduction->states)
          if (depends(state.init, partial)) partial.insert(state.name);
      if (stores_partial(loop->body, partial)) return true;
      if (loop->reduction)
        for (size_t i = 0; i < loop->reduction->states.size(); ++i)
          if (depends(loop->reduction->yield[i], partial)) partial.insert(loop->reduction->states[i].name);
    }
  }
  return false;
}

}  // namespace

bool LoopTree::independent(int loop) const {
  if (const For& node = *loops_[loop].node; node.reduction) {
    NameSet partial;
    for (const State& state : node.reduction->states) partial.insert(state.name);
    if (stores_partial(node.body, partial)) return false;
  }
  return all_disjoint(loop, loops_[loop].node->var);
}

bool LoopTree::divisible(int loop, const std::string& row) const {
  return !loops_[loop].has_call && all_disjoint(loop, row);
}

bool LoopTree::all_disjoint(int loop, const std::string& digit) const {
  std::vector<const Access*> inside;
  std::set<std::string> written;
  for (const Access& access : accesses_) {
    if (access.loop < 0 || !encloses(loop, access.loop)) continue;
    if (access.owner >= 0 && encloses(loop, access.owner)) continue;  // private to an iteration
    inside.push_back(&access);
    if (access.is_store) written.insert(access.buffer);
  }
  for (size_t i = 0; i < inside.size(); ++i) {
    if (written.count(inside[i]->buffer) == 0) continue;
    for (size_t j = i; j < inside.size(); ++j) {
      if (inside[i]->buffer != inside[j]->buffer || !(inside[i]->is_store || inside[j]->is_store)) continue;
      if (!disjoint(*inside[i], *inside[j], loop, digit)) return false;
    }
  }
  return true;
}

}  // namespace ipex::loop
