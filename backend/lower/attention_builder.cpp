// See attention.h.
#include <algorithm>
#include <limits>

#include "backend/lower/attention.h"
#include "backend/lower/index.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::make_cast;
using loop::make_load;
using loop::make_var;
using loop::provably_even;
using loop::ScalarOp;
using loop::simplify;
using loop::Store;

namespace {

constexpr int64_t kMaxQueries = 64,
                  kMaxKeys = 128;  // of a block: its scores are 32 KB and stay in L2, beside keys and values
constexpr int64_t kPairedScores = 256;  // for fewer, pairs do not pay for rounding the probabilities to bf16

}  // namespace

AttentionBuilder::AttentionBuilder(const Graph& body, const std::vector<OperandLayout>& inputs,
                                   const std::vector<OperandLayout>& outputs, const loop::Target& target,
                                   bool pairs)
    : NestBuilder(body, inputs, outputs, target) {
  const size_t mask = node_.op() == Op::kAttention ? 3 : 6;  // its number among the inputs
  std::vector<Tensor*> matrices;
  for (size_t k = 0; k < inputs_.size(); ++k)
    if (inputs_[k].shape.size() == 4 && k != mask) matrices.push_back(&inputs_[k]);
  for (Tensor& x : outputs_)
    if (x.shape.size() == 4) matrices.push_back(&x);
  const Expr scores = node_.types[0].shape[2] * inputs_[node_.op() == Op::kAttention ? 1 : 2].shape[2];
  pairs_ = pairs && target.native_bf16 && node_.types[0].dtype == Dtype::kBF16 &&
           hint(scores, body) >= kPairedScores;
  for (const Tensor* x : matrices) pairs_ = pairs_ && holds_pairs(x->layout, x->shape);
  const auto halve = [](Expr& e) { e = simplify(floordiv(e, index_const(2))); };
  for (Tensor* x : matrices) {
    if (!pairs_) continue;
    x->dtype = Dtype::kF32;
    halve(x->shape[3]);
    for (size_t d = 0; d < 3; ++d) halve(x->layout.strides[d]);
    halve(x->layout.offset);
    halve(x->layout.extent);
  }
  const auto set = [&](const auto& attention) {
    causal_ = attention.causal;
    scale_ = attention.scale;
  };
  node_.op() == Op::kAttention ? set(node_.get<Attention>()) : set(node_.get<AttentionBackward>());
}

// The columns are contiguous, and all other strides and the offset are even.
bool AttentionBuilder::holds_pairs(const OperandLayout& layout, const Shape& shape) {
  bool rows = true;  // a dim of extent 1 has a stride without meaning
  for (size_t d = 0; d < 3; ++d) rows &= as_const_int(shape[d]) == 1 || provably_even(layout.strides[d]);
  return rows && as_const_int(layout.strides[3]) == 1 && provably_even(shape[3]) &&
         provably_even(layout.offset) && provably_even(layout.extent);
}

void AttentionBuilder::parallel(Body& out, const Dim& heads, const Expr& blocks, const Expr& cost_of_block,
                                const Each& each) {
  NestBuilder::parallel(out, outputs_[0].shape[0] * heads * blocks, cost_of_block,
                        [&](const Expr& part, Body& body) {
                          const Expr left = let(body, "left", floordiv(part, blocks));
                          batch_ = let(body, "batch", floordiv(left, heads));
                          head_ = let(body, "head", floormod(left, heads));
                          each(let(body, "block", floormod(part, blocks)), body);
                        });
}

// ---- tensors ----

Expr AttentionBuilder::head_of(const Tensor& x) const {
  const Shape& q = outputs_[0].shape;
  if (same_extent(x.shape[1], q[1])) return head_;
  return floordiv(head_, floordiv(q[1], x.shape[1]));
}

Expr AttentionBuilder::position(const Tensor& x, const Expr& row, const Expr& column) const {
  const Strides& strides = x.layout.strides;
  Expr at = x.layout.offset + batch_ * strides[0] + head_of(x) * strides[1] + row * strides[2];
  if (column) at = at + column * strides[3];
  return simplify(at);
}

