// Statements and names: walks a function of Loop IR once and writes SSA. Loops are emitted rotated (one test,
// then a body that tests at its end), states are phis, and lets are plain values, so LLVM has no memory to
// promote to registers.
//
// A parallel loop is outlined: its body becomes an internal function that gets a closure of every live name
// it uses, and that is passed to ipex_parallel_for.
#include "codegen/llvm/emit.h"

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "codegen/llvm/memory.h"
#include "codegen/llvm/value_builder.h"
#include "codegen/loop/rewrite.h"
#include "runtime/alignment.h"

namespace ipex::loop {
namespace {

constexpr int64_t kMaxStackBytes = 16 << 10;  // scratch on the stack of one function; the rest is on the heap

// The signature of an ABI function that Loop IR may call.
struct AbiFunction {
  std::string_view name;
  size_t arguments;  // all i64
};
constexpr AbiFunction kCallable[] = {{"ipex_report_index", 3}};

class FunctionEmitter {
 public:
  FunctionEmitter(llvm::Module& module, const Function& source, const Target& target)
      : module_(module),
        context_(module.getContext()),
        source_(source),
        target_(target),
        ir_(context_),
        values_(ir_, target_),
        memory_(ir_, values_) {}

  void run();

 private:
  // The state of the LLVM function that is being written, swapped while a parallel body is emitted.
  struct Frame {
    llvm::Function* function = nullptr;
    std::map<std::string, llvm::Value*> names;  // symbols, loop variables, lets, states
    std::map<std::string, BufferRef> buffers;
    std::map<std::string, Expr> index_lets;        // i64 vectors bound by a let, to find strides behind names
    std::map<std::string, llvm::Value*> acquired;  // scratch memory of the current loops, by buffer
    int64_t stack_bytes = 0;
    bool parallel_body = false;
    std::string innermost;  // variable of the current loop
    bool streams = false;   // has stored past the caches
  };
  using Then = llvm::function_ref<void()>;

  llvm::Function* add_function(const std::string& name, llvm::FunctionType* type, bool is_internal);
  void declare_scopes();
  BufferRef buffer_ref(const std::string& name, Dtype dtype, llvm::Value* pointer);

  void emit(const Block& block, Then at_end = nullptr);
  void emit(const Stmt& stmt, std::vector<llvm::Value*>& scratch);
  void emit_loop(const For& loop);
  void emit_counted(const std::string& var, llvm::Value* begin, llvm::Value* end, const Reduction* reduction,
                    const Block& body);
  void emit_parallel(const For& loop);
  void emit_if(const If& branch);
  void emit_store(const Store& store);
  void finish_function();
  void emit_alloc(const Alloc& alloc, std::vector<llvm::Value*>& scratch);
  bool fits_stack(const Alloc& alloc) const;
  llvm::Value* acquire(const Alloc& alloc);
  void acquire_all(const Block& body, std::vector<llvm::Value*>& scratch);
  void release(const std::vector<llvm::Value*>& scratch);
  void emit_call(const Call& call);
  llvm::CallInst* call_abi(llvm::StringRef name, llvm::Type* result, llvm::ArrayRef<llvm::Value*> args);

  llvm::Value* emit(const Expr& e);
  llvm::Value* emit_uncached(const ExprNode& e);
  llvm::Value* emit_wide(const Expr& e, int lanes);
  llvm::Value* emit_apply(const ExprNode& e);
  IndexRef emit_index(const Expr& e);
  void split_sum(const Expr& e, Expr& base, Expr& rest) const;
  struct Strided {
    Expr base, stride;
  };
  std::optional<Strided> strided(const Expr& e) const;

