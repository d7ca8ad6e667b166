// The backward kernel of attention: the gradients of q, k and v from the gradient of the result. A task is
// one head of keys with all heads of queries that it serves. The loop over queries is inside the loop over
// keys (Dao et al., FlashAttention, 2022, algorithm 4).
//
//   p = exp(q k^T * scale + mask - logsumexp)         dv = p^T grad
//   ds = p * (grad v^T - rowsum(grad * out))          dq = ds k * scale       dk = ds^T q * scale
//
// The probabilities p are computed again, not kept. As in the forward kernel all of this is transposed: a row
// of p^T and ds^T belongs to a key, a column to a query.
#include "backend/lower/attention.h"
#include "backend/lower/index.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::as_const_int;
using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::ScalarOp;
using loop::simplify;

namespace {

class AttentionBackwardLowering : AttentionBuilder {
 public:
  AttentionBackwardLowering(const Graph& body, const std::vector<OperandLayout>& inputs,
                            const std::vector<OperandLayout>& outputs, const loop::Target& target)
      : AttentionBuilder(body, inputs, outputs, target, true),
        grad_(inputs_[0]),
        q_(inputs_[1]),
        k_(inputs_[2]),
        v_(inputs_[3]),
        out_(inputs_[4]),
        lse_(inputs_[5]) {
    if (inputs_.size() > 6) mask_ = &inputs_[6];
    blocks_ = query_blocks(q_.shape[2]);
    columns_ = in_panels(q_);
    key_size_ = key_block(k_.shape[2]);
    served_ =
        same_extent(q_.shape[1], k_.shape[1]) ? 1 : *as_const_int(q_.shape[1]) / *as_const_int(k_.shape[1]);
    rows_ = blocks_.shifted ? q_.shape[2] : simplify(blocks_.count * size());
  }

  loop::Function run(const std::string& name) {
    Body body;
    constexpr int64_t kProducts =
        3;  // five products; the cost counts pairs of them, as in the forward kernel
    const Expr cost = q_.shape[2] * q_.shape[3] * k_.shape[2] * index_const(kProducts * served_);
    parallel(body, k_.shape[1], index_const(1), cost, [&](const Expr&, Body& inner) { head_of_keys(inner); });
    return function(name, std::move(body));
  }

 private:
  Expr size() const { return index_const(blocks_.size); }
  Expr columns() const { return index_const(columns_); }

  // Writes `each` for every head of queries that the head of keys of the task serves.
  void for_served(Body& out, const std::function<void(Body& body)>& each) {
    if (served_ == 1) {
      member_ = index_const(0);
      head_ = key_head_;
      return each(out);
    }
    const Expr first = simplify(key_head_ * index_const(served_));
    serial(out, "member", index_const(0), index_const(served_), [&](const Expr& member, Body& body) {
      member_ = member;
      head_ = let(body, "head", first + member);
      each(body);
    });
    head_ = first;
  }

