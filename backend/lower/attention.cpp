// The forward kernel of attention: out = softmax(q k^T * scale + mask) v. A task is one block of queries. It
// goes through the keys block by block, with a running maximum and sum (Milakov and Gimelshein, Online
// normalizer calculation for softmax, 2018; Dao et al., FlashAttention, 2022). The scores of a block stay in
// L2.
//
// A few queries, as in decoding, would leave most lanes of a block empty. They are computed one by one, and
// the lanes are columns of keys and values.
#include "backend/lower/attention.h"
#include "codegen/loop/simplify.h"

namespace ipex::graph {

using loop::Expr;
using loop::index_const;
using loop::make_apply;
using loop::make_cast;
using loop::ScalarOp;
using loop::simplify;

namespace {

class AttentionForward : AttentionBuilder {
 public:
  AttentionForward(const Graph& body, const std::vector<OperandLayout>& inputs,
                   const std::vector<OperandLayout>& outputs, const loop::Target& target, bool few_queries)
      : AttentionBuilder(body, inputs, outputs, target, !few_queries),
        few_queries_(few_queries),
        q_(inputs_[0]),
        k_(inputs_[1]),
        v_(inputs_[2]),
        out_(outputs_[0]),
        lse_(outputs_.size() > 1 ? &outputs_[1] : nullptr) {
    if (inputs_.size() > 3) mask_ = &inputs_[3];
  }

  loop::Function run(const std::string& name) {
    Body body;
    if (few_queries_)
      by_query(body);
    else
      by_block(body);
    return function(name, std::move(body));
  }

 private:
  Expr terms() const { return q_.shape[3] * k_.shape[2]; }

  // ---- a block of queries ----

  void by_block(Body& out) {
    const QueryBlocks blocks = query_blocks(q_.shape[2]);
    const int64_t key_block_size = key_block(k_.shape[2]), columns = in_panels(v_);
    const Expr size = index_const(blocks.size), key_size = index_const(key_block_size);
    parallel(out, q_.shape[1], blocks.count, terms() * size, [&](const Expr& block, Body& body) {
      const Queries q = queries_of(body, blocks, block, q_.shape[2]);
      const std::string packed = alloc(body, "queries", q_.shape[3] * size),
                        scores = alloc(body, "scores", (key_size + index_const(1)) * size),
                        weights = pairs_ ? alloc(body, "weights", half(key_size) * size) : scores,
                        sums = alloc(body, "sums", index_const(in_tiles(blocks.size) * columns)),
                        most = alloc(body, "most", size), total = alloc(body, "total", size),
                        factor = alloc(body, "factor", size);
      const std::string keys_copy = needs_copy(k_, false) ? alloc(body, "keys", key_size * k_.shape[3]) : "",
                        values_copy = pairs_ ? alloc(body, "values", half(key_size) * index_const(columns))
                                      : needs_copy(v_, true)
                                          ? alloc(body, "values", key_size * index_const(columns))
                                          : "";
      if (pairs_) clear(body, values_copy, half(key_size) * index_const(columns));
      pack_queries(body, q_, q, blocks, packed);
      vectors(body, "lane", size, [&](const Expr& lane, Body& inner) {
        store(inner, most, lane, lowest());
        store(inner, total, lane, number(0));
      });
      clear(body, sums, index_const(blocks.size * columns));
      const Expr all_keys = keys_seen(body, q.first + q.rows);
      serial(body, "key_block", index_const(0), ceildiv(all_keys, key_size),
             [&](const Expr& key_block, Body& inner) {
               const Expr first = let(inner, "first_key", key_block * key_size);
               const Expr keys =
                   let(inner, "key_count", make_apply(ScalarOp::min_, {key_size, all_keys - first}));
               const Expr terms = pairs_ ? let(inner, "pair_count", half(keys)) : keys;
               const Matrix k = rows_of(inner, k_, first, keys, keys_copy, false),
                            v = pairs_ ? interleaved(inner, v_, first, keys, terms, 2, 1, values_copy)
                                       : rows_of(inner, v_, first, keys, values_copy, true);
               multiply(inner, {.rows = keys,
                                .columns = blocks.size,
                                .terms = q_.shape[3],
                                .a = k.buffer,
                                .a_origin = k.origin,
                                .a_row_stride = k.row_stride,
                                .a_term_stride = index_const(1),
                                .b = {packed, dtype_, index_const(0), size},
                                .dst = scores});
               add_mask(inner, scores, first, keys, q, blocks);
               softmax(inner, scores, weights, first, keys, q, size, most, total, factor);
               multiply(inner, {.rows = size,
                                .columns = columns,
                                .terms = terms,
                                .a = weights,
                                .a_origin = index_const(0),
                                .a_row_stride = index_const(1),
                                .a_term_stride = size,
                                .b = v,
                                .dst = sums,
                                .start = Product::Start::kScaled,
                                .factors = factor});
             });
      finish(body, q, sums, most, total);
    });
  }

