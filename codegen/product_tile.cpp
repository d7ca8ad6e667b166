#include "codegen/product_tile.h"

#include <algorithm>
#include <utility>

#include "codegen/loop/polynomial.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/expand.h"
#include "codegen/passes/loop_tree.h"

namespace ipex::loop {

int64_t tile_rows(const Target& target) {
  // A row in flight takes its address in one of 16 general registers.
  constexpr int64_t kMostRows = 13;
  constexpr int64_t kSpare = 4;  // two vectors of b and two registers for what the compiler needs
  return std::min((target.vector_registers - kSpare) / kTileVectors, kMostRows);
}

// Zen 3 (AVX2), 768 x 3072, GFLOP/s of ours and of the library: 16 rows 106 and 116, 32 rows 145 and 143, 96
// rows 179 and 161. Zen 4 (AVX-512): 64 rows 165 and 185, 96 rows 212 and 214, 128 rows 211 and 199, 197 rows
// 215 and 206; but by weights that L2 holds 1 or 2 % less (256 rows, 512 x 256: 209 and 213).
bool blocks_best(Isa isa, int64_t rows, int64_t terms, int64_t columns) {
  constexpr int64_t kSmall = 128 << 10;
  return isa == Isa::kAvx2 ? rows >= 32 : rows >= 128 && terms * columns > kSmall;
}

bool rows_crowd_cache(int64_t bytes_apart) {
  constexpr int64_t kApart = 2048;
  return bytes_apart % kApart == 0;
}

std::vector<Expr> add_sums(const ProductTile& tile, For& loop, std::string_view base, Names& names) {
  const Type type = tile.b.front()->type;
  const Expr zero = make_broadcast(make_const({type.dtype}, 0), type.lanes);
  std::vector<Expr> sums;
  loop.reduction.emplace();
  for (size_t i = 0; i < tile.a.size() * tile.b.size(); ++i) {
    const std::string name = names.fresh(base);
    sums.push_back(make_var(name, type));
    loop.reduction->states.push_back({name, type, tile.start.empty() ? zero : tile.start[i], zero});
    loop.reduction->merge.push_back(
        make_apply(ScalarOp::add_, {sums.back(), make_var(name + ".other", type)}));
  }
  return sums;
}

namespace {

// Multiply-adds of one step of a tile's loop. What counts terms and finds their places takes 6 of 86
// instructions then, for 5 of 25 with 12: nothing to a thread that has a core to itself, but where another
// one has half of its slots, a sixth of the time (Zen 3: 110 and 128 GFLOP/s of 1024 x 768 by 768 x 3072).
constexpr int64_t kProductsTogether = 48;

// A load of a factor, taken apart so that what the terms have in common is computed before them.
struct Place {
  Expr load;             // at the term tile.term.var
  Expr base, step;       // index: base + step * (terms from the first) + constant; null: it is not affine
  int64_t constant = 0;  // kept out of the base, as an address has room for it
  int lanes = 1;         // side by side
};

// The loop over a tile's terms from `first` on.
class TermLoop {
 public:
  TermLoop(const ProductTile& tile, const Expr& first, Names& names)
      : tile_(tile), first_(first), names_(names), before_(names) {
    for (const Expr& a : tile.a) a_.push_back(place_of(a));
    for (const Expr& b : tile.b) b_.push_back(place_of(b));
  }

  // `trips` steps of `together` terms each.
  std::vector<Expr> run(const Expr& trips, int64_t together, std::vector<Stmt>& out) {
    For step{.var = names_.fresh(tile_.term.var), .begin = index_const(0), .end = trips};
    Binder body(names_);
    const std::vector<Expr> sums = add_sums(tile_, step, "sum", names_);
    const ScalarOp op = tile_.pairs ? ScalarOp::dot_bf16_ : ScalarOp::fma_;
    std::vector<Expr> values = sums;
    for (int64_t i = 0; i < together; ++i) {
      const Expr term = simplify(make_var(step.var) * index_const(together) + index_const(i));
      std::vector<Expr> columns;
      for (const Place& b : b_) columns.push_back(body.bind("b_vector", at(b, term)));
      for (size_t row = 0; row < a_.size(); ++row) {
        const Expr a = make_broadcast(at(a_[row], term), columns[0]->type.lanes);
        for (size_t v = 0; v < columns.size(); ++v) {
          Expr& value = values[row * columns.size() + v];
          value = make_apply(op, {a, columns[v], value});
          if (i + 1 < together) value = body.bind("so_far", value);
        }
      }
    }
    step.reduction->yield = std::move(values);
    step.body = make_block(body.take());
    const std::vector<Stmt> before = before_.take();
    out.insert(out.end(), before.begin(), before.end());
    out.emplace_back(std::move(step));
    return sums;
  }

