// Writes a nest from the inside out: open scopes (one a loop body), values bound once in the outermost scope
// that knows what they depend on, and reductions as loops with states placed the same way.
//
// A loop under construction joins its parent's statements when it closes, so whatever its body needed from
// further out is already there. The stack of scopes may hold loops that are not ancestors of the newest one
// (a reduction asked for from inside a column loop, but placed before it): expressions refer to ancestors
// only, so nothing lands in the wrong one.
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
  int depth_of(const loop::Expr& e) const;  // of the innermost scope of one of its variables or buffers
  int depth_of(const Index& index, const loop::Expr& mask) const;
  const loop::Ranges& ranges() const { return ranges_; }  // of symbols and of the loops being written
  std::string unique(const std::string& base);

  // Names e, once, as far out as possible; constants and variables stay themselves. Subexpressions that e
  // holds more than once (the same node, not an equal one) get a name too, so that the text is as long as the
  // work.
  loop::Expr let(const std::string& base, const loop::Expr& e);
  // Only the second half of that, over several values at once.
  Exprs share(const Exprs& values);
  void emit(loop::Stmt stmt, int depth);
  void emit(loop::Stmt stmt) { emit(std::move(stmt), depth()); }

  // for var in 0..extent { body(var) }, into the scope at `depth`; nothing around the body when the extent
  // is 1.
  void loop(const std::string& base, const Dim& extent, int depth,
            const std::function<void(loop::Expr)>& body);

  // One reduction over a nest of loops. `step` gets the loop variables and the states and returns their next
  // values.
  struct ReductionSpec {
    std::vector<Dim> extents;         // outermost first
    std::vector<loop::State> states;  // init == identity; names are made unique
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
  std::map<std::string, int> bound_;  // variable or scratch buffer: depth of its scope; no symbols
  std::map<std::string, int> uses_;   // base name: how often handed out
  loop::Ranges ranges_;
};

}  // namespace ipex::graph
