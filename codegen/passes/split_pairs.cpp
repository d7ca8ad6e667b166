// split_pairs: vectors of bf16 are computed on as their even elements and then their odd ones.
//
//   for i in 0..N/64 { y[ramp(i*64, 1, 64)] = cast.bf16(f(cast.f32(x[ramp(i*64, 1, 64)]))) }
//     =>  for i in 0..N/64 {
//           y[..] = cast.bf16(shuffle(f(shuffle(cast.f32(x[..]), .., [0, 2, 4, .. 1, 3, 5, ..])), ..,
//                                     [0, 16, 1, 17, ..]))
//         }
//
// Vectors of bf16 keep their order, everything else is split. A register of bf16 read as 32-bit words,
// shifted left, is its even elements in f32, and under a mask its odd ones: two instructions any unit takes,
// for four that wait for the one that moves lanes. What is computed lane by lane, and what brings all lanes
// together, does not ask for their order; what is stored is put back, in bf16 by one instruction a register.
#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>

#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

// Instructions that move lanes, for two registers of f32: what conversions save, and what it takes to put
// other elements in order.
struct Costs {
  double load_saves, store_saves, reorder;
};
Costs costs_of(const Target& target) {
  const bool wide = target.vector_bytes == 64;  // permutes two registers in one instruction
  return {.load_saves = 2.5, .store_saves = target.native_bf16 ? -1.0 : 2.0, .reorder = wide ? 2.0 : 4.0};
}

bool same_in_all_lanes(const Expr& e) {
  return !e->type.is_vector() || e->is(ExprKind::kConst) || e->is(ExprKind::kBroadcast);
}

struct Split {
  std::vector<Stmt> stmts;                // the loop, and what puts its states in order behind it
  std::map<std::string, Expr> reordered;  // those states, as the loop has them
  double saved = 0;                       // a step of two registers
  bool is_possible = false, uses_shared = false;
};
constexpr double kWorthIt = 1;

// One loop of lets and stores without masks. Everything in it has one number of lanes.
class Splitter {
 public:
  Splitter(const For& loop, int lanes, const std::set<std::string>& shared, const Target& target,
           Names& names)
      : loop_(loop),
        lanes_(lanes),
        pair_(2 * target.lanes(Dtype::kF32)),
        shared_(shared),
        costs_(costs_of(target)),
        names_(names) {}

  Split run() {
    For out = loop_;
    Split result;
    if (out.reduction)
      for (State& state : out.reduction->states) split_state(state, result);
    out.body = split_body();
    if (out.reduction) {
      for (Expr& next : out.reduction->yield) next = split(next);
      for (Expr& merge : out.reduction->merge) merge = split(merge);
    }
    const auto trips = as_const_int(simplify(loop_.end - loop_.begin));
    result.is_possible = possible_;
    result.uses_shared = uses_shared_;
    result.saved = saved_ - around_ / static_cast<double>(std::max<int64_t>(1, trips.value_or(kManyTrips)));
    result.stmts.insert(result.stmts.begin(), std::move(out));
    return result;
  }

 private:
  static constexpr int64_t kManyTrips = 16;

  void refuse() { possible_ = false; }
  bool is_whole(const Expr& index) const {
    return index->is(ExprKind::kRamp) && as_const_int(index->args[1]) == 1 && index->type.lanes == lanes_;
  }

  Expr evens_then_odds(const Expr& e) const { return permuted(e, splitting_picks(lanes_, pair_)); }
  Expr back_in_order(const Expr& e) const { return permuted(e, interleaving_picks(lanes_, pair_)); }
  static Expr permuted(const Expr& e, std::vector<int> picks) {  // of the second vector nothing
    return make_shuffle(e, make_const(e->type, 0), std::move(picks));
  }

  void split_state(State& state, Split& result) {
    if (!state.type.is_vector()) return;
    if (state.type.lanes != lanes_ || state.type.dtype == Dtype::kBF16) return refuse();
    const std::string name = std::exchange(state.name, names_.fresh(state.name));
    if (!same_in_all_lanes(state.init)) {
      around_ += costs_.reorder;
      state.init = evens_then_odds(state.init);
    }
    if (!same_in_all_lanes(state.identity)) state.identity = evens_then_odds(state.identity);
    const Expr renamed = make_var(state.name, state.type);
    local_[name] = renamed;
    local_[name + ".other"] = make_var(state.name + ".other", state.type);
    around_ += costs_.reorder;
    result.stmts.emplace_back(Let{name, back_in_order(renamed)});
    result.reordered[name] = renamed;
  }

  Block split_body() {
    std::vector<Stmt> out;
    for (const Stmt& stmt : loop_.body->stmts) {
      if (const auto* let = std::get_if<Let>(&stmt)) {
        const Expr value = split(let->value);
        local_[let->name] = make_var(let->name, value->type);
        out.emplace_back(Let{let->name, value});
      } else if (const auto* store = std::get_if<Store>(&stmt)) {
        out.emplace_back(split_store(*store));
      } else if (std::holds_alternative<Call>(stmt)) {
        out.push_back(stmt);  // asks for a line, of which no lane matters
      } else {
        refuse();
      }
      if (!possible_) break;
    }
    return make_block(std::move(out));
  }