 private:
  Place place_of(const Expr& load) {
    Place place{.load = load};
    if (!load->is(ExprKind::kLoad) || load->args.size() != 1) return place;
    Expr index = load->args[0];
    if (index->is(ExprKind::kRamp)) {
      if (as_const_int(index->args[1]) != 1) return place;
      place.lanes = index->type.lanes;
      index = index->args[0];
    } else if (index->type.is_vector()) {
      return place;
    }
    const auto step = LoopTree::stride(index, tile_.term.var);
    if (!step) return place;
    Polynomial base = to_polynomial(substitute(index, {{tile_.term.var, first_}}));
    place.constant = std::exchange(base.constant, 0);
    place.base = base_of(to_expr(base));
    place.step = *step;
    return place;
  }

  // Bound before the loop, once.
  Expr base_of(const Expr& base) {
    for (const auto& [value, name] : bases_)
      if (equal(value, base)) return name;
    bases_.emplace_back(base, before_.bind("from", base));
    return bases_.back().second;
  }

  // At so many terms behind the first.
  Expr at(const Place& place, const Expr& term) const {
    if (!place.base) return simplify(substitute(place.load, {{tile_.term.var, simplify(first_ + term)}}));
    Expr index = simplify(place.base + place.step * term + index_const(place.constant));
    if (place.lanes > 1) index = make_ramp(index, index_const(1), place.lanes);
    return make_load(place.load->name, place.load->type.dtype, index);
  }

  const ProductTile& tile_;
  const Expr first_;
  Names& names_;
  Binder before_;
  std::vector<Place> a_, b_;
  std::vector<std::pair<Expr, Expr>> bases_;
};

}  // namespace

std::vector<Expr> multiply(ProductTile tile, Names& names, std::vector<Stmt>& out) {
  const Expr first = tile.term.begin, count = simplify(tile.term.end - first);
  const int64_t products = static_cast<int64_t>(tile.a.size() * tile.b.size()),
                most = std::max(kProductsTogether / products, int64_t{1}),
                together = std::clamp(as_const_int(count).value_or(most), int64_t{1}, most);
  const Expr trips = simplify(floordiv(count, index_const(together))),
             done = simplify(trips * index_const(together));
  std::vector<Expr> sums = TermLoop(tile, first, names).run(trips, together, out);
  if (as_const_int(simplify(count - done)) == 0) return sums;
  tile.start = std::move(sums);
  return TermLoop(tile, simplify(first + done), names).run(simplify(count - done), 1, out);
}

std::vector<Expr> multiply_in_runs(ProductTile tile, const LinesAhead& ahead, Names& names,
                                   std::vector<Stmt>& out) {
  const Expr step = index_const(kRunTerms), terms = tile.term.end, runs = simplify(ceildiv(terms, step)),
             of_run = simplify(ceildiv(ahead.lines, runs));
  const auto least = [](const Expr& a, const Expr& b) { return make_apply(ScalarOp::min_, {a, b}); };
  const auto loop = [&](std::string_view name, const Expr& end) {
    return For{.var = names.fresh(name), .begin = index_const(0), .end = simplify(end)};
  };
  For run = loop("run", runs);
  const Expr first = make_var(run.var) * of_run;
  For fetch = loop("fetch", least(of_run, ahead.lines - first));
  const Expr line = ahead.at(simplify(first + make_var(fetch.var)));
  fetch.body = make_block({Call{std::string(kPrefetch), {line}}});
  std::vector<Stmt> body{std::move(fetch)};

  tile.term.begin = simplify(make_var(run.var) * step);
  tile.term.end = simplify(tile.term.begin + step);
  if (as_const_int(simplify(floormod(terms, step))) != 0) tile.term.end = least(tile.term.end, terms);
  const std::vector<Expr> sums = add_sums(tile, run, "total", names);
  tile.start = sums;
  run.reduction->yield = multiply(tile, names, body);
  run.body = make_block(std::move(body));
  out.emplace_back(std::move(run));
  return sums;
}

}  // namespace ipex::loop
