// Arithmetic of Loop IR as LLVM instructions. No fast-math flags are set: the result is exactly what Loop IR
// says.
#include "codegen/llvm/value_builder.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/Module.h>

#include <string>

namespace ipex::loop {
namespace {

using llvm::Intrinsic::ID;

bool is_signed(Type t) { return info(t.dtype).is_signed; }

const llvm::fltSemantics& half_semantics(Dtype dtype) {
  return dtype == Dtype::kBF16 ? llvm::APFloat::BFloat() : llvm::APFloat::IEEEhalf();
}

[[noreturn]] void unexpected(ScalarOp op, Type t) {
  throw InternalError("LLVM emitter: no instruction for " + std::string(info(op).name) + " of " +
                      std::string(name(t.dtype)) + "x" + std::to_string(t.lanes) +
                      ": lower_math and legalize must run first");
}

}  // namespace

llvm::Type* ValueBuilder::type(Type t) const {
  llvm::Type* scalar = nullptr;
  switch (t.dtype) {
    case Dtype::kBool:
      scalar = ir_.getInt1Ty();
      break;
    case Dtype::kU8:
    case Dtype::kI8:
      scalar = ir_.getInt8Ty();
      break;
    case Dtype::kI16:
    case Dtype::kF16:
    case Dtype::kBF16:
      scalar = ir_.getInt16Ty();
      break;
    case Dtype::kI32:
      scalar = ir_.getInt32Ty();
      break;
    case Dtype::kI64:
      scalar = ir_.getInt64Ty();
      break;
    case Dtype::kF32:
      scalar = ir_.getFloatTy();
      break;
    case Dtype::kF64:
      scalar = ir_.getDoubleTy();
      break;
  }
  return t.is_vector() ? llvm::FixedVectorType::get(scalar, t.lanes) : scalar;
}

llvm::Type* ValueBuilder::memory_type(Type t) const {
  return type(t.dtype == Dtype::kBool ? t.with_dtype(Dtype::kU8) : t);
}

llvm::Value* ValueBuilder::integer(Type t, int64_t value) const {
  return llvm::ConstantInt::getSigned(type(t), value, /*ImplicitTrunc=*/true);
}

llvm::Value* ValueBuilder::real(Type t, double value) const {
  if (!is_half(t.dtype)) return llvm::ConstantFP::get(type(t), value);
  llvm::APFloat x(static_cast<float>(value));
  bool loses_info = false;
  x.convert(half_semantics(t.dtype), llvm::APFloat::rmNearestTiesToEven, &loses_info);
  return llvm::ConstantInt::get(type(t), x.bitcastToAPInt());
}

llvm::Value* ValueBuilder::splat(llvm::Value* x, int lanes) const {
  return lanes == 1 ? x : ir_.CreateVectorSplat(lanes, x);
}

llvm::Value* ValueBuilder::iota(Dtype dtype, int lanes) const {
  llvm::Type* element = type({dtype, 1});
  if (lanes == 1) return llvm::ConstantInt::get(element, 0);
  llvm::SmallVector<llvm::Constant*, 16> values;
  for (int i = 0; i < lanes; ++i) values.push_back(llvm::ConstantInt::get(element, i));
  return llvm::ConstantVector::get(values);
}

llvm::Value* ValueBuilder::from_memory(llvm::Value* x, Type t) const {
  return t.dtype == Dtype::kBool ? ir_.CreateICmpNE(x, llvm::Constant::getNullValue(x->getType())) : x;
}

llvm::Value* ValueBuilder::to_memory(llvm::Value* x, Type t) const {
  return t.dtype == Dtype::kBool ? ir_.CreateZExt(x, memory_type(t)) : x;
}

llvm::Value* ValueBuilder::unary(ID id, llvm::Value* x) { return ir_.CreateUnaryIntrinsic(id, x); }

llvm::Value* ValueBuilder::apply(ScalarOp op, Type operand, llvm::ArrayRef<llvm::Value*> args) {
  if (is_half(operand.dtype) && op != ScalarOp::select_ && op != ScalarOp::bitcast_int_)
    unexpected(op, operand);
  const bool floating = is_float(operand.dtype);
  const MathFunction* math = math_function(op);
  if (math && floating) {
    if (math->source(operand.dtype) == MathSource::kPolynomial) unexpected(op, operand);
    if (op == ScalarOp::rem_) return float_remainder(*math, operand, args[0], args[1]);
    return call_sleef(*math, operand, args);
  }
  switch (op) {
    case ScalarOp::eq_:
    case ScalarOp::ne_:
    case ScalarOp::lt_:
    case ScalarOp::le_:
    case ScalarOp::gt_:
    case ScalarOp::ge_:
      return compare(op, operand, args[0], args[1]);
    case ScalarOp::select_:
      return ir_.CreateSelect(args[0], args[1], args[2]);
    case ScalarOp::min_:
    case ScalarOp::max_:
      return min_max(op, operand, args[0], args[1]);
    case ScalarOp::bitand_:
    case ScalarOp::bitor_:
    case ScalarOp::bitxor_:
    case ScalarOp::bitnot_:
    case ScalarOp::shl_:
    case ScalarOp::shr_:
      return bitwise(op, operand, args);
    case ScalarOp::bitcast_int_:
      if (is_half(operand.dtype)) return args[0];  // half types are represented by their bits
      return ir_.CreateBitCast(
          args[0], type(operand.with_dtype(operand.dtype == Dtype::kF64 ? Dtype::kI64 : Dtype::kI32)));
    case ScalarOp::bitcast_float_:
      if (operand.dtype == Dtype::kI16) return args[0];
      return ir_.CreateBitCast(
          args[0], type(operand.with_dtype(operand.dtype == Dtype::kI64 ? Dtype::kF64 : Dtype::kF32)));
    default:
      return arithmetic(op, operand, args);
  }
}

llvm::Value* ValueBuilder::arithmetic(ScalarOp op, Type t, llvm::ArrayRef<llvm::Value*> args) {
  const bool floating = is_float(t.dtype);
  llvm::Value* a = args[0];
  llvm::Value* b = args.size() > 1 ? args[1] : nullptr;
  switch (op) {
    case ScalarOp::add_:
      return floating ? ir_.CreateFAdd(a, b) : ir_.CreateAdd(a, b);
    case ScalarOp::sub_:
      return floating ? ir_.CreateFSub(a, b) : ir_.CreateSub(a, b);
    case ScalarOp::mul_:
      return floating ? ir_.CreateFMul(a, b) : ir_.CreateMul(a, b);
    case ScalarOp::div_:
      return floating ? ir_.CreateFDiv(a, b) : divide(op, t, a, b);
    case ScalarOp::rem_:
      return divide(op, t, a, b);
    case ScalarOp::neg_:
      return floating ? ir_.CreateFNeg(a) : ir_.CreateNeg(a);
    case ScalarOp::abs_:
      if (floating) return unary(llvm::Intrinsic::fabs, a);
      return is_signed(t) ? ir_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, ir_.getFalse()) : a;
    default:
      break;
  }
  if (!floating) unexpected(op, t);
  switch (op) {
    case ScalarOp::fma_:
      return ir_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, args[2]});
    case ScalarOp::pair_bf16_:
      return pair_bf16(t, a, b);
    case ScalarOp::dot_bf16_:
      return dot_bf16(t, a, b, args[2]);
    case ScalarOp::scale_:
      return scale(t, a, b);
    case ScalarOp::lookup_:
      return lookup(t, a, args.drop_front());
    case ScalarOp::isnan_:
      return ir_.CreateFCmpUNO(a, a);
    case ScalarOp::isinf_:
      return ir_.CreateFCmpOEQ(unary(llvm::Intrinsic::fabs, a), llvm::ConstantFP::getInfinity(a->getType()));
    case ScalarOp::copysign_:
      return ir_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, a, b);
    case ScalarOp::floor_:
      return unary(llvm::Intrinsic::floor, a);
    case ScalarOp::ceil_:
      return unary(llvm::Intrinsic::ceil, a);
    case ScalarOp::trunc_:
      return unary(llvm::Intrinsic::trunc, a);
    case ScalarOp::round_:
      return unary(llvm::Intrinsic::roundeven, a);
    case ScalarOp::sqrt_:
      return unary(llvm::Intrinsic::sqrt, a);
    case ScalarOp::rsqrt_:
      return ir_.CreateFDiv(real(t, 1.0), unary(llvm::Intrinsic::sqrt, a));
    default:
      unexpected(op, t);
  }
}

