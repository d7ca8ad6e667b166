// Checks, between passes, the invariants that every pass may rely on. A violation is a bug in the pass
// before.
#include <unordered_map>
#include <unordered_set>

#include "codegen/loop/text.h"
#include "codegen/loop/type_rules.h"

namespace ipex::loop {
namespace {

struct BufferEntry {
  Dtype dtype;
  bool writable;
};

class Verifier {
 public:
  explicit Verifier(const Function& f) : function_(f) {}

  void run() {
    require(is_name(function_.name), "'" + function_.name + "' is not a name");
    for (const std::string& s : function_.symbols) bind_variable(s, kIndex);
    for (const Buffer& b : function_.buffers) {
      expect_type("the extent of '" + b.name + "'", b.extent,
                  kIndex);  // checked before any buffer is known: extents contain no loads
      require(!b.streamed || b.access == Access::kOut, "'" + b.name + "' is streamed, but is no output");
    }
    for (const Buffer& b : function_.buffers) bind_buffer(b.name, {b.dtype, b.access != Access::kIn});
    block(function_.body);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw InternalError("loop function '" + function_.name + "' is invalid: " + message + context());
  }
  void require(bool condition, const std::string& message) const {
    if (!condition) fail(message);
  }
  std::string context() const { return statement_ ? ", in `" + first_line(*statement_) + "`" : ""; }

