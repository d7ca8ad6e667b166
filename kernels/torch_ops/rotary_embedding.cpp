// torch_ipex::rotary_position_embedding: rotates pairs of elements of each head by the angles of the token's
// position, in query and key, which may be one tensor with the value.
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <immintrin.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/torch_ops/operators.h"
#include "kernels/torch_ops/target_features.h"
#include "kernels/torch_ops/workers.h"
#include "runtime/cpu.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using Results = std::tuple<Tensor, Tensor, Tensor>;

// Angles and products of T are of this type.
template <class T>
using Angle = std::conditional_t<std::is_same_v<T, double>, double, float>;

// What one call does. Strides are in elements.
struct Rotation {
  int64_t heads = 0, key_heads = 0, width = 0;  // key_heads: 0 if the input is one of query and key
  int64_t pairs = 0, offset = 0;                // of elements that are `offset` apart
  int64_t tokens = 0, batch_stride = 0, token_stride = 0;
  const void* input = nullptr;
  const void* table = nullptr;  // [positions, table_width]: sines, then cosines
  int64_t table_width = 0;
  const int64_t* positions = nullptr;  // of each token of each batch
  void *query = nullptr, *key = nullptr, *value = nullptr;
};

#define IPEX_KERNELS "kernels/torch_ops/rotary_kernels.h"
#include "kernels/torch_ops/each_isa.h"

struct Arguments {
  const Tensor &input, &table, &positions;
  int64_t heads, width, offset, rotary_dim;

  // Neighbours are rotated as far as the table goes.
  int64_t pairs() const { return (offset == 1 ? table.size(1) : rotary_dim) / 2; }

  // Of key and of value; 0 if the input has the heads of one of query and key only.
  int64_t key_heads() const {
    return input.dim() == 4 ? 0 : (input.sym_size(2).guard_int(__FILE__, __LINE__) / width - heads) / 2;
  }
};

void check(const Arguments& a) {
  const auto expects = [](bool condition, const auto&... message) {
    TORCH_CHECK(condition, "rotary_position_embedding expects ", message...);
  };
  expects(a.heads > 0 && a.width > 0, "positive numbers of heads and of elements of a head, got ", a.heads,
          " and ", a.width);
  expects(at::isFloatingType(a.input.scalar_type()), "floating-point numbers, got ", a.input.scalar_type());
  if (a.input.dim() == 4)
    expects(a.input.sym_size(2) == a.heads && a.input.sym_size(3) == a.width, "an input [batch, tokens, ",
            a.heads, ", ", a.width, "], got ", a.input.sym_sizes());
  else
    expects(a.input.dim() == 3 && a.input.sym_size(2) % a.width == 0 &&
                a.input.sym_size(2) >= a.heads * a.width &&
                (a.input.sym_size(2) / a.width - a.heads) % 2 == 0,
            "an input [batch, tokens, heads, ", a.width, "], or [batch, tokens, (", a.heads,
            " + 2 * heads of the key) * ", a.width, "], got ", a.input.sym_sizes());
  expects(a.table.dim() == 2 && at::isFloatingType(a.table.scalar_type()) && a.table.size(1) % 2 == 0,
          "a table [positions, rotated elements] with sines and then cosines, got ", a.table.sym_sizes(),
          " of ", a.table.scalar_type());
  expects(at::isIntegralType(a.positions.scalar_type(), false), "integers as positions, got ",
          a.positions.scalar_type());
  expects(a.rotary_dim >= 0 && a.rotary_dim % 2 == 0 && 2 * a.pairs() <= a.table.size(1),
          "an even number of rotated elements, at most the ", a.table.size(1), " of the table, got ",
          a.rotary_dim);
  const int64_t last = a.offset == 1 ? 2 * a.pairs() : a.pairs() + a.offset;
  expects(a.offset >= 1 && (a.offset == 1 || a.offset >= a.pairs()) && last <= a.width,
          "pairs of neighbours (offset 1), or of elements that are at least half of the rotated elements "
          "apart, within the ",
          a.width, " elements of a head; got ", 2 * a.pairs(), " rotated elements and offset ", a.offset);
}

// The position of each token, [batch or 1, tokens]. One number is the position of the first token.
Tensor positions_of(const Arguments& a) {
  const c10::SymInt batch = a.input.sym_size(0), tokens = a.input.sym_size(1);
  const Tensor positions = a.positions.to(at::kLong);
  if (positions.sym_numel() == 1)
    return positions.reshape({1, 1}) + at::arange(tokens, positions.options()).unsqueeze(0);
  const c10::SymInt rows = positions.dim() == 1 ? c10::SymInt(1) : positions.sym_size(0);
  TORCH_CHECK(positions.dim() >= 1 && positions.dim() <= 2 && positions.sym_size(-1) == tokens &&
                  (rows == 1 || rows == batch),
              "rotary_position_embedding expects positions [", batch, ", ", tokens, "], [1, ", tokens,
              "] or one number, got ", positions.sym_sizes());
  return positions.dim() == 1 ? positions.unsqueeze(0) : positions;
}

