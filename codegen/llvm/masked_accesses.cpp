// Finds the constant parts of masks and rewrites the accesses; see masked_accesses.h for the reasons.
#include "codegen/llvm/masked_accesses.h"

#include <llvm/Analysis/InstSimplifyFolder.h>
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicInst.h>

#include <numeric>
#include <optional>

namespace ipex::loop {
namespace {

using Builder = llvm::IRBuilder<llvm::InstSimplifyFolder>;

unsigned lanes_of(const llvm::Value* v) {
  return llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements();
}

std::optional<unsigned> only_lane(const llvm::Constant& mask) {
  std::optional<unsigned> lane;
  for (unsigned i = 0; i < lanes_of(&mask); ++i) {
    const llvm::Constant* bit = mask.getAggregateElement(i);
    if (!bit || bit->isNullValue()) continue;
    if (lane) return std::nullopt;
    lane = i;
  }
  return lane;
}

// Lanes [first, first + count) of `v`. They are taken from the operands of `v` if those are computed lane by
// lane, because only then it shows that this part of a mask is constant.
llvm::Value* part(Builder& ir, llvm::Value* v, unsigned first, unsigned count) {
  auto of = [&](llvm::Value* operand) { return part(ir, operand, first, count); };
  if (llvm::Value* scalar = llvm::getSplatValue(v)) return ir.CreateVectorSplat(count, scalar);
  if (auto* binary = llvm::dyn_cast<llvm::BinaryOperator>(v))
    return ir.CreateBinOp(binary->getOpcode(), of(binary->getOperand(0)), of(binary->getOperand(1)));
  if (auto* compare = llvm::dyn_cast<llvm::CmpInst>(v))
    return ir.CreateCmp(compare->getPredicate(), of(compare->getOperand(0)), of(compare->getOperand(1)));
  if (auto* select = llvm::dyn_cast<llvm::SelectInst>(v)) {
    llvm::Value* condition = select->getCondition();
    if (condition->getType()->isVectorTy()) condition = of(condition);
    return ir.CreateSelect(condition, of(select->getTrueValue()), of(select->getFalseValue()));
  }
  llvm::SmallVector<int> indices(count);
  std::iota(indices.begin(), indices.end(), static_cast<int>(first));
  return ir.CreateShuffleVector(v, indices);
}

void split(llvm::IntrinsicInst* load, unsigned lanes) {
  Builder ir(load->getContext(), llvm::InstSimplifyFolder(load->getDataLayout()));
  ir.SetInsertPoint(load);
  llvm::Value *pointer = load->getArgOperand(0), *mask = load->getArgOperand(1),
              *other = load->getArgOperand(2);
  const llvm::Align align = load->getParamAlign(0).valueOrOne();
  auto* type = llvm::cast<llvm::FixedVectorType>(load->getType());
  auto* narrow = llvm::FixedVectorType::get(type->getElementType(), lanes);
  llvm::SmallVector<llvm::Value*> parts;
  for (unsigned first = 0; first < type->getNumElements(); first += lanes) {
    llvm::Value* at = ir.CreateConstGEP1_64(type->getElementType(), pointer, first);
    auto* loaded =
        ir.CreateMaskedLoad(narrow, at, align, part(ir, mask, first, lanes), part(ir, other, first, lanes));
    loaded->copyMetadata(*load);
    parts.push_back(loaded);
  }
  load->replaceAllUsesWith(llvm::concatenateVectors(ir, parts));
  load->eraseFromParent();
}

template <class Rewrite>
void for_each(llvm::Function& function, llvm::Intrinsic::ID id, const Rewrite& rewrite) {
  for (llvm::BasicBlock& block : function)
    for (llvm::Instruction& instruction : llvm::make_early_inc_range(block))
      if (auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
          call && call->getIntrinsicID() == id)
        rewrite(call);
}

}  // namespace

void store_single_lanes(llvm::Function& function) {
  for_each(function, llvm::Intrinsic::masked_store, [](llvm::IntrinsicInst* store) {
    auto* mask = llvm::dyn_cast<llvm::Constant>(store->getArgOperand(store->arg_size() - 1));
    const auto lane = mask ? only_lane(*mask) : std::nullopt;
    if (!lane) return;
    llvm::IRBuilder<> ir(store);
    llvm::Value* element = ir.CreateExtractElement(store->getArgOperand(0), *lane);
    llvm::Value* pointer = ir.CreateConstGEP1_64(element->getType(), store->getArgOperand(1), *lane);
    const uint64_t bytes = element->getType()->getPrimitiveSizeInBits() / 8;
    ir.CreateAlignedStore(element, pointer, llvm::Align(bytes))->copyMetadata(*store);
    store->eraseFromParent();
  });
}

void split_masked_loads(llvm::Function& function, unsigned register_bytes) {
  for_each(function, llvm::Intrinsic::masked_load, [&](llvm::IntrinsicInst* load) {
    auto* type = llvm::cast<llvm::FixedVectorType>(load->getType());
    const unsigned lanes = register_bytes * 8 / type->getScalarSizeInBits();
    if (type->getNumElements() > lanes && type->getNumElements() % lanes == 0) split(load, lanes);
  });
}

}  // namespace ipex::loop
