// Which indices count as proved, and which must be looked at.
#include <gtest/gtest.h>

#include "backend/graph/ir.h"
#include "backend/passes/passes.h"

namespace ipex::graph {
namespace {

struct Index {
  const char* name;
  bool proved;        // of a dim of 64 elements
  const char* nodes;  // the last one is %y : i64[8]
};

class EliminateBoundsChecks : public ::testing::TestWithParam<Index> {};

constexpr const char* kLiterals = R"(
  %c0 = constant value=0 : i64[]
  %zero = expand(%c0) dims=[] : i64[8]
  %c63 = constant value=63 : i64[]
  %last = expand(%c63) dims=[] : i64[8]
  %c64 = constant value=64 : i64[]
  %size = expand(%c64) dims=[] : i64[8]
  %d0 = constant value=0.0 : f32[]
  %fzero = expand(%d0) dims=[] : f32[8]
  %d63 = constant value=63.0 : f32[]
  %flast = expand(%d63) dims=[] : f32[8]
  %d64 = constant value=64.0 : f32[]
  %fsize = expand(%d64) dims=[] : f32[8]
  %ge = pointwise.ge(%f, %fzero) : b1[8]
  %le = pointwise.le(%f, %flast) : b1[8]
  %lt = pointwise.lt(%f, %fsize) : b1[8]
  %ge_other = pointwise.ge(%g, %fzero) : b1[8]
)";

TEST_P(EliminateBoundsChecks, OnlyInsideTheDim) {
  const std::string text =
      "graph main(%x: f32[64], %i: i64[8], %n: i32[8], %f: f32[8], %g: f32[8], %h: bf16[8]) {" +
      std::string(kLiterals) + GetParam().nodes +
      "\n  %r = gather(%x, %y) map=[-1] : f32[8]\n  return %r\n}\n";
  const Graph graph = eliminate_bounds_checks(parse(text));
  verify(graph);
  EXPECT_EQ(!graph.node(graph.outputs[0].value).get<Gather>().proved->empty(), GetParam().proved);
}

constexpr Index kIndices[] = {
    {"Anything", false, "%y = pointwise.add(%i, %zero) : i64[8]"},
    {"Clamped", true, "%y = pointwise.clamp(%i, %zero, %last) : i64[8]"},
    {"ClampedToTheSize", false, "%y = pointwise.clamp(%i, %zero, %size) : i64[8]"},
    {"ClampedFromAbove", false, "%y = pointwise.clamp_max(%i, %last) : i64[8]"},
    {"ClampedTwice", true,
     "%a = pointwise.minimum(%i, %last) : i64[8]\n%y = pointwise.maximum(%a, %zero) : i64[8]"},
    {"BelowZero", false,
     "%a = pointwise.clamp(%i, %zero, %last) : i64[8]\n%y = pointwise.sub(%a, %last) : i64[8]"},
    {"Negated", false, "%a = pointwise.clamp(%i, %zero, %last) : i64[8]\n%y = pointwise.neg(%a) : i64[8]"},
    {"AbsoluteValue", true,
     "%a = pointwise.neg(%last) : i64[8]\n%b = pointwise.clamp(%i, %a, %last) : i64[8]\n"
     "%y = pointwise.abs(%b) : i64[8]"},
    {"AbsoluteValueThatOverflows", false,
     "%a = pointwise.abs(%i) : i64[8]\n%y = pointwise.clamp_max(%a, %last) : i64[8]"},
    {"NarrowAbsoluteValueThatOverflows", false,
     "%a = pointwise.abs(%n) : i32[8]\n%b = pointwise.cast(%a) : i64[8]\n"
     "%y = pointwise.clamp_max(%b, %last) : i64[8]"},
    {"SumThatOverflows", false,
     "%a = pointwise.add(%n, %n) : i32[8]\n%b = pointwise.cast(%a) : i64[8]\n%c = pointwise.clamp_min(%b, "
     "%zero) : "
     "i64[8]\n%y = pointwise.add(%c, %zero) : i64[8]"},
    {"NotANumber", false,
     "%a = pointwise.clamp(%f, %fzero, %flast) : f32[8]\n%y = pointwise.cast(%a) : i64[8]"},
    {"NotANumberThenClamped", true,
     "%a = pointwise.cast(%f) : i64[8]\n%y = pointwise.clamp(%a, %zero, %last) : i64[8]"},
    {"Guarded", true,
     "%c = pointwise.bitwise_and(%ge, %le) : b1[8]\n%a = pointwise.where(%c, %f, %fzero) : f32[8]\n"
     "%y = pointwise.cast(%a) : i64[8]"},
    {"GuardedByLess", false,  // 64 as a bound of f32 numbers is not taken for 63.99
     "%c = pointwise.bitwise_and(%ge, %lt) : b1[8]\n%a = pointwise.where(%c, %f, %fzero) : f32[8]\n"
     "%y = pointwise.cast(%a) : i64[8]"},
    {"GuardedOnOneSide", false,
     "%a = pointwise.where(%le, %f, %fzero) : f32[8]\n%y = pointwise.cast(%a) : i64[8]"},
    {"GuardOfAnother", false,
     "%c = pointwise.bitwise_and(%ge_other, %le) : b1[8]\n%a = pointwise.where(%c, %f, %fzero) : f32[8]\n"
     "%y = pointwise.cast(%a) : i64[8]"},
    {"GuardedOrAnything", false,
     "%c = pointwise.bitwise_and(%ge, %le) : b1[8]\n%a = pointwise.where(%c, %f, %g) : f32[8]\n"
     "%y = pointwise.cast(%a) : i64[8]"},
    {"HalfPrecision", false, "%a = pointwise.cast(%last) : bf16[8]\n%y = pointwise.cast(%a) : i64[8]"},
    {"Divided", true,
     "%a = pointwise.cast(%last) : f32[8]\n%b = pointwise.add(%flast, %fsize) : f32[8]\n"
     "%c = pointwise.div(%a, %b) : f32[8]\n%y = pointwise.cast(%c) : i64[8]"},
    {"DividedByZero", false, "%a = pointwise.div(%flast, %fzero) : f32[8]\n%y = pointwise.cast(%a) : i64[8]"},
    {"TableOfIndices", true,
     "%y = constant "
     "data=\"AAAAAAAAAAA/AAAAAAAAAAEAAAAAAAAAAgAAAAAAAAADAAAAAAAAAAQAAAAAAAAABQAAAAAAAAAGAAAAAAAAAA==\" : "
     "i64[8]"},
};

INSTANTIATE_TEST_SUITE_P(Cases, EliminateBoundsChecks, ::testing::ValuesIn(kIndices),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(EliminateBoundsChecks, EachOperandForItself) {
  const Graph graph = eliminate_bounds_checks(parse(R"(
graph main(%x: f32[3,s0,5], %i: i64[4]) symbols(s0=6) {
  %0 = constant value=2 : i64[]
  %1 = expand(%0) dims=[] : i64[4]
  %2 = gather(%x, %1, %1, %i) map=[-1,-2,-3] : f32[4]
  return %2
}
)"));
  EXPECT_EQ(*graph.node(graph.outputs[0].value).get<Gather>().proved, Ints{1})
      << "the size of the second dim is not known, nor the third index";
}

}  // namespace
}  // namespace ipex::graph
