// The statements of kernels that are written loop by loop, not derived from values: attention, and
// convolutions by Winograd's method. The buffers of such a kernel are the operands and results of one node.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/lower/lower.h"
#include "codegen/loop/rewrite.h"
#include "codegen/product_tile.h"

namespace ipex::graph {

class NestBuilder {
 protected:
  using Body = std::vector<loop::Stmt>;
  using Each = std::function<void(const loop::Expr& var, Body& body)>;

  // Buffers in0.. and out0.., as lower_group names them.
  NestBuilder(const Graph& body, const std::vector<OperandLayout>& inputs,
              const std::vector<OperandLayout>& outputs, const loop::Target& target);

  struct Tensor {  // an operand or a result
    std::string buffer;
    Dtype dtype;
    Shape shape;
    OperandLayout layout;
  };

  loop::Function function(const std::string& name, Body body) const;

  // ---- statements ----

  loop::Expr let(Body& out, std::string_view base, const loop::Expr& value);
  std::string alloc(Body& out, std::string_view base, const loop::Expr& extent);  // scratch memory of dtype_
  void store(Body& out, const std::string& buffer, const loop::Expr& index, const loop::Expr& value) const;
  loop::Expr load(const std::string& buffer, const loop::Expr& index) const;  // from scratch memory
  void clear(Body& out, const std::string& buffer, const loop::Expr& extent,
             const loop::Expr& begin = loop::index_const(0));
  void serial(Body& out, std::string_view base, const loop::Expr& begin, const loop::Expr& end,
              const Each& each);
  void vectors(Body& out, std::string_view base, const loop::Expr& end, const Each& each, int unroll = 1);
  // A parallel loop. A thread gets as many parts as are worth a thread; one part takes `cost_of_part`
  // multiply-adds.
  void parallel(Body& out, const loop::Expr& parts, const loop::Expr& cost_of_part, const Each& each);
  // s = op(s, each(..)) over [0, end), serial or in vectors. Returns the last s.
  loop::Expr reduce(Body& out, std::string_view base, const loop::Expr& end, loop::ScalarOp op,
                    const loop::Expr& init,
                    const std::function<loop::Expr(const loop::Expr& var, Body& body)>& each,
                    bool in_vectors = false);

  // ---- numbers ----

  loop::Expr number(double value) const { return loop::make_const({dtype_}, value); }
  loop::Expr lowest() const;
  static loop::Expr apply(loop::ScalarOp op, loop::Expr a, loop::Expr b);
  static loop::Expr least(const loop::Expr& a, const loop::Expr& b);

  int64_t lanes() const { return target_.lanes(dtype_); }
  loop::Expr vector_at(const loop::Expr& at, int64_t v) const;  // the indices of the v-th vector from `at` on
  int64_t panel() const { return loop::kTileVectors * lanes(); }  // columns of a micro-kernel

  const Graph& graph_;
  const Node& node_;
  loop::Target target_;
  Dtype dtype_;  // of arithmetic
  loop::Names names_;
  std::vector<Tensor> inputs_, outputs_;
};

}  // namespace ipex::graph