llvm::Value* ValueBuilder::bitwise(ScalarOp op, Type t, llvm::ArrayRef<llvm::Value*> args) {
  llvm::Value* a = args[0];
  llvm::Value* b = args.size() > 1 ? args[1] : nullptr;
  switch (op) {
    case ScalarOp::bitand_:
      return ir_.CreateAnd(a, b);
    case ScalarOp::bitor_:
      return ir_.CreateOr(a, b);
    case ScalarOp::bitxor_:
      return ir_.CreateXor(a, b);
    case ScalarOp::bitnot_:
      return ir_.CreateNot(a);
    default:
      break;
  }
  // LLVM's shifts are poison if the count is out of range. A negative count is out of range as an unsigned
  // number.
  const int64_t bits = itemsize(t.dtype) * 8;
  if (op == ScalarOp::shr_ && is_signed(t))
    return ir_.CreateAShr(a, ir_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b, integer(t, bits - 1)));
  llvm::Value* shifted = op == ScalarOp::shl_ ? ir_.CreateShl(a, b) : ir_.CreateLShr(a, b);
  return ir_.CreateSelect(ir_.CreateICmpULT(b, integer(t, bits)), shifted, integer(t, 0));
}

llvm::Value* ValueBuilder::compare(ScalarOp op, Type t, llvm::Value* a, llvm::Value* b) {
  using P = llvm::CmpInst::Predicate;
  struct Row {
    ScalarOp op;
    P floating, with_sign, without_sign;
  };
  static constexpr Row kRows[] = {
      {ScalarOp::eq_, P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ},
      {ScalarOp::ne_, P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE},
      {ScalarOp::lt_, P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT},
      {ScalarOp::le_, P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE},
      {ScalarOp::gt_, P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT},
      {ScalarOp::ge_, P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE},
  };
  for (const Row& row : kRows)
    if (row.op == op)
      return ir_.CreateCmp(is_float(t.dtype) ? row.floating
                           : is_signed(t)    ? row.with_sign
                                             : row.without_sign,
                           a, b);
  unexpected(op, t);
}

