// The state of lowering one group: values on demand (values.cpp, windows.cpp) and the nests that ask for them
// (nests.cpp, reductions.cpp). lower_group drives it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/lower/axes.h"
#include "backend/lower/emitter.h"
#include "backend/lower/lower.h"
#include "backend/ops/tables.h"

namespace ipex::graph {

class Lowering {
 public:
  Lowering(const Graph& body, const std::vector<OperandLayout>& inputs,
           const std::vector<OperandLayout>& outputs);
  loop::Function run(const std::string& name);

 private:
  using Coords = std::map<Axis, loop::Expr>;  // the loop variable of each axis that is being iterated

  // ---- values.cpp: the value of a node's result at an index; loads happen only where mask (null: always)
  // holds ----
  loop::Expr value(Value v, const Index& index, const loop::Expr& mask = nullptr);
  loop::Expr compute(Value v, const Index& index, const loop::Expr& mask);
  loop::Expr load(const std::string& buffer, Dtype dtype, const OperandLayout& layout, const Index& index,
                  const loop::Expr& mask);
  loop::Expr literal(const Node& node) const;
  bool rounds_late(Value v) const;  // a number of half type that a kernel may still hold in f32
  loop::Expr pointwise(const Node& node, const Index& index, const loop::Expr& mask);
  loop::Expr cat(const Node& node, const Index& index, const loop::Expr& mask);
  loop::Expr pad(const Node& node, const Index& index, const loop::Expr& mask);
  loop::Expr gather(const Node& node, const Index& index, const loop::Expr& mask);
  Index operand_index(const Node& node, const Index& index) const;  // of the views
  Index short_index(Index index);                                   // the same, long parts named
  // Element of x that `map` selects for u; *valid becomes false where an index operand is out of range, which
  // is reported.
  // Where `fault` holds the run ends with the IndexError of the node, for dim `dim` of x.
  void report_index(IndexFault error, int64_t dim, const loop::Expr& given, const Dim& size,
                    const loop::Expr& fault);
  Index mapped_index(const Node& node, const Shape& x, const Index& u, const loop::Expr& mask,
                     loop::Expr* valid);
  loop::Expr named(Value v, const loop::Expr& x);  // by a let
  static loop::Expr as_stored(Dtype dtype, const loop::Expr& x);
  void remember(Value v, const Index& index, const loop::Expr& mask, const loop::Expr& result);

  // ---- windows.cpp: values that are reductions over a window or over a contracted dim ----
  loop::Expr pool(Value v, const Index& index, const loop::Expr& mask);
  loop::Expr segment(Value v, const Index& index, const loop::Expr& mask);
  loop::Expr matmul(const Node& node, int32_t id, const Index& index, const loop::Expr& mask);
  loop::Expr conv_sum(int32_t id, Value x, Value w, bool backwards, const Index& index,
                      const loop::Expr& mask);
  loop::Expr conv(const Node& node, int32_t id, const Index& index, const loop::Expr& mask);
  loop::Expr conv_backward(const Node& node, int32_t id, const Index& index, const loop::Expr& mask);
  loop::Expr epilogue(const Node& node, loop::Expr x, size_t operand, const Index& index,
                      const loop::Expr& mask);
  loop::Expr contract(int32_t id, Dtype dtype, const std::vector<Dim>& extents, const Index& index,
                      const loop::Expr& mask, const std::function<loop::Expr(const Exprs& vars)>& term);

