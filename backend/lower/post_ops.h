// The post-ops of a product or a convolution as arithmetic, for kernels that compute one.
#pragma once

#include <functional>

#include "backend/graph/ir.h"

namespace ipex::graph {

// `x` after the post-ops of `node`. Their operands are those of the node from number `first` on. `operand`
// returns the value of one, in the type of x. `named` gives a name to a value that a post-op may read more
// than once.
loop::Expr with_post_ops(const Node& node, loop::Expr x, size_t first,
                         const std::function<loop::Expr(size_t operand)>& operand,
                         const std::function<loop::Expr(const loop::Expr& value)>& named);

}  // namespace ipex::graph