  Store split_store(const Store& store) {
    Store out = store;
    if (store.index->type.is_vector() && (!is_whole(store.index) || store.mask)) refuse();
    out.value = split(store.value);
    if (stays_split(store.buffer, store.index)) return out;
    if (!same_in_all_lanes(out.value) && out.value->type.dtype != Dtype::kBF16) {
      saved_ -= costs_.reorder;
      out.value = back_in_order(out.value);
    }
    return out;
  }

  // Scratch that holds whole pairs of registers as they are computed.
  bool stays_split(const std::string& buffer, const Expr& index) {
    if (!shared_.contains(buffer)) return false;
    uses_shared_ = true;
    if (!index->is(ExprKind::kRamp) ||
        as_const_int(simplify(floormod(index->args[0], index_const(pair_)))) != 0)
      refuse();
    return true;
  }

  // e with its lanes in the other order; vectors of bf16 keep theirs.
  Expr split(const Expr& e) {
    if (const auto known = done_.find(e); known != done_.end()) return known->second;
    if (e->type.is_vector() && e->type.lanes != lanes_) return refuse(), e;
    return done_[e] = split_node(e);
  }

  Expr split_node(const Expr& e) {
    switch (e->kind) {
      case ExprKind::kConst:
        return e;
      case ExprKind::kVar:
        return split_name(e);
      case ExprKind::kLoad:
        return e->type.is_vector() ? split_load(e) : e;
      case ExprKind::kCast:
        return split_cast(e);
      case ExprKind::kRamp:
      case ExprKind::kShuffle:
        return refuse(), e;
      case ExprKind::kApply:
      case ExprKind::kBroadcast:
      case ExprKind::kReduceLanes:
        break;
    }
    std::vector<Expr> args;
    for (const Expr& arg : e->args) {
      args.push_back(split(arg));
      if (arg->type.is_vector() && arg->type.dtype == Dtype::kBF16) refuse();
    }
    return with_args(e, std::move(args));
  }

  Expr split_load(const Expr& e) {
    if (!is_whole(e->args[0]) || e->args.size() > 1) return refuse(), e;
    if (e->type.dtype == Dtype::kBF16 || stays_split(e->name, e->args[0])) return e;
    if (varies(e))
      saved_ -= costs_.reorder;
    else
      around_ += costs_.reorder;
    return evens_then_odds(e);
  }

  Expr split_cast(const Expr& e) {
    const Expr x = split(e->args[0]);
    const Expr cast = make_cast(e->type.dtype, x);
    if (!e->type.is_vector() || same_in_all_lanes(x)) return cast;
    if (x->type.dtype == Dtype::kBF16) {
      if (e->type.dtype != Dtype::kF32)
        saved_ -= costs_.reorder;
      else if (varies(x) && !seen(x))
        saved_ += costs_.load_saves;
      return evens_then_odds(cast);
    }
    if (e->type.dtype != Dtype::kBF16) return cast;
    saved_ += x->type.dtype == Dtype::kF32 ? costs_.store_saves : -costs_.reorder;
    return make_cast(Dtype::kBF16, back_in_order(x));
  }

  // Another conversion of what has been converted costs nothing.
  bool seen(const Expr& x) {
    const bool known =
        std::any_of(converted_.begin(), converted_.end(), [&](const Expr& e) { return equal(e, x); });
    if (!known) converted_.push_back(x);
    return known;
  }

  Expr split_name(const Expr& e) {
    if (const auto it = local_.find(e->name); it != local_.end()) return it->second;
    if (!e->type.is_vector() || e->type.dtype == Dtype::kBF16) return e;
    around_ += costs_.reorder;
    return evens_then_odds(e);
  }

  // Whether each iteration reads something else; LLVM reads the rest before the loop.
  bool varies(const Expr& load) const {
    const std::set<std::string> names = free_vars(load);
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name == loop_.var || local_.contains(name); });
  }

  const For& loop_;
  int lanes_, pair_;
  const std::set<std::string>& shared_;
  Costs costs_;
  Names& names_;
  std::map<std::string, Expr> local_;  // states and lets of the loop, reordered
  std::vector<Expr> converted_;
  std::unordered_map<Expr, Expr> done_;  // keeps the nodes alive
  double saved_ = 0, around_ = 0;        // a step of two registers, and around the loop
  bool possible_ = true, uses_shared_ = false;
};

bool is_straight(const For& loop) {
  const auto is_plain = [](const Stmt& stmt) {
    const auto* call = std::get_if<Call>(&stmt);
    return std::holds_alternative<Let>(stmt) || std::holds_alternative<Store>(stmt) ||
           (call && call->function == kPrefetch);
  };
  return loop.kind != ForKind::kVector && std::ranges::all_of(loop.body->stmts, is_plain);
}