Expr AttentionBuilder::element(const Tensor& x, const Expr& row, const Expr& column) const {
  return make_cast(dtype_, make_load(x.buffer, x.dtype, position(x, row, column)));
}

// ---- blocks of queries ----

int64_t AttentionBuilder::in_panels(const Tensor& x) const {
  const int64_t columns = *as_const_int(x.shape[3]) * (pairs_ ? 2 : 1);
  return (columns + panel() - 1) / panel() * panel();
}

int64_t AttentionBuilder::in_tiles(int64_t rows) const {
  const int64_t tile = loop::tile_rows(target_);
  return (rows + tile - 1) / tile * tile;
}

AttentionBuilder::QueryBlocks AttentionBuilder::query_blocks(const Dim& queries) const {
  QueryBlocks out;
  const auto all = as_const_int(queries);
  const int64_t expected = all ? *all : hint(queries, graph_);
  int64_t least_lanes = std::numeric_limits<int64_t>::max();
  for (int64_t size = panel(); size <= std::max(kMaxQueries, panel()); size += panel()) {
    const int64_t needed = (expected + size - 1) / size * size;
    if (needed > least_lanes) continue;  // if equal, the larger size is better
    least_lanes = needed;
    out.size = size;
  }
  out.shifted = all && *all >= out.size;
  out.count = simplify(ceildiv(queries, index_const(out.size)));
  return out;
}

AttentionBuilder::Queries AttentionBuilder::queries_of(Body& out, const QueryBlocks& blocks,
                                                       const Expr& block, const Dim& all) {
  const Expr size = index_const(blocks.size), begin = block * size;
  Queries q;
  if (!blocks.shifted) {
    q.first = let(out, "first_query", begin);
    q.rows = let(out, "query_count", least(size, all - q.first));
    q.fresh = index_const(0);
  } else if (*as_const_int(all) % blocks.size == 0) {
    q = {let(out, "first_query", begin), size, index_const(0)};
  } else {
    q.first = let(out, "first_query", least(begin, all - size));
    q.rows = size;
    q.fresh = let(out, "repeated", begin - q.first);
  }
  return q;
}

Expr AttentionBuilder::row_of(const Expr& lane, const Queries& q, const QueryBlocks& blocks) const {
  if (blocks.shifted) return q.first + lane;
  return q.first + make_apply(ScalarOp::min_, {lane, simplify(q.rows - index_const(1))});
}

int64_t AttentionBuilder::key_block(const Dim& keys) const {
  const auto all = as_const_int(keys);
  if (!all) return in_tiles(kMaxKeys);
  const int64_t blocks = (*all + kMaxKeys - 1) / kMaxKeys;
  return in_tiles((*all + blocks - 1) / blocks);
}

void AttentionBuilder::pack_queries(Body& out, const Tensor& x, const Queries& q, const QueryBlocks& blocks,
                                    const std::string& dst) {
  const Expr size = index_const(blocks.size), columns = x.shape[3];
  serial(out, "column", index_const(0), columns, [&](const Expr& column, Body& body) {
    vectors(body, "lane", size, [&](const Expr& lane, Body& inner) {
      const Expr row = row_of(lane, q, blocks);
      store(inner, dst, column * size + lane, element(x, row, column));
    });
  });
}

bool AttentionBuilder::needs_copy(const Tensor& x, bool whole_panels) const {
  const auto apart = as_const_int(x.layout.strides[2]);
  return x.dtype != dtype_ || as_const_int(x.layout.strides[3]) != 1 || !apart ||
         loop::rows_conflict_in_cache(target_, *apart * itemsize(dtype_)) ||
         (whole_panels && *as_const_int(x.shape[3]) % panel() != 0);
}

