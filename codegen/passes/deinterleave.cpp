// deinterleave: a loop over vectors of bf16 computes on the even elements of each register first, and then on
// the odd elements.
//
//   for i in 0..N/64 { y[ramp(i*64, 1, 64)] = cast.bf16(f(cast.f32(x[ramp(i*64, 1, 64)]))) }
//     =>  for i in 0..N/64 {
//           y[..] = cast.bf16(shuffle(f(shuffle(cast.f32(x[..]), .., [0, 2, 4, .. 1, 3, 5, ..])), ..,
//                                     [0, 16, 1, 17, ..]))
//         }
//
// Vectors of bf16 keep their order; all other vectors are deinterleaved. If a register of bf16 is read as
// 32-bit words, shifting left gives its even elements in f32, and masking gives its odd elements. Both
// instructions run on every execution port, while the usual conversion takes four instructions for the one
// port that moves lanes. Operations that work lane by lane, and reductions over all lanes, do not depend on
// the order. What is stored is interleaved again, which takes one instruction per register of bf16.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "codegen/loop/rewrite.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/passes.h"

namespace ipex::loop {

namespace {

// Savings and costs, counted in instructions that move lanes, for two registers of f32: what cheaper
// conversions save, and what it costs to reorder other elements.
struct Costs {
  double load_saves, store_saves, reorder;
};
Costs costs_of(const Target& target) {
  return {.load_saves = 2.5,
          .store_saves = target.native_bf16 ? -1.0 : 2.0,
          .reorder = target.two_register_permute ? 2.0 : 4.0};
}

bool same_in_all_lanes(const Expr& e) {
  return !e->type.is_vector() || e->is(ExprKind::kConst) || e->is(ExprKind::kBroadcast);
}

struct Deinterleaved {
  std::vector<Stmt> stmts;  // the loop, followed by code that puts its states back in order
  std::map<std::string, Expr>
      reordered;     // the states as the loop computes them, before they are put back in order
  double saved = 0;  // per step of two registers
  bool is_possible = false;
};
constexpr double kMinSaving = 1;

// A loop of lets and stores. All vectors in it have the same number of lanes.
class LoopDeinterleaver {
 public:
  LoopDeinterleaver(const For& loop, int lanes, const std::set<std::string>& shared, const Target& target,
                    Names& names)
      : loop_(loop),
        lanes_(lanes),
        block_(2 * target.lanes(Dtype::kF32)),
        shared_(shared),
        costs_(costs_of(target)),
        names_(names) {}

  Deinterleaved run() {
    For out = loop_;
    Deinterleaved result;
    if (out.reduction)
      for (State& state : out.reduction->states) deinterleave_state(state, result);
    out.body = deinterleave_body();
    if (out.reduction) {
      for (Expr& next : out.reduction->yield) next = deinterleave(next);
      for (Expr& merge : out.reduction->merge) merge = deinterleave(merge);
    }
    const auto trips = as_const_int(simplify(loop_.end - loop_.begin));
    result.is_possible = possible_;
    result.saved =
        saved_ - around_ / static_cast<double>(std::max<int64_t>(1, trips.value_or(kAssumedTrips)));
    result.stmts.insert(result.stmts.begin(), std::move(out));
    return result;
  }

 private:
  static constexpr int64_t kAssumedTrips = 16;

  void refuse() { possible_ = false; }
  Expr evens_then_odds(const Expr& e) const { return permuted(e, deinterleave_mask(lanes_, block_)); }
  Expr back_in_order(const Expr& e) const { return permuted(e, interleave_mask(lanes_, block_)); }
  static Expr permuted(const Expr& e, std::vector<int> mask) {  // no lane comes from the second vector
    return make_shuffle(e, make_const(e->type, 0), std::move(mask));
  }

