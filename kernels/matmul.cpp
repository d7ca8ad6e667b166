// Matrix products on oneDNN. Its fast implementations need dense row- or column-major operands and a
// row-major result. Most of this file converts PyTorch's products (any strides, broadcast batches,
// column-major results, a bias of any shape) to that form:
//
//   1. Batch dims are merged where strides allow it. A batch that b does not depend on becomes rows of a.
//   2. A column-major result is computed as its transpose, b^T a^T.
//   3. Forms without copies are tried first, then copies of operands to dense scratch memory.
//   4. Weights packed for the inner product (inner_product.h) are passed to it where it is faster, else they
//   are
//      unpacked.

#include <optional>
#include <utility>

#include "kernels/descriptors.h"
#include "kernels/engine.h"
#include "kernels/inner_product.h"
#include "kernels/library.h"
#include "kernels/planned_step.h"
#include "kernels/post_ops.h"
#include "kernels/prepack.h"
#include "kernels/step_fields.h"
#include "runtime/error.h"

namespace ipex::kernels {
namespace {

constexpr char kName[] = "onednn.matmul";
// Packing pads to blocks. Do not pack if the packed weights are larger than this factor times the weights.
constexpr size_t kMaxPackedGrowth = 2;

enum Operand { kDst, kA, kB, kBias };  // operands of post-ops follow the bias, or kB if there is none

// A product with known sizes. All operands are expanded to the result's batch (stride 0 where they
// broadcast).
struct Product {
  TensorView a, b, dst;
  std::optional<TensorView> bias;
  std::vector<BoundPostOp> post;

  int rank() const { return static_cast<int>(dst.sizes.size()); }
  int rows() const { return rank() - 2; }
  int cols() const { return rank() - 1; }

