// Loop IR operations on LLVM values, scalars or vectors. Knows types, instructions and Sleef, but no names,
// statements or memory.
//
// Representation of dtypes in registers: b1 is i1. f16 and bf16 are their bits in an i16, because no
// arithmetic is done in them. All others are the LLVM type of the same name. In memory, b1 is a byte, 0 or 1.
#pragma once

#include <llvm/ADT/ArrayRef.h>
#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>

#include "codegen/llvm/math_table.h"
#include "codegen/loop/ir.h"
#include "codegen/target.h"

namespace ipex::loop {

class ValueBuilder {
 public:
  ValueBuilder(llvm::IRBuilder<>& ir, const Target& target) : ir_(ir), target_(target) {}

  const Target& target() const { return target_; }

  llvm::Type* type(Type t) const;
  llvm::Type* memory_type(Type t) const;

  llvm::Value* integer(Type t, int64_t value) const;  // b1 and integers; broadcast if t is a vector
  llvm::Value* real(Type t, double value) const;      // every float type; half types as their bits
  llvm::Value* splat(llvm::Value* x, int lanes) const;
  llvm::Value* iota(Dtype dtype, int lanes) const;         // 0, 1, 2, ...
  llvm::Value* from_memory(llvm::Value* x, Type t) const;  // memory_type(t) -> type(t)
  llvm::Value* to_memory(llvm::Value* x, Type t) const;

  // `operand` is the type of the op's data operands (for select, of its two choices).
  llvm::Value* apply(ScalarOp op, Type operand, llvm::ArrayRef<llvm::Value*> args);
  llvm::Value* cast(llvm::Value* x, Type from, Dtype to);
  // Conversions of pairs of registers: from bf16 to f32 with the even lanes of each pair before its odd
  // lanes, and from that order back to bf16. They cost less than a cast and a shuffle, because a 32-bit word
  // holds one even and one odd element.
  llvm::Value* deinterleave_bf16(llvm::Value* x, int lanes);
  llvm::Value* interleave_bf16(llvm::Value* x, int lanes);
  llvm::Value* reduce_lanes(ScalarOp op, Type t, llvm::Value* x);

  // Lane l is active if l < count - base. This is the mask of a loop's tail, computed without 64-bit lane
  // arithmetic.
  llvm::Value* tail_mask(llvm::Value* base, llvm::Value* count, int lanes);

 private:
  llvm::Value* arithmetic(ScalarOp op, Type t, llvm::ArrayRef<llvm::Value*> args);
  llvm::Value* bitwise(ScalarOp op, Type t, llvm::ArrayRef<llvm::Value*> args);
  llvm::Value* compare(ScalarOp op, Type t, llvm::Value* a, llvm::Value* b);
  llvm::Value* min_max(ScalarOp op, Type t, llvm::Value* a, llvm::Value* b);
  llvm::Value* divide(ScalarOp op, Type t, llvm::Value* a, llvm::Value* b);
  llvm::Value* call_sleef(const MathFunction& f, Type t, llvm::ArrayRef<llvm::Value*> args);
  // Applies fn to each register of `width` lanes and joins the results. The last register is padded with
  // copies of its lane 0.
  llvm::Value* by_register(Type t, int width, llvm::ArrayRef<llvm::Value*> args,
                           llvm::function_ref<llvm::Value*(llvm::ArrayRef<llvm::Value*>)> fn);
  llvm::Value* float_remainder(const MathFunction& f, Type t, llvm::Value* a, llvm::Value* b);
  llvm::Value* float_to_int(llvm::Value* x, Type from, Dtype to);
  llvm::Value* pair_bf16(Type t, llvm::Value* a, llvm::Value* b);
  llvm::Value* scale(Type t, llvm::Value* a, llvm::Value* b);
  llvm::Value* lookup(Type t, llvm::Value* a, llvm::ArrayRef<llvm::Value*> values);
  llvm::Value* dot_bf16(Type t, llvm::Value* a, llvm::Value* b, llvm::Value* c);
  using Converter = llvm::Value* (ValueBuilder::*)(llvm::Value*, Type);
  llvm::Value* to_bf16(llvm::Value* x, Type f32);
  llvm::Value* unless_denormal(llvm::Value* x, Type f32, Converter converter, Converter rounder);
  llvm::Value* convert_to_bf16(llvm::Value* x, Type f32);
  llvm::Value* round_to_bf16(llvm::Value* x, Type f32);
  llvm::Value* rounded_words(llvm::Value* x, Type f32);
  llvm::Value* convert_interleaved(llvm::Value* x, Type f32);
  llvm::Value* round_interleaved(llvm::Value* x, Type f32);
  llvm::Value* is_denormal(llvm::Value* x, Type f32);
  llvm::Value* unary(llvm::Intrinsic::ID id, llvm::Value* x);

  llvm::IRBuilder<>& ir_;
  const Target& target_;
};

// Whether a shuffle of a cast is deinterleave_bf16, and whether a cast of a shuffle is interleave_bf16.
bool splits_bf16(const ExprNode& shuffle, const Target& target);
bool joins_bf16(const ExprNode& cast, const Target& target);

}  // namespace ipex::loop