  void deinterleave_state(State& state, Deinterleaved& result) {
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

  Block deinterleave_body() {
    std::vector<Stmt> out;
    for (const Stmt& stmt : loop_.body->stmts) {
      if (const auto* let = std::get_if<Let>(&stmt)) {
        const Expr value = deinterleave(let->value);
        local_[let->name] = make_var(let->name, value->type);
        out.emplace_back(Let{let->name, value});
      } else if (const auto* store = std::get_if<Store>(&stmt)) {
        out.emplace_back(deinterleave_store(*store));
      } else {  // a prefetch
        Call call = std::get<Call>(stmt);
        for (Expr& arg : call.args) arg = deinterleave(arg);
        out.emplace_back(std::move(call));
      }
      if (!possible_) break;
    }
    return make_block(std::move(out));
  }

  Store deinterleave_store(const Store& store) {
    Store out = store;
    out.index = deinterleave_index(store.index);
    out.value = deinterleave(store.value);
    if (store.mask) {
      if (store.index->type.is_vector()) refuse();
      out.mask = deinterleave(store.mask);
    }
    if (stays_deinterleaved(store.buffer, store.index) || same_in_all_lanes(out.value) ||
        out.value->type.dtype == Dtype::kBF16)
      return out;
    saved_ -= costs_.reorder;
    out.value = back_in_order(out.value);
    return out;
  }

  // Scratch that holds pairs of registers in the order in which they are computed.
  bool stays_deinterleaved(const std::string& buffer, const Expr& index) {
    if (!shared_.contains(buffer)) return false;
    if (!index->is(ExprKind::kRamp) ||
        as_const_int(simplify(floormod(index->args[0], index_const(block_)))) != 0)
      refuse();
    return true;
  }

  // The value of e in the deinterleaved order. Vectors of bf16 keep their order.
  Expr deinterleave(const Expr& e) {
    if (const auto known = done_.find(e); known != done_.end()) return known->second;
    if (e->type.is_vector() && e->type.lanes != lanes_) return refuse(), e;
    return done_[e] = deinterleave_node(e);
  }

  Expr deinterleave_node(const Expr& e) {
    switch (e->kind) {
      case ExprKind::kConst:
        return e;
      case ExprKind::kVar:
        return deinterleave_name(e);
      case ExprKind::kLoad:
        if (e->type.is_vector()) return deinterleave_load(e);
        break;
      case ExprKind::kCast:
        return deinterleave_cast(e);
      case ExprKind::kRamp:  // the index of a whole vector: see deinterleave_index
      case ExprKind::kShuffle:
        return refuse(), e;
      case ExprKind::kApply:
      case ExprKind::kBroadcast:
      case ExprKind::kReduceLanes:
        break;
    }
    std::vector<Expr> args;
    for (const Expr& arg : e->args) args.push_back(deinterleave(arg));
    const auto keeps_order = [](const Expr& x) {
      return x->type.is_vector() && x->type.dtype == Dtype::kBF16;
    };
    if (e->is(ExprKind::kApply) && (keeps_order(e) || std::ranges::any_of(args, keeps_order))) refuse();
    return with_args(e, std::move(args));
  }

  // The index of a load or a store: one element, or a whole contiguous vector.
  Expr deinterleave_index(const Expr& index) {
    if (!index->type.is_vector()) return deinterleave(index);
    if (!index->is(ExprKind::kRamp) || as_const_int(index->args[1]) != 1 || index->type.lanes != lanes_)
      return refuse(), index;
    return make_ramp(deinterleave(index->args[0]), index->args[1], lanes_);
  }

  Expr deinterleave_load(const Expr& e) {
    if (e->args.size() > 1) return refuse(), e;
    const Expr load = make_load(e->name, e->type.dtype, deinterleave_index(e->args[0]));
    if (!possible_ || e->type.dtype == Dtype::kBF16 || stays_deinterleaved(e->name, e->args[0])) return load;
    if (varies(e))
      saved_ -= costs_.reorder;
    else
      around_ += costs_.reorder;
    return evens_then_odds(load);
  }

  Expr deinterleave_cast(const Expr& e) {
    const Expr x = deinterleave(e->args[0]);
    const Expr cast = make_cast(e->type.dtype, x);
    if (same_in_all_lanes(x)) return cast;
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

  // Converting a value a second time costs nothing.
  bool seen(const Expr& x) {
    const bool known =
        std::any_of(converted_.begin(), converted_.end(), [&](const Expr& e) { return equal(e, x); });
    if (!known) converted_.push_back(x);
    return known;
  }

  Expr deinterleave_name(const Expr& e) {
    if (const auto it = local_.find(e->name); it != local_.end()) return it->second;
    if (!e->type.is_vector() || e->type.dtype == Dtype::kBF16) return e;
    around_ += costs_.reorder;
    return evens_then_odds(e);
  }

  // Whether each iteration reads another place. LLVM moves other loads before the loop.
  bool varies(const Expr& load) const {
    const std::set<std::string> names = free_vars(load);
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name == loop_.var || local_.contains(name); });
  }

