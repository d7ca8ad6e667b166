// The table of fused epilogues (post-ops), and their translation to oneDNN for a given result layout.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/library.h"
#include "kernels/onednn.h"
#include "kernels/plan.h"

namespace ipex::kernels {

// A post-op of a step. Its operand, if any, is expanded to the result's shape.
struct BoundPostOp {
  PostOp op;
  int operand = -1;            // operand of the step
  TensorView view;             // stride 0 where it broadcasts
  bool shares_result = false;  // the operand has the result's memory
};

// How operands are passed to the primitive: unchanged, or converted to forms that more implementations
// accept.
struct OperandForm {
  bool full = false;  // copy operands that broadcast to scratch memory, in the result's shape and layout
  bool copy = false;  // also copy operands in the result's memory, instead of using oneDNN's "sum"
};

// The post-ops of one primitive whose result has layout `dst` (plain strides).
class Epilogue {
 public:
  Epilogue(std::span<const BoundPostOp> post, const TensorView& dst, OperandForm form,
           const std::string& what);

  dnnl::primitive_attr attributes() const;
  // Adds copies of operands where needed, and their arguments.
  void bind(Plan& plan, Plan::Arguments& arguments) const;

 private:
  struct Operand {
    int position;  // in oneDNN's list of post-ops
    int operand;   // operand of the step
    dnnl::memory::desc given, used;
    bool copy;
  };
  dnnl::post_ops post_ops_;
  std::vector<Operand> operands_;
};

bool any_operand(std::span<const BoundPostOp> post);
std::string post_op_text(std::span<const BoundPostOp> post);  // " +relu +add"

}  // namespace ipex::kernels
