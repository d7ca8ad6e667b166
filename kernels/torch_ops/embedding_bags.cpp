// torch_ipex::merged_embeddingbag_*: embedding bags over several tables of one width in one parallel region.
//
// The backward pass gives dense gradients, or updates the rows of the tables that the bags have read. Lookups
// are grouped by row, and the gradients of a row are summed in the order of the bags: the result does not
// depend on the number of threads.
#include "kernels/torch_ops/embedding_bags.h"

#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <immintrin.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernels/torch_ops/operators.h"
#include "kernels/torch_ops/target_features.h"
#include "kernels/torch_ops/workers.h"
#include "runtime/cpu.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;

#define IPEX_KERNELS "kernels/torch_ops/embedding_bags_kernels.h"
#include "kernels/torch_ops/each_isa.h"

// call(T(), Index()) for the types of the tables and of the indices.
template <class Call>
void with_types(c10::ScalarType table, c10::ScalarType index, Call call) {
  with_type(table, [&](auto value) {
    if (index == at::kInt)
      call(value, int32_t());
    else
      call(value, int64_t());
  });
}

// ---- arguments ----

// Tensors that must outlive the call, such as contiguous copies.
using Kept = std::vector<Tensor>;

const Tensor& keep(Kept& kept, const Tensor& tensor) {
  return kept.emplace_back(materialized(tensor).contiguous());
}

void check(TensorList weights, TensorList indices, TensorList offsets) {
  TORCH_CHECK(!weights.empty(), "merged_embeddingbag expects at least one table");
  TORCH_CHECK(weights.size() == indices.size() && weights.size() == offsets.size(),
              "merged_embeddingbag expects indices and offsets for each of ", weights.size(), " tables, got ",
              indices.size(), " and ", offsets.size());
  for (size_t t = 0; t < weights.size(); ++t) {
    TORCH_CHECK(weights[t].dim() == 2 && weights[t].sym_size(1) == weights[0].sym_size(1) &&
                    weights[t].scalar_type() == weights[0].scalar_type(),
                "merged_embeddingbag expects tables [rows, width] of one width and dtype; table ", t, " is ",
                weights[t].sym_sizes(), " of ", weights[t].scalar_type());
    TORCH_CHECK(indices[t].dim() == 1 && offsets[t].dim() == 1,
                "merged_embeddingbag expects indices and offsets of one dimension; those of table ", t,
                " are ", indices[t].sym_sizes(), " and ", offsets[t].sym_sizes());
    TORCH_CHECK(at::isIntegralType(indices[t].scalar_type(), false) &&
                    at::isIntegralType(offsets[t].scalar_type(), false),
                "merged_embeddingbag expects integers as indices and offsets; those of table ", t, " are ",
                indices[t].scalar_type(), " and ", offsets[t].scalar_type());
  }
}

// The index type of a call: i32 if all indices and offsets are.
c10::ScalarType index_type(TensorList indices, TensorList offsets) {
  const auto narrow = [](const Tensor& t) { return t.scalar_type() == at::kInt; };
  return std::all_of(indices.begin(), indices.end(), narrow) &&
                 std::all_of(offsets.begin(), offsets.end(), narrow)
             ? at::kInt
             : at::kLong;
}

void describe(BagOp& op, Kept& kept, TensorList weights, TensorList indices, TensorList offsets,
              int64_t pooling_mode, bool include_last_offset) {
  check(weights, indices, offsets);
  const c10::ScalarType type = weights[0].scalar_type(), index = index_type(indices, offsets);
  TORCH_CHECK(type == at::kFloat || type == at::kDouble || type == at::kBFloat16 || type == at::kHalf,
              "merged_embeddingbag expects tables of floating-point numbers, got ", type);
  TORCH_CHECK(pooling_mode == 0 || pooling_mode == 1,
              "merged_embeddingbag expects pooling mode 0 (sum) or 1 (mean), got ", pooling_mode);
  op.width = weights[0].size(1);
  op.mean = pooling_mode == 1;
  for (size_t t = 0; t < weights.size(); ++t) {
    TORCH_CHECK(!include_last_offset || offsets[t].size(0) > 0, "merged_embeddingbag: table ", t,
                " has no offsets, but include_last_offset needs one");
    BagTable& table = op.tables.emplace_back();
    table.rows = weights[t].size(0);
    table.indices = keep(kept, indices[t].to(index)).const_data_ptr();
    table.offsets = keep(kept, offsets[t].to(index)).const_data_ptr();
    table.index_count = indices[t].size(0);
    table.offset_count = offsets[t].size(0);
    table.bags = table.offset_count - include_last_offset;
  }
}

