// Loads and stores. Stride 1 is one contiguous access, -1 a contiguous access that is reversed, and 0 a
// scalar load and a broadcast. A small stride loads what lies in between as well, and shuffles. Any other
// stride, or an index vector, is a gather or scatter. Masked accesses use LLVM's masked intrinsics:
// predicated instructions on AVX-512, vmaskmov or safe scalar code on AVX2. The alignment is only that of an
// element, because views may start anywhere.
#include "codegen/llvm/memory.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/PatternMatch.h>

#include <bit>

#include "codegen/loop/rewrite.h"
#include "codegen/schedule.h"
#include "runtime/alignment.h"

namespace ipex::loop {
namespace {

std::optional<int64_t> constant_stride(const IndexRef& index) {
  if (index.vector) return std::nullopt;
  if (auto* stride = llvm::dyn_cast<llvm::ConstantInt>(index.stride)) return stride->getSExtValue();
  return std::nullopt;
}

llvm::Align alignment(const BufferRef& buffer) { return llvm::Align(itemsize(buffer.dtype)); }

}  // namespace

bool fills_lines(const Store& store, const std::string& innermost) {
  const Expr& index = store.index;
  if (!index->is(ExprKind::kRamp) || as_const_int(index->args[1]) != 1) return false;
  const int lanes = index->type.lanes;
  const int64_t bytes = lanes * itemsize(store.value->type.dtype);
  if (!std::has_single_bit(static_cast<uint64_t>(bytes))) return false;
  if (bytes >= kAlignment) return true;
  const auto along = affine(index->args[0], {innermost});
  if (!along) return false;
  const auto step = along->coefficients.find(innermost);
  return step != along->coefficients.end() && as_const_int(step->second) == lanes;
}

llvm::Value* MemoryBuilder::load(const BufferRef& buffer, const IndexRef& index, llvm::Value* mask) {
  return values_.from_memory(load_memory(buffer, index, mask), {buffer.dtype, index.lanes});
}

llvm::Value* MemoryBuilder::load_memory(const BufferRef& buffer, const IndexRef& index, llvm::Value* mask) {
  llvm::Type* scalar = values_.memory_type({buffer.dtype, 1});
  llvm::Type* type = values_.memory_type({buffer.dtype, index.lanes});
  const llvm::Align align = alignment(buffer);
  if (index.lanes == 1) {
    llvm::Value* pointer = address(buffer, index.base);
    if (!mask) return access(buffer, ir_.CreateAlignedLoad(scalar, pointer, align));
    llvm::Type* vector = llvm::FixedVectorType::get(scalar, 1);
    llvm::Value* loaded = access(buffer, ir_.CreateMaskedLoad(vector, pointer, align, one_lane(mask),
                                                              llvm::Constant::getNullValue(vector)));
    return ir_.CreateExtractElement(loaded, uint64_t{0});
  }

  const auto stride = constant_stride(index);
  llvm::Constant* zero = llvm::Constant::getNullValue(type);
  auto contiguous = [&](llvm::Value* first, llvm::Value* lanes_on) -> llvm::Value* {
    llvm::Value* pointer = address(buffer, first);
    if (!lanes_on) return access(buffer, ir_.CreateAlignedLoad(type, pointer, align));
    return access(buffer, ir_.CreateMaskedLoad(type, pointer, align, lanes_on, zero));
  };
  if (stride == 1) return contiguous(index.base, mask);
  if (stride == -1) {
    llvm::Value* reversed_mask = mask ? ir_.CreateVectorReverse(mask) : nullptr;
    return ir_.CreateVectorReverse(contiguous(first_of_reversed(index), reversed_mask));
  }
  if (stride == 0) {
    const IndexRef one{index.base, index.stride, nullptr, 1};
    llvm::Value* any = mask ? ir_.CreateOrReduce(mask) : nullptr;
    llvm::Value* all = values_.splat(load_memory(buffer, one, any), index.lanes);
    return mask ? ir_.CreateSelect(mask, all, zero) : all;
  }
  if (stride && *stride > 1 && *stride <= values_.target().max_shuffled_stride && !mask)
    return interleaved(buffer, index, *stride);
  return access(buffer, ir_.CreateMaskedGather(type, addresses(buffer, index), align, mask, zero));
}

// Loads contiguous vectors and selects the wanted lanes from each. The last vector is moved back so that it
// ends with the last lane.
llvm::Value* MemoryBuilder::interleaved(const BufferRef& buffer, const IndexRef& index, int64_t stride) {
  const int64_t lanes = index.lanes, last = stride * (lanes - 1) + 1 - lanes;
  llvm::Type* type = values_.memory_type({buffer.dtype, index.lanes});
  llvm::Value* chosen = llvm::PoisonValue::get(type);
  int64_t done = 0;
  for (int64_t part = 0; part < stride; ++part) {
    const int64_t first = std::min(part * lanes, last);
    llvm::Value* pointer = address(buffer, ir_.CreateAdd(index.base, ir_.getInt64(first)));
    llvm::Value* vector = access(buffer, ir_.CreateAlignedLoad(type, pointer, alignment(buffer)));
    std::vector<int> mask;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t at = lane * stride - first;
      mask.push_back(static_cast<int>(lane < done ? lane : at < lanes ? lanes + at : -1));
    }
    while (done < lanes && done * stride - first < lanes) ++done;
    chosen = ir_.CreateShuffleVector(chosen, vector, mask);
  }
  return chosen;
}