  void head_of_keys(Body& out) {
    const Expr key_size = index_const(key_size_), served = index_const(served_);
    key_head_ = head_;
    head_ = simplify(key_head_ * served);
    packed_q_ = alloc(out, "queries", q_.shape[3] * size());
    packed_grad_ = alloc(out, "grads", q_.shape[3] * size());
    p_ = alloc(out, "p", (key_size + index_const(1)) * size());
    ds_ = alloc(out, "ds", (key_size + index_const(1)) * size());
    dq_ = alloc(out, "dq", served * rows_ * columns());
    dk_ = alloc(out, "dk", key_size * columns());
    dv_ = alloc(out, "dv", key_size * columns());
    lse_rows_ = alloc(out, "lse", served * q_.shape[2]);
    delta_ = alloc(out, "delta", served * q_.shape[2]);
    const auto copy_of = [&](const Tensor& x, std::string_view base, bool whole_panels, const Expr& rows) {
      if (!needs_copy(x, whole_panels)) return std::string();
      return alloc(out, base, rows * (whole_panels ? columns() : x.shape[3]));
    };
    const std::string k_copy = copy_of(k_, "k_rows", !pairs_, key_size),
                      v_copy = copy_of(v_, "v_rows", false, key_size);
    if (pairs_) {
      const auto pairs_of = [&](std::string_view base, const Expr& terms, const Expr& width) {
        const std::string buffer = alloc(out, base, terms * width);
        clear(out, buffer, terms * width);
        return buffer;
      };
      p_pairs_ = alloc(out, "p_pairs", (key_size + index_const(1)) * half(size()));
      ds_pairs_ = alloc(out, "ds_pairs", (key_size + index_const(1)) * half(size()));
      ds_by_key_ = alloc(out, "ds_by_key", half(key_size) * size());
      k_pairs_ = pairs_of("k_pairs", half(key_size), columns());
      q_copy_ = pairs_of("q_pairs", half(size()), columns());
      grad_copy_ = pairs_of("grad_pairs", half(size()), columns());
    } else {
      q_copy_ = copy_of(q_, "q_rows", true, size());
      grad_copy_ = copy_of(grad_, "grad_rows", true, size());
    }

    for_served(out, [&](Body& body) { sum_rows(body); });
    clear(out, dq_, served * rows_ * columns());
    serial(out, "key_block", index_const(0), ceildiv(k_.shape[2], key_size),
           [&](const Expr& block, Body& body) {
             const Expr first = let(body, "first_key", block * key_size);
             const Expr keys =
                 let(body, "key_count", make_apply(ScalarOp::min_, {key_size, k_.shape[2] - first}));
             const Matrix k = rows_of(body, k_, first, keys, k_copy, !pairs_),
                          v = rows_of(body, v_, first, keys, v_copy, false);
             const Matrix k_columns =
                 pairs_ ? interleaved(body, k_, first, keys, half(keys), 2, 1, k_pairs_) : k;
             clear(body, dk_, key_size * columns());
             clear(body, dv_, key_size * columns());
             const Expr begin = causal_ ? floordiv(first, size()) : index_const(0);
             for_served(body, [&](Body& inner) {
               serial(inner, "query_block", simplify(begin), blocks_.count,
                      [&](const Expr& query_block, Body& innermost) {
                        meet(innermost, query_block, first, keys, k, v, k_columns);
                      });
             });
             write(body, dk_, outputs_[1], first, keys, scale_);
             write(body, dv_, outputs_[2], first, keys, 1);
           });
    for_served(out, [&](Body& body) {
      write(body, dq_, outputs_[0], index_const(0), q_.shape[2], scale_, member_ * rows_);
    });
  }

  // Computes what the probabilities of a row need: its logsumexp, and the sum of grad * out.
  void sum_rows(Body& out) {
    const Expr queries = q_.shape[2];
    vectors(out, "row", queries, [&](const Expr& row, Body& body) {
      store(body, lse_rows_, of_member(row), element(lse_, row, nullptr));
    });
    serial(out, "row", index_const(0), queries, [&](const Expr& row, Body& body) {
      const Expr sum = reduce(
          body, "column", q_.shape[3], ScalarOp::add_, number(0),
          [&](const Expr& column, Body&) {
            const Expr a = element(grad_, row, column), b = element(out_, row, column);
            if (pairs_) return make_apply(ScalarOp::dot_bf16_, {a, b, number(0)});
            return apply(ScalarOp::mul_, a, b);
          },
          true);
      store(body, delta_, of_member(row), sum);
    });
  }

  Expr of_member(const Expr& row) const { return member_ * q_.shape[2] + row; }