// The lanes of the first vector of bf16, or of shared scratch, that the loop touches, where they fill pairs
// of registers; else 0.
int lanes_of(const For& loop, const std::set<std::string>& shared, const Target& target) {
  int lanes = 0;
  const auto access = [&](const std::string& buffer, Dtype dtype, int width) {
    if (lanes == 0 && width > 1 && (dtype == Dtype::kBF16 || shared.contains(buffer))) lanes = width;
  };
  const auto look = [&](const ExprNode& e) {
    if (e.is(ExprKind::kLoad)) access(e.name, e.type.dtype, e.type.lanes);
  };
  const auto look_at = [&](const Stmt& stmt) {
    if (const auto* store = std::get_if<Store>(&stmt))
      access(store->buffer, store->value->type.dtype, store->index->type.lanes);
  };
  visit(make_block({loop}), look_at, look);
  return lanes % (2 * target.lanes(Dtype::kF32)) == 0 ? lanes : 0;
}

// Scratch of f32 that only straight loops touch, and only whole vectors of it.
std::set<std::string> scratch_of_straight_loops(const Function& f) {
  std::set<std::string> scratch, straight;
  visit(
      f.body,
      [&](const Stmt& stmt) {
        const auto* alloc = std::get_if<Alloc>(&stmt);
        if (alloc && alloc->dtype == Dtype::kF32) scratch.insert(alloc->buffer);
        const auto* loop = std::get_if<For>(&stmt);
        if (loop && is_straight(*loop)) straight.insert(loop->var);
      },
      nullptr);
  const auto drop = [&](const Block& block, bool vectors_too) {
    visit(
        block,
        [&](const Stmt& stmt) {
          const auto* store = std::get_if<Store>(&stmt);
          if (store && (vectors_too || !store->index->type.is_vector())) scratch.erase(store->buffer);
        },
        [&](const ExprNode& e) {
          if (e.is(ExprKind::kLoad) && (vectors_too || !e.type.is_vector())) scratch.erase(e.name);
        });
  };
  drop(f.body, false);
  const Block rest = transform_stmts(f.body, [&](Stmt stmt) -> std::vector<Stmt> {
    const auto* loop = std::get_if<For>(&stmt);
    if (loop && straight.contains(loop->var)) return {};
    return {std::move(stmt)};
  });
  drop(rest, true);
  return scratch;
}

class PairSplitting {
 public:
  PairSplitting(const Function& f, const Target& target) : f_(f), target_(target), names_(f) {}

  Function run() {
    shared_ = scratch_of_straight_loops(f_);
    if (!shared_.empty() && !shared_pays()) shared_.clear();
    std::map<std::string, Expr> reordered;
    Function out = f_;
    out.body = transform_stmts(f_.body, [&](Stmt stmt) -> std::vector<Stmt> {
      std::optional<Split> split = split_of(stmt);
      if (!split || !split->is_possible || (split->saved < kWorthIt && !split->uses_shared))
        return {std::move(stmt)};
      reordered.merge(split->reordered);
      return std::move(split->stmts);
    });
    if (reordered.empty()) return out;
    // What brings all lanes together takes them as they are.
    out.body = transform(out.body, [&](const Expr& e) {
      if (!e->is(ExprKind::kReduceLanes) || !e->args[0]->is(ExprKind::kVar)) return e;
      const auto it = reordered.find(e->args[0]->name);
      return it == reordered.end() ? e : make_reduce_lanes(e->op, it->second);
    });
    return out;
  }

 private:
  std::optional<Split> split_of(const Stmt& stmt) {
    const auto* loop = std::get_if<For>(&stmt);
    const int lanes = loop && is_straight(*loop) ? lanes_of(*loop, shared_, target_) : 0;
    if (lanes == 0) return std::nullopt;
    return Splitter(*loop, lanes, shared_, target_, names_).run();
  }

  // All that touch shared scratch are split, or none.
  bool shared_pays() {
    bool possible = true;
    double saved = 0;
    visit(
        f_.body,
        [&](const Stmt& stmt) {
          const std::optional<Split> split = split_of(stmt);
          if (split && split->uses_shared) {
            possible &= split->is_possible;
            saved += split->saved;
          } else if (!split) {
            possible &= !touches_shared(stmt);
          }
        },
        nullptr);
    return possible && saved >= kWorthIt;
  }

  // A straight loop of other lanes, or of none.
  bool touches_shared(const Stmt& stmt) const {
    const auto* loop = std::get_if<For>(&stmt);
    if (!loop || !is_straight(*loop)) return false;
    bool touches = false;
    visit(
        make_block({stmt}),
        [&](const Stmt& s) {
          if (const auto* store = std::get_if<Store>(&s)) touches |= shared_.contains(store->buffer);
        },
        [&](const ExprNode& e) { touches |= e.is(ExprKind::kLoad) && shared_.contains(e.name); });
    return touches;
  }

  const Function& f_;
  const Target& target_;
  Names names_;
  std::set<std::string> shared_;
};

}  // namespace

Function split_pairs(const Function& f, const Target& target) { return PairSplitting(f, target).run(); }

}  // namespace ipex::loop
