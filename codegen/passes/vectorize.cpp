// vectorize: vector loops become loops over whole vectors, followed by masked vectors for the remainder.
//
// One step processes lanes * unroll elements in one wide value, so that independent vectors are in flight
// without repeating the body; LLVM splits wide values into registers. There is no scalar remainder loop: the
// tail is the same body under a mask. If its length is known only at run time, it uses single vectors. A
// reduction keeps a vector of states, in which each lane is a partial result. The lanes are merged after the
// loop; if the loop is the inner level of a reduction over several loops, they are merged after the outermost
// level.
#include <bit>

#include "codegen/analyses/loop_nest.h"
#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"
#include "codegen/passes/widen.h"

namespace ipex::loop {

namespace {

// Accepts lets followed by one loop: a level that passes its states to the next.
const For* inner_reduction(const For& f) {
  if (f.kind != ForKind::kSerial || !f.reduction || f.body->stmts.empty()) return nullptr;
  for (size_t i = 0; i + 1 < f.body->stmts.size(); ++i) {
    const auto* let = std::get_if<Let>(&f.body->stmts[i]);
    if (!let) return nullptr;
    for (const State& s : f.reduction->states)
      if (uses(let->value, s.name)) return nullptr;
  }
  const auto* inner = std::get_if<For>(&f.body->stmts.back());
  return inner && passes_through(f, *inner) ? inner : nullptr;
}

bool is_vector_nest(const For& f) {
  if (f.kind == ForKind::kVector) return true;
  const For* inner = inner_reduction(f);
  return inner && is_vector_nest(*inner);
}

int width_of(const For& f) {
  return f.kind == ForKind::kVector ? f.lanes * f.unroll : width_of(*inner_reduction(f));
}

// The operation that merges state i on its own, if there is one.
std::optional<ScalarOp> lane_op(const Reduction& r, size_t i) {
  const Expr& m = r.merge[i];
  if (!m->is(ExprKind::kApply) || m->args.size() != 2) return std::nullopt;
  switch (m->op) {
    case ScalarOp::add_:
    case ScalarOp::mul_:
    case ScalarOp::min_:
    case ScalarOp::max_:
    case ScalarOp::bitand_:
    case ScalarOp::bitor_:
    case ScalarOp::bitxor_:
      break;
    default:
      return std::nullopt;
  }
  const Expr self = make_var(r.states[i].name, r.states[i].type),
             other = make_var(r.states[i].name + ".other", r.states[i].type);
  const bool plain = (equal(m->args[0], self) && equal(m->args[1], other)) ||
                     (equal(m->args[0], other) && equal(m->args[1], self));
  return plain ? std::optional(m->op) : std::nullopt;
}

class Vectorizer {
 public:
  explicit Vectorizer(const Function& f) : names_(f), ranges_(variable_ranges(f)) {}

  Block block(const Block& b) {
    std::vector<Stmt> out;
    for (const Stmt& stmt : b->stmts) {
      if (const auto* inner = std::get_if<Block>(&stmt)) {
        out.emplace_back(block(*inner));
      } else if (const auto* branch = std::get_if<If>(&stmt)) {
        out.push_back(If{branch->condition, block(branch->then_body),
                         branch->else_body ? block(branch->else_body) : nullptr});
      } else if (const auto* loop = std::get_if<For>(&stmt)) {
        if (is_vector_nest(*loop)) {
          nest(*loop, out);
        } else {
          For copy = *loop;
          copy.body = block(loop->body);
          out.emplace_back(std::move(copy));
        }
      } else {
        out.push_back(stmt);
      }
    }
    return make_block(std::move(out));
  }