  // Adds what one block of queries and one block of keys contribute.
  void meet(Body& out, const Expr& query_block, const Expr& first_key, const Expr& all_keys, const Matrix& k,
            const Matrix& v, const Matrix& k_columns) {
    const Queries q = queries_of(out, blocks_, query_block, q_.shape[2]);
    Expr keys = all_keys;
    if (causal_) {  // no key, if all keys of the block are behind the last query
      const Expr seen = make_apply(ScalarOp::max_, {q.first + q.rows - first_key, index_const(0)});
      keys = let(out, "key_end", make_apply(ScalarOp::min_, {all_keys, seen}));
    }
    pack_queries(out, q_, q, blocks_, packed_q_);
    pack_queries(out, grad_, q, blocks_, packed_grad_);
    const auto rows_as_terms = [&](const Tensor& x, const std::string& copy) {
      if (!pairs_) return rows_of(out, x, q.first, q.rows, copy, true);
      return interleaved(out, x, q.first, q.rows, half(size()), 1, blocks_.size / 2, copy);
    };
    const Matrix q_rows = rows_as_terms(q_, q_copy_), grad_rows = rows_as_terms(grad_, grad_copy_);
    const auto by_key = [&](const Matrix& a, const std::string& packed, const std::string& dst) {
      multiply(out, {.rows = keys,
                     .columns = blocks_.size,
                     .terms = q_.shape[3],
                     .a = a.buffer,
                     .a_origin = a.origin,
                     .a_row_stride = a.row_stride,
                     .a_term_stride = index_const(1),
                     .b = {packed, dtype_, index_const(0), size()},
                     .dst = dst});
    };
    by_key(k, packed_q_, p_);
    by_key(v, packed_grad_, ds_);
    add_mask(out, p_, first_key, keys, q, blocks_);
    probabilities(out, first_key, keys, q);
    if (pairs_) pair_up(out, keys);
    const auto over_queries = [&](const std::string& a, const Matrix& b, const std::string& dst) {
      multiply(out, {.rows = keys,
                     .columns = columns_,
                     .terms = pairs_ ? half(size()) : q.rows,
                     .a = a,
                     .a_origin = index_const(0),
                     .a_row_stride = pairs_ ? half(size()) : size(),
                     .a_term_stride = index_const(1),
                     .b = b,
                     .dst = dst,
                     .start = Product::Start::kAdd,
                     .padded = true});
    };
    over_queries(pairs_ ? p_pairs_ : p_, grad_rows, dv_);
    over_queries(pairs_ ? ds_pairs_ : ds_, q_rows, dk_);
    multiply(out, {.rows = size(),
                   .columns = columns_,
                   .terms = pairs_ ? half(keys) : keys,
                   .a = pairs_ ? ds_by_key_ : ds_,
                   .a_origin = index_const(0),
                   .a_row_stride = index_const(1),
                   .a_term_stride = size(),
                   .b = k_columns,
                   .dst = dq_,
                   .dst_origin = simplify((member_ * rows_ + q.first) * columns()),
                   .start = Product::Start::kAdd});
  }

  // Turns scores into p and grad v^T into ds. Both are 0 in lanes that are no query of this block, and in the
  // rows behind the last key to the end of its tile.
  void probabilities(Body& out, const Expr& first_key, const Expr& keys, const Queries& q) {
    constexpr int kUnroll = 2;
    vectors(
        out, "lane", size(),
        [&](const Expr& lane, Body& body) {
          const Expr row = row_of(lane, q, blocks_);
          const Expr lse = let(body, "lse_lane", load(lse_rows_, of_member(row))),
                     delta = let(body, "delta_lane", load(delta_, of_member(row)));
          const Expr none = let(body, "none", foreign(lane, q));
          serial(body, "key", index_const(0), keys, [&](const Expr& key, Body& inner) {
            const Expr at = key * size() + lane;
            Expr score = load(p_, at);
            if (!mask_) score = apply(ScalarOp::mul_, score, number(scale_));
            Expr p = exp_nonpositive(apply(ScalarOp::sub_, score, lse));
            Expr dropped = none;
            if (causal_) {
              const Expr later = is_later(first_key + key - q.first, lane);
              dropped = as_const_int(none) ? later : make_apply(ScalarOp::bitor_, {none, later});
            }
            if (!as_const_int(dropped)) p = make_apply(ScalarOp::select_, {dropped, number(0), p});
            p = let(inner, "p_lane", p);
            store(inner, p_, at, p);
            store(inner, ds_, at, apply(ScalarOp::mul_, p, apply(ScalarOp::sub_, load(ds_, at), delta)));
          });
        },
        kUnroll);
    const Expr rows = rows_filled(keys);
    if (as_const_int(simplify(rows - keys)) == 0) return;
    for (const std::string& buffer : {p_, ds_})
      vectors(out, "filled", (rows - keys) * size(),
              [&](const Expr& at, Body& body) { store(body, buffer, keys * size() + at, number(0)); });
  }

