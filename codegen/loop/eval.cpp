// The reference interpreter. It evaluates expressions one lane at a time, so that only variables need vector
// values. It runs loops of every kind serially; parallel and vector loops must give the same results.
#include "codegen/loop/eval.h"

#include <cstring>
#include <unordered_map>

#include "codegen/loop/half.h"
#include "codegen/loop/text.h"
#include "runtime/index_errors.h"

namespace ipex::loop {
namespace {

// Fills scratch memory, so that reading an element that was never written shows.
constexpr int kPoison = 0xcb;

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

Scalar read_element(const std::byte* data, int64_t index, Dtype dtype) {
  const std::byte* at = data + index * itemsize(dtype);
  Scalar x{dtype};
  switch (dtype) {
    case Dtype::kBool:
      x.i = read<uint8_t>(at) != 0;
      break;
    case Dtype::kU8:
      x.i = read<uint8_t>(at);
      break;
    case Dtype::kI8:
      x.i = read<int8_t>(at);
      break;
    case Dtype::kI16:
      x.i = read<int16_t>(at);
      break;
    case Dtype::kI32:
      x.i = read<int32_t>(at);
      break;
    case Dtype::kI64:
      x.i = read<int64_t>(at);
      break;
    case Dtype::kF16:
      x.f = f16_to_f32(read<uint16_t>(at));
      break;
    case Dtype::kBF16:
      x.f = bf16_to_f32(read<uint16_t>(at));
      break;
    case Dtype::kF32:
      x.f = read<float>(at);
      break;
    case Dtype::kF64:
      x.f = read<double>(at);
      break;
  }
  return x;
}

void write_element(std::byte* data, int64_t index, Scalar x) {
  std::byte* at = data + index * itemsize(x.dtype);
  auto put = [at](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (x.dtype) {
    case Dtype::kBool:
    case Dtype::kU8:
    case Dtype::kI8:
      put(static_cast<uint8_t>(x.i));
      break;
    case Dtype::kI16:
      put(static_cast<int16_t>(x.i));
      break;
    case Dtype::kI32:
      put(static_cast<int32_t>(x.i));
      break;
    case Dtype::kI64:
      put(x.i);
      break;
    case Dtype::kF16:
      put(f32_to_f16(static_cast<float>(x.f)));
      break;
    case Dtype::kBF16:
      put(f32_to_bf16(static_cast<float>(x.f)));
      break;
    case Dtype::kF32:
      put(static_cast<float>(x.f));
      break;
    case Dtype::kF64:
      put(x.f);
      break;
  }
}

// Lane `lane` of e. Env gives variables (env.variable(node, lane)) and loads (env.load(node, lane)).
template <class Env>
Scalar evaluate(const ExprNode& e, int lane, Env& env) {
  switch (e.kind) {
    case ExprKind::kConst:
      return {e.type.dtype, e.int_value, e.float_value};
    case ExprKind::kVar:
      return env.variable(e, lane);
    case ExprKind::kLoad:
      return env.load(e, lane);
    case ExprKind::kApply: {
      Scalar args[kMaxOperands];
      for (size_t i = 0; i < e.args.size(); ++i) args[i] = evaluate(*e.args[i], lane, env);
      return eval_scalar(e.op, {args, e.args.size()}, e.type.dtype);
    }
    case ExprKind::kCast:
      return cast_scalar(evaluate(*e.args[0], lane, env), e.type.dtype);
    case ExprKind::kRamp: {
      const Scalar step[2] = {evaluate(*e.args[1], 0, env), {e.type.dtype, lane}};
      const Scalar sum[2] = {evaluate(*e.args[0], 0, env), eval_scalar(ScalarOp::mul_, step, e.type.dtype)};
      return eval_scalar(ScalarOp::add_, sum, e.type.dtype);
    }
    case ExprKind::kBroadcast:
      return evaluate(*e.args[0], 0, env);
    case ExprKind::kReduceLanes: {  // lane 0 first; generated code may use another order
      Scalar pair[2] = {evaluate(*e.args[0], 0, env), {}};
      for (int i = 1; i < e.args[0]->type.lanes; ++i) {
        pair[1] = evaluate(*e.args[0], i, env);
        pair[0] = eval_scalar(e.op, pair, e.type.dtype);
      }
      return pair[0];
    }
    case ExprKind::kShuffle: {
      const int selected = e.shuffle_mask[lane], lanes = e.args[0]->type.lanes;
      return evaluate(*e.args[selected / lanes], selected % lanes, env);
    }
  }
  throw InternalError("eval: unknown expression kind");
}

class Interpreter {
 public:
  Interpreter(const Function& f, std::span<void* const> buffers, std::span<const int64_t> symbols)
      : function_(f) {
    if (buffers.size() != f.buffers.size() || symbols.size() != f.symbols.size())
      fail("called with " + std::to_string(buffers.size()) + " buffers and " +
           std::to_string(symbols.size()) + " symbols, declared with " + std::to_string(f.buffers.size()) +
           " and " + std::to_string(f.symbols.size()));
    for (size_t i = 0; i < symbols.size(); ++i) slot(f.symbols[i], 1)[0] = {Dtype::kI64, symbols[i]};
    for (size_t i = 0; i < buffers.size(); ++i) {
      const Buffer& b = f.buffers[i];
      memory_[b.name] = {static_cast<std::byte*>(buffers[i]), index(b.extent), {}};
    }
  }

  void run() { block(function_.body); }

  Scalar variable(const ExprNode& e, int lane) const {
    auto it = variables_.find(e.name);
    if (it == variables_.end()) fail("variable '" + e.name + "' is not bound");
    return it->second[static_cast<size_t>(lane)];
  }

  Scalar load(const ExprNode& e, int lane) {
    if (e.args.size() > 1 && !evaluate(*e.args[1], lane, *this).i) return {e.type.dtype};
    int64_t at = evaluate(*e.args[0], lane, *this).i;
    return read_element(checked(e.name, at).data, at, e.type.dtype);
  }

 private:
  struct Memory {
    std::byte* data = nullptr;
    int64_t extent = 0;
    std::unique_ptr<std::byte[]> owned;
  };
  using Lanes = std::vector<Scalar>;

  [[noreturn]] void fail(const std::string& message) const {
    throw InternalError("eval of '" + function_.name + "': " + message);
  }

  Memory& checked(const std::string& buffer, int64_t at) {
    auto it = memory_.find(buffer);
    if (it == memory_.end()) fail("buffer '" + buffer + "' is not bound");
    if (at < 0 || at >= it->second.extent)
      fail("element " + std::to_string(at) + " of '" + buffer + "', which has " +
           std::to_string(it->second.extent));
    return it->second;
  }

  Lanes& slot(const std::string& name, int lanes) {
    Lanes& values = variables_[name];
    values.resize(static_cast<size_t>(lanes));
    return values;
  }
  int64_t index(const Expr& e) { return evaluate(*e, 0, *this).i; }
  Lanes all_lanes(const Expr& e) {
    Lanes values(static_cast<size_t>(e->type.lanes));
    for (int i = 0; i < e->type.lanes; ++i) values[static_cast<size_t>(i)] = evaluate(*e, i, *this);
    return values;
  }

  void block(const Block& b) {
    for (const Stmt& s : b->stmts) std::visit([this](const auto& stmt) { statement(stmt); }, s);
  }

  void statement(const Block& b) { block(b); }

  void statement(const For& s) {
    const int64_t begin = index(s.begin), end = index(s.end);
    std::vector<Lanes> next;
    auto update_states = [&] {  // all together, because each yield reads the old values of all states
      for (size_t i = 0; i < next.size(); ++i) variables_[s.reduction->states[i].name] = std::move(next[i]);
      next.clear();
    };
    if (s.reduction) {
      for (const State& state : s.reduction->states) next.push_back(all_lanes(state.init));
      update_states();
    }
    for (int64_t i = begin; i < end; ++i) {
      slot(s.var, 1)[0] = {Dtype::kI64, i};
      block(s.body);
      if (!s.reduction) continue;
      for (const Expr& e : s.reduction->yield) next.push_back(all_lanes(e));
      update_states();
    }
  }

  void statement(const Let& s) {
    Lanes values = all_lanes(s.value);
    variables_[s.name] = std::move(values);
  }

  void statement(const Store& s) {
    // Reads everything before it writes anything.
    Lanes values = all_lanes(s.value), indices = all_lanes(s.index);
    Lanes mask = s.mask ? all_lanes(s.mask) : Lanes();
    for (size_t i = 0; i < values.size(); ++i)
      if (!s.mask || mask[i].i) write_element(checked(s.buffer, indices[i].i).data, indices[i].i, values[i]);
  }

  void statement(const Alloc& s) {
    int64_t extent = index(s.extent);
    if (extent < 0) fail("scratch '" + s.buffer + "' of " + std::to_string(extent) + " elements");
    auto bytes = static_cast<size_t>(extent * itemsize(s.dtype));
    Memory memory{nullptr, extent, std::make_unique<std::byte[]>(bytes)};
    memory.data = memory.owned.get();
    std::memset(memory.data, kPoison, bytes);
    memory_[s.buffer] = std::move(memory);
  }

  void statement(const If& s) {
    if (index(s.condition))
      block(s.then_body);
    else if (s.else_body)
      block(s.else_body);
  }

  void statement(const Call& s) {
    if (s.function == kPrefetch) {
      for (const Expr& e : s.args) all_lanes(e);  // checks the load's bounds
      return;
    }
    if (s.function != "ipex_report_index" || s.args.size() != 3)
      fail("call of '" + s.function + "': the interpreter knows ipex_report_index(index, size, error)");
    raise_index_error(index(s.args[0]), index(s.args[1]), index(s.args[2]));
  }

  const Function& function_;
  std::unordered_map<std::string, Lanes> variables_;
  std::unordered_map<std::string, Memory> memory_;
};

struct IntBinding {
  const std::map<std::string, int64_t>& values;

  Scalar variable(const ExprNode& e, int) const {
    auto it = values.find(e.name);
    if (it == values.end()) throw InternalError("eval_int: variable '" + e.name + "' is not bound");
    return {e.type.dtype, it->second};
  }
  Scalar load(const ExprNode& e, int) const {
    throw InternalError("eval_int: a load of '" + e.name + "' has no value without its buffer");
  }
};

}  // namespace

void eval(const Function& f, std::span<void* const> buffers, std::span<const int64_t> symbols) {
  Interpreter(f, buffers, symbols).run();
}

int64_t eval_int(const Expr& e, const std::map<std::string, int64_t>& binding) {
  if (e->type.is_vector() || is_float(e->type.dtype))
    throw InternalError("eval_int: `" + print(e) + "` is not a scalar integer");
  IntBinding env{binding};
  return evaluate(*e, 0, env).i;
}

}  // namespace ipex::loop
