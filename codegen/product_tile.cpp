// Emits the micro-kernel of product_tile.h as Loop IR: addresses are computed before the loop over K, which
// is unrolled.
#include "codegen/product_tile.h"

#include <algorithm>
#include <utility>

#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/polynomial.h"
#include "codegen/loop/simplify.h"
#include "codegen/passes/lower_expressions.h"

namespace ipex::loop {

int64_t tile_rows(const Target& target) {
  constexpr int64_t kReservedRegisters = 4;  // two vectors of b, and two registers that the compiler needs
  return std::min((target.vector_registers - kReservedRegisters) / kTileVectors, target.max_tile_rows);
}

bool blocking_beats_library(const Target& target, int64_t rows, int64_t k, int64_t columns) {
  return rows >= target.min_blocked_rows && k * columns > target.max_library_weights;
}

bool rows_conflict_in_cache(const Target& target, int64_t bytes_apart) {
  return bytes_apart % target.conflict_stride == 0;
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

// Multiply-adds per step of the unrolled loop over K. With 48 of them, 6 of 86 instructions count and compute
// addresses; with 12, 5 of 25 do. This makes no difference to a thread that has a core to itself. If another
// thread takes half of the core's issue slots, it saves a sixth of the time (Zen 3, 1024 x 768 by 768 x 3072:
// 128 instead of 110 GFLOP/s).
constexpr int64_t kUnrolledFmas = 48;

// The load of an operand, split so that the part of its address that does not depend on k is computed before
// the loop.
struct OperandLoad {
  Expr load;             // at tile.k.var
  Expr base, step;       // the index is base + step * k + constant; null if it is not affine
  int64_t constant = 0;  // separate from the base, because an x86 address adds a constant for free
  int lanes = 1;         // contiguous elements
};

// The loop over K from `first` on.
class KLoop {
 public:
  KLoop(const ProductTile& tile, const Expr& first, Names& names)
      : tile_(tile), first_(first), names_(names), before_(names) {
    for (const Expr& a : tile.a) a_.push_back(analyze(a));
    for (const Expr& b : tile.b) b_.push_back(analyze(b));
  }

  // `trips` steps, each unrolled `unroll` times.
  std::vector<Expr> run(const Expr& trips, int64_t unroll, std::vector<Stmt>& out) {
    For step{.var = names_.fresh(tile_.k.var), .begin = index_const(0), .end = trips};
    Binder body(names_);
    const std::vector<Expr> sums = add_sums(tile_, step, "sum", names_);
    const ScalarOp op = tile_.packed_bf16 ? ScalarOp::dot_bf16_ : ScalarOp::fma_;
    std::vector<Expr> values = sums;
    for (int64_t i = 0; i < unroll; ++i) {
      const Expr k = simplify(make_var(step.var) * index_const(unroll) + index_const(i));
      std::vector<Expr> columns;
      for (const OperandLoad& b : b_) columns.push_back(body.bind("b_vector", at(b, k)));
      for (size_t row = 0; row < a_.size(); ++row) {
        const Expr a = make_broadcast(at(a_[row], k), columns[0]->type.lanes);
        for (size_t v = 0; v < columns.size(); ++v) {
          Expr& value = values[row * columns.size() + v];
          value = make_apply(op, {a, columns[v], value});
          if (i + 1 < unroll) value = body.bind("so_far", value);
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
  OperandLoad analyze(const Expr& load) {
    OperandLoad operand{.load = load};
    if (!load->is(ExprKind::kLoad) || load->args.size() != 1) return operand;
    Expr index = load->args[0];
    if (index->is(ExprKind::kRamp)) {
      if (as_const_int(index->args[1]) != 1) return operand;
      operand.lanes = index->type.lanes;
      index = index->args[0];
    } else if (index->type.is_vector()) {
      return operand;
    }
    const auto step = LoopTree::stride(index, tile_.k.var);
    if (!step) return operand;
    Polynomial base = to_polynomial(substitute(index, {{tile_.k.var, first_}}));
    operand.constant = std::exchange(base.constant, 0);
    operand.base = base_of(to_expr(base));
    operand.step = *step;
    return operand;
  }

  // Binds the base once, before the loop.
  Expr base_of(const Expr& base) {
    for (const auto& [value, name] : bases_)
      if (equal(value, base)) return name;
    bases_.emplace_back(base, before_.bind("from", base));
    return bases_.back().second;
  }

  // The operand, `k` steps after the first.
  Expr at(const OperandLoad& operand, const Expr& k) const {
    if (!operand.base) return simplify(substitute(operand.load, {{tile_.k.var, simplify(first_ + k)}}));
    Expr index = simplify(operand.base + operand.step * k + index_const(operand.constant));
    if (operand.lanes > 1) index = make_ramp(index, index_const(1), operand.lanes);
    return make_load(operand.load->name, operand.load->type.dtype, index);
  }

  const ProductTile& tile_;
  const Expr first_;
  Names& names_;
  Binder before_;
  std::vector<OperandLoad> a_, b_;
  std::vector<std::pair<Expr, Expr>> bases_;
};

}  // namespace

std::vector<Expr> multiply(ProductTile tile, Names& names, std::vector<Stmt>& out) {
  const Expr first = tile.k.begin, count = simplify(tile.k.end - first);
  const int64_t products = static_cast<int64_t>(tile.a.size() * tile.b.size()),
                max_unroll = std::max(kUnrolledFmas / products, int64_t{1}),
                unroll = std::clamp(as_const_int(count).value_or(max_unroll), int64_t{1}, max_unroll);
  const Expr trips = simplify(floordiv(count, index_const(unroll))),
             done = simplify(trips * index_const(unroll));
  std::vector<Expr> sums = KLoop(tile, first, names).run(trips, unroll, out);
  if (as_const_int(simplify(count - done)) == 0) return sums;
  tile.start = std::move(sums);
  return KLoop(tile, simplify(first + done), names).run(simplify(count - done), 1, out);
}

std::vector<Expr> multiply_with_prefetch(ProductTile tile, const PrefetchLines& ahead, Names& names,
                                         std::vector<Stmt>& out) {
  const Expr step = index_const(kPrefetchStrip), k_extent = tile.k.end,
             strips = simplify(ceildiv(k_extent, step)), per_strip = simplify(ceildiv(ahead.lines, strips));
  const auto min = [](const Expr& a, const Expr& b) { return make_apply(ScalarOp::min_, {a, b}); };
  const auto loop = [&](std::string_view name, const Expr& end) {
    return For{.var = names.fresh(name), .begin = index_const(0), .end = simplify(end)};
  };
  For strip = loop("run", strips);
  const Expr first = make_var(strip.var) * per_strip;
  For fetch = loop("fetch", min(per_strip, ahead.lines - first));
  const Expr line = ahead.at(simplify(first + make_var(fetch.var)));
  fetch.body = make_block({Call{std::string(kPrefetch), {line}}});
  std::vector<Stmt> body{std::move(fetch)};

  tile.k.begin = simplify(make_var(strip.var) * step);
  tile.k.end = simplify(tile.k.begin + step);
  if (as_const_int(simplify(floormod(k_extent, step))) != 0) tile.k.end = min(tile.k.end, k_extent);
  const std::vector<Expr> sums = add_sums(tile, strip, "total", names);
  tile.start = sums;
  strip.reduction->yield = multiply(tile, names, body);
  strip.body = make_block(std::move(body));
  out.emplace_back(std::move(strip));
  return sums;
}

}  // namespace ipex::loop
