// See lower_expressions.h. A let goes to the block of the statement whose expression needs it. Lets for a
// loop's yield go to the end of its body, where the states and the body's own lets are in scope.
#include "codegen/passes/lower_expressions.h"

#include <unordered_map>

namespace ipex::loop {
namespace {

class ExpressionLowering {
 public:
  ExpressionLowering(const Function& f, const Rewrite& rewrite) : names_(f), rewrite_(rewrite) {}

  Block block(const Block& b, std::vector<Expr>* at_end = nullptr) {
    if (!b && !at_end) return b;
    std::vector<Stmt> result;
    if (b)
      for (const Stmt& stmt : b->stmts) append(stmt, result);
    if (at_end) {
      Scope scope(*this, result);
      for (Expr& e : *at_end) e = scope(e);
    }
    return make_block(std::move(result));
  }

 private:
  // Rewrites the expressions of one statement. Its lets are appended to `out` at the end.
  class Scope {
   public:
    Scope(ExpressionLowering& owner, std::vector<Stmt>& out)
        : owner_(owner), out_(out), binder_(owner.names_) {}
    ~Scope() {
      for (Stmt& let : binder_.take()) out_.push_back(std::move(let));
    }
    Expr operator()(const Expr& e) {
      if (!e) return e;
      if (auto known = done_.find(e); known != done_.end()) return known->second;
      std::vector<Expr> args;
      bool changed = false;
      for (const Expr& arg : e->args) {
        args.push_back((*this)(arg));
        changed |= args.back() != arg;
      }
      Expr rebuilt = e;
      if (changed) {
        ExprNode node = *e;
        node.args = std::move(args);
        rebuilt = std::make_shared<const ExprNode>(std::move(node));
      }
      Expr result = owner_.rewrite_(rebuilt, binder_);
      done_.emplace(e, result);
      return result;
    }

   private:
    ExpressionLowering& owner_;
    std::vector<Stmt>& out_;
    Binder binder_;
    std::unordered_map<Expr, Expr> done_;  // shared subtrees are rewritten once
  };

  void append(const Stmt& stmt, std::vector<Stmt>& out) {
    if (const auto* inner = std::get_if<Block>(&stmt)) {
      out.push_back(block(*inner));
    } else if (const auto* loop = std::get_if<For>(&stmt)) {
      For copy = *loop;
      {
        Scope scope(*this, out);
        copy.begin = scope(copy.begin);
        copy.end = scope(copy.end);
        if (copy.reduction)
          for (State& state : copy.reduction->states) state.init = scope(state.init);
      }
      copy.body = block(copy.body, copy.reduction ? &copy.reduction->yield : nullptr);
      out.push_back(std::move(copy));
    } else if (const auto* let = std::get_if<Let>(&stmt)) {
      Let copy = *let;
      {
        Scope scope(*this, out);
        copy.value = scope(copy.value);
      }
      out.push_back(std::move(copy));
    } else if (const auto* store = std::get_if<Store>(&stmt)) {
      Store copy = *store;
      {
        Scope scope(*this, out);
        copy.index = scope(copy.index);
        copy.value = scope(copy.value);
        copy.mask = scope(copy.mask);
      }
      out.push_back(std::move(copy));
    } else if (const auto* alloc = std::get_if<Alloc>(&stmt)) {
      Alloc copy = *alloc;
      {
        Scope scope(*this, out);
        copy.extent = scope(copy.extent);
      }
      out.push_back(std::move(copy));
    } else if (const auto* branch = std::get_if<If>(&stmt)) {
      If copy = *branch;
      {
        Scope scope(*this, out);
        copy.condition = scope(copy.condition);
      }
      copy.then_body = block(copy.then_body);
      copy.else_body = block(copy.else_body);
      out.push_back(std::move(copy));
    } else {
      Call copy = std::get<Call>(stmt);
      {
        Scope scope(*this, out);
        for (Expr& e : copy.args) e = scope(e);
      }
      out.push_back(std::move(copy));
    }
  }

  Names names_;
  const Rewrite& rewrite_;
};

}  // namespace

Expr Binder::bind(std::string_view base, Expr value) {
  if (value->is(ExprKind::kVar) || value->is(ExprKind::kConst)) return value;
  const std::string name = names_.fresh(base);
  const Type type = value->type;
  lets_.push_back(Let{name, std::move(value)});
  return make_var(name, type);
}

Function lower_expressions(const Function& f, const Rewrite& rewrite) {
  Function result = f;
  result.body = ExpressionLowering(f, rewrite).block(f.body);
  return result;
}

}  // namespace ipex::loop
