// Conversions between every pair of dtypes, rounding where ATen rounds. Half types convert through f32 (a
// double becomes f32 first, then half, as ATen does); narrow integers from floats go through i32; nothing is
// poison.
#include <llvm/IR/Constants.h>

#include "codegen/llvm/value_builder.h"

namespace ipex::loop {

llvm::Value* ValueBuilder::cast(llvm::Value* x, Type from, Dtype to) {
  const Type target = from.with_dtype(to);
  const Type single = from.with_dtype(Dtype::kF32);
  if (from.dtype == to) return x;

  if (from.dtype == Dtype::kBF16) {
    llvm::Value* bits = ir_.CreateZExt(x, type(from.with_dtype(Dtype::kI32)));
    return cast(ir_.CreateBitCast(ir_.CreateShl(bits, 16), type(single)), single, to);
  }
  if (from.dtype == Dtype::kF16) {
    llvm::Type* half = ir_.getHalfTy();
    if (from.is_vector()) half = llvm::FixedVectorType::get(half, from.lanes);
    return cast(ir_.CreateFPExt(ir_.CreateBitCast(x, half), type(single)), single, to);
  }
  if (is_half(to)) {
    x = cast(x, from, Dtype::kF32);
    if (to == Dtype::kBF16) return to_bf16(x, single);
    llvm::Type* half = ir_.getHalfTy();
    if (from.is_vector()) half = llvm::FixedVectorType::get(half, from.lanes);
    return ir_.CreateBitCast(ir_.CreateFPTrunc(x, half), type(target));
  }

  if (to == Dtype::kBool) {
    llvm::Constant* zero = llvm::Constant::getNullValue(x->getType());
    return is_float(from.dtype) ? ir_.CreateFCmpUNE(x, zero) : ir_.CreateICmpNE(x, zero);
  }
  if (is_float(from.dtype))
    return is_float(to) ? ir_.CreateFPCast(x, type(target)) : float_to_int(x, from, to);
  const bool is_signed = info(from.dtype).is_signed;
  if (is_float(to)) return is_signed ? ir_.CreateSIToFP(x, type(target)) : ir_.CreateUIToFP(x, type(target));
  return ir_.CreateIntCast(x, type(target), is_signed);
}

// The instruction (vcvttps2dq and its family) gives the smallest integer for NaN and out of range; freeze
// keeps LLVM from reading more into it than that.
llvm::Value* ValueBuilder::float_to_int(llvm::Value* x, Type from, Dtype to) {
  const Dtype wide = to == Dtype::kI64 ? Dtype::kI64 : Dtype::kI32;
  llvm::Value* converted = ir_.CreateFreeze(ir_.CreateFPToSI(x, type(from.with_dtype(wide))));
  return ir_.CreateIntCast(converted, type(from.with_dtype(to)), /*isSigned=*/true);
}

// vcvtneps2bf16 where it exists (it reads denormals as zero); else the integer sequence: add half of the last
// kept bit, plus that bit for ties to even. A NaN keeps its upper bits and is made quiet, since rounding
// could carry it into an infinity. Scalars take the sequence everywhere: LLVM 22 believes that the sign bit
// of a scalar converted by the instruction is 0, and drops what is computed from it.
llvm::Value* ValueBuilder::to_bf16(llvm::Value* x, Type f32) {
  const Type half = f32.with_dtype(Dtype::kBF16);
  if (target_.native_bf16_convert && f32.is_vector()) {
    auto* bfloat = llvm::FixedVectorType::get(ir_.getBFloatTy(), f32.lanes);
    return ir_.CreateBitCast(ir_.CreateFPTrunc(x, bfloat), type(half));
  }
  const Type word = f32.with_dtype(Dtype::kI32);
  llvm::Value* bits = ir_.CreateBitCast(x, type(word));
  llvm::Value* odd = ir_.CreateAnd(ir_.CreateLShr(bits, 16), integer(word, 1));
  llvm::Value* rounded = ir_.CreateAdd(bits, ir_.CreateAdd(odd, integer(word, 0x7fff)));
  llvm::Value* quiet = ir_.CreateOr(bits, integer(word, 0x400000));
  llvm::Value* result = ir_.CreateSelect(ir_.CreateFCmpUNO(x, x), quiet, rounded);
  return ir_.CreateTrunc(ir_.CreateLShr(result, 16), type(half));
}

}  // namespace ipex::loop