  // ---- reductions.cpp: Reduce nodes, those over the same rows and columns in one loop, and row-local
  // scratch ----
  struct ReduceInfo {
    std::vector<Axis> rows,
        columns;    // sorted; empty columns and !structured: dims that share axes, lowered by themselves
    int level = 0;  // reductions before this one, on any path
    bool structured = false;
  };
  struct Scratch {  // a row of an expensive value, kept for the loops that follow
    std::string buffer;
    Coords row;  // coordinates of the row it holds
    std::vector<Axis> columns;
  };
  void analyse_reductions();
  // The group reduces v and leaves it to others to take v and the results together. Where it does so itself,
  // v need not be rounded for it, which would cost a conversion in each of its loops.
  bool is_left_to_others(Value v) const;
  void plan_scratch();
  loop::Expr reduce(Value v, const Index& index, const loop::Expr& mask);
  void reduce_together(const std::vector<int32_t>& nodes, const Index& index, const loop::Expr& mask);
  void reduce_ready(const std::vector<int32_t>& nodes);  // those whose rows are all iterated now
  Index reduced_operand_index(const Node& node, const Index& index, const Index& reduced) const;
  std::vector<Axis> memory_order(Value v, std::vector<Axis> axes) const;  // largest stride first
  std::optional<loop::Expr> from_scratch(Value v) const;
  void to_scratch(Value v, const Index& index, const loop::Expr& x);

  // ---- nests.cpp: stores of outputs, scans and scatters ----
  struct Job {  // store `value` over all of its index space
    Value value;
    std::string buffer;
    OperandLayout layout;
    Index offset;                     // of the value inside the output
    std::vector<Axis> order;          // loops, outermost first
    std::vector<int32_t> reductions;  // that it needs
  };
  void add_jobs(Value v, const std::string& buffer, const OperandLayout& layout, Index offset);
  void run_jobs(const std::vector<Job*>& jobs, size_t level);
  static bool is_whole(const Job& job);
  void store(const Job& job);
  void materialise(int32_t n);  // a scan or scatter, whole, to the memory of its results
  loop::Expr position(const OperandLayout& layout, const Index& index) const;  // in elements
  bool is_read(Value v) const;                                                 // by a node of the group
  void scan(int32_t n);
  void scatter(Value v, const std::string& buffer, const OperandLayout& layout);
  bool repeats_along(Value v, int dim) const;
  void for_each(Value v, const std::vector<int>& dims, size_t level, Index& index,
                const std::function<void()>& body);
  std::vector<int> dims_by_stride(const Strides& strides) const;

  // The index of v at the current coordinates; none when some axis is not iterated or stands for two dims.
  std::optional<Index> canonical(Value v) const;
  loop::Expr along(Value v, int dim) const;
  bool at_canonical(Value v, const Index& index) const;
  int64_t hint(const Dim& dim) const { return graph::hint(dim, body_); }
  Dtype compute_dtype(Value v) const { return opmath(body_.type(v).dtype); }

  const Graph& body_;
  std::vector<OperandLayout> input_layouts_, output_layouts_;
  Axes axes_;
  Emitter emitter_;
  Coords coords_;
  struct Memo {
    Value v;
    Index index;
    loop::Expr mask, result;
  };
  std::vector<std::vector<Memo>> memos_;                         // by depth
  std::vector<std::vector<std::pair<Value, Scratch>>> scratch_;  // by depth
  std::vector<std::pair<int, std::pair<Value, Scratch>>>
      pending_scratch_;  // filled by the loop being written; with its depth
  std::map<int32_t, ReduceInfo> reductions_;
  std::vector<std::set<int32_t>> needs_;  // node: Reduce nodes among its ancestors and itself
  // Outputs of half types, rounded for their reductions too: the mean of a constant channel is the constant.
  std::set<Value> rounded_;
  std::set<Value> keep_;   // values that get a scratch row
  std::set<Axis> region_;  // columns of the reduction being written
  int region_depth_ = 0;
  std::map<int32_t, int> input_position_;
  std::map<Value, std::pair<std::string, OperandLayout>> materialised_;
  std::map<Value, std::pair<std::string, OperandLayout>> stored_;  // outputs that earlier nests wrote, whole
  std::vector<Job> jobs_;
  std::set<std::string> read_back_;  // output buffers that the kernel also loads
};

// Does the body of a row call anything dearer than a division?
bool is_expensive(PointwiseOp fn);

}  // namespace ipex::graph