  // The number that is subtracted from scores: their maximum. If all are -inf it is 0, so that exp gives 0,
  // not NaN.
  Expr origin_of(Body& out, const Expr& most) {
    const Expr none = make_apply(ScalarOp::eq_, {most, lowest()});
    return let(out, "origin", make_apply(ScalarOp::select_, {none, number(0), most}));
  }

  // The keys that queries before `end` may see.
  Expr keys_seen(Body& out, const Expr& end) {
    return causal_ ? let(out, "key_end", make_apply(ScalarOp::min_, {k_.shape[2], end})) : k_.shape[2];
  }

  // Sets `weights` to exp(score - most), updates `most` and `total` with this block, and sets `factor` to the
  // number that scales earlier sums to the new maximum.
  void softmax(Body& out, const std::string& scores, const std::string& weights, const Expr& first_key,
               const Expr& keys, const Queries& q, const Expr& size, const std::string& most,
               const std::string& total, const std::string& factor) {
    constexpr int kUnroll = 2;
    constexpr int64_t kRun = 16;  // so many keys have a sum of their own: one long sum would lose digits
    vectors(
        out, "lane", size,
        [&](const Expr& lane, Body& body) {
          const Expr old = let(body, "old", load(most, lane));
          const auto score_of = [&](const Expr& key) {
            const Expr score = load(scores, key * size + lane);
            return mask_ ? score : apply(ScalarOp::mul_, score, number(scale_));
          };
          const auto seen = [&](const Expr& key, const Expr& score) {
            if (!causal_) return score;
            const Expr later = is_later(first_key + key - q.first, lane);
            return make_apply(ScalarOp::select_, {later, lowest(), score});
          };
          const Expr highest = reduce(body, "key", keys, ScalarOp::max_, old,
                                      [&](const Expr& key, Body&) { return seen(key, score_of(key)); });
          const Expr origin = origin_of(body, highest);
          const Expr scaled = let(body, "scaled", exp_nonpositive(apply(ScalarOp::sub_, old, origin)));
          const auto exponential = [&](const Expr& key, Body& inner) {
            const Expr x = seen(key, apply(ScalarOp::sub_, score_of(key), origin));
            return let(inner, "e", exp_nonpositive(x));
          };
          const auto weigh = [&](const Expr& first, const Expr& step, Body& inner) {
            if (!pairs_) {
              const Expr key = first + step, e = exponential(key, inner);
              store(inner, weights, key * size + lane, e);
              return e;
            }
            const Expr key = first + step * index_const(2), next = key + index_const(1);
            const Expr a = exponential(key, inner), exists = make_apply(ScalarOp::lt_, {next, keys});
            const Expr b =
                let(inner, "e", make_apply(ScalarOp::select_, {exists, exponential(next, inner), number(0)}));
            store(inner, weights, half(key) * size + lane, pair(a, b));
            return apply(ScalarOp::add_, a, b);
          };
          const Expr run = index_const(kRun);
          const Expr sum = reduce(
              body, "run", ceildiv(keys, run), ScalarOp::add_,
              apply(ScalarOp::mul_, load(total, lane), scaled), [&](const Expr& r, Body& inner) {
                const Expr first = let(inner, "first", r * run);
                const Expr count = simplify(make_apply(ScalarOp::min_, {run, keys - first}));
                return reduce(inner, "key", pairs_ ? half(count) : count, ScalarOp::add_, number(0),
                              [&](const Expr& key, Body& innermost) { return weigh(first, key, innermost); });
              });
          store(body, most, lane, highest);
          store(body, total, lane, sum);
          store(body, factor, lane, scaled);
        },
        kUnroll);
  }