// By ATen ops. Heads of x: [batch, tokens, heads, width]; sin, cos: [batch or 1, tokens, 1, pairs].
Tensor rotated(const Arguments& a, const Tensor& given, const Tensor& sin, const Tensor& cos) {
  const int64_t pairs = a.pairs();
  const Tensor x = given.to(at::toOpMathType(given.scalar_type()));
  Tensor result;
  if (a.offset == 1) {
    const Tensor even = x.slice(-1, 0, 2 * pairs, 2), odd = x.slice(-1, 1, 2 * pairs, 2);
    const Tensor turned = at::stack({even * cos - odd * sin, odd * cos + even * sin}, -1).flatten(-2);
    result = at::cat({turned, x.slice(-1, 2 * pairs)}, -1);
  } else {
    const Tensor first = x.slice(-1, 0, pairs), second = x.slice(-1, a.offset, a.offset + pairs);
    result = at::cat({first * cos - second * sin, x.slice(-1, pairs, a.offset), second * cos + first * sin,
                      x.slice(-1, a.offset + pairs)},
                     -1);
  }
  return result.to(given.scalar_type());
}

Results definition(const Arguments& a) {
  check(a);
  const Tensor positions = positions_of(a);
  const Tensor angles = a.table.to(at::toOpMathType(a.input.scalar_type()))
                            .index_select(0, positions.reshape({-1}))
                            .view_symint({positions.sym_size(0), positions.sym_size(1), 1, a.table.size(1)});
  const Tensor sin = angles.slice(-1, 0, a.pairs()),
               cos = angles.slice(-1, a.table.size(1) / 2, a.table.size(1) / 2 + a.pairs());
  const int64_t keys = a.key_heads();
  const Tensor x =
      a.input.reshape_symint({a.input.sym_size(0), a.input.sym_size(1), a.heads + 2 * keys, a.width});
  const Tensor query = rotated(a, x.slice(2, 0, a.heads), sin, cos);
  if (keys == 0) return {query, at::empty({0}, x.options()), at::empty({0}, x.options())};
  return {query, rotated(a, x.slice(2, a.heads, a.heads + keys), sin, cos),
          x.slice(2, a.heads + keys).clone(at::MemoryFormat::Contiguous)};
}

Results kernel(const Tensor& given, const Tensor& given_table, const Tensor& given_positions, int64_t heads,
               int64_t width, int64_t offset, int64_t rotary_dim) {
  const Arguments a{given, given_table, given_positions, heads, width, offset, rotary_dim};
  check(a);
  const int64_t batch = given.size(0), tokens = given.size(1), keys = a.key_heads();
  const bool rows = given.stride(-1) == 1 && (given.dim() == 3 || given.stride(2) == width || heads == 1);
  const Tensor x = materialized(rows ? given : given.contiguous());
  const Tensor table = materialized(given_table).to(at::toOpMathType(x.scalar_type())).contiguous();
  const Tensor positions = positions_of(a).expand({batch, tokens}).contiguous();
  const auto* numbers = positions.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < batch * tokens; ++i)
    TORCH_CHECK_INDEX(numbers[i] >= 0 && numbers[i] < table.size(0), "rotary_position_embedding: position ",
                      numbers[i], " is not in the table of ", table.size(0), " positions");
  const Tensor query = at::empty({batch, tokens, heads, width}, x.options()),
               key =
                   keys ? at::empty({batch, tokens, keys, width}, x.options()) : at::empty({0}, x.options()),
               value = at::empty_like(key);
  Rotation r{heads, keys, width, a.pairs(), offset, tokens, x.stride(0), x.stride(1)};
  r.input = x.const_data_ptr();
  r.table = table.const_data_ptr();
  r.table_width = table.size(1);
  r.positions = numbers;
  r.query = query.mutable_data_ptr();
  r.key = key.mutable_data_ptr();
  r.value = value.mutable_data_ptr();
  constexpr int64_t kElements = 1 << 14;  // of a piece of work
  const int64_t grain = std::max<int64_t>(1, kElements / ((heads + 2 * keys) * width));
  with_type(x.scalar_type(), [&](auto number) {
    using T = decltype(number);
    const auto rotate = current_isa() == Isa::kAvx2 ? avx2::rotate_tokens<T> : avx512::rotate_tokens<T>;
    for_each_range(batch * tokens, grain,
                   [&](int64_t begin, int64_t end, Scratch&) { rotate(r, begin, end); });
  });
  return {query, key, value};
}

using Op = Results(const Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, int64_t, int64_t);

Results autograd(const Tensor& input, const Tensor& table, const Tensor& positions, int64_t heads,
                 int64_t width, int64_t offset, int64_t rotary_dim) {
  if (!all_dense(input, table, positions) || needs_gradient(input, table))
    return definition({input, table, positions, heads, width, offset, rotary_dim});
  at::AutoDispatchBelowADInplaceOrView below;
  static const auto op = typed_operator<Op>("torch_ipex::rotary_position_embedding");
  return op.call(input, table, positions, heads, width, offset, rotary_dim);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  // Query, key and value [batch, tokens, heads, width]. The last two have no elements if the input is one of
  // query and key, [batch, tokens, N, H].
  m.def(
      "rotary_position_embedding(Tensor t_in, Tensor t_emb_pos, Tensor t_pos, int N, int H, int offset, int "
      "rotary_ndims) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) { m.impl("rotary_position_embedding", kernel); }
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) {
  m.impl("rotary_position_embedding", [](const Tensor& input, const Tensor& table, const Tensor& positions,
                                         int64_t heads, int64_t width, int64_t offset, int64_t rotary_dim) {
    return definition({input, table, positions, heads, width, offset, rotary_dim});
  });
}
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) { m.impl("rotary_position_embedding", autograd); }

}  // namespace ipex::torch_ops
