// Scaled dot-product attention as one kernel: the code that the forward and the backward kernel share.
//
// The queries of a block are the lanes of vectors. The scores are computed transposed: a row of scores
// belongs to a key, a column to a query. So the softmax runs down columns without a horizontal step, keys and
// values are read row by row where they are in memory, and one micro-kernel (codegen/product_tile.h) computes
// every product.
//
// If the CPU multiplies pairs of bf16, a tensor of bf16 is treated as a tensor of half as many pairs, each
// the bits of an f32. The memory already holds pairs of columns. Pairs of rows are made by interleaving two
// rows, which puts the even columns of a panel in its first vector and the odd columns in its second.
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

  // Tensors are [batch, heads, rows, columns]; logsumexp has no columns. With pairs_, a column of a bf16
  // tensor is a pair.

  // Rows of one head, in an operand or in scratch memory. The columns of a row are contiguous.
  struct Matrix {
    std::string buffer;
    Dtype dtype;
    loop::Expr origin, row_stride;
  };

  // A parallel loop over the `heads` of each batch and the `blocks` of each head. It sets batch_ and head_.
  void parallel(Body& out, const Dim& heads, const loop::Expr& blocks, const loop::Expr& cost_of_block,
                const Each& each);

  // ---- tensors ----

  // e^x for x <= 0, as accurate as the type of the result can show.
  loop::Expr exp_nonpositive(loop::Expr x) const {
    return loop::make_apply(loop::ScalarOp::exp_nonpositive_,
                            {std::move(x), number(is_half(outputs_[0].dtype) ? 17 : 24)});
  }
  loop::Expr position(const Tensor& x, const loop::Expr& row, const loop::Expr& column) const;
  loop::Expr element(const Tensor& x, const loop::Expr& row, const loop::Expr& column) const;  // as dtype_
  // The head of x for head_, which is a head of the queries. One head of the keys may serve several of them.
  loop::Expr head_of(const Tensor& x) const;

  // ---- blocks of queries ----

  // A block has whole vectors of queries. If there are enough queries for one block, the last block ends with
  // the last query, and shares some queries with the block before it (`shifted`). If there are not, or if
  // their number is unknown, the last query is repeated in the lanes that are left.
  struct QueryBlocks {
    int64_t size = 0;
    bool shifted = false;
    loop::Expr count;
  };
  QueryBlocks query_blocks(const Dim& queries) const;
  struct Queries {
    loop::Expr first;  // row of lane 0
    loop::Expr rows;   // lanes that are rows
    loop::Expr fresh;  // the first lane that does not belong to the block before
  };
  loop::Expr row_of(const loop::Expr& lane, const Queries& q, const QueryBlocks& blocks) const;
  Queries queries_of(Body& out, const QueryBlocks& blocks, const loop::Expr& block, const Dim& all);
  int64_t key_block(const Dim& keys) const;

  // dst[column * block + lane] = x[row of the lane, column]
  void pack_queries(Body& out, const Tensor& x, const Queries& q, const QueryBlocks& blocks,
                    const std::string& dst);
  // The rows of x from `first` on. They are copied to `scratch` if the memory of x cannot be read directly,
  // which needs_copy tells. With whole_panels, the columns from the last one to the end of its panel are 0.
  bool needs_copy(const Tensor& x, bool whole_panels) const;
  Matrix rows_of(Body& out, const Tensor& x, const loop::Expr& first, const loop::Expr& rows,
                 const std::string& scratch, bool whole_panels);

  // Scales the scores and adds the mask, if there is one.
  void add_mask(Body& out, const std::string& scores, const loop::Expr& first_key, const loop::Expr& keys,
                const Queries& q, const QueryBlocks& blocks);
  // With pairs_: writes `pairs` rows of dst. Row j has pairs of two rows of x: rows j * step and j * step +
  // apart, counted from `first`. Rows of x from `rows` on count as 0. The columns of dst from the last one of
  // x to the end of its panel are not written.
  Matrix interleaved(Body& out, const Tensor& x, const loop::Expr& first, const loop::Expr& rows,
                     const loop::Expr& pairs, int64_t step, int64_t apart, const std::string& dst);
  loop::Expr pair(const loop::Expr& a, const loop::Expr& b) const;
  static loop::Expr half(const loop::Expr& n);  // the number of pairs that hold n

  // to[row, ..] = sums[sum_row, ..] * factor
  void write_row(Body& out, const std::string& sums, const loop::Expr& sum_row, const Tensor& to,
                 const loop::Expr& row, const loop::Expr& factor);
  loop::Expr is_later(const loop::Expr& key, const loop::Expr& row) const;

  // dst[row, column] = start + sum over terms of a[row, term] * b[term, column]
  struct Product {
    loop::Expr rows;  // if not constant, whole tiles are written, and dst has padding for the last one
    int64_t columns;  // whole panels; also the stride of the rows of dst
    loop::Expr terms;
    std::string a;
    loop::Expr a_origin, a_row_stride, a_term_stride;
    Matrix b;
    std::string dst;
    loop::Expr dst_origin = loop::index_const(0);
    enum class Start : uint8_t { kZero, kAdd, kScaled } start = Start::kZero;
    std::string factors = {};  // kScaled: one for each row
    bool padded = false;       // a has rows for all of the last tile; else its last row is repeated
  };
  void multiply(Body& out, const Product& p);
  static bool holds_pairs(const OperandLayout& layout, const Shape& shape);
  void multiply_tile(Body& out, const Product& p, const loop::Expr& first, int64_t rows, bool clamped);

  int64_t in_panels(const Tensor& x) const;  // columns, not pairs of them, rounded up
  int64_t in_tiles(int64_t rows) const;      // rounded up

  const Tensor* mask_ = nullptr;
  bool causal_ = false, pairs_ = false;
  double scale_ = 1;
  loop::Expr batch_, head_;  // of the task whose statements are being written
};

loop::Function lower_attention(const Graph& body, const std::vector<OperandLayout>& inputs,
                               const std::vector<OperandLayout>& outputs, const std::string& name,
                               const loop::Target& target);
loop::Function lower_attention_backward(const Graph& body, const std::vector<OperandLayout>& inputs,
                                        const std::vector<OperandLayout>& outputs, const std::string& name,
                                        const loop::Target& target);

}  // namespace ipex::graph