// The memory of a tensor that is updated in place.
template <class T = void>
T* updated(const Tensor& tensor, const Tensor& weight, const char* what) {
  TORCH_CHECK(tensor.sizes() == weight.sizes() && tensor.is_contiguous() && !has_lazy_values(tensor),
              "merged_embeddingbag updates contiguous tensors of the table's size ", weight.sizes(), "; ",
              what, " is ", tensor.sizes(), " with strides ", tensor.strides());
  return static_cast<T*>(tensor.mutable_data_ptr());
}

// Says which index or offset of a table is wrong.
template <class Index>
void throw_fault(const BagTable& table, int64_t number) {
  for (int64_t bag = 0; bag < table.bags; ++bag) {
    const auto [begin, end] = bag_range<Index>(table, bag);
    TORCH_CHECK_INDEX(begin <= end, "merged_embeddingbag: the offsets of table ", number,
                      " must ascend from 0 to at most ", table.index_count, ", the number of indices; bag ",
                      bag, " has offset ", static_cast<const Index*>(table.offsets)[bag]);
    for (int64_t i = begin; i < end; ++i) {
      const Index index = static_cast<const Index*>(table.indices)[i];
      TORCH_CHECK_INDEX(index >= 0 && index < table.rows, "merged_embeddingbag: index ", index, " of table ",
                        number, " is out of range: the table has ", table.rows, " rows");
    }
  }
}

void check_faults(const BagOp& op, c10::ScalarType index) {
  const int64_t number = op.faulty;
  if (number < 0) return;
  if (index == at::kInt)
    throw_fault<int32_t>(op.tables[number], number);
  else
    throw_fault<int64_t>(op.tables[number], number);
  TORCH_CHECK_INDEX(false, "merged_embeddingbag: the indices of table ", number, " changed during the call");
}

// ---- kernels ----

constexpr int64_t kPiecesPerThread = 4;
constexpr int64_t kMinLookups = 64;  // of a piece

int64_t lookups_per_piece(const BagOp& op) {
  int64_t all = 0;
  for (const BagTable& table : op.tables) all += table.index_count + table.bags;
  return std::max(kMinLookups, all / (num_threads() * kPiecesPerThread));
}

void run_forward(BagOp& op, c10::ScalarType type, c10::ScalarType index) {
  std::vector<BagPiece> pieces;
  const int64_t lookups = lookups_per_piece(op);
  for (size_t t = 0; t < op.tables.size(); ++t) {
    const BagTable& table = op.tables[t];
    if (table.bags == 0) continue;
    const int64_t per_bag = table.index_count / table.bags + 1,
                  step = std::max<int64_t>(1, lookups / per_bag);
    for (int64_t begin = 0; begin < table.bags; begin += step)
      pieces.push_back({static_cast<int64_t>(t), begin, std::min(table.bags, begin + step)});
  }
  with_types(type, index, [&](auto value, auto number) {
    using T = decltype(value);
    using Index = decltype(number);
    // Copying and adding wide numbers is bound by memory; vectors of 512 bits were measured to be slower.
    const bool narrow = sizeof(T) > 2 || current_isa() == Isa::kAvx2;
    const auto kernel = narrow ? avx2::pool<T, Index> : avx512::pool<T, Index>;
    for_each_piece(static_cast<int64_t>(pieces.size()),
                   [&](int64_t piece, Scratch&) { kernel(op, pieces[piece]); });
  });
  check_faults(op, index);
}

template <BagRule rule>
void run_backward(BagOp& op, c10::ScalarType type, c10::ScalarType index) {
  std::vector<BagPiece> pieces;
  const int64_t lookups = lookups_per_piece(op), most = num_threads();
  for (size_t t = 0; t < op.tables.size(); ++t) {
    // Each part reads all indices of the table.
    const int64_t parts = std::clamp<int64_t>(op.tables[t].index_count / lookups, 1, most);
    for (int64_t part = 0; part < parts; ++part) pieces.push_back({static_cast<int64_t>(t), part, parts});
  }
  with_types(type, index, [&](auto value, auto number) {
    using T = decltype(value);
    using Index = decltype(number);
    const auto kernel =
        current_isa() == Isa::kAvx2 ? avx2::update<T, Index, rule> : avx512::update<T, Index, rule>;
    for_each_piece(static_cast<int64_t>(pieces.size()),
                   [&](int64_t piece, Scratch& scratch) { kernel(op, pieces[piece], scratch); });
  });
  check_faults(op, index);
}

