// The loops of a function and what they touch: the one analysis behind every scheduling decision.
//
// Lowering emits plain serial loops; whether a loop may be interchanged, vectorised or run in parallel is
// proved here from its store indices, never promised by whoever built it. Index expressions are read with
// their integer lets inlined.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/loop/ir.h"
#include "codegen/loop/simplify.h"

namespace ipex::loop {

class LoopTree {
 public:
  struct Loop {
    const For* node;
    int parent;  // -1: at function level
    std::vector<int> children;
    std::vector<int> accesses;  // in its own body, not in a child's
    Expr extent = nullptr;
    // Of the variable, with lets inlined: its first value, and by how much its last one is more.
    Expr begin = nullptr, span = nullptr;
    double work = 0;  // cost of its own body's arithmetic for one iteration, in simple element operations
    bool has_call = false;  // calls anything but ipex_report_index, here or below
    bool has_math = false;  // a transcendental or a division, here or below
  };
  // A let min(max(x, 0), reach): where in a dim data say to look. The let's name, and the loop it is in.
  struct IndirectIndex {
    std::string name;
    Expr span;
    int loop;
  };
  struct Access {
    bool is_store;
    std::string buffer;
    Dtype dtype;
    Expr index;
    int loop;   // innermost loop around it; -1: none
    int owner;  // loop whose body allocates the buffer; -1: the function (a parameter or a top-level Alloc)
    Expr symbolic;                         // the index with its indirect from data left as variables
    std::vector<IndirectIndex> indirect = {};  // those variables
  };

  explicit LoopTree(const Function& f);

  const std::vector<Loop>& loops() const { return loops_; }
  const Loop& at(int loop) const { return loops_[loop]; }
  int id_of(const For& loop) const {  // a loop of the function itself, not of a copy
    int id = 0;
    while (loops_[id].node != &loop) ++id;
    return id;
  }
  const std::vector<Access>& accesses() const { return accesses_; }
  const std::vector<int>& roots() const { return roots_; }
  bool writes(const std::string& buffer) const { return written_.count(buffer) > 0; }
  bool encloses(int outer, int inner) const;  // or is the same

  // May run in any order and in pieces: distinct iterations write distinct locations and read nothing that
  // another one writes; values are carried through its Reduction only.
  bool reorderable(int loop) const;

  // May be divided by the values of position `row`: iterations of the nest under `loop` for which it differs
  // touch nothing in common that any of them writes.
  bool divisible(int loop, const std::string& row) const;

  // What `index` grows by when `var` does: 0 when it does not occur, nullopt when not affine in it.
  static std::optional<Expr> stride(const Expr& index, const std::string& var);
  static std::optional<int64_t> constant_stride(const Expr& index, const std::string& var) {
    const auto found = stride(index, var);
    return found ? as_const_int(*found) : std::nullopt;
  }
  std::optional<int64_t> extent(int loop) const { return as_const_int(loops_[loop].extent); }

 private:
  struct Scope;
  static std::set<std::string> varies_with(const Expr& e, const Scope& scope);  // loop variables, states
  void walk(const Block& block, int loop, Scope& scope);
  void read(const Expr& e, int loop, Scope& scope);
  void record(bool is_store, const std::string& buffer, Dtype dtype, const Expr& index, int loop,
              const Scope& scope);
  bool independent(int loop) const;
  bool all_disjoint(int loop, const std::string& digit) const;
  bool disjoint(const Access& a, const Access& b, int loop, const std::string& digit) const;
  std::vector<int> path_to(int loop, int inner) const;  // loops from inside out around `inner`, `loop` last

  std::vector<Loop> loops_;
  std::vector<Access> accesses_;
  std::vector<int> roots_;
  Ranges ranges_;
  std::set<std::string> written_;                         // buffers that some store names
  mutable std::vector<std::optional<bool>> independent_;  // by loop, proved once
};

// One element's cost of an op, relative to an addition.
double op_cost(ScalarOp op, Dtype dtype);

}  // namespace ipex::loop