  template <class Visit>
  void each_result_shaped(Visit visit) {
    visit(dst);
    if (bias) visit(*bias);
    for (BoundPostOp& bound : post)
      if (bound.operand >= 0) visit(bound.view);
  }
  template <class Visit>
  void each(Visit visit) {
    visit(a);
    visit(b);
    each_result_shaped(visit);
  }
};

Product make_product(const MatMulDesc& desc, const TensorView& b, const Resolved& resolved) {
  Product p;
  p.dst = resolved.operands[kDst];
  const size_t rank = p.dst.sizes.size();
  const TensorView& a = resolved.operands[kA];
  if (rank < 2 || a.sizes.size() < 2 || b.sizes.size() < 2)
    throw InternalError("onednn.matmul: operands need rows and columns: " + text(a) + " x " + text(b));
  // oneDNN 3.13 has products of two types, 3.2 none.
  if (a.dtype != b.dtype)
    throw Unsupported(std::string(kName) + " " + text(a) + " x " + text(b) +
                      ": both operands must have one type; convert one of them");
  const int64_t k = a.sizes.back();
  const auto in_batch = [&](int64_t rows, int64_t cols) {
    Dims sizes = p.dst.sizes;
    sizes[rank - 2] = rows;
    sizes[rank - 1] = cols;
    return sizes;
  };
  p.a = expand(a, in_batch(p.dst.sizes[rank - 2], k));
  p.b = expand(b, in_batch(k, p.dst.sizes[rank - 1]));
  int next = kBias;
  if (desc.bias) p.bias = expand(resolved.operands[next++], p.dst.sizes);
  for (const PostOp& op : desc.post) {
    BoundPostOp bound{op};
    if (op.operand) {
      bound.shares_result = resolved.shares_result[next];
      bound.view = expand(resolved.operands[next], p.dst.sizes);
      bound.operand = next++;
    }
    p.post.push_back(std::move(bound));
  }
  return p;
}

void drop_dim(TensorView& view, int dim) {
  view.sizes.erase(view.sizes.begin() + dim);
  view.strides.erase(view.strides.begin() + dim);
}

void merge_batch(Product& p) {
  const auto all_merge = [&](int dim) {
    bool possible = true;
    p.each([&](TensorView& view) { possible &= can_merge(view, dim); });
    return possible;
  };
  for (int dim = p.rank() - 4; dim >= 0; --dim)
    if (all_merge(dim)) p.each([&](TensorView& view) { merge(view, dim); });
  while (p.rank() > 2) {
    const int dim = p.rank() - 3;
    bool possible = (p.b.strides[dim] == 0 || p.b.sizes[dim] == 1) && can_merge(p.a, dim);
    p.each_result_shaped([&](TensorView& view) { possible &= can_merge(view, dim); });
    if (!possible) break;
    drop_dim(p.b, dim);
    merge(p.a, dim);
    p.each_result_shaped([&](TensorView& view) { merge(view, dim); });
  }
}

void transpose(TensorView& view) {
  const size_t rank = view.sizes.size();
  std::swap(view.sizes[rank - 2], view.sizes[rank - 1]);
  std::swap(view.strides[rank - 2], view.strides[rank - 1]);
}

void transpose(Product& p) {
  p.each([](TensorView& view) { transpose(view); });
  std::swap(p.a, p.b);
}

// In oneDNN, a broadcast batch has extent 1. (Broadcast rows and columns need a copy.)
TensorView without_repeated_batch(TensorView view) {
  for (size_t d = 0; d + 2 < view.sizes.size(); ++d)
    if (view.strides[d] == 0) view.sizes[d] = 1;
  return view;
}

// The strides of a row- or column-major matrix in the form that oneDNN recognises; nullopt if it needs a
// copy.
std::optional<TensorView> as_matrix(TensorView view, bool row_major_only) {
  const int rank = static_cast<int>(view.sizes.size());
  view = without_repeated_batch(std::move(view));
  const int64_t rows = view.sizes[rank - 2], cols = view.sizes[rank - 1];
  int64_t& row_stride = view.strides[rank - 2];
  int64_t& col_stride = view.strides[rank - 1];
  if (cols == 1) col_stride = 1;
  if (rows == 1) row_stride = col_stride == 1 ? cols : 1;
  const bool row_major = col_stride == 1 && row_stride >= cols;
  const bool column_major = row_stride == 1 && col_stride >= rows;
  if (!row_major && (row_major_only || !column_major)) return std::nullopt;
  for (int d = 0; d + 2 < rank; ++d)
    if (view.sizes[d] > 1 && view.strides[d] <= 0) return std::nullopt;
  return with_plain_strides(std::move(view), row_major_order(rank));
}

TensorView dense(TensorView view) {
  view.strides = dense_strides(view.sizes, row_major_order(static_cast<int>(view.sizes.size())));
  return view;
}

// oneDNN recognises a batch of interleaved matrices in 4-d ([1, heads, rows, cols]), but not in 3-d.
void add_leading_dim(TensorView& view) {
  view.sizes.insert(view.sizes.begin(), 1);
  view.strides.insert(view.strides.begin(), 0);
}

// One way to compute a product.
struct Form {
  bool four_dims = false;  // see add_leading_dim
  OperandForm operands;
  bool copy_matrices =
      false;  // copy a, b and the result to or from dense scratch memory if they are not dense
};

struct Attempt {
  dnnl::primitive_desc_base desc;
  TensorView a, b, dst;  // the operands of the primitive
  dnnl::memory::desc a_given, b_given, b_used, dst_given, bias_given, bias;
  std::optional<Epilogue> epilogue;
  bool bias_is_argument = false;
  std::string copies;
  Quality quality = Quality::kNone;
};

// The layout of b: its own, or packed.
struct Weights {
  enum class Use { kMatMul, kInnerProduct, kUnpacked };
  std::optional<dnnl::memory::desc> packed;  // the format of packed weights
  Use use = Use::kMatMul;                    // how packed weights are used
  bool choose = false;                       // let the library choose a format, to find one for packing
};

// Whether the bias varies only along columns. Then it is an argument of the primitive, else the first
// post-op.
bool is_row(const TensorView& bias) {
  for (size_t d = 0; d + 1 < bias.sizes.size(); ++d)
    if (bias.sizes[d] > 1 && bias.strides[d] != 0) return false;
  return bias.sizes.back() == 1 || bias.strides.back() != 0;
}

dnnl::memory::desc packed_in_rank(const dnnl::memory::desc& packed, int rank) {
  Dims sizes = packed.get_dims();
  if (static_cast<int>(sizes.size()) == rank) return packed;
  sizes.insert(sizes.begin(), rank - sizes.size(), 1);
  return packed.reshape(sizes);
}

Attempt attempt(Product p, const Form& form, const Weights& weights, int bias_operand) {
  if (form.four_dims) p.each(add_leading_dim);
  const int rank = p.rank();
  const std::vector<int> order = row_major_order(rank);
  Attempt result;

  const auto plain = [&](const TensorView& view, bool is_result, const char* what,
                         dnnl::memory::desc& given) {
    auto matrix = as_matrix(view, is_result);
    const TensorView own = without_repeated_batch(view);
    if (matrix && (!form.copy_matrices || matrix->strides == dense(*matrix).strides)) {
      given = describe(*matrix, kName);
      return *matrix;
    }
    if (!form.copy_matrices) throw Unsupported(std::string(kName) + ": " + what + " needs a copy");
    given = describe(with_plain_strides(own, order), kName);
    result.copies += std::string(result.copies.empty() ? ", copies " : " ") + what;
    return dense(own);
  };
  result.dst = plain(p.dst, true, "dst", result.dst_given);
  result.a = plain(p.a, false, "a", result.a_given);
  dnnl::memory::desc b;
  const bool inner_product = weights.packed && weights.use == Weights::Use::kInnerProduct;
  if (weights.packed && weights.use != Weights::Use::kUnpacked) {
    b = result.b_given = packed_in_rank(*weights.packed, rank);
  } else {
    result.b = plain(p.b, false, "b", result.b_given);
    b = weights.choose ? dnnl::memory::desc(result.b.sizes, data_type(result.b.dtype, kName),
                                            dnnl::memory::format_tag::any)
                       : describe(result.b, kName);
    if (weights.packed) {
      result.b_given = packed_in_rank(*weights.packed, rank);
      result.copies += std::string(result.copies.empty() ? ", copies " : " ") + "b";
    }
  }

  std::vector<BoundPostOp> post = p.post;
  if (p.bias) {
    result.bias_is_argument = is_row(*p.bias);
    if (result.bias_is_argument) {
      TensorView row = without_repeats(*p.bias);
      result.bias_given = describe(with_plain_strides(row, order), kName);
      result.bias = describe_dense(row, order, kName);
    } else {
      post.insert(post.begin(), BoundPostOp{PostOp{"add"}, bias_operand, *p.bias, false});
    }
  }
  OperandForm operands = form.operands;
  // oneDNN 3.2 reads wrong memory for broadcast operands if the result has permuted batches.
  operands.full |= !nests(result.dst, order);
  operands.copy |= describe(result.dst, kName) != result.dst_given;
  result.epilogue.emplace(post, result.dst, operands, kName);
  const auto a = describe(result.a, kName), dst = describe(result.dst, kName);
  const auto attributes = result.epilogue->attributes();
  const auto& engine = cpu_engine();
  if (inner_product)
    result.desc = kernels::inner_product(a, b, result.bias, dst, attributes);
  else if (result.bias_is_argument)
    result.desc = dnnl::matmul::primitive_desc(engine, a, b, result.bias, dst, attributes, true);
  else
    result.desc = dnnl::matmul::primitive_desc(engine, a, b, dst, attributes, true);
  result.quality = quality(result.desc);
  // oneDNN's bf16 gemm processes K in pairs. If K is odd, an infinity in the last element becomes NaN.
  const bool odd_depth = p.a.dtype == Dtype::kBF16 && p.a.sizes.back() % 2 != 0;
  if (odd_depth && result.quality == Quality::kGemm) result.quality = Quality::kReference;
  if (result.desc) result.b_used = inner_product ? b : result.desc.query_md(dnnl::query::weights_md);
  return result;
}

// The best form: the first direct one without copies, else the first one that is not a reference.
Attempt best_attempt(const Product& p, const Weights& weights, int bias_operand, bool must_succeed) {
  std::vector<Form> forms = {{}};
  if (p.rank() == 3 && !weights.packed && !weights.choose) forms.push_back({.four_dims = true});
  const size_t free_of_copies = forms.size();
  for (const Form& form : {Form{.operands = {.full = true}}, Form{.operands = {.full = true, .copy = true}},
                           Form{.operands = {.full = true, .copy = true}, .copy_matrices = true}})
    forms.push_back(form);

  std::optional<Attempt> best;
  std::string why = "oneDNN has only a reference implementation";
  for (size_t i = 0; i < forms.size(); ++i) {
    if (i >= free_of_copies && best && best->quality >= Quality::kGemm) break;
    try {
      Attempt tried = attempt(p, forms[i], weights, bias_operand);
      if (!best || tried.quality > best->quality) best = std::move(tried);
    } catch (const Unsupported& error) {
      why = error.what();
    }
    if (best && best->quality == Quality::kDirect) break;
  }
  const Quality needed = must_succeed ? Quality::kReference : Quality::kGemm;
  if (!best || best->quality < needed)
    throw Unsupported(std::string(kName) + " " + text(p.a) + " x " + text(p.b) + " -> " + text(p.dst) + ": " +
                      why + "; lower the op in another way");
  return std::move(*best);
}

struct Prepared {
  Product product;
  bool transposed = false;
};

// Steps 1 and 2 of the file comment.
Prepared prepare(const MatMulDesc& desc, const TensorView& b, const Resolved& resolved, bool may_transpose) {
  Prepared prepared{make_product(desc, b, resolved)};
  Product& p = prepared.product;
  merge_batch(p);
  if (may_transpose && !as_matrix(p.dst, true) && as_matrix(p.dst, false)) {
    transpose(p);
    prepared.transposed = true;
  }
  return prepared;
}

struct Packing {
  TensorView b;
  dnnl::memory::desc given, packed;
  bool for_inner_product = false;
};

// An inner product needs a bias for all columns, and dense operands.
std::optional<Attempt> as_inner_product(const Product& p, Weights weights) {
  if (p.rank() != 2 || !inner_product_is_faster(p.dst.sizes[0], p.a.sizes[1])) return std::nullopt;
  if (p.bias && is_row(*p.bias) && p.bias->sizes[1] != p.dst.sizes[1]) return std::nullopt;
  weights.use = Weights::Use::kInnerProduct;
  Attempt attempt = best_attempt(p, weights, kBias, true);
  if (attempt.quality != Quality::kDirect) return std::nullopt;
  return attempt;
}

Attempt best_with_packed(const Product& p, Weights weights, const Packing& packing, bool must_succeed) {
  if (packing.for_inner_product) {
    if (auto attempt = as_inner_product(p, weights)) return std::move(*attempt);
    weights.use = Weights::Use::kUnpacked;
  }
  return best_attempt(p, weights, kBias, must_succeed);
}

Plan build(const MatMulDesc& desc, const std::optional<Packing>& packing, const Resolved& resolved) {
  Plan plan;
  const TensorView& b = packing ? packing->b : resolved.operands[kB];
  if (resolved.operands[kDst].numel() == 0) {
    plan.detail = "empty";
    return plan;
  }
  auto [p, transposed] = prepare(desc, b, resolved, !packing);
  // For K = 0, use one column of zeros times one row of zeros, so that bias and post-ops apply.
  const bool empty_sum = p.a.sizes.back() == 0;
  if (empty_sum) {
    p.a.sizes[p.cols()] = p.b.sizes[p.rows()] = 1;
    p.a = dense(p.a);
    p.b = dense(p.b);
  }
  Weights weights;
  if (packing && !empty_sum) weights.packed = packing->packed;
  const Attempt chosen = weights.packed ? best_with_packed(p, weights, *packing, resolved.must_succeed)
                                        : best_attempt(p, weights, kBias, resolved.must_succeed);

  const int a_operand = transposed ? kB : kA, b_operand = transposed ? kA : kB;
  Plan::Arguments arguments;
  const auto matrix = [&](int argument, int operand, const dnnl::memory::desc& given,
                          const dnnl::memory::desc& wanted) {
    const int slot = empty_sum ? plan.zeros(wanted) : plan.in_layout(plan.operand(operand, given), wanted);
    arguments.emplace_back(argument, slot);
  };
  matrix(DNNL_ARG_SRC, a_operand, chosen.a_given, chosen.desc.query_md(dnnl::query::src_md));
  matrix(DNNL_ARG_WEIGHTS, b_operand, chosen.b_given, chosen.b_used);
  if (chosen.bias_is_argument)
    arguments.emplace_back(DNNL_ARG_BIAS,
                           plan.in_layout(plan.operand(kBias, chosen.bias_given), chosen.bias));
  chosen.epilogue->bind(plan, arguments);
  const int dst = plan.operand(kDst, chosen.dst_given);
  const bool through_scratch = chosen.dst_given != chosen.desc.query_md(dnnl::query::dst_md);
  const int written = through_scratch ? plan.scratch(chosen.desc.query_md(dnnl::query::dst_md)) : dst;
  arguments.emplace_back(DNNL_ARG_DST, written);
  plan.add(chosen.desc, std::move(arguments));
  if (through_scratch) plan.copy(written, dst);
  prepare(chosen.quality);
  plan.detail = std::string(chosen.desc.impl_info_str()) + (desc.bias ? " +bias" : "") +
                post_op_text(p.post) + (weights.packed ? ", packed b" : "") + chosen.copies;
  return plan;
}

// The format for packing b, if b is one matrix of known size and the library prefers another format. f32
// weights are not packed for many rows: packed copies would double a model's memory and save only a few
// percent of the time. On Zen 4 with AVX-512 and one thread, [1024, 768] x [768, 3072] reaches 105 GFLOP/s
// packed and 102 unpacked.
std::optional<Packing> find_packing(const MatMulDesc& desc, const std::vector<TensorSpec>& operands) {
  if (!desc.pack_b || !desc.b.is_static() || desc.planning == Planning::kLater) return std::nullopt;
  const Resolved resolved = resolve_likely(operands);
  Packing packing{resolved.operands[kB]};
  if (resolved.operands[kDst].numel() == 0 || packing.b.numel() == 0) return std::nullopt;
  try {
    const auto [p, transposed] = prepare(desc, packing.b, resolved, true);
    const bool all_f32 = p.a.dtype == Dtype::kF32 && p.dst.dtype == Dtype::kF32;
    if (all_f32 && desc.dst.is_static() && p.rank() == 2 && p.dst.sizes[0] >= kMinUnpackedRows)
      return std::nullopt;
    const bool one_matrix = p.rank() == 2 || (desc.a.is_static() && desc.dst.is_static());
    if (transposed || !one_matrix) return std::nullopt;
    const Attempt chosen = best_attempt(p, Weights{.choose = true}, kBias, false);
    packing.given = chosen.b_given;
    packing.packed = chosen.b_used;
    const bool for_these_rows = desc.dst.is_static() || inner_product_may_be_faster(p.a.sizes[1]);
    if (chosen.quality == Quality::kGemm && all_f32 && p.rank() == 2 && for_these_rows &&
        inner_product_is_faster(p.dst.sizes[0], p.a.sizes[1])) {
      const auto format = inner_product_format(p.a.sizes[1], p.dst.sizes[1]);
      packing.for_inner_product = format.has_value();
      if (format) packing.packed = *format;
    }
  } catch (const std::exception&) {
    return std::nullopt;  // building the step for unpacked weights reports the error
  }
  if (packing.packed == packing.given) return std::nullopt;
  const size_t plain_bytes = static_cast<size_t>(packing.b.numel() * itemsize(desc.b.dtype));
  if (packing.packed.get_size() > kMaxPackedGrowth * plain_bytes) return std::nullopt;
  return packing;
}

}  // namespace

LibrarySteps make_matmul(const MatMulDesc& desc, int packed_buffer) {
  std::vector<TensorSpec> operands = {desc.dst, desc.a, desc.b};
  if (desc.bias) operands.push_back(*desc.bias);
  for (const PostOp& op : desc.post)
    if (op.operand) operands.push_back(*op.operand);
  const Resolved likely = resolve_likely(operands);

  LibrarySteps steps;
  const std::optional<Packing> packing = find_packing(desc, operands);
  if (packing) {
    steps.pack = make_pack_step({{desc.b, packing->given, packing->packed}}, packed_buffer);
    steps.packed_bytes = static_cast<int64_t>(packing->packed.get_size());
    operands[kB] = packed_operand(packed_buffer, packing->packed);
  }
  steps.main = std::make_unique<PlannedStep>(
      kName, operands, [=](const Resolved& resolved) { return build(desc, packing, resolved); },
      desc.planning);
  steps.main->text = to_line(kName, WithPacked<MatMulDesc>{desc, packed_buffer});
  steps.main->info.flops = count_flops(likely.operands[kDst].numel(), likely.operands[kA].sizes.back());
  return steps;
}

}  // namespace ipex::kernels
