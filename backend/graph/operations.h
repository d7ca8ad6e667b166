// The operations of nodes: one struct of attributes for each op, generated from backend/ops/structural.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "backend/ops/tables.h"
#include "codegen/loop/ir.h"
#include "kernels/sort_kind.h"

namespace ipex::graph {

using kernels::SortKind;
using ops::PointwiseOp;
using ops::ReductionOp;
using ops::ScanOp;

using Dim = loop::Expr;
using Dims = std::vector<Dim>;
using Ints = std::vector<int64_t>;
using Strings = std::vector<std::string>;
using Number = std::variant<int64_t, double>;  // integers and bool; floats

class Graph;

struct ConstantData {  // row-major payload of a Constant
  std::vector<std::byte> bytes;
};

enum class Combine : uint8_t { kSet, kAdd, kMul, kMin, kMax };
enum class Implementation : uint8_t { kLibrary, kKernel };
enum class GradientOf : uint8_t { kData, kWeights };
enum class PoolKind : uint8_t { kMax, kAvg };
enum class PoolWindow : uint8_t { kSliding, kAdaptive, kCovering };
enum class IndexFault : uint8_t {  // the error that an index out of range raises
#define INDEX_ERROR(name, python, message) name,
#include "runtime/index_errors.def"
#undef INDEX_ERROR
};

// An attribute with a default value. It records whether it was written, so that printing a parsed text gives
// the same text.
template <class T, auto... kDefault>
class Defaulted {
 public:
  Defaulted() = default;
  Defaulted(T value) : value_(std::move(value)), is_written_(true) {}
  operator const T&() const { return value_; }
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }
  bool is_written() const { return is_written_; }

 private:
  T value_{kDefault...};
  bool is_written_ = false;
};

#define NAMED(type, field) type field{};
#define ATTR(type, field) type field{};
#define OPTIONAL(type, field) std::optional<type> field{};
#define DEFAULT(type, field, ...) Defaulted<type __VA_OPT__(, ) __VA_ARGS__> field{};
#define HELD(type, field) type field{};
#define OP(Name, text, fusion, traits, operands, attributes, summary) \
  struct Name {                                                       \
    attributes                                                        \
  };
#include "backend/ops/structural.def"

enum class Op : uint8_t {
#define OP(Name, text, fusion, traits, operands, attributes, summary) k##Name,
#include "backend/ops/structural.def"
};

// The alternatives are in the order of Op: an operation's index is its op.
template <class, class... Each>
using OneOf = std::variant<Each...>;
using Operation = OneOf<void
#define OP(Name, text, fusion, traits, operands, attributes, summary) , Name
#include "backend/ops/structural.def"
                        >;

inline Op op_of(const Operation& operation) { return static_cast<Op>(operation.index()); }

// How form_groups treats an op. kView and the ops after it are fusible.
enum class Fusion : uint8_t {
  kLeaf,         // existing data: nothing to compute
  kStep,         // a step of its own, never fused
  kView,         // moves no data
  kElementwise,  // reads its operands at the index of its result
  kElsewhere,    // reads its first operand at other indices
  kAlone         // like kElsewhere, and has no consumer in its kernel
};

// What other passes ask of an op.
enum OpTrait : unsigned {
  kFoldable = 1,       // fold_constants computes it where all its operands are constants
  kFollowsLayout = 2,  // its results are channels_last where one of its operands is
};

struct OpInfo {
  std::string_view name;
  Fusion fusion;
  unsigned traits;  // of OpTrait
  std::string_view operands, summary;
  bool has(OpTrait trait) const { return (traits & trait) != 0; }
};
const OpInfo& info(Op op);
inline bool is_view(Op op) { return info(op).fusion == Fusion::kView; }
inline bool is_fusible(Op op) { return info(op).fusion >= Fusion::kView; }
inline bool is_attention(Op op) { return op == Op::kAttention || op == Op::kAttentionBackward; }

// each_attribute(operation, fn) calls fn(presence, key, field) for each attribute of one op's struct.
enum class Presence : uint8_t { kName, kRequired, kOptional };
#define NAMED(type, field) fn(Presence::kName, std::string_view(#field), op.field);
#define ATTR(type, field) fn(Presence::kRequired, std::string_view(#field), op.field);
#define OPTIONAL(type, field) fn(Presence::kOptional, std::string_view(#field), op.field);
#define DEFAULT(type, field, ...) fn(Presence::kOptional, std::string_view(#field), op.field);
#define OP(Name, text, fusion, traits, operands, attributes, summary)             \
  template <class Self, class Fn>                                                 \
    requires std::is_same_v<std::remove_const_t<Self>, Name>                      \
  void each_attribute([[maybe_unused]] Self& op, [[maybe_unused]] const Fn& fn) { \
    attributes                                                                    \
  }
#include "backend/ops/structural.def"

}  // namespace ipex::graph

IPEX_ENUM_TEXT(ipex::graph::Combine, "way to combine", "set", "add", "mul", "min", "max")
IPEX_ENUM_TEXT(ipex::graph::Implementation, "implementation", "library", "kernel")
IPEX_ENUM_TEXT(ipex::graph::GradientOf, "operand of a convolution", "data", "weights")
IPEX_ENUM_TEXT(ipex::graph::PoolKind, "kind of pool", "max", "avg")
IPEX_ENUM_TEXT(ipex::graph::PoolWindow, "kind of window", "sliding", "adaptive", "covering")

template <>
struct ipex::EnumText<ipex::kernels::SortKind> {
  static constexpr auto kAll = ipex::kernels::kSortKinds;
  static constexpr std::string_view kWhat = "kind of sort";
};

template <>
struct ipex::EnumText<ipex::graph::IndexFault> {
  static constexpr std::string_view kAll[] = {
#define INDEX_ERROR(name, python, message) #name,
#include "runtime/index_errors.def"
#undef INDEX_ERROR
  };
  static constexpr std::string_view kWhat = "row of runtime/index_errors.def";
};