void MemoryBuilder::store(const BufferRef& buffer, const IndexRef& index, llvm::Value* value,
                          llvm::Value* mask) {
  value = values_.to_memory(value, {buffer.dtype, index.lanes});
  const llvm::Align align = alignment(buffer);
  if (index.lanes == 1) {
    llvm::Value* pointer = address(buffer, index.base);
    if (mask)
      access(buffer, ir_.CreateMaskedStore(one_lane(value), pointer, align, one_lane(mask)));
    else
      access(buffer, ir_.CreateAlignedStore(value, pointer, align));
    return;
  }

  const auto stride = constant_stride(index);
  if (stride == 1 || stride == -1) {
    llvm::Value* first = stride == 1 ? index.base : first_of_reversed(index);
    if (stride == -1) {
      value = ir_.CreateVectorReverse(value);
      if (mask) mask = ir_.CreateVectorReverse(mask);
    }
    llvm::Value* pointer = address(buffer, first);
    if (mask)
      access(buffer, ir_.CreateMaskedStore(value, pointer, align, mask));
    else
      access(buffer, ir_.CreateAlignedStore(value, pointer, align));
    return;
  }
  // Lanes are written in order. If several write to one address, the last one wins, as in the interpreter.
  access(buffer, ir_.CreateMaskedScatter(value, addresses(buffer, index), align, mask));
}

void MemoryBuilder::stream(const BufferRef& buffer, const IndexRef& index, llvm::Value* value) {
  value = values_.to_memory(value, {buffer.dtype, index.lanes});
  llvm::Value* pointer = address(buffer, index.base);
  // The instruction faults if the address is not a multiple of its width, and a view may start anywhere.
  const llvm::Align whole(std::min<uint64_t>(index.lanes * itemsize(buffer.dtype), kAlignment));
  llvm::Value* below = ir_.CreateAnd(ir_.CreatePtrToInt(pointer, ir_.getInt64Ty()), whole.value() - 1);
  llvm::Function* function = ir_.GetInsertBlock()->getParent();
  auto block = [&](const char* name) { return llvm::BasicBlock::Create(ir_.getContext(), name, function); };
  llvm::BasicBlock *past = block("stream"), *through = block("store"), *after = block("stored");
  ir_.CreateCondBr(ir_.CreateICmpEQ(below, ir_.getInt64(0)), past, through);
  ir_.SetInsertPoint(past);
  llvm::MDNode* hint = llvm::MDNode::get(ir_.getContext(), llvm::ConstantAsMetadata::get(ir_.getInt32(1)));
  access(buffer, ir_.CreateAlignedStore(value, pointer, whole))
      ->setMetadata(llvm::LLVMContext::MD_nontemporal, hint);
  ir_.CreateBr(after);
  ir_.SetInsertPoint(through);
  access(buffer, ir_.CreateAlignedStore(value, pointer, alignment(buffer)));
  ir_.CreateBr(after);
  ir_.SetInsertPoint(after);
}

void MemoryBuilder::prefetch(const BufferRef& buffer, const IndexRef& index) {
  constexpr int kRead = 0, kIntoL2 = 2, kData = 1;
  const auto number = [&](int n) { return ir_.getInt32(n); };
  ir_.CreateIntrinsic(llvm::Intrinsic::prefetch, {ir_.getPtrTy()},
                      {address(buffer, index.base), number(kRead), number(kIntoL2), number(kData)});
}

llvm::Value* MemoryBuilder::address(const BufferRef& buffer, llvm::Value* index) {
  llvm::Type* type = values_.memory_type({buffer.dtype, 1});
  // The constant is added last: an x86 address includes one, and neighbours share the rest.
  llvm::Value* varying = nullptr;
  llvm::ConstantInt* constant = nullptr;
  using namespace llvm::PatternMatch;
  if (match(index, m_Add(m_Value(varying), m_ConstantInt(constant))))
    return ir_.CreateGEP(type, ir_.CreateGEP(type, buffer.pointer, varying), constant);
  return ir_.CreateGEP(type, buffer.pointer, index);
}

llvm::Value* MemoryBuilder::addresses(const BufferRef& buffer, const IndexRef& index) {
  // The common base becomes part of the pointer. What is left are small constants if the stride is one, and
  // 32-bit values if the vector is an extension of them.
  llvm::Value* pointer = address(buffer, index.base);
  llvm::Value* lanes = index.vector;
  if (!lanes)
    lanes = ir_.CreateMul(values_.iota(Dtype::kI64, index.lanes), values_.splat(index.stride, index.lanes));
  return ir_.CreateGEP(values_.memory_type({buffer.dtype, 1}), pointer, lanes);
}

llvm::Value* MemoryBuilder::first_of_reversed(const IndexRef& index) {
  return ir_.CreateSub(index.base, ir_.getInt64(index.lanes - 1));
}

llvm::Value* MemoryBuilder::one_lane(llvm::Value* x) {
  llvm::Type* vector = llvm::FixedVectorType::get(x->getType(), 1);
  return ir_.CreateInsertElement(llvm::PoisonValue::get(vector), x, uint64_t{0});
}

template <typename Instruction>
Instruction* MemoryBuilder::access(const BufferRef& buffer, Instruction* instruction) {
  if (buffer.scope) instruction->setMetadata(llvm::LLVMContext::MD_alias_scope, buffer.scope);
  if (buffer.distinct) instruction->setMetadata(llvm::LLVMContext::MD_noalias, buffer.distinct);
  return instruction;
}

}  // namespace ipex::loop