llvm::Value* ValueBuilder::min_max(ScalarOp op, Type t, llvm::Value* a, llvm::Value* b) {
  const bool is_min = op == ScalarOp::min_;
  if (!is_float(t.dtype)) {
    const ID id = is_signed(t) ? (is_min ? llvm::Intrinsic::smin : llvm::Intrinsic::smax)
                               : (is_min ? llvm::Intrinsic::umin : llvm::Intrinsic::umax);
    return ir_.CreateBinaryIntrinsic(id, a, b);
  }
  // (a < b ? a : b) is vminps: it returns b if either is NaN, so only a NaN in a must be restored. The order
  // matters: LLVM would merge two nested selects of a, and would then not use vminps.
  llvm::Value* better = is_min ? ir_.CreateFCmpOLT(a, b) : ir_.CreateFCmpOGT(a, b);
  return ir_.CreateSelect(ir_.CreateFCmpORD(a, a), ir_.CreateSelect(better, a, b), a);
}

// Integer division that cannot trap: x / 0 = 0, x % 0 = 0, MIN / -1 = MIN, MIN % -1 = 0.
llvm::Value* ValueBuilder::divide(ScalarOp op, Type t, llvm::Value* a, llvm::Value* b) {
  const bool quotient = op == ScalarOp::div_;
  auto plain = [&](llvm::Value* divisor) {
    if (is_signed(t)) return quotient ? ir_.CreateSDiv(a, divisor) : ir_.CreateSRem(a, divisor);
    return quotient ? ir_.CreateUDiv(a, divisor) : ir_.CreateURem(a, divisor);
  };
  llvm::Constant* constant = llvm::dyn_cast<llvm::Constant>(b);
  if (constant && t.is_vector()) constant = constant->getSplatValue();
  if (auto* divisor = llvm::dyn_cast_or_null<llvm::ConstantInt>(constant))
    if (!divisor->isZero() && !divisor->isMinusOne()) return plain(b);

  llvm::Value* zero = integer(t, 0);
  llvm::Value* one = integer(t, 1);
  llvm::Value* by_zero = ir_.CreateICmpEQ(b, zero);
  if (!is_signed(t)) return ir_.CreateSelect(by_zero, zero, plain(ir_.CreateSelect(by_zero, one, b)));
  llvm::Value* by_minus_one = ir_.CreateICmpEQ(b, integer(t, -1));
  llvm::Value* safe = plain(ir_.CreateSelect(ir_.CreateOr(by_zero, by_minus_one), one, b));
  return ir_.CreateSelect(by_zero, zero,
                          ir_.CreateSelect(by_minus_one, quotient ? ir_.CreateNeg(a) : zero, safe));
}

