// See post_ops.h.
#include "backend/lower/post_ops.h"

#include <algorithm>

#include "backend/ops/tables.h"
#include "kernels/library.h"

namespace ipex::graph {

using loop::Expr;

Expr with_post_ops(const Node& node, Expr x, size_t first, const std::function<Expr(size_t)>& operand,
                   const std::function<Expr(const Expr&)>& named) {
  for (const std::string& text : post_ops(node)) {
    const kernels::PostOp post = kernels::parse_post_op(text);
    const auto rows = kernels::post_op_rows();
    const auto& row =
        *std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == post.name; });
    std::vector<Expr> args{named(x)};
    if (row.takes_operand) args.push_back(operand(first++));
    const loop::Type type = x->type;
    if (row.parameters > 0) args.push_back(loop::make_const(type, post.alpha));
    if (row.parameters > 1) args.push_back(loop::make_const(type, post.beta));
    if (row.pointwise.empty()) {
      x = args[0] + args[1];
      continue;
    }
    const auto pointwise = find<PointwiseOp>(row.pointwise);
    IPEX_CHECK(pointwise, "post-op " + post.name + " names no row of pointwise.def");
    const ops::PointwiseRow& meaning = ops::row(*pointwise);
    while (static_cast<int>(args.size()) < meaning.arity)
      args.push_back(loop::make_const(type, 1));  // elu's scales
    x = meaning.body(args);
  }
  return x;
}

}  // namespace ipex::graph
