// Loop IR: 9 expressions and 7 statements. They are immutable, shared and printable; parse(print(x)) is x.
//
//   expr  := Const | Var | Load(buffer, index[, mask]) | Apply(op, args) | Cast(x) | Ramp(base, stride) |
//            Broadcast(x) | ReduceLanes(op, x) | Shuffle(a, b, mask)
//   stmt  := Block | For | Let | Store(buffer, index, value[, mask]) | Alloc | If | Call
//
// All values are scalars or vectors of `lanes` elements. Indices are i64 offsets, in elements, into a named
// buffer. A Function has one name space, in which every name is bound once. An inactive lane of a masked Load
// gives 0 and accesses no memory; an inactive lane of a masked Store writes nothing. The interpreter
// (loop/eval.h) defines the meaning of all of this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/error.h"

namespace ipex::loop {

// ---- scalar operations ----

enum class ScalarOp : uint8_t {
#define SCALAR_OP(name, arity, domain, result, summary) name##_,
#include "codegen/scalar_ops.def"
#undef SCALAR_OP
};
enum class Domain : uint8_t { kAny, kNumber, kFloatOnly, kIntOnly, kBits };
enum class ResultRule : uint8_t { kSame, kBoolean, kSecond };
struct ScalarOpInfo {
  std::string_view name;
  uint8_t arity;
  Domain domain;
  ResultRule result;
  std::string_view summary;
};
const ScalarOpInfo& info(ScalarOp op);
std::optional<ScalarOp> parse_scalar_op(std::string_view name);
int scalar_op_count();
// From exp to lgamma: expensive functions whose last bits depend on the library that computes them.
constexpr bool is_function(ScalarOp op) { return op >= ScalarOp::exp_ && op <= ScalarOp::lgamma_; }
inline constexpr size_t kMaxOperands = std::max({
#define SCALAR_OP(name, arity, domain, result, summary) size_t{arity},
#include "codegen/scalar_ops.def"
#undef SCALAR_OP
});

// ---- types ----

struct Type {
  Dtype dtype = Dtype::kF32;
  int lanes = 1;
  bool operator==(const Type&) const = default;
  bool is_vector() const { return lanes > 1; }
  Type with_lanes(int n) const { return {dtype, n}; }
  Type with_dtype(Dtype d) const { return {d, lanes}; }
};
inline constexpr Type kIndex{Dtype::kI64, 1};
inline constexpr Type kBool1{Dtype::kBool, 1};

// ---- expressions ----

enum class ExprKind : uint8_t {
  kConst,
  kVar,
  kLoad,
  kApply,
  kCast,
  kRamp,
  kBroadcast,
  kReduceLanes,
  kShuffle
};

struct ExprNode;
using Expr = std::shared_ptr<const ExprNode>;

struct ExprNode {
  ExprKind kind;
  Type type;
  ScalarOp op{};           // Apply, ReduceLanes
  int64_t int_value = 0;   // Const of bool or integer type
  double float_value = 0;  // Const of float type
  std::string name;        // Var: its name; Load: its buffer
  // Load: index[, mask] | Apply: operands | Cast, Broadcast, ReduceLanes: x | Ramp: base, stride |
  // Shuffle: a, b
  std::vector<Expr> args;
  std::vector<int>
      shuffle_mask;  // Shuffle: for each lane, the lane to take from a and b, counted through both
  bool is(ExprKind k) const { return kind == k; }
};

Expr make_const(Type type,
                double value);            // float types (an integer that is exact is accepted for every type)
Expr make_int(Type type, int64_t value);  // bool and integer types; float types convert
inline Expr index_const(int64_t value) { return make_int(kIndex, value); }
Expr make_var(std::string name, Type type = kIndex);
Expr make_load(std::string buffer, Dtype dtype, Expr index,
               Expr mask = nullptr);  // as many lanes as the index
Expr make_apply(ScalarOp op,
                std::vector<Expr> args);  // checks arity, domain, equal types; broadcasts scalars to vectors
Expr make_apply_as(ScalarOp op, std::vector<Expr> args, Type type);  // bitcasts: explicit result type
Expr make_cast(Dtype dtype, Expr x);                                 // returns x if it has that dtype already
Expr make_ramp(Expr base, Expr stride, int lanes);                   // base, base + stride, ...
Expr make_broadcast(Expr x, int lanes);                              // returns x if lanes is 1
Expr make_reduce_lanes(ScalarOp op, Expr x);               // add, mul, min, max, bitand, bitor, bitxor
Expr make_shuffle(Expr a, Expr b, std::vector<int> mask);  // of two vectors of one type
// The shuffle mask that puts the even lanes of each block before its odd lanes: 0, 2, 4, .. 1, 3, 5, ..; and
// the mask that restores the order.
std::vector<int> deinterleave_mask(int lanes, int block);
std::vector<int> interleave_mask(int lanes, int block);

// Index arithmetic is written with operators. Constant operands are folded at once.
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr floordiv(Expr a, Expr b);
Expr floormod(Expr a, Expr b);
inline Expr ceildiv(const Expr& a, const Expr& b) { return floordiv(a + b - index_const(1), b); }

std::optional<int64_t> as_const_int(
    const Expr& e);                        // value of an integer or bool Const (or a Broadcast of one)
bool equal(const Expr& a, const Expr& b);  // structural equality

// ---- statements ----

struct BlockNode;
using Block = std::shared_ptr<const BlockNode>;

enum class ForKind : uint8_t { kSerial, kParallel, kVector };

// One loop-carried value. `init` is its value on entry: usually the identity, or the state of an enclosing
// loop. `identity` is neutral for merge, and every part of a split loop starts from it. After the loop,
// `name` is bound to the final value.
struct State {
  std::string name;
  Type type;
  Expr init;
  Expr identity;
};

// The only form of reduction. Tuples (Welford, argmax) are several states that are merged together.
struct Reduction {
  std::vector<State> states;
  std::vector<Expr>
      yield;  // the next value of each state; may use the states, the loop variable and the lets of the body
  std::vector<Expr> merge;  // combines state `s` with another partial result named `s.other`; associative
};

struct For {
  std::string var;  // i64
  Expr begin, end;  // [begin, end), step 1
  ForKind kind = ForKind::kSerial;
  int64_t grain = 1;  // parallel: the least number of iterations worth waking a thread for
  int lanes = 1;      // vector: elements per step; the tail is masked
  int unroll = 1;     // vector: vectors per step with independent accumulators
  std::optional<Reduction> reduction;
  Block body;
};
struct Let {  // in scope to the end of the enclosing block
  std::string name;
  Expr value;
};
struct Store {
  std::string buffer;
  Expr index, value;  // the dtype of value is that of the buffer
  Expr mask;          // may be null
};
struct Alloc {  // uninitialized scratch, in scope to the end of the enclosing block
  std::string buffer;
  Dtype dtype;
  Expr extent;  // elements
};
struct If {
  Expr condition;              // scalar b1
  Block then_body, else_body;  // else_body may be null
};
struct Call {  // an ABI function of runtime/abi.h, or kPrefetch of a load
  std::string function;
  std::vector<Expr> args;
};
inline constexpr std::string_view kPrefetch = "prefetch";  // fetches the cache line of a load into L2

using Stmt = std::variant<Block, For, Let, Store, Alloc, If, Call>;
struct BlockNode {
  std::vector<Stmt> stmts;
};
Block make_block(std::vector<Stmt> stmts);

// ---- functions ----

enum class Access : uint8_t { kIn, kOut, kInOut };
struct Buffer {
  std::string name;
  Dtype dtype;
  Access access;
  Expr extent;            // elements; may use symbols
  bool streamed = false;  // of an output: stored past the caches if possible
};
struct Function {
  std::string name;
  std::vector<Buffer> buffers;  // parameters; distinct buffers do not overlap, except where in_place says so
  std::vector<std::string> symbols;  // i64 parameters
  Block body;
  // The least values of symbols that may be below 1: sizes that may be 0, and integers that are not sizes.
  std::map<std::string, int64_t> symbol_lows = {};
};

}  // namespace ipex::loop