Tensors forward_kernel(TensorList weights, TensorList indices, TensorList offsets, int64_t pooling_mode,
                       bool include_last_offset) {
  BagOp op;
  Kept kept;
  describe(op, kept, weights, indices, offsets, pooling_mode, include_last_offset);
  Tensors results;
  for (size_t t = 0; t < weights.size(); ++t) {
    BagTable& table = op.tables[t];
    table.weight = const_cast<void*>(keep(kept, weights[t]).const_data_ptr());
    const Tensor& result = results.emplace_back(at::empty({table.bags, op.width}, weights[t].options()));
    table.result = result.mutable_data_ptr();
    table.result_stride = op.width;
  }
  run_forward(op, weights[0].scalar_type(), index_type(indices, offsets));
  return results;
}

Tensors forward_definition(TensorList weights, TensorList indices, TensorList offsets, int64_t pooling_mode,
                           bool include_last_offset) {
  check(weights, indices, offsets);
  Tensors results;
  for (size_t t = 0; t < weights.size(); ++t)
    results.push_back(std::get<0>(at::embedding_bag(weights[t], indices[t], offsets[t], false, pooling_mode,
                                                    false, {}, include_last_offset)));
  return results;
}

// By ATen ops, which can be differentiated with respect to the gradients.
Tensors backward_definition(TensorList grads, TensorList weights, TensorList indices, TensorList offsets,
                            int64_t pooling_mode, bool include_last_offset) {
  Tensors results;
  for (size_t t = 0; t < weights.size(); ++t) {
    const Tensor starts = include_last_offset ? offsets[t].narrow(0, 0, offsets[t].size(0) - 1) : offsets[t];
    const Tensor last = at::full({1}, indices[t].size(0), starts.options());
    const Tensor sizes = at::cat({starts, include_last_offset ? offsets[t].slice(0, -1) : last}).diff();
    const Tensor bags = at::repeat_interleave(sizes.to(at::kLong));
    Tensor rows = grads[t].index_select(0, bags);
    if (pooling_mode == 1) rows = rows / sizes.index_select(0, bags).unsqueeze(1);
    results.push_back(at::zeros_like(weights[t]).index_add(0, indices[t], rows));
  }
  return results;
}

// The bags of all tables behind the row of `dense`.
Tensor cat_definition(TensorList weights, TensorList indices, TensorList offsets, const Tensor& dense,
                      bool include_last_offset) {
  Tensors parts = forward_definition(weights, indices, offsets, 0, include_last_offset);
  parts.insert(parts.begin(), dense);
  return at::cat(parts, 1);
}

Tensor cat_kernel(TensorList weights, TensorList indices, TensorList offsets, const Tensor& dense,
                  bool include_last_offset) {
  BagOp op;
  Kept kept;
  describe(op, kept, weights, indices, offsets, 0, include_last_offset);
  if (dense.scalar_type() != weights[0].scalar_type())
    return cat_definition(weights, indices, offsets, dense, include_last_offset);
  const auto count = static_cast<int64_t>(weights.size());
  TORCH_CHECK(dense.dim() == 2, "merged_embeddingbag_cat expects dense features [batch, width], got ",
              dense.sizes());
  const int64_t stride = dense.size(1) + count * op.width;
  Tensor result = at::empty({dense.size(0), stride}, dense.options());
  auto* rows = static_cast<char*>(result.mutable_data_ptr());
  for (int64_t t = 0; t < count; ++t) {
    BagTable& table = op.tables[t];
    TORCH_CHECK(table.bags == dense.size(0), "merged_embeddingbag_cat: table ", t, " has ", table.bags,
                " bags, the dense features have ", dense.size(0), " rows");
    table.weight = const_cast<void*>(keep(kept, weights[t]).const_data_ptr());
    table.result = rows + (dense.size(1) + t * op.width) * result.element_size();
    table.result_stride = stride;
  }
  result.narrow(1, 0, dense.size(1)).copy_(dense);
  run_forward(op, weights[0].scalar_type(), index_type(indices, offsets));
  return result;
}

void add_gradients(BagOp& op, Kept& kept, TensorList grads, c10::ScalarType type) {
  TORCH_CHECK(grads.size() == op.tables.size(), "merged_embeddingbag expects a gradient for each of ",
              op.tables.size(), " tables, got ", grads.size());
  for (size_t t = 0; t < grads.size(); ++t) {
    BagTable& table = op.tables[t];
    TORCH_CHECK(grads[t].dim() == 2 && grads[t].size(0) == table.bags && grads[t].size(1) == op.width,
                "merged_embeddingbag expects gradients [", table.bags, ", ", op.width, "] for table ", t,
                ", got ", grads[t].sizes());
    table.grad = keep(kept, grads[t].to(type)).const_data_ptr();
  }
}

