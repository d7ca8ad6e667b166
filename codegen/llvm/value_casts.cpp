// Conversions between every pair of dtypes, rounding where ATen rounds. Half types are converted through f32
// (a double becomes f32 first, then half, as in ATen). Narrow integers are converted from floats through i32.
// No result is poison.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>

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

// The instruction (vcvttps2dq and its variants) gives the smallest integer for NaN and for values out of
// range. freeze keeps LLVM from assuming more. ATen's u8 is the low bits of an i64; this only makes a
// difference for f64 from 2^31 on.
llvm::Value* ValueBuilder::float_to_int(llvm::Value* x, Type from, Dtype to) {
  const bool is_wide = to == Dtype::kI64 || (to == Dtype::kU8 && from.dtype == Dtype::kF64);
  const Dtype wide = is_wide ? Dtype::kI64 : Dtype::kI32;
  llvm::Value* converted = ir_.CreateFreeze(ir_.CreateFPToSI(x, type(from.with_dtype(wide))));
  return ir_.CreateIntCast(converted, type(from.with_dtype(to)), /*isSigned=*/true);
}

// Uses vcvtneps2bf16 if the CPU has it, otherwise a sequence of integer operations. The instruction treats
// denormals as zero, whatever the mode of the CPU, so a vector that contains one takes the sequence; all
// others pay for a test. Scalars always take the sequence: LLVM 22 assumes that the sign bit of a scalar
// converted by the instruction is 0, and drops code that depends on it.
llvm::Value* ValueBuilder::to_bf16(llvm::Value* x, Type f32) {
  if (!target_.native_bf16 || !f32.is_vector()) return round_to_bf16(x, f32);
  return unless_denormal(x, f32, &ValueBuilder::convert_to_bf16, &ValueBuilder::round_to_bf16);
}

llvm::Value* ValueBuilder::unless_denormal(llvm::Value* x, Type f32, Converter converter, Converter rounder) {
  llvm::Value* converted = (this->*converter)(x, f32);
  llvm::Value* any = ir_.CreateOrReduce(is_denormal(x, f32));
  llvm::BasicBlock* block = ir_.GetInsertBlock();
  auto* rare = llvm::BasicBlock::Create(ir_.getContext(), "bf16.denormal", block->getParent());
  auto* after = llvm::BasicBlock::Create(ir_.getContext(), "bf16.end", block->getParent());
  ir_.CreateCondBr(any, rare, after, llvm::MDBuilder(ir_.getContext()).createUnlikelyBranchWeights());
  ir_.SetInsertPoint(rare);
  llvm::Value* rounded = (this->*rounder)(x, f32);
  ir_.CreateBr(after);
  ir_.SetInsertPoint(after);
  llvm::PHINode* result = ir_.CreatePHI(converted->getType(), 2);
  result->addIncoming(converted, block);
  result->addIncoming(rounded, rare);
  return result;
}

// Converts a vector by the instruction, two registers at a time if there are two. LLVM would convert them one
// by one and join the results.
llvm::Value* ValueBuilder::convert_to_bf16(llvm::Value* x, Type f32) {
  constexpr int kRegister = 16;
  if (f32.lanes % (2 * kRegister) == 0) {
    llvm::SmallVector<llvm::Value*, 2> parts;
    for (int lane = 0; lane < f32.lanes; lane += 2 * kRegister) {
      llvm::Value* low = ir_.CreateShuffleVector(x, llvm::createSequentialMask(lane, kRegister, 0));
      llvm::Value* high =
          ir_.CreateShuffleVector(x, llvm::createSequentialMask(lane + kRegister, kRegister, 0));
      parts.push_back(ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {high, low}));
    }
    return ir_.CreateBitCast(llvm::concatenateVectors(ir_, parts), type(f32.with_dtype(Dtype::kBF16)));
  }
  auto* bfloat = llvm::FixedVectorType::get(ir_.getBFloatTy(), f32.lanes);
  return ir_.CreateBitCast(ir_.CreateFPTrunc(x, bfloat), type(f32.with_dtype(Dtype::kBF16)));
}

// Denormals become 0 if the CPU has the conversion, because its dot products treat them as 0 too.
llvm::Value* ValueBuilder::pair_bf16(Type t, llvm::Value* a, llvm::Value* b) {
  const bool converts = target_.native_bf16 && t.is_vector();
  const auto bits = [&](llvm::Value* x) {
    return ir_.CreateZExt(converts ? convert_to_bf16(x, t) : round_to_bf16(x, t),
                          type(t.with_dtype(Dtype::kI32)));
  };
  return ir_.CreateBitCast(ir_.CreateOr(bits(a), ir_.CreateShl(bits(b), 16)), type(t));
}

