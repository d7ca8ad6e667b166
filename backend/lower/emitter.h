// Writes a loop nest while values are asked for. It has a stack of open scopes, one for each loop body. It
// binds a value to a name once, in the outermost scope that knows what the value depends on. Reductions are
// loops with states, which go into a scope by the same rule.
//
// A loop joins the statements of its parent when it closes. By then the parent has all statements that the
// loop needs from it. The stack may hold loops that are not ancestors of the innermost one: a reduction that
// a column loop asks for can be placed before that loop. Expressions refer to ancestors only, so no statement
// goes into a wrong scope.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/lower/index.h"
#include "codegen/loop/ir.h"

namespace ipex::graph {

using Exprs = std::vector<loop::Expr>;

class Emitter {
 public:
  explicit Emitter(loop::Ranges symbols) : scopes_(1), ranges_(std::move(symbols)) {
    for (const auto& [name, range] : ranges_) uses_[name] = 1;
  }

  int depth() const { return static_cast<int>(scopes_.size()) - 1; }
  // The depth of the innermost scope that binds one of its variables or buffers.
  int depth_of(const loop::Expr& e) const;
  int depth_of(const Index& index, const loop::Expr& mask) const;
  const loop::Ranges& ranges() const { return ranges_; }  // of symbols and of the loops being written
  std::string unique(const std::string& base);

  // Binds e to a name, as far out as possible, and returns the name. Constants and variables are returned as
  // they are. Subexpressions that occur in e more than once (the same node, not an equal one) get names too:
  // else the text could be exponentially longer than the graph of nodes.
  loop::Expr let(const std::string& base, const loop::Expr& e);
  // Names only the subexpressions that occur more than once in all of the values.
  Exprs share(const Exprs& values);
  void emit(loop::Stmt stmt, int depth);
  void emit(loop::Stmt stmt) { emit(std::move(stmt), depth()); }

  // for var in 0..extent { body(var) }, into the scope at `depth`. If the extent is 1, there is no loop
  // around the body.
  void loop(const std::string& base, const Dim& extent, int depth,
            const std::function<void(loop::Expr)>& body);

  // One reduction over a nest of loops. `step` gets the loop variables and the states and returns their next
  // values.
  struct ReductionSpec {
    std::vector<Dim> extents;         // outermost first
    std::vector<loop::State> states;  // their init is the identity; their names are made unique
    std::function<Exprs(const Exprs& vars, const Exprs& states)> step;
    std::function<Exprs(const Exprs& states, const Exprs& others)> merge;
  };
  Exprs reduce(const ReductionSpec& spec, int depth);  // the final states

  std::vector<loop::Stmt> finish() { return std::move(scopes_[0]); }

  // Called with the depth of a scope that is about to close.
  std::function<void(int)> on_close;

 private:
  void open() { scopes_.emplace_back(); }
  std::vector<loop::Stmt> close();
  void bind(const std::string& name, int depth) { bound_[name] = depth; }
  Exprs reduce_level(const ReductionSpec& spec, size_t level, Exprs vars, const Exprs& inits, int depth);

  std::vector<std::vector<loop::Stmt>> scopes_;
  std::map<std::string, int> bound_;  // by variable or scratch buffer, but not symbol: the depth of its scope
  std::map<std::string, int> uses_;   // by base name: how many unique names were made from it
  loop::Ranges ranges_;
};

}  // namespace ipex::graph
