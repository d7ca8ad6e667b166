#include "codegen/product_tile.h"

#include <algorithm>

namespace ipex::loop {

int64_t tile_rows(const Target& target) {
  // A row in flight takes its address in one of 16 general registers.
  constexpr int64_t kMostRows = 13;
  constexpr int64_t kSpare = 4;  // two vectors of b and two registers for what the compiler needs
  return std::min((target.vector_registers - kSpare) / kTileVectors, kMostRows);
}

bool rows_crowd_cache(int64_t bytes_apart) {
  constexpr int64_t kApart = 2048;
  return bytes_apart % kApart == 0;
}

std::vector<Expr> multiply(const ProductTile& tile, Names& names, std::vector<Stmt>& out) {
  For term = tile.term;
  std::vector<Stmt> body;
  std::vector<Expr> columns, sums;
  for (const Expr& b : tile.b) {
    body.push_back(Let{names.fresh("b_vector"), b});
    columns.push_back(make_var(std::get<Let>(body.back()).name, b->type));
  }
  const Type type = tile.b.front()->type;
  const Expr zero = make_broadcast(make_const({type.dtype}, 0), type.lanes);
  const ScalarOp op = tile.pairs ? ScalarOp::dot_bf16_ : ScalarOp::fma_;
  term.reduction.emplace();
  for (const Expr& a : tile.a)
    for (const Expr& b : columns) {
      const std::string name = names.fresh("sum");
      const Expr state = make_var(name, type);
      term.reduction->states.push_back(
          {name, type, tile.start.empty() ? zero : tile.start[sums.size()], zero});
      term.reduction->yield.push_back(make_apply(op, {make_broadcast(a, type.lanes), b, state}));
      term.reduction->merge.push_back(make_apply(ScalarOp::add_, {state, make_var(name + ".other", type)}));
      sums.push_back(state);
    }
  term.body = make_block(std::move(body));
  out.emplace_back(std::move(term));
  return sums;
}

}  // namespace ipex::loop
