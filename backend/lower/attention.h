// Scaled dot-product attention as one kernel, forwards and backwards: what both are written with.
//
// A block of queries lies in lanes: scores are computed transposed, keys down and queries across, so that the
// softmax runs down columns without a horizontal step, keys and values are read row by row where they lie,
// and the same micro-kernel (codegen/product_tile.h) does every product.
//
// Where the CPU multiplies pairs of bf16, tensors of bf16 are tensors of half as many pairs, each the bits of
// an f32. What lies in memory serves as pairs of columns; pairs of rows are made by interleaving two of them,
// which puts the even columns of a panel in its first vector and the odd ones in its second.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/lower/lower.h"
#include "backend/lower/nest_builder.h"

namespace ipex::graph {

class AttentionBuilder : protected NestBuilder {
 protected:
  // `pairs`: multiply pairs of bf16 where the CPU and the layouts allow it.
  AttentionBuilder(const Graph& body, const std::vector<OperandLayout>& inputs,
                   const std::vector<OperandLayout>& outputs, const loop::Target& target, bool pairs);

  // Tensors are [batch, heads, rows, columns], that of logsumexp without columns. With pairs_, a column of
  // one of bf16 is a pair.

  // Rows of one head, columns side by side: of an operand, or of scratch.
  struct Matrix {
    std::string buffer;
    Dtype dtype;
    loop::Expr origin, row_stride;
  };

  // for parallel over `heads` of each batch and `blocks` of each head; sets batch_ and head_.
  void parallel(Body& out, const Dim& heads, const loop::Expr& blocks, const loop::Expr& cost_of_block,
                const Each& each);

  // ---- tensors ----

  // e^x of x <= 0, as accurate as the result's type can tell.
  loop::Expr exp_nonpositive(loop::Expr x) const {
    return loop::make_apply(loop::ScalarOp::exp_nonpositive_,
                            {std::move(x), number(is_half(outputs_[0].dtype) ? 17 : 24)});
  }
  loop::Expr position(const Tensor& x, const loop::Expr& row, const loop::Expr& column) const;
  loop::Expr element(const Tensor& x, const loop::Expr& row, const loop::Expr& column) const;  // as dtype_
  loop::Expr head_of(const Tensor& x) const;  // x's, for the queries' head_: heads of keys may serve several

  // ---- blocks of queries ----

  // Lanes hold whole vectors of queries. Where queries fill a block, the last block ends with the last query
  // and shares some with the one before it; where they do not, or nobody knows, the last query repeats.
  struct QueryBlocks {
    int64_t size = 0;
    bool shifted = false;
    loop::Expr count;
  };
  QueryBlocks query_blocks(const Dim& queries) const;
  struct Queries {
    loop::Expr first;  // row of lane 0
    loop::Expr rows;   // lanes that are rows
    loop::Expr fresh;  // lanes before it belong to the block before
  };
  loop::Expr row_of(const loop::Expr& lane, const Queries& q, const QueryBlocks& blocks) const;
  Queries queries_of(Body& out, const QueryBlocks& blocks, const loop::Expr& block, const Dim& all);
  int64_t key_block(const Dim& keys) const;

  // dst[column * block + lane] = x[lane's row, column]
  void pack_queries(Body& out, const Tensor& x, const Queries& q, const QueryBlocks& blocks,
                    const std::string& dst);
  // Rows first.. of x. Columns beyond the last are 0 when they are read in whole panels. A copy goes to
  // `scratch` where x's own memory will not do.
  bool needs_copy(const Tensor& x, bool whole_panels) const;
  Matrix rows_of(Body& out, const Tensor& x, const loop::Expr& first, const loop::Expr& rows,
                 const std::string& scratch, bool whole_panels);

  // Where there is a mask: scales the scores of keys down and queries across, and adds it.
  void add_mask(Body& out, const std::string& scores, const loop::Expr& first_key, const loop::Expr& keys,
                const Queries& q, const QueryBlocks& blocks);
  // With pairs_: `pairs` rows of dst, each the pairs of the rows j * step and j * step + apart of x, counted
  // from `first`; those from `rows` on are 0. Columns that fill x's last panel are not written.
  Matrix interleaved(Body& out, const Tensor& x, const loop::Expr& first, const loop::Expr& rows,
                     const loop::Expr& pairs, int64_t step, int64_t apart, const std::string& dst);
  loop::Expr pair(const loop::Expr& a, const loop::Expr& b) const;
  static loop::Expr half(const loop::Expr& n);  // how many pairs hold n

  // to[row, ..] = sums[sum_row, ..] * factor
  void write_row(Body& out, const std::string& sums, const loop::Expr& sum_row, const Tensor& to,
                 const loop::Expr& row, const loop::Expr& factor);
  loop::Expr is_later(const loop::Expr& key, const loop::Expr& row) const;

  // dst[row, column] = start + sum over terms of a[row, term] * b[term, column]
  struct Product {
    loop::Expr rows;  // constant: exactly these; else in whole tiles, and dst has padding for the last
    int64_t columns;  // whole panels, also the stride of dst's rows
    loop::Expr terms;
    std::string a;
    loop::Expr a_origin, a_row_stride, a_term_stride;
    Matrix b;
    std::string dst;
    loop::Expr dst_origin = loop::index_const(0);
    enum class Start : uint8_t { kZero, kAdd, kScaled } start = Start::kZero;
    std::string factors = {};  // kScaled: one a row
    bool padded = false;       // a has rows for the last tile, too; else its last row repeats
  };
  void multiply(Body& out, const Product& p);
  static bool holds_pairs(const OperandLayout& layout, const Shape& shape);
  void multiply_tile(Body& out, const Product& p, const loop::Expr& first, int64_t rows, bool clamped);

  int64_t in_panels(const Tensor& x) const;  // columns, not pairs of them, rounded up
  int64_t in_tiles(int64_t rows) const;      // rounded up

  const Tensor* mask_ = nullptr;
  bool causal_ = false, pairs_ = false;
  double scale_ = 1;
  loop::Expr batch_, head_;  // what the statements being written are about
};

loop::Function lower_attention(const Graph& body, const std::vector<OperandLayout>& inputs,
                               const std::vector<OperandLayout>& outputs, const std::string& name,
                               const loop::Target& target);
loop::Function lower_attention_backward(const Graph& body, const std::vector<OperandLayout>& inputs,
                                        const std::vector<OperandLayout>& outputs, const std::string& name,
                                        const loop::Target& target);

}  // namespace ipex::graph
