#include "codegen/product_tile.h"

#include <algorithm>

#include "codegen/loop/simplify.h"

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

std::vector<Expr> multiply(const ProductTile& tile, Names& names, std::vector<Stmt>& out) {
  For term = tile.term;
  std::vector<Stmt> body;
  std::vector<Expr> columns;
  for (const Expr& b : tile.b) {
    body.push_back(Let{names.fresh("b_vector"), b});
    columns.push_back(make_var(std::get<Let>(body.back()).name, b->type));
  }
  const std::vector<Expr> sums = add_sums(tile, term, "sum", names);
  const ScalarOp op = tile.pairs ? ScalarOp::dot_bf16_ : ScalarOp::fma_;
  for (size_t i = 0; i < sums.size(); ++i) {
    const Expr &a = tile.a[i / columns.size()], &b = columns[i % columns.size()];
    term.reduction->yield.push_back(make_apply(op, {make_broadcast(a, b->type.lanes), b, sums[i]}));
  }
  term.body = make_block(std::move(body));
  out.emplace_back(std::move(term));
  return sums;
}

std::vector<Expr> multiply_in_runs(ProductTile tile, const LinesAhead& ahead, Names& names,
                                   std::vector<Stmt>& out) {
  const Expr step = index_const(16), terms = tile.term.end, runs = simplify(ceildiv(terms, step)),
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