  static std::string first_line(const Stmt& stmt) {
    std::string text = print(Function{"f", {}, {}, make_block({stmt})});
    size_t begin = text.find("{\n  ") + 4;
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  // ---- scopes ----

  void bind(const std::string& name) {
    if (!is_name(name)) fail("'" + name + "' is not a name");
    if (!bound_.insert(name).second) fail("'" + name + "' is bound twice");
  }
  void bind_variable(const std::string& name, Type type) {
    bind(name);
    variables_[name] = type;
    trail_.push_back(name);
  }
  void bind_buffer(const std::string& name, BufferEntry entry) {
    bind(name);
    buffers_[name] = entry;
    trail_.push_back(name);
  }
  void leave(size_t mark) {
    for (; trail_.size() > mark; trail_.pop_back()) {
      variables_.erase(trail_.back());
      buffers_.erase(trail_.back());
    }
  }

  // ---- expressions ----

  void expr(const Expr& e) {
    if (!e) fail("an expression is null");
    for (const Expr& arg : e->args) expr(arg);
    if (std::string error = expr_error(*e); !error.empty()) fail(error + ", at `" + print(e) + "`");
  }

  std::string expr_error(const ExprNode& e) const {
    if (e.type.lanes < 1) return "lanes is " + std::to_string(e.type.lanes);
    switch (e.kind) {
      case ExprKind::kConst:
        return e.type.lanes == 1 ? "" : "a vector constant is a broadcast";
      case ExprKind::kVar: {
        auto it = variables_.find(e.name);
        if (it == variables_.end()) return "'" + e.name + "' is not in scope";
        if (it->second == e.type) return "";
        return "'" + e.name + "' is " + to_string(it->second) + ", used as " + to_string(e.type);
      }
      case ExprKind::kLoad: {
        auto it = buffers_.find(e.name);
        if (it == buffers_.end()) return "buffer '" + e.name + "' is not in scope";
        if (e.args.empty() || e.args.size() > 2) return "a load has an index and at most a mask";
        if (e.type != Type{it->second.dtype, e.args[0]->type.lanes})
          return "a load of '" + e.name + "' is " + to_string({it->second.dtype, e.args[0]->type.lanes}) +
                 ", not " + to_string(e.type);
        return load_error(e.args[0], e.args.size() > 1 ? e.args[1] : nullptr);
      }
      case ExprKind::kApply:
        return apply_error(e.op, e.args, e.type);
      case ExprKind::kCast:
        if (e.args.size() != 1 || e.args[0]->type.lanes != e.type.lanes)
          return "a cast keeps the lanes of one operand";
        return e.args[0]->type.dtype == e.type.dtype ? "a cast changes the type" : "";
      case ExprKind::kRamp:
        if (e.args.size() != 2 || e.type != e.args[0]->type.with_lanes(e.type.lanes)) return "ill-typed ramp";
        return ramp_error(e.args[0], e.args[1], e.type.lanes);
      case ExprKind::kBroadcast:
        if (e.args.size() != 1 || e.type != e.args[0]->type.with_lanes(e.type.lanes))
          return "ill-typed broadcast";
        return broadcast_error(e.args[0], e.type.lanes);
      case ExprKind::kReduceLanes:
        if (e.args.size() != 1 || e.type != e.args[0]->type.with_lanes(1)) return "ill-typed lane reduction";
        return reduce_lanes_error(e.op, e.args[0]);
      case ExprKind::kShuffle:
        if (e.args.size() != 2 ||
            e.type != e.args[0]->type.with_lanes(static_cast<int>(e.shuffle_mask.size())))
          return "ill-typed shuffle";
        return shuffle_error(e.args[0], e.args[1], e.shuffle_mask);
    }
    return "unknown expression kind";
  }

  void expect_type(const std::string& what, const Expr& e, Type type) {
    expr(e);
    if (e->type != type) fail(what + " is " + to_string(e->type) + ", expected " + to_string(type));
  }

  // ---- statements ----

  void block(const Block& b) {
    size_t mark = trail_.size();
    open_block(b);
    leave(mark);
  }

  // Leaves the names of the block in scope, for the yields of a loop.
  void open_block(const Block& b) {
    if (!b) fail("a block is null");
    for (const Stmt& s : b->stmts) {
      const Stmt* enclosing = std::exchange(statement_, &s);
      std::visit([this](const auto& stmt) { statement(stmt); }, s);
      statement_ = enclosing;
    }
  }

  void statement(const Block& b) { block(b); }

  void statement(const For& s) {
    expect_type("a loop bound", s.begin, kIndex);
    expect_type("a loop bound", s.end, kIndex);
    require(s.grain >= 1 && s.lanes >= 1 && s.unroll >= 1, "grain, lanes and unroll are at least 1");
    size_t mark = trail_.size();
    if (s.reduction) {
      const Reduction& r = *s.reduction;
      require(!r.states.empty(), "a reduction has at least one state");
      require(r.yield.size() == r.states.size() && r.merge.size() == r.states.size(),
              "a reduction of " + std::to_string(r.states.size()) + " states has " +
                  std::to_string(r.yield.size()) + " yields and " + std::to_string(r.merge.size()) +
                  " merges");
      for (const State& state : r.states) {
        expect_type("the initial value of '" + state.name + "'", state.init, state.type);
        expect_type("the identity of '" + state.name + "'", state.identity, state.type);
      }
      // The states are bound first: they are in scope in the body and, as results, to the end of the
      // enclosing block.
      for (const State& state : r.states) bind_variable(state.name, state.type);
      mark = trail_.size();
    }
    bind_variable(s.var, kIndex);
    open_block(s.body);
    if (s.reduction)
      for (size_t i = 0; i < s.reduction->states.size(); ++i)
        expect_type("the yield of '" + s.reduction->states[i].name + "'", s.reduction->yield[i],
                    s.reduction->states[i].type);
    leave(mark);
    if (!s.reduction) return;
    for (const State& state : s.reduction->states) bind_variable(state.name + ".other", state.type);
    for (size_t i = 0; i < s.reduction->states.size(); ++i)
      expect_type("the merge of '" + s.reduction->states[i].name + "'", s.reduction->merge[i],
                  s.reduction->states[i].type);
    leave(mark);
  }

  void statement(const Let& s) {
    expr(s.value);
    bind_variable(s.name, s.value->type);
  }

  void statement(const Store& s) {
    expr(s.index);
    expr(s.value);
    if (s.mask) expr(s.mask);
    auto it = buffers_.find(s.buffer);
    require(it != buffers_.end(), "buffer '" + s.buffer + "' is not in scope");
    require(it->second.writable, "store to the input buffer '" + s.buffer + "'");
    if (std::string error = load_error(s.index, s.mask); !error.empty())
      fail("store to '" + s.buffer + "': " + error);
    Type expected{it->second.dtype, s.index->type.lanes};
    require(s.value->type == expected, "store of " + to_string(s.value->type) + " to '" + s.buffer +
                                           "', expected " + to_string(expected));
  }

  void statement(const Alloc& s) {
    expect_type("the extent of '" + s.buffer + "'", s.extent, kIndex);
    bind_buffer(s.buffer, {s.dtype, true});
  }

  void statement(const If& s) {
    expect_type("a condition", s.condition, kBool1);
    block(s.then_body);
    if (s.else_body) block(s.else_body);
  }

  void statement(const Call& s) {
    require(is_name(s.function), "'" + s.function + "' is not a name");
    for (const Expr& arg : s.args) {
      expr(arg);
      require(!arg->type.is_vector(), "call arguments are scalars");
    }
    const auto line = [&] { return s.args.size() == 1 && s.args[0]->is(ExprKind::kLoad); };
    require(s.function != kPrefetch || line(), "prefetch takes one load");
  }

  const Function& function_;
  const Stmt* statement_ = nullptr;
  std::unordered_set<std::string> bound_;
  std::unordered_map<std::string, Type> variables_;
  std::unordered_map<std::string, BufferEntry> buffers_;
  std::vector<std::string> trail_;  // names in scope, innermost last
};

}  // namespace

void verify(const Function& f) { Verifier(f).run(); }

}  // namespace ipex::loop