  // The number of rows of p and ds that products read: whole tiles, unless the number of keys is known, and
  // whole pairs.
  Expr rows_filled(const Expr& keys) const {
    Expr rows = keys;
    const Expr tile = index_const(in_tiles(1));
    if (!as_const_int(keys)) rows = ceildiv(keys, tile) * tile;
    return simplify(pairs_ ? half(rows) * index_const(2) : rows);
  }

  // Makes pairs of queries of p and ds, one query from each half of a block, and pairs of keys of ds.
  void pair_up(Body& out, const Expr& keys) {
    const Expr rows = rows_filled(keys), queries = half(size());
    serial(out, "key", index_const(0), rows, [&](const Expr& key, Body& body) {
      vectors(body, "lane", queries, [&](const Expr& lane, Body& inner) {
        const Expr at = key * size() + lane, to = key * queries + lane;
        store(inner, p_pairs_, to, pair(load(p_, at), load(p_, at + queries)));
        store(inner, ds_pairs_, to, pair(load(ds_, at), load(ds_, at + queries)));
      });
    });
    serial(out, "pair", index_const(0), half(keys), [&](const Expr& j, Body& body) {
      vectors(body, "lane", size(), [&](const Expr& lane, Body& inner) {
        const Expr at = j * index_const(2) * size() + lane;
        store(inner, ds_by_key_, j * size() + lane, pair(load(ds_, at), load(ds_, at + size())));
      });
    });
  }

  // Is this lane no query, or a query of another block? A constant if that holds for no lane.
  Expr foreign(const Expr& lane, const Queries& q) const {
    if (!blocks_.shifted) return make_apply(ScalarOp::ge_, {lane, q.rows});
    if (as_const_int(q.fresh) == 0) return loop::make_int(loop::kBool1, 0);
    return make_apply(ScalarOp::lt_, {lane, q.fresh});
  }

  void write(Body& out, const std::string& sums, const Tensor& to, const Expr& first, const Expr& rows,
             double factor, const Expr& first_sum = index_const(0)) {
    serial(out, "row", index_const(0), rows, [&](const Expr& row, Body& body) {
      write_row(body, sums, first_sum + row, to, first + row, number(factor));
    });
  }

  const Tensor &grad_, &q_, &k_, &v_, &out_, &lse_;
  QueryBlocks blocks_;
  int64_t columns_ = 0, key_size_ = 0, served_ = 1;
  Expr rows_;  // of dq, for one head
  Expr key_head_,
      member_;  // the head of keys of the task; the number of the head of queries among those it serves
  std::string p_pairs_, ds_pairs_, ds_by_key_, k_pairs_;  // with pairs_
  std::string packed_q_, packed_grad_, p_, ds_, dq_, dk_, dv_, lse_rows_, delta_, q_copy_, grad_copy_;
};

}  // namespace

loop::Function lower_attention_backward(const Graph& body, const std::vector<OperandLayout>& inputs,
                                        const std::vector<OperandLayout>& outputs, const std::string& name,
                                        const loop::Target& target) {
  return AttentionBackwardLowering(body, inputs, outputs, target).run(name);
}

}  // namespace ipex::graph