// Sleef's fmod divides in a loop. If every quotient is small, its integer part is exact or, if it was rounded
// up, one too large. a - n * b is then a representable multiple of b's last place: one fma computes it, and
// one addition corrects it.
llvm::Value* ValueBuilder::float_remainder(const MathFunction& f, Type t, llvm::Value* a, llvm::Value* b) {
  const auto absolute = [&](llvm::Value* x) { return ir_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); };
  llvm::Value *dividend = absolute(a), *divisor = absolute(b), *zero = real(t, 0);
  llvm::Value* quotient = ir_.CreateFDiv(dividend, divisor);
  llvm::Value* small = ir_.CreateFCmpOLT(quotient, real(t, t.dtype == Dtype::kF64 ? 0x1p51 : 0x1p22));
  if (t.is_vector()) small = ir_.CreateAndReduce(small);

  llvm::BasicBlock* block = ir_.GetInsertBlock();
  llvm::Function* function = block->getParent();
  auto* divided = llvm::BasicBlock::Create(ir_.getContext(), "rem.small", function);
  auto* called = llvm::BasicBlock::Create(ir_.getContext(), "rem.any", function);
  auto* after = llvm::BasicBlock::Create(ir_.getContext(), "rem.end", function);
  ir_.CreateCondBr(small, divided, called);

  ir_.SetInsertPoint(divided);
  llvm::Value* whole = ir_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, quotient);
  llvm::Value* rest = ir_.CreateIntrinsic(llvm::Intrinsic::fma, {dividend->getType()},
                                          {ir_.CreateFNeg(whole), divisor, dividend});
  rest = ir_.CreateSelect(ir_.CreateFCmpOLT(rest, zero), ir_.CreateFAdd(rest, divisor), rest);
  rest = ir_.CreateSelect(ir_.CreateFCmpOEQ(whole, zero), dividend, rest);  // an infinite divisor
  rest = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, rest, a);
  ir_.CreateBr(after);

  ir_.SetInsertPoint(called);
  // Sleef's function needs a finite quotient. If the quotient overflows, fmod(a, b * step) has the same
  // remainder by b.
  llvm::Value* step = real(t, t.dtype == Dtype::kF64 ? 0x1p1000 : 0x1p120);
  llvm::Value* infinite = real(t, std::numeric_limits<double>::infinity());
  llvm::Value* overflows =
      ir_.CreateAnd(ir_.CreateFCmpOEQ(quotient, infinite),
                    ir_.CreateAnd(ir_.CreateFCmpONE(b, zero), ir_.CreateFCmpONE(dividend, infinite)));
  llvm::Value* reduced = call_sleef(f, t, {a, ir_.CreateFMul(b, step)});
  llvm::Value* any = call_sleef(f, t, {ir_.CreateSelect(overflows, reduced, a), b});
  ir_.CreateBr(after);

  ir_.SetInsertPoint(after);
  llvm::PHINode* result = ir_.CreatePHI(a->getType(), 2);
  result->addIncoming(rest, divided);
  result->addIncoming(any, called);
  return result;
}

