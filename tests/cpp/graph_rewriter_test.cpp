// GraphRewriter: what a pass may do with a node, and what it may not.
#include <gtest/gtest.h>

#include "backend/graph/rewriter.h"
#include "runtime/error.h"

namespace ipex::graph {
namespace {

constexpr const char* kText = R"(graph main(%x: f32[2,s0], %y: f32[2,s0]) symbols(s0=8) {
  %2 = pointwise.neg(%x) : f32[2,s0]
  %3, %4 = reduce.max_with_index(%2) axes=[1] keepdim=false : f32[2], i64[2]
  %5 = pointwise.exp(%y) : f32[2,s0]
  return %5{s0,1}, %3, %4
  mutate %x = %2
}
)";

template <class Visit>
std::string rewritten(const Visit& visit) {
  GraphRewriter rewriter(parse(kText));
  const Graph graph = rewriter.rebuild([&](int32_t n) { visit(rewriter, n); });
  verify(graph);
  return print(graph);
}

TEST(GraphRewriter, KeepsWhatItIsToldTo) {
  EXPECT_EQ(rewritten([](GraphRewriter& rewriter, int32_t n) { rewriter.keep(n); }), print(parse(kText)));
}

TEST(GraphRewriter, ReplacesEveryReader) {
  const std::string text = rewritten([](GraphRewriter& rewriter, int32_t n) {
    if (!rewriter.old().nodes[n].is(PointwiseOp::neg_)) return rewriter.keep(n);
    rewriter.replace(n, rewriter.with_mapped_operands(n).operands[0]);
  });
  EXPECT_NE(text.find("max_with_index(%x)"), std::string::npos) << text;
  EXPECT_NE(text.find("mutate %x = %x"), std::string::npos) << text;
}

TEST(GraphRewriter, InsertsBeforeTheNodeAtHand) {
  const std::string text = rewritten([](GraphRewriter& rewriter, int32_t n) {
    Node node = rewriter.with_mapped_operands(n);
    if (!node.is(PointwiseOp::exp_)) return rewriter.keep(n);
    const Value wide = rewriter.cast(node.operands[0], Dtype::kF64);
    EXPECT_EQ(rewriter.cast(wide, Dtype::kF64), wide);
    rewriter.replace(n,
                     rewriter.cast(rewriter.pointwise(PointwiseOp::exp_, {wide}, Dtype::kF64), Dtype::kF32));
  });
  EXPECT_NE(text.find("%4 = pointwise.cast(%y) : f64[2,s0]\n  %5 = pointwise.exp(%4) : f64[2,s0]\n"
                      "  %6 = pointwise.cast(%5) : f32[2,s0]\n  return %6{s0,1}"),
            std::string::npos)
      << text;
}

TEST(GraphRewriter, NobodyReadsWhatWasErased) {
  EXPECT_THROW(rewritten([](GraphRewriter& rewriter, int32_t n) {
                 if (!rewriter.old().nodes[n].is(PointwiseOp::neg_)) rewriter.keep(n);
               }),
               InternalError);
}

}  // namespace
}  // namespace ipex::graph