 private:
  void nest(const For& f, std::vector<Stmt>& out) {
    if (!f.reduction) {
      steps(f, {}, out);
      return;
    }
    const Reduction& r = *f.reduction;
    const int width = width_of(f);
    std::vector<Expr> start;
    for (const State& s : r.states) start.push_back(make_broadcast(s.identity, width));
    if (f.kind != ForKind::kVector || f.unroll == 1) {
      merge_lanes(r, {level(f, start, out)}, width, out);
      return;
    }
    const Trips trips = trips_of(f, out);
    if (trips.left) {
      merge_lanes(r, {steps(f, trips, start, out)}, width, out);
      return;
    }
    // The remainder takes single vectors, as without a reduction. It has partial results of its own if one
    // operation merges them; otherwise it continues with the results of the whole steps, reduced to one
    // vector.
    std::vector<Expr> whole = whole_steps(f, trips, start, out);
    if (is_simple(r)) {
      for (Expr& e : start) e = make_broadcast(e->args[0], f.lanes);
      merge_lanes(r, {std::move(whole), single_vectors(f, trips, start, out)}, width, out);
    } else {
      whole = merge_halves(r, std::move(whole), width, f.lanes, out);
      merge_lanes(r, {single_vectors(f, trips, whole, out)}, f.lanes, out);
    }
  }

  // One level of a vector reduction, starting from the given vectors. Returns the states after it.
  std::vector<Expr> level(const For& f, const std::vector<Expr>& start, std::vector<Stmt>& out) {
    if (f.kind == ForKind::kVector) return steps(f, start, out);
    For outer{.var = f.var, .begin = f.begin, .end = f.end, .reduction = vector_states(f, start)};
    std::vector<Stmt> body(f.body->stmts.begin(), f.body->stmts.end() - 1);
    const std::vector<Expr> before = state_vars(*outer.reduction);
    if (worth_partial_results(f)) {
      // The inner loop's sums start at zero and are added to those of the outer loop: running sums through
      // both would lose digits.
      std::vector<Expr> identity;
      for (const State& s : outer.reduction->states) identity.push_back(s.identity);
      const std::vector<Expr> partial = level(*inner_reduction(f), identity, body);
      for (size_t i = 0; i < before.size(); ++i)
        outer.reduction->yield.push_back(merged(*outer.reduction, i, before, partial));
    } else {
      outer.reduction->yield = level(*inner_reduction(f), before, body);
    }
    outer.body = make_block(std::move(body));
    const std::vector<Expr> result = state_vars(*outer.reduction);
    out.emplace_back(std::move(outer));
    return result;
  }

  // Merging tuples (Welford's algorithm) needs a division, which does not pay off for a few vectors.
  bool worth_partial_results(const For& f) const {
    constexpr int64_t kMinInnerVectors = 32;
    const For& inner = *inner_reduction(f);
    if (is_simple(*f.reduction)) return true;
    const auto extent = as_const_int(simplify(inner.end - inner.begin, ranges_));
    return !extent || *extent >= kMinInnerVectors * width_of(f);
  }

  static std::vector<Expr> state_vars(const Reduction& r) {
    std::vector<Expr> vars;
    for (const State& s : r.states) vars.push_back(make_var(s.name, s.type));
    return vars;
  }

  // The states of f as vectors under fresh names, and their merges. The caller adds the yields.
  Reduction vector_states(const For& f, const std::vector<Expr>& start) {
    const Reduction& r = *f.reduction;
    Reduction out;
    const int width = start[0]->type.lanes;
    Widener widener(names_, width, nullptr);
    for (size_t i = 0; i < r.states.size(); ++i) {
      const State& s = r.states[i];
      const State& added = out.states.emplace_back(
          State{names_.fresh(s.name), s.type.with_lanes(width), start[i], make_broadcast(s.identity, width)});
      widener.bind(s.name, make_var(added.name, added.type));
      widener.bind(s.name + ".other", make_var(added.name + ".other", added.type));
    }
    for (const Expr& m : r.merge) out.merge.push_back(widener.vector(m));
    return out;
  }

  // The numbers of iterations of a vector loop.
  struct Trips {
    Expr extent, whole, all;      // elements; whole steps; steps including the last, partial one
    std::optional<int64_t> left;  // elements after the whole steps, if known
  };
  Trips trips_of(const For& f, std::vector<Stmt>& out) {
    const int width = f.lanes * f.unroll;
    IPEX_CHECK(width > 1, "the vector loop `" + f.var + "` has one lane");
    Expr extent = simplify(f.end - f.begin, ranges_);
    if (!as_const_int(extent) && !provably_less(index_const(-1), extent, ranges_))
      extent = make_apply(ScalarOp::max_, {extent, index_const(0)});
    if (!as_const_int(extent) && !extent->is(ExprKind::kVar)) {
      const std::string name = names_.fresh(f.var + "_extent");
      out.push_back(Let{name, extent});
      extent = make_var(name);
    }
    Trips trips{extent, simplify(floordiv(extent, index_const(width))),
                simplify(floordiv(extent + index_const(width - 1), index_const(width))),
                as_const_int(simplify(floormod(extent, index_const(width))))};
    if (provably_equal(trips.whole, trips.all)) trips.left = 0;
    return trips;
  }