// vdpbf16ps if the CPU has it, one register at a time.
llvm::Value* ValueBuilder::dot_bf16(Type t, llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  const int width = std::min(t.lanes, target_.vector_bytes / 4);
  llvm::Intrinsic::ID id = llvm::Intrinsic::not_intrinsic;
  if (width == 16) id = llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512;
  if (width == 8) id = llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256;
  if (width == 4) id = llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128;
  if (target_.native_bf16 && id != llvm::Intrinsic::not_intrinsic) {
    auto* pairs = llvm::FixedVectorType::get(ir_.getBFloatTy(), 2 * width);
    return by_register(t, width, {c, a, b}, [&](llvm::ArrayRef<llvm::Value*> parts) {
      return ir_.CreateIntrinsic(
          id, {parts[0], ir_.CreateBitCast(parts[1], pairs), ir_.CreateBitCast(parts[2], pairs)});
    });
  }
  const Type word = t.with_dtype(Dtype::kI32);
  const auto lower = [&](llvm::Value* x) {
    return ir_.CreateBitCast(ir_.CreateShl(ir_.CreateBitCast(x, type(word)), 16), type(t));
  };
  const auto upper = [&](llvm::Value* x) {
    llvm::Value* kept = ir_.CreateAnd(ir_.CreateBitCast(x, type(word)), integer(word, -65536));
    return ir_.CreateBitCast(kept, type(t));
  };
  const auto fma = [&](llvm::Value* x, llvm::Value* y, llvm::Value* z) {
    return ir_.CreateIntrinsic(llvm::Intrinsic::fma, {type(t)}, {x, y, z});
  };
  return fma(lower(a), lower(b), fma(upper(a), upper(b), c));
}

// vscalefps, or multiplication by two factors, the first of which is exact.
llvm::Value* ValueBuilder::scale(Type t, llvm::Value* a, llvm::Value* b) {
  constexpr int kRegister = 16, kCurrentRounding = 4;
  if (target_.scale_by_power && t.lanes % kRegister == 0)
    return by_register(t, kRegister, {a, b}, [&](llvm::ArrayRef<llvm::Value*> parts) {
      llvm::Value* zero = llvm::Constant::getNullValue(parts[0]->getType());
      return ir_.CreateIntrinsic(
          llvm::Intrinsic::x86_avx512_mask_scalef_ps_512,
          {parts[0], parts[1], zero, ir_.getInt16(-1), ir_.getInt32(kCurrentRounding)});
    });
  const Type word = t.with_dtype(Dtype::kI32);
  const auto power = [&](llvm::Value* n) {
    return ir_.CreateBitCast(ir_.CreateShl(ir_.CreateAdd(n, integer(word, 127)), integer(word, 23)), type(t));
  };
  llvm::Value* n = ir_.CreateFPToSI(b, type(word));
  llvm::Value* half = ir_.CreateAShr(n, integer(word, 1));
  return ir_.CreateFMul(ir_.CreateFMul(a, power(half)), power(ir_.CreateSub(n, half)));
}

// Tests each lane, or lanes that are one register apart. vfpclassps is one instruction, while LLVM uses three
// for its own test.
llvm::Value* ValueBuilder::is_denormal(llvm::Value* x, Type f32) {
  constexpr int kRegister = 16, kDenormal = 0x20;
  if (f32.lanes % kRegister != 0) return ir_.createIsFPClass(x, llvm::fcSubnormal);
  llvm::Value* any = nullptr;
  for (int lane = 0; lane < f32.lanes; lane += kRegister) {
    llvm::Value* part = ir_.CreateShuffleVector(x, llvm::createSequentialMask(lane, kRegister, 0));
    llvm::Value* found =
        ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_fpclass_ps_512, {part, ir_.getInt32(kDenormal)});
    any = any ? ir_.CreateOr(any, found) : found;
  }
  return any;
}

llvm::Value* ValueBuilder::round_to_bf16(llvm::Value* x, Type f32) {
  return ir_.CreateTrunc(ir_.CreateLShr(rounded_words(x, f32), 16), type(f32.with_dtype(Dtype::kBF16)));
}

// Adds half of the last kept bit, and that bit itself for ties to even; the upper half of the result is the
// bf16. A NaN keeps its upper bits and becomes quiet, because rounding could turn it into an infinity.
llvm::Value* ValueBuilder::rounded_words(llvm::Value* x, Type f32) {
  const Type word = f32.with_dtype(Dtype::kI32);
  llvm::Value* bits = ir_.CreateBitCast(x, type(word));
  llvm::Value* odd = ir_.CreateAnd(ir_.CreateLShr(bits, 16), integer(word, 1));
  llvm::Value* rounded = ir_.CreateAdd(bits, ir_.CreateAdd(odd, integer(word, 0x7fff)));
  llvm::Value* quiet = ir_.CreateOr(bits, integer(word, 0x400000));
  return ir_.CreateSelect(ir_.CreateFCmpUNO(x, x), quiet, rounded);
}

bool splits_bf16(const ExprNode& shuffle, const Target& target) {
  const ExprNode& x = *shuffle.args[0];
  const int pair = 2 * target.lanes(Dtype::kF32);
  return x.is(ExprKind::kCast) && x.type.dtype == Dtype::kF32 && x.args[0]->type.dtype == Dtype::kBF16 &&
         x.type.lanes % pair == 0 && shuffle.shuffle_mask == deinterleave_mask(x.type.lanes, pair);
}

