// The one table of fused epilogues, and their translation to oneDNN for a given result layout.
#pragma once

#include <dnnl.hpp>
#include <span>
#include <string>
#include <vector>

#include "kernels/library.h"
#include "kernels/plan.h"

namespace ipex::kernels {

// A post-op of one step, its operand (if any) expanded to the result's shape.
struct BoundPostOp {
  PostOp op;
  int operand = -1;            // of the step
  TensorView view;             // strides 0 where it broadcasts
  bool shares_result = false;  // its memory is the result's
};

// How operands meet the primitive: as they are where possible, or brought to a form that more implementations
// take.
struct OperandForm {
  bool full = false;  // those that broadcast are copied to scratch memory in the result's shape and layout
  bool copy = false;  // those in the result's own memory are copied too, instead of oneDNN's "sum"
};

// The post-ops of one primitive whose result has layout `dst` (plain strides).
class Epilogue {
 public:
  Epilogue(std::span<const BoundPostOp> post, const TensorView& dst, OperandForm form,
           const std::string& what);

  dnnl::primitive_attr attributes() const;
  // Adds the copies that operands need, and the arguments for them.
  void bind(Plan& plan, Plan::Arguments& arguments) const;

 private:
  struct Operand {
    int position;  // in oneDNN's list
    int operand;
    dnnl::memory::desc given, used;
    bool copy;
  };
  dnnl::post_ops post_ops_;
  std::vector<Operand> operands_;
};

bool any_operand(std::span<const BoundPostOp> post);
std::string post_op_text(std::span<const BoundPostOp> post);  // " +relu +add"

}  // namespace ipex::kernels
