// The loops of a function and their memory accesses: the dependence analysis behind every scheduling
// decision.
//
// Lowering emits plain serial loops and promises nothing. Whether a loop may be interchanged, vectorized or
// run in parallel is proved here from the indices of its accesses. Lets of integers are inlined into indices
// first.
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
    int parent;  // -1: at the top of the function
    std::vector<int> children;
    std::vector<int> accesses;  // in its own body, not in the body of a child
    Expr extent = nullptr;
    // The loop variable's first value, and its last value minus the first, with lets inlined.
    Expr begin = nullptr, span = nullptr;
    double work = 0;        // arithmetic of one iteration of its own body, in additions
    bool has_call = false;  // this loop or one inside it calls something other than ipex_report_index
    bool has_math = false;  // this loop or one inside it computes a transcendental function or divides
  };
  // An indirect index: a let of the form min(max(x, 0), span), where x comes from data. The name of the let,
  // its largest value, and the loop that contains it.
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
    int loop;       // the innermost loop around it; -1: none
    int owner;      // the loop whose body allocates the buffer; -1: the function itself
    Expr symbolic;  // the index with its indirect indices left as variables
    std::vector<IndirectIndex> indirect = {};  // those variables
  };

  explicit LoopTree(const Function& f);

  const std::vector<Loop>& loops() const { return loops_; }
  const Loop& at(int loop) const { return loops_[loop]; }
  int id_of(const For& loop) const {  // the loop must be part of the function itself, not of a copy
    int id = 0;
    while (loops_[id].node != &loop) ++id;
    return id;
  }
  const std::vector<Access>& accesses() const { return accesses_; }
  const std::vector<int>& roots() const { return roots_; }
  bool writes(const std::string& buffer) const { return written_.count(buffer) > 0; }
  bool encloses(int outer, int inner) const;  // true for a loop and itself, too

  // Whether iterations may run in any order and in any groups: different iterations write different locations
  // and read nothing that another one writes. Values are carried from one iteration to the next through the
  // Reduction only.
  bool reorderable(int loop) const;

  // Whether the nest under `loop` can be divided by the values of the indirect index `row`: iterations with
  // different values of `row` access no location in common that one of them writes.
  bool divisible(int loop, const std::string& row) const;

  // By how much `index` grows when `var` grows by 1: 0 if the index does not use it, nullopt if it is not
  // affine in it.
  static std::optional<Expr> stride(const Expr& index, const std::string& var);
  static std::optional<int64_t> constant_stride(const Expr& index, const std::string& var) {
    const auto found = stride(index, var);
    return found ? as_const_int(*found) : std::nullopt;
  }
  std::optional<int64_t> extent(int loop) const { return as_const_int(loops_[loop].extent); }

 private:
  struct Scope;
  static std::set<std::string> varies_with(const Expr& e, const Scope& scope);  // loop variables and states
  void walk(const Block& block, int loop, Scope& scope);
  void read(const Expr& e, int loop, Scope& scope);
  void record(bool is_store, const std::string& buffer, Dtype dtype, const Expr& index, int loop,
              const Scope& scope);
  bool independent(int loop) const;
  bool all_disjoint(int loop, const std::string& digit) const;
  bool disjoint(const Access& a, const Access& b, int loop, const std::string& digit) const;
  // The loops around `inner`, innermost first; `loop` is the last.
  std::vector<int> path_to(int loop, int inner) const;

  std::vector<Loop> loops_;
  std::vector<Access> accesses_;
  std::vector<int> roots_;
  Ranges ranges_;
  std::set<std::string> written_;                         // buffers that are stored to
  mutable std::vector<std::optional<bool>> independent_;  // for each loop, proved at most once
};

// The cost of an operation on one element, in additions.
double op_cost(ScalarOp op, Dtype dtype);

}  // namespace ipex::loop