Tensors backward_kernel(TensorList grads, TensorList weights, TensorList indices, TensorList offsets,
                        int64_t pooling_mode, bool include_last_offset) {
  BagOp op;
  Kept kept;
  describe(op, kept, weights, indices, offsets, pooling_mode, include_last_offset);
  add_gradients(op, kept, grads, weights[0].scalar_type());
  Tensors results;
  for (size_t t = 0; t < weights.size(); ++t)
    op.tables[t].weight =
        results.emplace_back(at::zeros(weights[t].sizes(), weights[t].options())).mutable_data_ptr();
  run_backward<BagRule::kGradient>(op, weights[0].scalar_type(), index_type(indices, offsets));
  return results;
}

// The tables to update; a trail without elements belongs to a weight that is not split.
void add_tables(BagOp& op, TensorList weights, TensorList trails) {
  TORCH_CHECK(trails.size() == weights.size(), "merged_embeddingbag expects a trail for each of ",
              weights.size(), " tables, got ", trails.size());
  for (size_t t = 0; t < weights.size(); ++t) {
    op.tables[t].weight = updated(weights[t], weights[t], "the table");
    if (trails[t].numel() == 0 && weights[t].numel() != 0) continue;
    if (weights[t].scalar_type() != at::kBFloat16) continue;
    TORCH_CHECK(trails[t].element_size() == 2, "merged_embeddingbag expects trails of 16 bits, got ",
                trails[t].scalar_type());
    op.tables[t].trail = updated<uint16_t>(trails[t], weights[t], "the trail");
  }
}

void backward_sgd_kernel(TensorList grads, TensorList weights, TensorList indices, TensorList offsets,
                         int64_t pooling_mode, bool include_last_offset, TensorList trails,
                         double weight_decay, double lr) {
  BagOp op;
  Kept kept;
  describe(op, kept, weights, indices, offsets, pooling_mode, include_last_offset);
  op.lr = lr;
  op.weight_decay = weight_decay;
  add_gradients(op, kept, grads, weights[0].scalar_type());
  add_tables(op, weights, trails);
  run_backward<BagRule::kSgd>(op, weights[0].scalar_type(), index_type(indices, offsets));
  for (const TensorList& list : {weights, trails})
    for (const Tensor& tensor : list) count_write(tensor);
}

void backward_adagrad_kernel(TensorList grads, TensorList weights, TensorList indices, TensorList offsets,
                             int64_t pooling_mode, bool include_last_offset, TensorList hessian,
                             TensorList trails, double eps, double lr) {
  BagOp op;
  Kept kept;
  describe(op, kept, weights, indices, offsets, pooling_mode, include_last_offset);
  op.lr = lr;
  op.eps = eps;
  add_gradients(op, kept, grads, weights[0].scalar_type());
  add_tables(op, weights, trails);
  const c10::ScalarType sums = at::toOpMathType(weights[0].scalar_type());
  TORCH_CHECK(hessian.size() == weights.size(), "merged_embeddingbag expects sums of squares for each of ",
              weights.size(), " tables, got ", hessian.size());
  for (size_t t = 0; t < weights.size(); ++t) {
    TORCH_CHECK(hessian[t].scalar_type() == sums, "merged_embeddingbag expects sums of squares of ", sums,
                ", got ", hessian[t].scalar_type());
    op.tables[t].state = updated(hessian[t], weights[t], "the sum of squares");
  }
  run_backward<BagRule::kAdagrad>(op, weights[0].scalar_type(), index_type(indices, offsets));
  for (const TensorList& list : {weights, hessian, trails})
    for (const Tensor& tensor : list) count_write(tensor);
}

// ---- the operators ----

using ForwardOp = Tensors(TensorList, TensorList, TensorList, int64_t, bool);
using BackwardOp = Tensors(TensorList, TensorList, TensorList, TensorList, int64_t, bool);

struct BagFunction : torch::autograd::Function<BagFunction> {
  using Context = torch::autograd::AutogradContext;