AttentionBuilder::Matrix AttentionBuilder::rows_of(Body& out, const Tensor& x, const Expr& first,
                                                   const Expr& rows, const std::string& scratch,
                                                   bool whole_panels) {
  if (scratch.empty())
    return {x.buffer, x.dtype, let(out, "rows_at", position(x, first, index_const(0))), x.layout.strides[2]};
  const Expr width = whole_panels ? index_const(in_panels(x)) : x.shape[3];
  serial(out, "row", index_const(0), rows, [&](const Expr& row, Body& body) {
    vectors(body, "column", x.shape[3], [&](const Expr& column, Body& inner) {
      store(inner, scratch, row * width + column, element(x, first + row, column));
    });
    const Expr beyond = simplify(width - x.shape[3]);
    if (as_const_int(beyond) != 0)
      vectors(body, "beyond", beyond, [&](const Expr& column, Body& inner) {
        store(inner, scratch, row * width + x.shape[3] + column, number(0));
      });
  });
  return {scratch, dtype_, index_const(0), width};
}

Expr AttentionBuilder::half(const Expr& n) { return simplify(ceildiv(n, index_const(2))); }

Expr AttentionBuilder::pair(const Expr& a, const Expr& b) const {
  return make_apply(ScalarOp::pair_bf16_, {a, b});
}

AttentionBuilder::Matrix AttentionBuilder::interleaved(Body& out, const Tensor& x, const Expr& first,
                                                       const Expr& rows, const Expr& pairs, int64_t step,
                                                       int64_t apart, const std::string& dst) {
  const loop::Type word{Dtype::kI32};
  const auto value = [&](int64_t n) { return loop::make_int(word, n); };
  const Expr width = index_const(in_panels(x));
  const int64_t columns = *as_const_int(x.shape[3]);
  serial(out, "pair", index_const(0), pairs, [&](const Expr& j, Body& body) {
    struct Row {
      Expr exists, at;
    };
    const auto row = [&](int64_t offset) {
      const Expr wanted = simplify(j * index_const(step) + index_const(offset));
      return Row{let(body, "exists", make_apply(ScalarOp::lt_, {wanted, rows})),
                 let(body, "row", first + least(wanted, rows - index_const(1)))};
    };
    const Row lower = row(0), upper = row(apart);
    for (int64_t begin = 0; begin < columns; begin += lanes())
      vectors(body, "column", index_const(std::min(lanes(), columns - begin)),
              [&](const Expr& lane, Body& inner) {
                const auto pairs_of = [&](const Row& r) {
                  const Expr bits = loop::make_apply_as(ScalarOp::bitcast_int_,
                                                        {element(x, r.at, lane + index_const(begin))}, word);
                  return let(inner, "pairs", make_apply(ScalarOp::select_, {r.exists, bits, value(0)}));
                };
                const Expr a = pairs_of(lower), b = pairs_of(upper);
                const auto put = [&](int64_t offset, const Expr& low, const Expr& high) {
                  const Expr both = make_apply(ScalarOp::bitor_, {low, high});
                  store(inner, dst, j * width + index_const(2 * begin + offset) + lane,
                        loop::make_apply_as(ScalarOp::bitcast_float_, {both}, {dtype_}));
                };
                const Expr half = value(16), low = value(0xffff), high = value(-0x10000);
                put(0, make_apply(ScalarOp::bitand_, {a, low}), make_apply(ScalarOp::shl_, {b, half}));
                put(lanes(), make_apply(ScalarOp::bitand_, {make_apply(ScalarOp::shr_, {a, half}), low}),
                    make_apply(ScalarOp::bitand_, {b, high}));
              });
  });
  return {dst, dtype_, index_const(0), width};
}

void AttentionBuilder::write_row(Body& out, const std::string& sums, const Expr& sum_row, const Tensor& to,
                                 const Expr& row, const Expr& factor) {
  const Expr origin = let(out, "sums_at", sum_row * index_const(in_panels(to)));
  const auto sum = [&](const Expr& at) { return apply(ScalarOp::mul_, load(sums, origin + at), factor); };
  if (!pairs_)
    return vectors(out, "column", to.shape[3], [&](const Expr& column, Body& body) {
      store(body, to.buffer, position(to, row, column), make_cast(to.dtype, sum(column)));
    });
  const int64_t columns = *as_const_int(to.shape[3]);
  for (int64_t begin = 0; begin < columns; begin += lanes())
    vectors(out, "column", index_const(std::min(lanes(), columns - begin)),
            [&](const Expr& lane, Body& body) {
              const Expr even = lane + index_const(2 * begin), odd = even + index_const(lanes());
              store(body, to.buffer, position(to, row, lane + index_const(begin)), pair(sum(even), sum(odd)));
            });
}

