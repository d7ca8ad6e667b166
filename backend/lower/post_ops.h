// The post-ops of a product or a convolution as arithmetic, for kernels that compute one.
#pragma once

#include <functional>

#include "backend/graph/ir.h"

namespace ipex::graph {

// `x` after the post-ops of `node`, whose operands begin at the one numbered `first`. `operand` gives the
// value of one, of x's type; `named` a name to what several of them read.
loop::Expr with_post_ops(const Node& node, loop::Expr x, size_t first,
                         const std::function<loop::Expr(size_t operand)>& operand,
                         const std::function<loop::Expr(const loop::Expr& value)>& named);

}  // namespace ipex::graph
