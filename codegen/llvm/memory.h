// Loads from and stores to buffers. Picks the memory instruction that an index and a mask allow.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Metadata.h>

#include <string>

#include "codegen/llvm/value_builder.h"

namespace ipex::loop {

// A buffer as one LLVM function sees it.
struct BufferRef {
  llvm::Value* pointer = nullptr;
  Dtype dtype = Dtype::kF32;
  llvm::MDNode* scope = nullptr;     // !alias.scope of its accesses
  llvm::MDNode* distinct = nullptr;  // !noalias: scopes of buffers that never share memory with this one
  bool streamed = false;             // Buffer::streamed
};

// An index: lane l is base + l * stride or, if vector is set, base + vector[l].
struct IndexRef {
  llvm::Value* base = nullptr;    // scalar i64
  llvm::Value* stride = nullptr;  // scalar i64; null if vector is set
  llvm::Value* vector = nullptr;  // <lanes x i64>
  int lanes = 1;
};

// Whether the loop over `innermost` writes whole cache lines one after another. Writing a line past the
// caches in parts, between writes to other lines, costs more than it saves.
bool fills_lines(const Store& store, const std::string& innermost);

class MemoryBuilder {
 public:
  MemoryBuilder(llvm::IRBuilder<>& ir, const ValueBuilder& values) : ir_(ir), values_(values) {}

  // mask: i1 or <lanes x i1>, or null. An inactive lane reads 0 and accesses no memory.
  llvm::Value* load(const BufferRef& buffer, const IndexRef& index, llvm::Value* mask);
  void store(const BufferRef& buffer, const IndexRef& index, llvm::Value* value, llvm::Value* mask);
  // A contiguous store without a mask, which bypasses the caches if the address is aligned. An sfence must
  // follow before another thread reads the data.
  void stream(const BufferRef& buffer, const IndexRef& index, llvm::Value* value);
  void prefetch(const BufferRef& buffer, const IndexRef& index);  // the cache line of one element, into L2

 private:
  llvm::Value* load_memory(const BufferRef& buffer, const IndexRef& index, llvm::Value* mask);
  llvm::Value* interleaved(const BufferRef& buffer, const IndexRef& index, int64_t stride);
  llvm::Value* address(const BufferRef& buffer, llvm::Value* index);
  llvm::Value* addresses(const BufferRef& buffer, const IndexRef& index);
  llvm::Value* first_of_reversed(const IndexRef& index);
  llvm::Value* one_lane(llvm::Value* x);
  template <typename Instruction>
  Instruction* access(const BufferRef& buffer, Instruction* instruction);

  llvm::IRBuilder<>& ir_;
  const ValueBuilder& values_;
};

}  // namespace ipex::loop