void AttentionBuilder::add_mask(Body& out, const std::string& scores, const Expr& first_key, const Expr& keys,
                                const Queries& q, const QueryBlocks& blocks) {
  if (!mask_) return;
  const Expr size = index_const(blocks.size);
  serial(out, "key", index_const(0), keys, [&](const Expr& key, Body& body) {
    vectors(body, "lane", size, [&](const Expr& lane, Body& inner) {
      const Expr row = row_of(lane, q, blocks);
      const Expr at = key * size + lane;
      const Expr scaled = apply(ScalarOp::mul_, load(scores, at), number(scale_));
      store(inner, scores, at, apply(ScalarOp::add_, scaled, element(*mask_, row, first_key + key)));
    });
  });
}

// In 32 bits, so that a vector of rows has as many bytes as a vector of scores.
Expr AttentionBuilder::is_later(const Expr& key, const Expr& row) const {
  return make_apply(ScalarOp::gt_, {make_cast(Dtype::kI32, key), make_cast(Dtype::kI32, row)});
}

// ---- products ----

void AttentionBuilder::multiply(Body& out, const Product& p) {
  const int64_t tile = loop::tile_rows(target_);
  const auto known = as_const_int(p.rows);
  const Expr tiles = known ? index_const(*known / tile) : ceildiv(p.rows, index_const(tile));
  if (as_const_int(tiles) != 0)
    serial(out, "tile", index_const(0), tiles, [&](const Expr& t, Body& body) {
      multiply_tile(body, p, t * index_const(tile), tile, !known && !p.padded);
    });
  if (known && *known % tile != 0)
    multiply_tile(out, p, index_const(*known / tile * tile), *known % tile, false);
}

void AttentionBuilder::multiply_tile(Body& out, const Product& p, const Expr& first, int64_t rows,
                                     bool clamped) {
  std::vector<Expr> a_rows, factors;
  for (int64_t r = 0; r < rows; ++r) {
    Expr row = first + index_const(r);
    if (clamped) row = least(row, p.rows - index_const(1));
    a_rows.push_back(let(out, "a_row", p.a_origin + row * p.a_row_stride));
    if (p.start == Product::Start::kScaled) factors.push_back(let(out, "factor", load(p.factors, row)));
  }
  const int width = static_cast<int>(lanes());
  serial(out, "panel", index_const(0), index_const(p.columns / panel()),
         [&](const Expr& panel_index, Body& body) {
           loop::ProductTile tile{.k = {.var = names_.fresh("term")}, .packed_bf16 = pairs_};
           tile.k.begin = index_const(0);
           tile.k.end = p.terms;
           const Expr term = make_var(tile.k.var), column = panel_index * index_const(panel());
           for (const Expr& row : a_rows) tile.a.push_back(load(p.a, row + term * p.a_term_stride));
           for (int64_t v = 0; v < loop::kTileVectors; ++v)
             tile.b.push_back(
                 make_load(p.b.buffer, p.b.dtype, vector_at(p.b.origin + term * p.b.row_stride + column, v)));
           std::vector<Expr> places;
           for (int64_t r = 0; r < rows; ++r)
             for (int64_t v = 0; v < loop::kTileVectors; ++v) {
               places.push_back(
                   vector_at(p.dst_origin + (first + index_const(r)) * index_const(p.columns) + column, v));
               if (p.start == Product::Start::kZero) continue;
               Expr start = make_load(p.dst, dtype_, places.back());
               if (p.start == Product::Start::kScaled)
                 start = make_apply(ScalarOp::mul_, {start, make_broadcast(factors[r], width)});
               tile.start.push_back(start);
             }
           const std::vector<Expr> sums = loop::multiply(tile, names_, body);
           for (size_t i = 0; i < sums.size(); ++i) body.push_back(Store{p.dst, places[i], sums[i], nullptr});
         });
}

}  // namespace ipex::graph