  // A query that sees no key gives 0, and its logsumexp is 0, as in ATen's kernel.
  void finish(Body& out, const Queries& q, const std::string& sums, const std::string& most,
              const std::string& total) {
    serial(out, "row", q.fresh, q.rows, [&](const Expr& row, Body& body) {
      const Expr all = let(body, "all", load(total, row));
      write_row(body, sums, row, out_, q.first + row, share_of(body, all));
      store_lse(body, q.first + row, load(most, row), all);
    });
  }

  // `value` if the query sees a key, else 0. `all` is the sum of its exponentials.
  Expr if_seen(const Expr& all, const Expr& value) const {
    const Expr nothing = make_apply(ScalarOp::eq_, {all, number(0)});
    return make_apply(ScalarOp::select_, {nothing, number(0), value});
  }

  Expr share_of(Body& out, const Expr& all) {
    return let(out, "share", if_seen(all, apply(ScalarOp::div_, number(1), all)));
  }

  void store_lse(Body& out, const Expr& row, const Expr& most, const Expr& all) {
    if (!lse_) return;
    const Expr value = apply(ScalarOp::add_, most, make_apply(ScalarOp::log_, {all}));
    store(out, lse_->buffer, position(*lse_, row, nullptr), make_cast(lse_->dtype, if_seen(all, value)));
  }

  // ---- one query ----

  void by_query(Body& out) {
    parallel(out, q_.shape[1], q_.shape[2], terms(), [&](const Expr& row, Body& body) {
      const std::string scores = alloc(body, "scores", k_.shape[2]),
                        query = alloc(body, "query", q_.shape[3]);
      vectors(body, "column", q_.shape[3], [&](const Expr& column, Body& inner) {
        store(inner, query, column, apply(ScalarOp::mul_, element(q_, row, column), number(scale_)));
      });
      const Expr keys = keys_seen(body, row + index_const(1));
      serial(body, "key", index_const(0), keys, [&](const Expr& key, Body& inner) {
        Expr score = reduce(
            inner, "column", k_.shape[3], ScalarOp::add_, number(0),
            [&](const Expr& column, Body&) {
              return apply(ScalarOp::mul_, load(query, column), element(k_, key, column));
            },
            true);
        if (mask_) score = apply(ScalarOp::add_, score, element(*mask_, row, key));
        store(inner, scores, key, score);
      });
      const Expr most = reduce(
          body, "key", keys, ScalarOp::max_, lowest(),
          [&](const Expr& key, Body&) { return load(scores, key); }, true);
      const Expr origin = origin_of(body, most);
      const Expr all = reduce(
          body, "key", keys, ScalarOp::add_, number(0),
          [&](const Expr& key, Body& inner) {
            const Expr e = let(inner, "e", exp_nonpositive(apply(ScalarOp::sub_, load(scores, key), origin)));
            store(inner, scores, key, e);
            return e;
          },
          true);
      const Expr share = share_of(body, all);
      constexpr int kUnroll = 4;
      vectors(
          body, "column", v_.shape[3],
          [&](const Expr& column, Body& inner) {
            const Expr sum =
                reduce(inner, "key", keys, ScalarOp::add_, number(0), [&](const Expr& key, Body&) {
                  return apply(ScalarOp::mul_, load(scores, key), element(v_, key, column));
                });
            store(inner, out_.buffer, position(out_, row, column),
                  make_cast(out_.dtype, apply(ScalarOp::mul_, sum, share)));
          },
          kUnroll);
      store_lse(body, row, most, all);
    });
  }

  const bool few_queries_;
  const Tensor &q_, &k_, &v_, &out_;
  const Tensor* lse_;
};

}  // namespace

loop::Function lower_attention(const Graph& body, const std::vector<OperandLayout>& inputs,
                               const std::vector<OperandLayout>& outputs, const std::string& name,
                               const loop::Target& target) {
  const Node& node = body.nodes.back();
  const int64_t queries = hint(node.types[0].shape[2], body);
  const int64_t panel = loop::kTileVectors * target.lanes(node.types[0].dtype);
  // The gradient takes the exponential of its own scores less this kernel's logsumexp. Scores of another
  // order of summation would differ from these by rounding errors of their own size, and the probabilities by
  // as much.
  const bool has_gradient = outputs.size() > 1;
  return AttentionForward(body, inputs, outputs, target, !has_gradient && queries * 4 < panel).run(name);
}

}  // namespace ipex::graph