  // Whole steps, then the remainder. A loop is emitted even for few or no iterations, so that states can pass
  // through it.
  std::vector<Expr> steps(const For& f, std::vector<Expr> states, std::vector<Stmt>& out) {
    return steps(f, trips_of(f, out), std::move(states), out);
  }
  std::vector<Expr> steps(const For& f, const Trips& trips, std::vector<Expr> states,
                          std::vector<Stmt>& out) {
    const int width = f.lanes * f.unroll;
    states = whole_steps(f, trips, std::move(states), out);
    if (trips.left == 0) return states;
    if (!trips.left && !f.reduction) return single_vectors(f, trips, std::move(states), out);
    // If the number of remaining elements is known and small, they take a narrower vector, without a mask if
    // it fits exactly. States keep their width.
    const bool narrow = trips.left && !f.reduction;
    const int tail = narrow ? static_cast<int>(std::bit_ceil(static_cast<uint64_t>(*trips.left))) : width;
    const Expr last = end_of_tail(f, trips.whole, trips.all, 1);
    return pass(f, {trips.whole, last, width, tail, !narrow || tail != *trips.left}, std::move(states), out);
  }

  // Returns `last`, which is at most `most` after `first`. The bound is made explicit for block_sums, which
  // leaves short sums alone.
  static Expr end_of_tail(const For& f, const Expr& first, const Expr& last, int64_t most) {
    if (!f.reduction || as_const_int(last)) return last;
    return make_apply(ScalarOp::min_, {simplify(first + index_const(most)), last});
  }

  std::vector<Expr> whole_steps(const For& f, const Trips& trips, std::vector<Expr> states,
                                std::vector<Stmt>& out) {
    if (as_const_int(trips.whole) == 0) return states;
    const int width = f.lanes * f.unroll;
    return pass(f, {index_const(0), trips.whole, width, width, false}, std::move(states), out);
  }

  // Less than one whole step, of a length that is known only at run time: as few masked vectors as it takes.
  std::vector<Expr> single_vectors(const For& f, const Trips& trips, std::vector<Expr> states,
                                   std::vector<Stmt>& out) {
    const Expr first = simplify(trips.whole * index_const(f.unroll));
    const Expr last = simplify(floordiv(trips.extent + index_const(f.lanes - 1), index_const(f.lanes)));
    return pass(f, {first, end_of_tail(f, first, last, f.unroll), f.lanes, f.lanes, true}, std::move(states),
                out);
  }

  // Iterations [first, last) on vectors of `width` elements that are `step` elements apart.
  struct Pass {
    Expr first, last;
    int step, width;
    bool masked;
  };
  std::vector<Expr> pass(const For& f, const Pass& p, std::vector<Expr> states, std::vector<Stmt>& out) {
    const int width = p.width;
    For loop{.var = names_.fresh(f.var + (p.masked || p.step != width ? "_tail" : "_step")),
             .begin = p.first,
             .end = p.last};
    if (f.reduction) loop.reduction = vector_states(f, states);
    std::vector<Stmt> body;
    const Expr base = simplify(f.begin + make_var(loop.var) * index_const(p.step));
    Expr mask;
    if (p.masked) {
      const std::string name = names_.fresh("mask");
      const Expr lane = make_ramp(index_const(0), index_const(1), width);
      body.push_back(
          Let{name, make_apply(ScalarOp::lt_, {lane, make_broadcast(simplify(f.end - base), width)})});
      mask = make_var(name, {Dtype::kBool, width});
    }
    Widener widener(names_, width, mask);
    widener.bind(f.var, make_ramp(base, index_const(1), width));
    if (f.reduction)
      for (size_t i = 0; i < states.size(); ++i) {
        const State& s = loop.reduction->states[i];
        widener.bind(f.reduction->states[i].name, make_var(s.name, s.type));
      }
    widener.block(f.body, body);
    if (f.reduction) {
      for (size_t i = 0; i < states.size(); ++i) {
        const State& s = loop.reduction->states[i];
        const Expr old = make_var(s.name, s.type);
        Expr next = widener.vector(f.reduction->yield[i]);
        if (mask) next = make_apply(ScalarOp::select_, {mask, next, old});
        loop.reduction->yield.push_back(std::move(next));
        states[i] = old;
      }
    }
    loop.body = make_block(std::move(body));
    out.emplace_back(std::move(loop));
    return states;
  }