bool joins_bf16(const ExprNode& cast, const Target& target) {
  const ExprNode& x = *cast.args[0];
  const int pair = 2 * target.lanes(Dtype::kF32);
  return cast.type.dtype == Dtype::kBF16 && x.type.dtype == Dtype::kF32 && x.is(ExprKind::kShuffle) &&
         x.args[0]->type.lanes % pair == 0 && x.shuffle_mask == interleave_mask(x.args[0]->type.lanes, pair);
}

llvm::Value* ValueBuilder::deinterleave_bf16(llvm::Value* x, int lanes) {
  const int width = target_.lanes(Dtype::kF32);
  const Type words{Dtype::kI32, lanes / 2}, word{Dtype::kI32, width};
  llvm::Value* all = ir_.CreateBitCast(x, type(words));
  llvm::SmallVector<llvm::Value*, 4> parts;
  for (int lane = 0; lane < words.lanes; lane += width) {
    llvm::Value* pairs = ir_.CreateShuffleVector(all, llvm::createSequentialMask(lane, width, 0));
    parts.push_back(ir_.CreateShl(pairs, integer(word, 16)));
    parts.push_back(ir_.CreateAnd(pairs, integer(word, -65536)));
  }
  return ir_.CreateBitCast(llvm::concatenateVectors(ir_, parts), type({Dtype::kF32, lanes}));
}

llvm::Value* ValueBuilder::interleave_bf16(llvm::Value* x, int lanes) {
  const Type f32{Dtype::kF32, lanes};
  if (!target_.native_bf16) return round_interleaved(x, f32);
  return unless_denormal(x, f32, &ValueBuilder::convert_interleaved, &ValueBuilder::round_interleaved);
}

llvm::Value* ValueBuilder::convert_interleaved(llvm::Value* x, Type f32) {
  const int block = 2 * target_.lanes(Dtype::kF32);
  const Type bf16 = f32.with_dtype(Dtype::kBF16);
  return ir_.CreateShuffleVector(convert_to_bf16(x, f32), interleave_mask(bf16.lanes, block));
}

llvm::Value* ValueBuilder::round_interleaved(llvm::Value* x, Type f32) {
  const int lanes = target_.lanes(Dtype::kF32);
  const Type word{Dtype::kI32, lanes};
  llvm::Value* words = rounded_words(x, f32);
  llvm::SmallVector<llvm::Value*, 2> parts;
  for (int lane = 0; lane < f32.lanes; lane += 2 * lanes) {
    llvm::Value* even = ir_.CreateShuffleVector(words, llvm::createSequentialMask(lane, lanes, 0));
    llvm::Value* odd = ir_.CreateShuffleVector(words, llvm::createSequentialMask(lane + lanes, lanes, 0));
    parts.push_back(
        ir_.CreateOr(ir_.CreateLShr(even, integer(word, 16)), ir_.CreateAnd(odd, integer(word, -65536))));
  }
  return ir_.CreateBitCast(llvm::concatenateVectors(ir_, parts), type(f32.with_dtype(Dtype::kBF16)));
}

// One permutation of a register of constants if it has 16 lanes, or 8 lanes if the others repeat them.
// Otherwise a tree of selects.
llvm::Value* ValueBuilder::lookup(Type t, llvm::Value* a, llvm::ArrayRef<llvm::Value*> values) {
  constexpr int kRegister = 16, kHalf = 8;
  const Type word = t.with_dtype(Dtype::kI32);
  llvm::Value* index = ir_.CreateBitCast(a, type(word));
  llvm::SmallVector<llvm::Constant*, kRegister> table;
  for (llvm::Value* value : values) {
    auto* constant = llvm::dyn_cast<llvm::Constant>(value);
    if (constant && t.is_vector()) constant = constant->getSplatValue();
    if (constant) table.push_back(constant);
  }
  const bool constants = table.size() == kRegister;
  if (constants && target_.table_lanes == kRegister && t.lanes % kRegister == 0)
    return by_register(t, kRegister, {index}, [&](llvm::ArrayRef<llvm::Value*> parts) {
      return ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512,
                                 {llvm::ConstantVector::get(table), parts[0]});
    });
  const bool repeats = constants && std::equal(table.begin(), table.begin() + kHalf, table.begin() + kHalf);
  if (repeats && target_.table_lanes == kHalf && t.lanes % kHalf == 0)
    return by_register(t, kHalf, {index}, [&](llvm::ArrayRef<llvm::Value*> parts) {
      auto* half = llvm::ConstantVector::get(llvm::ArrayRef(table).take_front(kHalf));
      return ir_.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {half, parts[0]});
    });
  llvm::SmallVector<llvm::Value*, kRegister> left(values);
  for (int64_t bit = 1; left.size() > 1; bit *= 2) {
    llvm::Value* odd = ir_.CreateICmpNE(ir_.CreateAnd(index, integer(word, bit)), integer(word, 0));
    for (size_t i = 0; i < left.size() / 2; ++i)
      left[i] = ir_.CreateSelect(odd, left[2 * i + 1], left[2 * i]);
    left.resize(left.size() / 2);
  }
  return left[0];
}

}  // namespace ipex::loop