  [[noreturn]] void fail(const std::string& message) const {
    throw InternalError("LLVM emitter, kernel " + source_.name + ": " + message);
  }
  llvm::BasicBlock* block(const char* name) {
    return llvm::BasicBlock::Create(context_, name, frame_.function);
  }
  const BufferRef& buffer(const std::string& name) const {
    auto it = frame_.buffers.find(name);
    if (it == frame_.buffers.end()) fail("unknown buffer " + name);
    return it->second;
  }

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const Function& source_;
  const Target& target_;
  llvm::IRBuilder<> ir_;
  ValueBuilder values_;
  MemoryBuilder memory_;
  Frame frame_;
  int parallel_bodies_ = 0;
  // The values of the current statement by node, so that a shared subtree is emitted once. The map keeps the
  // nodes alive, because an address identifies a node only as long as it is not reused.
  std::unordered_map<Expr, llvm::Value*> emitted_;
  struct Scope {
    llvm::MDNode *own, *distinct;
  };
  std::map<std::string, Scope> scopes_;
};

// ---- functions ----

void FunctionEmitter::run() {
  llvm::Type* pointer = ir_.getPtrTy();
  auto* type = llvm::FunctionType::get(ir_.getVoidTy(), {pointer, pointer}, false);
  frame_.function = add_function(source_.name, type, /*is_internal=*/false);
  ir_.SetInsertPoint(block("entry"));
  declare_scopes();
  for (size_t i = 0; i < source_.buffers.size(); ++i) {
    const Buffer& b = source_.buffers[i];
    llvm::Value* slot = ir_.CreateConstInBoundsGEP1_64(pointer, frame_.function->getArg(0), i);
    frame_.buffers[b.name] = buffer_ref(b.name, b.dtype, ir_.CreateLoad(pointer, slot, b.name));
  }
  for (size_t i = 0; i < source_.symbols.size(); ++i) {
    llvm::Value* slot = ir_.CreateConstInBoundsGEP1_64(ir_.getInt64Ty(), frame_.function->getArg(1), i);
    frame_.names[source_.symbols[i]] = ir_.CreateLoad(ir_.getInt64Ty(), slot, source_.symbols[i]);
  }
  emit(source_.body);
  finish_function();
}

// Stores past the caches must be visible to whoever waits for this function.
void FunctionEmitter::finish_function() {
  if (frame_.streams) ir_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {});
  ir_.CreateRetVoid();
}

llvm::Function* FunctionEmitter::add_function(const std::string& name, llvm::FunctionType* type,
                                              bool is_internal) {
  auto linkage = is_internal ? llvm::Function::InternalLinkage : llvm::Function::ExternalLinkage;
  auto* function = llvm::Function::Create(type, linkage, name, module_);
  if (function->getName() != name) fail("the name is used twice in one module");
  function->addFnAttr("target-cpu", target_.cpu);
  function->addFnAttr("target-features", target_.features);
  // Without these, LLVM splits 512-bit vectors on CPU levels tuned for first-generation AVX-512.
  const std::string bits = std::to_string(target_.vector_bytes * 8);
  function->addFnAttr("prefer-vector-width", bits);
  function->addFnAttr("min-legal-vector-width", bits);
  function->setDoesNotThrow();
  for (llvm::Argument& argument : function->args())
    if (argument.getType()->isPointerTy()) argument.addAttr(llvm::Attribute::NoAlias);
  return function;
}

// Which accesses LLVM may reorder. An input may share memory with an output (in-place reuse, where each
// element is read before it is written), so nothing is claimed about such a pair. Outputs are distinct from
// each other, and scratch is distinct from everything.
void FunctionEmitter::declare_scopes() {
  llvm::MDBuilder builder(context_);
  llvm::MDNode* domain = builder.createAnonymousAliasScopeDomain(source_.name);
  std::map<std::string, llvm::MDNode*> nodes;
  std::set<std::string> scratch, outputs;
  for (const Buffer& b : source_.buffers) {
    nodes[b.name] = builder.createAnonymousAliasScope(domain, b.name);
    if (b.access != Access::kIn) outputs.insert(b.name);
  }
  const auto add_scratch = [&](const Stmt& stmt) {
    const Alloc* alloc = std::get_if<Alloc>(&stmt);
    if (!alloc) return;
    nodes[alloc->buffer] = builder.createAnonymousAliasScope(domain, alloc->buffer);
    scratch.insert(alloc->buffer);
  };
  visit(source_.body, add_scratch, nullptr);
  for (const auto& [name, node] : nodes) {
    llvm::SmallVector<llvm::Metadata*, 8> distinct;
    for (const auto& [other, other_node] : nodes) {
      if (other == name) continue;
      const bool either_scratch = scratch.count(name) || scratch.count(other);
      const bool both_outputs = outputs.count(name) && outputs.count(other);
      if (either_scratch || both_outputs) distinct.push_back(other_node);
    }
    llvm::MDNode* list = distinct.empty() ? nullptr : llvm::MDNode::get(context_, distinct);
    scopes_[name] = {llvm::MDNode::get(context_, {node}), list};
  }
}

BufferRef FunctionEmitter::buffer_ref(const std::string& name, Dtype dtype, llvm::Value* pointer) {
  const Scope& scope = scopes_.at(name);
  const bool streamed = std::any_of(source_.buffers.begin(), source_.buffers.end(),
                                    [&](const Buffer& b) { return b.streamed && b.name == name; });
  return {pointer, dtype, scope.own, scope.distinct, streamed};
}

// ---- statements ----

void FunctionEmitter::emit(const Block& block, Then at_end) {
  std::vector<llvm::Value*> scratch;  // acquired in this block and released at its end, in reverse order
  if (block)
    for (const Stmt& stmt : block->stmts) emit(stmt, scratch);
  emitted_.clear();
  if (at_end) at_end();
  release(scratch);
}

void FunctionEmitter::release(const std::vector<llvm::Value*>& scratch) {
  for (size_t i = scratch.size(); i-- > 0;) call_abi("ipex_scratch_release", ir_.getVoidTy(), {scratch[i]});
}

void FunctionEmitter::emit(const Stmt& stmt, std::vector<llvm::Value*>& scratch) {
  emitted_.clear();
  if (const auto* inner = std::get_if<Block>(&stmt)) {
    emit(*inner);
  } else if (const auto* loop = std::get_if<For>(&stmt)) {
    emit_loop(*loop);
  } else if (const auto* let = std::get_if<Let>(&stmt)) {
    frame_.names[let->name] = emit(let->value);
    if (let->value->type.is_vector() && let->value->type.dtype == Dtype::kI64)
      frame_.index_lets[let->name] = let->value;
  } else if (const auto* store = std::get_if<Store>(&stmt)) {
    emit_store(*store);
  } else if (const auto* alloc = std::get_if<Alloc>(&stmt)) {
    emit_alloc(*alloc, scratch);
  } else if (const auto* branch = std::get_if<If>(&stmt)) {
    emit_if(*branch);
  } else {
    emit_call(std::get<Call>(stmt));
  }
}

void FunctionEmitter::emit_loop(const For& loop) {
  if (loop.kind == ForKind::kVector) fail("vector loop " + loop.var + " is left: vectorize must run first");
  if (loop.kind == ForKind::kParallel) return emit_parallel(loop);
  llvm::Value* begin = emit(loop.begin);
  llvm::Value* end = emit(loop.end);
  emit_counted(loop.var, begin, end, loop.reduction ? &*loop.reduction : nullptr, loop.body);
}

void FunctionEmitter::emit_counted(const std::string& var, llvm::Value* begin, llvm::Value* end,
                                   const Reduction* reduction, const Block& body) {
  std::vector<llvm::Value*> scratch;
  acquire_all(body, scratch);
  std::vector<llvm::Value*> initial;
  if (reduction)
    for (const State& state : reduction->states) initial.push_back(emit(state.init));

  llvm::Value* enter = ir_.CreateICmpSLT(begin, end);
  llvm::BasicBlock* before = ir_.GetInsertBlock();
  llvm::BasicBlock* loop = block("loop");
  llvm::BasicBlock* exit = block("exit");
  ir_.CreateCondBr(enter, loop, exit);

  ir_.SetInsertPoint(loop);
  llvm::PHINode* counter = ir_.CreatePHI(ir_.getInt64Ty(), 2, var);
  counter->addIncoming(begin, before);
  frame_.names[var] = counter;
  std::vector<llvm::PHINode*> states;
  for (size_t i = 0; i < initial.size(); ++i) {
    llvm::PHINode* state = ir_.CreatePHI(initial[i]->getType(), 2, reduction->states[i].name);
    state->addIncoming(initial[i], before);
    frame_.names[reduction->states[i].name] = state;
    states.push_back(state);
  }
  std::vector<llvm::Value*> next;
  const std::string outer = std::exchange(frame_.innermost, var);
  emit(body, [&] {
    if (reduction)
      for (const Expr& e : reduction->yield) next.push_back(emit(e));
  });
  frame_.innermost = outer;
  llvm::Value* following = ir_.CreateNSWAdd(counter, ir_.getInt64(1));
  llvm::BasicBlock* latch = ir_.GetInsertBlock();
  ir_.CreateCondBr(ir_.CreateICmpSLT(following, end), loop, exit);
  counter->addIncoming(following, latch);

  ir_.SetInsertPoint(exit);
  for (size_t i = 0; i < states.size(); ++i) {
    states[i]->addIncoming(next[i], latch);
    llvm::PHINode* result = ir_.CreatePHI(states[i]->getType(), 2);
    result->addIncoming(initial[i], before);
    result->addIncoming(next[i], latch);
    frame_.names[reduction->states[i].name] = result;
  }
  release(scratch);
}

void FunctionEmitter::emit_parallel(const For& loop) {
  if (loop.reduction) fail("parallel loop " + loop.var + " has a reduction: tile_reduction must run first");
  if (frame_.parallel_body) fail("parallel loop " + loop.var + " inside another one");
  llvm::Value* begin = emit(loop.begin);
  llvm::Value* end = emit(loop.end);

  // The closure: every name and buffer of this frame that the body uses.
  std::set<std::string> used;
  const auto add_stored = [&](const Stmt& stmt) {
    if (const auto* store = std::get_if<Store>(&stmt)) used.insert(store->buffer);
  };
  const auto add_read = [&](const ExprNode& e) {
    if (e.is(ExprKind::kVar) || e.is(ExprKind::kLoad)) used.insert(e.name);
  };
  visit(loop.body, add_stored, add_read);
  std::vector<std::string> names, buffers;
  std::vector<llvm::Type*> fields;
  for (const auto& [name, value] : frame_.names)
    if (used.count(name)) {
      names.push_back(name);
      fields.push_back(value->getType());
    }
  for (const auto& [name, ref] : frame_.buffers)
    if (used.count(name)) {
      buffers.push_back(name);
      fields.push_back(ir_.getPtrTy());
    }
  auto* closure_type = llvm::StructType::get(context_, fields);
  auto& entry = frame_.function->getEntryBlock();
  llvm::Value* closure =
      llvm::IRBuilder<>(&entry, entry.begin()).CreateAlloca(closure_type, nullptr, "closure");
  unsigned field = 0;
  for (const std::string& name : names)
    ir_.CreateStore(frame_.names[name], ir_.CreateStructGEP(closure_type, closure, field++));
  for (const std::string& name : buffers)
    ir_.CreateStore(frame_.buffers[name].pointer, ir_.CreateStructGEP(closure_type, closure, field++));

  llvm::Type* index = ir_.getInt64Ty();
  auto* body_type = llvm::FunctionType::get(ir_.getVoidTy(), {ir_.getPtrTy(), index, index, index}, false);
  llvm::Function* body = add_function(source_.name + ".parallel" + std::to_string(parallel_bodies_++),
                                      body_type, /*is_internal=*/true);
  call_abi("ipex_parallel_for", ir_.getVoidTy(), {begin, end, ir_.getInt64(loop.grain), body, closure});

  llvm::IRBuilder<>::InsertPointGuard back(ir_);
  Frame outer = std::move(frame_);
  frame_ = Frame{};
  frame_.function = body;
  frame_.parallel_body = true;
  ir_.SetInsertPoint(block("entry"));
  field = 0;
  for (size_t i = 0; i < names.size(); ++i, ++field)
    frame_.names[names[i]] =
        ir_.CreateLoad(fields[field], ir_.CreateStructGEP(closure_type, body->getArg(0), field), names[i]);
  for (const std::string& name : buffers) {
    llvm::Value* slot = ir_.CreateStructGEP(closure_type, body->getArg(0), field++);
    frame_.buffers[name] =
        buffer_ref(name, outer.buffers[name].dtype, ir_.CreateLoad(ir_.getPtrTy(), slot, name));
  }
  emitted_.clear();  // these values belong to the other function
  emit_counted(loop.var, body->getArg(1), body->getArg(2), nullptr, loop.body);
  finish_function();
  frame_ = std::move(outer);
}

void FunctionEmitter::emit_if(const If& branch) {
  llvm::Value* condition = emit(branch.condition);
  llvm::BasicBlock* on_true = block("then");
  llvm::BasicBlock* on_false = branch.else_body ? block("else") : nullptr;
  llvm::BasicBlock* after = block("after");
  ir_.CreateCondBr(condition, on_true, on_false ? on_false : after);
  ir_.SetInsertPoint(on_true);
  emit(branch.then_body);
  ir_.CreateBr(after);
  if (on_false) {
    ir_.SetInsertPoint(on_false);
    emit(branch.else_body);
    ir_.CreateBr(after);
  }
  ir_.SetInsertPoint(after);
}

void FunctionEmitter::emit_store(const Store& store) {
  const IndexRef index = emit_index(store.index);
  llvm::Value *value = emit_wide(store.value, index.lanes), *mask = emit_wide(store.mask, index.lanes);
  const BufferRef& to = buffer(store.buffer);
  const bool streams = to.streamed && !mask && fills_lines(store, frame_.innermost);
  frame_.streams |= streams;
  streams ? memory_.stream(to, index, value) : memory_.store(to, index, value, mask);
}

bool FunctionEmitter::fits_stack(const Alloc& alloc) const {
  const auto extent = as_const_int(alloc.extent);
  const int64_t item = itemsize(alloc.dtype);
  return extent && *extent >= 0 && *extent <= kMaxStackBytes / item &&
         frame_.stack_bytes + *extent * item <= kMaxStackBytes;
}

llvm::Value* FunctionEmitter::acquire(const Alloc& alloc) {
  llvm::Value* bytes = ir_.CreateMul(emit(alloc.extent), ir_.getInt64(itemsize(alloc.dtype)));
  llvm::CallInst* call = call_abi("ipex_scratch_acquire", ir_.getPtrTy(), {bytes});
  call->addRetAttr(llvm::Attribute::NoAlias);
  return call;
}

// Allocates the scratch buffers of a loop's body before the loop, once instead of in each iteration, if their
// size is known there. Buffers of a parallel loop inside belong to its threads.
void FunctionEmitter::acquire_all(const Block& body, std::vector<llvm::Value*>& scratch) {
  if (!body) return;
  for (const Stmt& stmt : body->stmts) {
    if (const auto* inner = std::get_if<Block>(&stmt)) {
      acquire_all(*inner, scratch);
    } else if (const auto* loop = std::get_if<For>(&stmt)) {
      if (loop->kind != ForKind::kParallel) acquire_all(loop->body, scratch);
    } else if (const auto* branch = std::get_if<If>(&stmt)) {
      acquire_all(branch->then_body, scratch);
      acquire_all(branch->else_body, scratch);
    } else if (const auto* alloc = std::get_if<Alloc>(&stmt)) {
      const std::set<std::string> names = free_vars(alloc->extent);
      const bool known = std::all_of(names.begin(), names.end(),
                                     [&](const std::string& name) { return frame_.names.count(name) > 0; });
      if (!known || fits_stack(*alloc) || frame_.acquired.count(alloc->buffer)) continue;
      scratch.push_back(frame_.acquired[alloc->buffer] = acquire(*alloc));
    }
  }
}

void FunctionEmitter::emit_alloc(const Alloc& alloc, std::vector<llvm::Value*>& scratch) {
  llvm::Value* pointer = nullptr;
  if (const auto it = frame_.acquired.find(alloc.buffer); it != frame_.acquired.end()) {
    pointer = it->second;
  } else if (fits_stack(alloc)) {
    const int64_t extent = *as_const_int(alloc.extent), item = itemsize(alloc.dtype);
    frame_.stack_bytes += aligned(extent * item);
    auto& entry = frame_.function->getEntryBlock();
    auto* storage = llvm::ArrayType::get(values_.memory_type({alloc.dtype, 1}), extent);
    auto* slot = llvm::IRBuilder<>(&entry, entry.begin()).CreateAlloca(storage, nullptr, alloc.buffer);
    slot->setAlignment(llvm::Align(kAlignment));
    pointer = slot;
  } else {
    scratch.push_back(pointer = acquire(alloc));
  }
  frame_.buffers[alloc.buffer] = buffer_ref(alloc.buffer, alloc.dtype, pointer);
}

void FunctionEmitter::emit_call(const Call& call) {
  if (call.function == kPrefetch) {
    const Expr& load = call.args.at(0);
    return memory_.prefetch(buffer(load->name), emit_index(load->args[0]));
  }
  const auto* known = std::find_if(std::begin(kCallable), std::end(kCallable),
                                   [&](const AbiFunction& f) { return f.name == call.function; });
  if (known == std::end(kCallable) || known->arguments != call.args.size())
    fail("call of " + call.function + ", which kernels may not call, or not with these arguments");
  std::vector<llvm::Value*> args;
  for (const Expr& e : call.args) args.push_back(emit(e));
  call_abi(call.function, ir_.getVoidTy(), args);
}

llvm::CallInst* FunctionEmitter::call_abi(llvm::StringRef name, llvm::Type* result,
                                          llvm::ArrayRef<llvm::Value*> args) {
  llvm::SmallVector<llvm::Type*, 5> types;
  for (llvm::Value* arg : args) types.push_back(arg->getType());
  auto callee = module_.getOrInsertFunction(name, llvm::FunctionType::get(result, types, false));
  llvm::cast<llvm::Function>(callee.getCallee())->setDoesNotThrow();
  return ir_.CreateCall(callee, args);
}

// ---- expressions ----

llvm::Value* FunctionEmitter::emit(const Expr& e) {
  if (e->is(ExprKind::kConst) || e->is(ExprKind::kVar)) return emit_uncached(*e);
  if (auto known = emitted_.find(e); known != emitted_.end()) return known->second;
  llvm::Value* value = emit_uncached(*e);
  emitted_.emplace(e, value);
  return value;
}

// Broadcasts a scalar to the given number of lanes. Null stays null.
llvm::Value* FunctionEmitter::emit_wide(const Expr& e, int lanes) {
  llvm::Value* value = e ? emit(e) : nullptr;
  return value && lanes > 1 && !value->getType()->isVectorTy() ? values_.splat(value, lanes) : value;
}

llvm::Value* FunctionEmitter::emit_uncached(const ExprNode& e) {
  switch (e.kind) {
    case ExprKind::kConst:
      return is_float(e.type.dtype) ? values_.real(e.type, e.float_value)
                                    : values_.integer(e.type, e.int_value);
    case ExprKind::kVar: {
      auto it = frame_.names.find(e.name);
      if (it == frame_.names.end()) fail("unbound name " + e.name);
      return it->second;
    }
    case ExprKind::kLoad: {
      const IndexRef index = emit_index(e.args[0]);
      llvm::Value* mask = e.args.size() > 1 ? emit_wide(e.args[1], index.lanes) : nullptr;
      return memory_.load(buffer(e.name), index, mask);
    }
    case ExprKind::kApply:
      return emit_apply(e);
    case ExprKind::kCast:
      if (joins_bf16(e, target_)) return values_.interleave_bf16(emit(e.args[0]->args[0]), e.type.lanes);
      return values_.cast(emit(e.args[0]), e.args[0]->type, e.type.dtype);
    case ExprKind::kRamp: {
      llvm::Value* stride = values_.splat(emit(e.args[1]), e.type.lanes);
      llvm::Value* steps = ir_.CreateMul(values_.iota(e.type.dtype, e.type.lanes), stride);
      return ir_.CreateAdd(values_.splat(emit(e.args[0]), e.type.lanes), steps);
    }
    case ExprKind::kBroadcast:
      return values_.splat(emit(e.args[0]), e.type.lanes);
    case ExprKind::kReduceLanes:
      return values_.reduce_lanes(e.op, e.args[0]->type, emit(e.args[0]));
    case ExprKind::kShuffle: {
      if (splits_bf16(e, target_)) return values_.deinterleave_bf16(emit(e.args[0]->args[0]), e.type.lanes);
      llvm::Value* first = emit(e.args[0]);
      return ir_.CreateShuffleVector(first, emit(e.args[1]), e.shuffle_mask);
    }
  }
  fail("unknown expression kind");
}

llvm::Value* FunctionEmitter::emit_apply(const ExprNode& e) {
  const Type operand = e.args[e.op == ScalarOp::select_ ? 1 : 0]->type;
  if (e.op == ScalarOp::lt_ && operand.is_vector() && operand.dtype == Dtype::kI64) {
    const auto lane = strided(e.args[0]);
    const auto count = strided(e.args[1]);
    if (lane && count && as_const_int(lane->stride) == 1 && as_const_int(count->stride) == 0)
      return values_.tail_mask(emit(lane->base), emit(count->base), operand.lanes);
  }
  llvm::SmallVector<llvm::Value*, 3> args;
  for (const Expr& arg : e.args) args.push_back(emit(arg));
  return values_.apply(e.op, operand, args);
}

IndexRef FunctionEmitter::emit_index(const Expr& e) {
  const int lanes = e->type.lanes;
  if (lanes == 1) return {emit(e), ir_.getInt64(0), nullptr, 1};
  if (const auto s = strided(e)) return {emit(s->base), emit(s->stride), nullptr, lanes};
  Expr base = index_const(0), rest;
  split_sum(e, base, rest);
  return {emit(base), nullptr, emit(rest), lanes};
}

// Splits a sum into the terms that are the same in every lane, and the others.
void FunctionEmitter::split_sum(const Expr& e, Expr& base, Expr& rest) const {
  if (e->is(ExprKind::kApply) && e->op == ScalarOp::add_) {
    for (const Expr& term : e->args) split_sum(term, base, rest);
    return;
  }
  const auto s = strided(e);
  if (s && as_const_int(s->stride) == 0)
    base = base + s->base;
  else
    rest = rest ? rest + e : e;
}

// Finds base and stride of an index base + lane * stride, looking through names and sums.
std::optional<FunctionEmitter::Strided> FunctionEmitter::strided(const Expr& e) const {
  if (!e->type.is_vector() || e->type.dtype != Dtype::kI64) return std::nullopt;
  switch (e->kind) {
    case ExprKind::kConst:
      return Strided{index_const(e->int_value), index_const(0)};
    case ExprKind::kRamp:
      return Strided{e->args[0], e->args[1]};
    case ExprKind::kBroadcast:
      return Strided{e->args[0], index_const(0)};
    case ExprKind::kVar: {
      auto it = frame_.index_lets.find(e->name);
      return it == frame_.index_lets.end() ? std::nullopt : strided(it->second);
    }
    case ExprKind::kApply: {
      if (e->args.size() != 2) return std::nullopt;
      const auto a = strided(e->args[0]);
      const auto b = a ? strided(e->args[1]) : std::nullopt;
      if (!a || !b) return std::nullopt;
      if (e->op == ScalarOp::add_) return Strided{a->base + b->base, a->stride + b->stride};
      if (e->op == ScalarOp::sub_) return Strided{a->base - b->base, a->stride - b->stride};
      if (e->op == ScalarOp::mul_ && as_const_int(b->stride) == 0)
        return Strided{a->base * b->base, a->stride * b->base};
      if (e->op == ScalarOp::mul_ && as_const_int(a->stride) == 0)
        return Strided{a->base * b->base, a->base * b->stride};
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

std::unique_ptr<llvm::Module> emit_module(llvm::LLVMContext& context, const std::vector<Function>& functions,
                                          const Target& target) {
  auto module = std::make_unique<llvm::Module>(functions.empty() ? "empty" : functions[0].name, context);
  for (const Function& f : functions) FunctionEmitter(*module, f, target).run();
  return module;
}

}  // namespace ipex::loop
