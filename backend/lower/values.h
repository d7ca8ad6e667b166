// The value of a node at an index, as an expression: the third stage of lower_group.
//
// Values are pulled: a value is an expression of its operands' values at other indices. So views, gathers,
// pads and concatenations cost index arithmetic only. The statements that an expression needs (names, checks
// of indices, loops of reductions) go to the Emitter, as far out as they can be.
//
// Values that reduce others are in files of their own, which ask Values for the elements that they reduce:
// windows.cpp has those that reduce a window or a contracted dim, reductions.h has Reduce nodes.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "backend/lower/nest_plan.h"
#include "backend/lower/reductions.h"

namespace ipex::graph {

class Values {
 public:
  Values(const PlacedGroup& group, const ReductionAnalysis& analysis, const NestPlan& plan,
         Coordinates& coordinates, Emitter& emitter);
  Values(const Values&) = delete;  // the emitter calls it when a scope closes

  // The element of v, in the type that arithmetic on v is done in. Memory is read only where `mask` holds;
  // null holds everywhere.
  loop::Expr element(Value v, const Index& index, const loop::Expr& mask = nullptr);
  // Lets element(v, index, mask) return `result` while the scope is open in which `result` is known.
  void remember(Value v, const Index& index, const loop::Expr& mask, const loop::Expr& result);
  // Lets element() load v from this output, which holds all of v from now on.
  void set_stored(Value v, const BufferView& output) { stored_.emplace(v, output); }

  loop::Expr load(const BufferView& from, Dtype dtype, const Index& index, const loop::Expr& mask);
  bool loads_from(const std::string& buffer) const { return loaded_.count(buffer) != 0; }
  // The index into x that `node`, a gather or scatter, selects for u. The kernel reports an index that is out
  // of range; `valid` then becomes false as well.
  Index mapped_index(const Node& node, const Shape& x, const Index& u, const loop::Expr& mask,
                     loop::Expr* valid);

  const PlacedGroup& group() const { return group_; }
  Emitter& emitter() { return emitter_; }

 private:
  loop::Expr compute(Value v, const Index& index, const loop::Expr& mask);
  loop::Expr pointwise(const Node& node, const Index& index, const loop::Expr& mask);
  loop::Expr cat(const Node& node, const Index& index, const loop::Expr& mask);
  loop::Expr pad(const Node& node, const Index& index, const loop::Expr& mask);
  loop::Expr gather(const Node& node, const Index& index, const loop::Expr& mask);
  // The kernel may still hold it in f32, though its type is a half one.
  bool is_rounded_late(Value v) const;
  Index operand_index(const Node& view, const Index& index) const;
  Index with_short_parts(Index index);
  loop::Expr named(Value v, const loop::Expr& x);

  const PlacedGroup& group_;
  const Graph& body_;
  const NestPlan& plan_;
  const Coordinates& coordinates_;
  Emitter& emitter_;
  ScratchRows rows_;
  Reductions reductions_;

  struct Memo {
    Value v;
    Index index;
    loop::Expr mask, result;
  };
  std::vector<std::vector<Memo>> memos_;  // by depth of the scope that knows the result
  std::map<Value, BufferView> stored_;    // outputs that earlier nests have stored
  std::set<std::string> loaded_;          // buffers
};

// The name of a value in the kernel.
std::string label(Value v);

// The run ends with IndexError `error` for dim `dim`, of `size` elements, wherever `fault` holds for `given`.
void report_index(Emitter& emitter, IndexFault error, int64_t dim, const loop::Expr& given, const Dim& size,
                  const loop::Expr& fault);

// ---- windows.cpp: what Values::element does for a node of these ops ----

loop::Expr pool(Values& values, Value v, const Index& index, const loop::Expr& mask);
loop::Expr segment(Values& values, Value v, const Index& index, const loop::Expr& mask);
loop::Expr matmul(Values& values, Value v, const Index& index, const loop::Expr& mask);
loop::Expr conv(Values& values, Value v, const Index& index, const loop::Expr& mask);
loop::Expr conv_backward(Values& values, Value v, const Index& index, const loop::Expr& mask);

}  // namespace ipex::graph