llvm::Value* ValueBuilder::reduce_lanes(ScalarOp op, Type t, llvm::Value* x) {
  if (!t.is_vector()) return x;
  // Combines halves pairwise: dependence chains are short, and float sums do not depend on the optimizer. An
  // odd lane is kept for the next round.
  int lanes = t.lanes;
  llvm::Value* rest = nullptr;
  while (lanes > 1) {
    if (lanes % 2) {
      llvm::Value* last = ir_.CreateExtractElement(x, lanes - 1);
      rest = rest ? apply(op, t.with_lanes(1), {last, rest}) : last;
      --lanes;
    }
    lanes /= 2;
    llvm::SmallVector<int, 32> low, high;
    for (int i = 0; i < lanes; ++i) {
      low.push_back(i);
      high.push_back(lanes + i);
    }
    if (lanes == 1) {
      x = apply(op, t.with_lanes(1),
                {ir_.CreateExtractElement(x, uint64_t{0}), ir_.CreateExtractElement(x, 1)});
    } else {
      x = apply(op, t.with_lanes(lanes), {ir_.CreateShuffleVector(x, low), ir_.CreateShuffleVector(x, high)});
    }
  }
  return rest ? apply(op, t.with_lanes(1), {x, rest}) : x;
}

llvm::Value* ValueBuilder::tail_mask(llvm::Value* base, llvm::Value* count, int lanes) {
  llvm::Value* left = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::ssub_sat, count, base);
  left = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, ir_.getInt64(0));
  left = ir_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, ir_.getInt64(lanes));
  return ir_.CreateICmpULT(iota(Dtype::kI32, lanes), splat(ir_.CreateTrunc(left, ir_.getInt32Ty()), lanes));
}

// Sleef's functions work on whole registers.
llvm::Value* ValueBuilder::call_sleef(const MathFunction& f, Type t, llvm::ArrayRef<llvm::Value*> args) {
  const bool is_double = t.dtype == Dtype::kF64;
  const int narrow = is_double ? 4 : 8;
  const bool wide = target_.lanes(t.dtype) > narrow && t.lanes > narrow;
  const int width = wide ? narrow * 2 : narrow;
  // fmod is the only function whose name has an underscore before the ISA and no accuracy.
  const std::string symbol = "Sleef_" + std::string(f.sleef) + (is_double ? "d" : "f") +
                             std::to_string(width) + std::string(f.accuracy_of(t.dtype)) +
                             (f.accuracy.empty() ? "_" : "") + (wide ? target_.sleef : "avx2");
  llvm::Type* chunk = type(t.with_lanes(width));
  llvm::SmallVector<llvm::Type*, 2> parameters(args.size(), chunk);
  llvm::Module* module = ir_.GetInsertBlock()->getModule();
  llvm::FunctionCallee callee =
      module->getOrInsertFunction(symbol, llvm::FunctionType::get(chunk, parameters, false));
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->setDoesNotAccessMemory();
  function->setDoesNotThrow();
  function->setWillReturn();

  const auto call = [&](llvm::ArrayRef<llvm::Value*> parts) { return ir_.CreateCall(callee, parts); };
  return by_register(t, width, args, call);
}

llvm::Value* ValueBuilder::by_register(Type t, int width, llvm::ArrayRef<llvm::Value*> args,
                                       llvm::function_ref<llvm::Value*(llvm::ArrayRef<llvm::Value*>)> fn) {
  if (t.lanes == width) return fn(args);
  llvm::SmallVector<llvm::Value*, 4> results;
  for (int begin = 0; begin < t.lanes; begin += width) {
    llvm::SmallVector<llvm::Value*, 3> parts;
    for (llvm::Value* arg : args) {
      llvm::SmallVector<int, 16> lanes;
      for (int i = 0; i < width; ++i) lanes.push_back(begin + i < t.lanes ? begin + i : begin);
      parts.push_back(t.is_vector() ? ir_.CreateShuffleVector(arg, lanes) : splat(arg, width));
    }
    results.push_back(fn(parts));
  }
  if (!t.is_vector()) return ir_.CreateExtractElement(results[0], uint64_t{0});
  llvm::Value* joined = llvm::concatenateVectors(ir_, results);
  if (t.lanes % width == 0) return joined;
  return ir_.CreateShuffleVector(joined, llvm::createSequentialMask(0, t.lanes, 0));
}

}  // namespace ipex::loop