  static bool is_simple(const Reduction& r) {
    for (size_t i = 0; i < r.states.size(); ++i)
      if (!lane_op(r, i)) return false;
    return true;
  }

  // Binds the names of r's states to init merged with all lanes. There are several sets of partial results
  // only if the merge is simple.
  void merge_lanes(const Reduction& r, std::vector<std::vector<Expr>> sets, int width,
                   std::vector<Stmt>& out) {
    std::vector<Expr> total;
    if (is_simple(r)) {
      for (size_t i = 0; i < r.states.size(); ++i) {
        const ScalarOp op = *lane_op(r, i);
        Expr sum = make_reduce_lanes(op, sets[0][i]);
        for (size_t k = 1; k < sets.size(); ++k)
          sum = make_apply(op, {sum, make_reduce_lanes(op, sets[k][i])});
        total.push_back(sum);
      }
    } else {
      total = merge_halves(r, std::move(sets[0]), width, 1, out);
    }
    std::vector<Expr> init;
    bool from_identity = true;
    for (const State& s : r.states) {
      init.push_back(s.init);
      from_identity &= equal(s.init, s.identity);
    }
    if (!from_identity) {
      for (size_t i = 0; i < r.states.size(); ++i) {
        const std::string name = names_.fresh(r.states[i].name + "_lanes");
        out.push_back(Let{name, total[i]});
        total[i] = make_var(name, r.states[i].type);
      }
    }
    for (size_t i = 0; i < r.states.size(); ++i)
      out.push_back(Let{r.states[i].name, from_identity ? total[i] : merged(r, i, init, total)});
  }

  // For tuples, merges the upper half of the lanes into the lower half, through scratch memory, until `left`
  // lanes remain.
  std::vector<Expr> merge_halves(const Reduction& r, std::vector<Expr> lanes, int width, int left,
                                 std::vector<Stmt>& out) {
    std::vector<std::string> scratch;
    for (const State& s : r.states) {
      scratch.push_back(names_.fresh(s.name + "_lanes"));
      out.push_back(Alloc{scratch.back(), s.type.dtype, index_const(width)});
    }
    const auto range = [](int begin, int n) {
      return n == 1 ? index_const(begin) : make_ramp(index_const(begin), index_const(1), n);
    };
    for (int n = width; n > left; n /= 2) {
      const int half = n / 2;
      Widener widener(names_, half, nullptr);
      std::vector<Expr> next;
      for (size_t i = 0; i < r.states.size(); ++i) {
        const State& s = r.states[i];
        out.push_back(Store{scratch[i], range(0, n), lanes[i], nullptr});
        const std::string low = names_.fresh(s.name), high = names_.fresh(s.name);
        out.push_back(Let{low, make_load(scratch[i], s.type.dtype, range(0, half))});
        out.push_back(Let{high, make_load(scratch[i], s.type.dtype, range(half, half))});
        widener.bind(s.name, make_var(low, s.type.with_lanes(half)));
        widener.bind(s.name + ".other", make_var(high, s.type.with_lanes(half)));
      }
      for (size_t i = 0; i < r.states.size(); ++i) {
        const std::string name = names_.fresh(r.states[i].name);
        out.push_back(Let{name, widener.vector(r.merge[i])});
        next.push_back(make_var(name, r.states[i].type.with_lanes(half)));
      }
      lanes = std::move(next);
    }
    return lanes;
  }

  Names names_;
  Ranges ranges_;
};

}  // namespace

Function vectorize(const Function& f, const Target&) {
  Function out = f;
  out.body = Vectorizer(f).block(f.body);
  return out;
}

}  // namespace ipex::loop