  const For& loop_;
  int lanes_, block_;
  const std::set<std::string>& shared_;
  Costs costs_;
  Names& names_;
  std::map<std::string, Expr> local_;  // states and lets of the loop, reordered
  std::vector<Expr> converted_;
  std::unordered_map<Expr, Expr> done_;  // keeps the nodes alive
  double saved_ = 0, around_ = 0;        // per step of two registers, and outside the loop
  bool possible_ = true;
};

bool is_straight(const For& loop) {
  const auto is_plain = [](const Stmt& stmt) {
    const auto* call = std::get_if<Call>(&stmt);
    return std::holds_alternative<Let>(stmt) || std::holds_alternative<Store>(stmt) ||
           (call && call->function == kPrefetch);
  };
  return loop.kind != ForKind::kVector && std::ranges::all_of(loop.body->stmts, is_plain);
}

// The number of lanes of the first vector of bf16, or of shared scratch, that the loop accesses. 0 if they do
// not fill pairs of registers.
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

// The buffers that are accessed as single elements or, with vectors_too, in any way.
std::set<std::string> buffers_touched(const Block& block, bool vectors_too) {
  std::set<std::string> touched;
  visit(
      block,
      [&](const Stmt& stmt) {
        const auto* store = std::get_if<Store>(&stmt);
        if (store && (vectors_too || !store->index->type.is_vector())) touched.insert(store->buffer);
      },
      [&](const ExprNode& e) {
        if (e.is(ExprKind::kLoad) && (vectors_too || !e.type.is_vector())) touched.insert(e.name);
      });
  return touched;
}

// Scratch buffers of f32 that are accessed in straight-line loops only, and only as vectors.
std::set<std::string> scratch_of(const Function& f, const std::vector<const For*>& straight) {
  std::set<std::string> scratch, loops;
  for (const For* loop : straight) loops.insert(loop->var);
  const auto collect = [&](const Stmt& stmt) {
    const auto* alloc = std::get_if<Alloc>(&stmt);
    if (alloc && alloc->dtype == Dtype::kF32) scratch.insert(alloc->buffer);
  };
  visit(f.body, collect, nullptr);
  const Block around = transform_stmts(f.body, [&](Stmt stmt) -> std::vector<Stmt> {
    auto* loop = std::get_if<For>(&stmt);
    if (!loop || !loops.contains(loop->var)) return {std::move(stmt)};
    loop->body = make_block({});
    if (loop->reduction) loop->reduction->yield = loop->reduction->merge = {};
    return {std::move(stmt)};
  });
  for (const std::string& name : buffers_touched(around, true)) scratch.erase(name);
  for (const std::string& name : buffers_touched(f.body, false)) scratch.erase(name);
  return scratch;
}

class Deinterleaver {
 public:
  Deinterleaver(const Function& f, const Target& target) : f_(f), target_(target), names_(f) {}

  Function run() {
    share_scratch();
    std::map<std::string, Expr> reordered;
    Function out = f_;
    out.body = transform_stmts(f_.body, [&](Stmt stmt) -> std::vector<Stmt> {
      const auto* loop = std::get_if<For>(&stmt);
      std::optional<Deinterleaved> deinterleaved = loop ? deinterleaved_loop(*loop) : std::nullopt;
      if (!deinterleaved || (deinterleaved->saved < kMinSaving && shared_by(*loop).empty()))
        return {std::move(stmt)};
      reordered.merge(deinterleaved->reordered);
      return std::move(deinterleaved->stmts);
    });
    if (reordered.empty()) return out;
    // A reduction over all lanes uses the states as the loop computes them.
    out.body = transform(out.body, [&](const Expr& e) {
      if (!e->is(ExprKind::kReduceLanes) || !e->args[0]->is(ExprKind::kVar)) return e;
      const auto it = reordered.find(e->args[0]->name);
      return it == reordered.end() ? e : make_reduce_lanes(e->op, it->second);
    });
    return out;
  }

 private:
  // None if the loop cannot be deinterleaved.
  std::optional<Deinterleaved> deinterleaved_loop(const For& loop) {
    const int lanes = is_straight(loop) ? lanes_of(loop, shared_, target_) : 0;
    if (lanes == 0) return std::nullopt;
    Deinterleaved deinterleaved = LoopDeinterleaver(loop, lanes, shared_, target_, names_).run();
    return deinterleaved.is_possible ? std::optional(std::move(deinterleaved)) : std::nullopt;
  }

  std::set<std::string> shared_by(const For& loop) const {
    std::set<std::string> out;
    for (const std::string& name : buffers_touched(make_block({loop}), true))
      if (shared_.contains(name)) out.insert(name);
    return out;
  }

  // Finds the scratch buffers that stay deinterleaved: every loop that accesses one must be deinterleaved.
  void share_scratch() {
    std::vector<const For*> straight;
    const auto collect = [&](const Stmt& stmt) {
      const auto* loop = std::get_if<For>(&stmt);
      if (loop && is_straight(*loop)) straight.push_back(loop);
    };
    visit(f_.body, collect, nullptr);
    shared_ = scratch_of(f_, straight);
    double saved = 0;
    for (bool stable = false; !stable && !shared_.empty();) {
      stable = true;
      saved = 0;
      for (const For* loop : straight) {
        const std::set<std::string> touched = shared_by(*loop);
        if (touched.empty()) continue;
        const std::optional<Deinterleaved> deinterleaved = deinterleaved_loop(*loop);
        stable &= deinterleaved.has_value();
        if (deinterleaved)
          saved += deinterleaved->saved;
        else
          for (const std::string& name : touched) shared_.erase(name);
      }
    }
    if (saved < kMinSaving) shared_.clear();
  }

  const Function& f_;
  const Target& target_;
  Names names_;
  std::set<std::string> shared_;
};

}  // namespace

Function deinterleave(const Function& f, const Target& target) {
  const auto is_bf16 = [](const Buffer& buffer) { return buffer.dtype == Dtype::kBF16; };
  return std::ranges::any_of(f.buffers, is_bf16) ? Deinterleaver(f, target).run() : f;
}

}  // namespace ipex::loop