  static Tensors forward(Context* context, TensorList weights, TensorList indices, TensorList offsets,
                         int64_t pooling_mode, bool include_last_offset) {
    at::AutoDispatchBelowADInplaceOrView below;
    Tensors saved = weights.vec();
    saved.insert(saved.end(), indices.begin(), indices.end());
    saved.insert(saved.end(), offsets.begin(), offsets.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["mode"] = pooling_mode;
    context->saved_data["last"] = include_last_offset;
    static const auto op = typed_operator<ForwardOp>("torch_ipex::merged_embeddingbag_forward");
    return op.call(weights, indices, offsets, pooling_mode, include_last_offset);
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    const Tensors saved = context->get_saved_variables();
    const size_t count = saved.size() / 3;
    const TensorList all(saved);
    const TensorList weights = all.slice(0, count), indices = all.slice(count, count),
                     offsets = all.slice(2 * count);
    const int64_t mode = context->saved_data["mode"].toInt();
    const bool last = context->saved_data["last"].toBool();
    static const auto op = typed_operator<BackwardOp>("torch_ipex::merged_embeddingbag_backward");
    Tensors results = at::GradMode::is_enabled()
                          ? backward_definition(grads, weights, indices, offsets, mode, last)
                          : op.call(grads, weights, indices, offsets, mode, last);
    results.resize(3 * count + 2);
    return results;
  }
};

Tensors forward_autograd(TensorList weights, TensorList indices, TensorList offsets, int64_t pooling_mode,
                         bool include_last_offset) {
  if (!all_dense(weights) || !all_dense(indices) || !all_dense(offsets))
    return forward_definition(weights, indices, offsets, pooling_mode, include_last_offset);
  if (needs_gradient(weights))
    return BagFunction::apply(weights, indices, offsets, pooling_mode, include_last_offset);
  at::AutoDispatchBelowADInplaceOrView below;
  static const auto op = typed_operator<ForwardOp>("torch_ipex::merged_embeddingbag_forward");
  return op.call(weights, indices, offsets, pooling_mode, include_last_offset);
}

Tensor cat_autograd(TensorList weights, TensorList indices, TensorList offsets, const Tensor& dense,
                    bool include_last_offset) {
  const bool dense_memory =
      all_dense(weights) && all_dense(indices) && all_dense(offsets) && all_dense(dense);
  if (!dense_memory) return cat_definition(weights, indices, offsets, dense, include_last_offset);
  if (needs_gradient(weights) || needs_gradient(dense)) {
    Tensors parts = forward_autograd(weights, indices, offsets, 0, include_last_offset);
    parts.insert(parts.begin(), dense);
    return at::cat(parts, 1);
  }
  at::AutoDispatchBelowADInplaceOrView below;
  static const auto op = typed_operator<Tensor(TensorList, TensorList, TensorList, const Tensor&, bool)>(
      "torch_ipex::merged_embeddingbag_cat_forward");
  return op.call(weights, indices, offsets, dense, include_last_offset);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def(
      "merged_embeddingbag_forward(Tensor[] weights, Tensor[] indices, Tensor[] offsets, int pooling_mode, "
      "bool include_last_offset) -> Tensor[]");
  m.def(
      "merged_embeddingbag_cat_forward(Tensor[] weights, Tensor[] indices, Tensor[] offsets, Tensor dense, "
      "bool include_last_offset=False) -> Tensor");
  m.def(
      "merged_embeddingbag_backward(Tensor[] grads, Tensor[] weights, Tensor[] indices, Tensor[] offsets, "
      "int pooling_mode, bool include_last_offset) -> Tensor[]");
  m.def(
      "merged_embeddingbag_backward_sgd(Tensor[] grads, Tensor(a!)[] weights, Tensor[] indices, Tensor[] "
      "offsets, int pooling_mode, bool include_last_offset, Tensor(b!)[] trails, float weight_decay, float "
      "lr) -> ()");
  m.def(
      "merged_embeddingbag_backward_adagrad(Tensor[] grads, Tensor(a!)[] weights, Tensor[] indices, Tensor[] "
      "offsets, int pooling_mode, bool include_last_offset, Tensor(b!)[] hessian, Tensor(c!)[] trails, float "
      "eps, float lr) -> ()");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) {
  m.impl("merged_embeddingbag_forward", forward_kernel);
  m.impl("merged_embeddingbag_cat_forward", cat_kernel);
  m.impl("merged_embeddingbag_backward", backward_kernel);
  m.impl("merged_embeddingbag_backward_sgd", backward_sgd_kernel);
  m.impl("merged_embeddingbag_backward_adagrad", backward_adagrad_kernel);
}
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) {
  m.impl("merged_embeddingbag_forward", forward_definition);
  m.impl("merged_embeddingbag_cat_forward", cat_definition);
  m.impl("merged_embeddingbag_backward", backward_definition);
}
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) {
  m.impl("merged_embeddingbag_forward", forward_autograd);
  m.impl("merged_embeddingbag_cat_forward", cat_autograd);
}

}  // namespace ipex::torch_ops
