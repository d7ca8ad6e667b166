// The text form both ways: what prints is what parses, and errors point at the place.
#include <cmath>
#include <limits>

#include "backend/graph/constants.h"
#include "backend/graph/ir.h"
#include "runtime/error.h"
#include "tests/cpp/graph_fixture.h"

namespace ipex::graph {
namespace {

void expect_round_trip(const std::string& text) { EXPECT_EQ(print(parse(text)), text); }

TEST(GraphText, EveryOpRoundTrips) {
  expect_round_trip(
      R"(graph main(%x: f32[4,6], %w: f32[6,5]{1,6} static, %i: i64[3,6], %im: f32[2,3,8,8]) symbols(s0=9) {
  %4 = constant value=0.5 : f32[]
  %5 = expand(%4) dims=[] : f32[4,6]
  %6 = pointwise.mul(%x, %5) : f32[4,6]{1,4}  # model.py:3 mul
  %7, %7.1 = reduce.max_with_index(%6) axes=[1] keepdim=false : f32[4], i64[4]
  %8 = scan.cumsum(%6) axis=0 : f32[4,6]
  %9 = permute(%x) dims=[1,0] : f32[6,4]
  %10 = reshape(%9) : f32[24]
  %11 = slice(%x) starts=(3,0) steps=[-1,2] : f32[4,3]
  %12 = pad(%x, %4) high=[-1,0] low=[1,2] : f32[4,8]
  %13 = cat(%x, %6) axis=0 : f32[8,6]
  %14 = iota axis=1 start=2 step=-3 : i64[4,6]
  %15 = full value=dim(s0*2) : i64[]
  %16 = gather(%x, %i) map=[-1,1] : f32[3,6]
  %17 = scatter(%x, %i, %16) combine="add" map=[-1,1] : f32[4,6]
  %18 = matmul(%x, %w, %7) bias=true post=["relu","hardtanh:0:6"] : f32[4,5]
  %19, %19.1 = pool(%im) ceil_mode=false count_include_pad=true dilation=[1,1] divisor=0 kernel=[2,2] kind="max" padding=[0,0] stride=[2,2] : f32[2,3,4,4], i64[2,3,4,4]
  %20 = reorder(%im) : f32[2,3,8,8]{192,1,24,3}
  %21, %21.1 = extern.aten::topk.default(%6) args="[{\"t\": 0}, 2]" why="no row" : f32[4,2], i64[4,2]
  return %6, %7.1, %8{6,1}, %10, %11, %12, %13, %14, %15, %17, %18, %19.1, %20, %21
  mutate %x = %6
}
)");
}

TEST(GraphText, SymbolsAndDims) {
  expect_round_trip(
      R"(graph main(%x: f32[s0,8]{8,1}, %y: f32[s0*2,s1]) symbols(s0=128, s1=3 >= 0, n=-2 >= -7) {
  %2 = slice(%y) starts=(s0,0) steps=[1,1] : f32[s0,s1]
  %3 = reshape(%x) : f32[s0*8]
  return %2, %3
}
)");
}

TEST(GraphText, NestedGraphs) {
  expect_round_trip(R"(graph main(%x: f32[4]) {
  %1 = group(%x) graph group(%x0: f32[4]) {
      %1 = pointwise.exp(%x0) : f32[4]
      return %1
    } : f32[4]
  return %1
}
)");
}

TEST(GraphText, NothingAtAll) { expect_round_trip("graph main() {\n  return\n}\n"); }

TEST(GraphText, NamesOfOnesOwn) {
  const Graph graph = parse("graph main(%x: f32[2]) { %first = pointwise.neg(%x) : f32[2] return %first }");
  EXPECT_EQ(print(graph), "graph main(%x: f32[2]) {\n  %1 = pointwise.neg(%x) : f32[2]\n  return %1\n}\n");
}

// ---- constants ----

std::string constant_text(const std::string& payload, const std::string& type) {
  return "graph main() {\n  %0 = constant " + payload + " : " + type + "\n  return %0\n}\n";
}

TEST(GraphConstants, ListsInEveryDtype) {
  for (const char* text :
       {"value=[0,1,1]|b1[3]", "value=[0,255]|u8[2]", "value=[-128,127]|i8[2]", "value=[-32768]|i16[1]",
        "value=[2147483647]|i32[1]", "value=[-9223372036854775808,9223372036854775807]|i64[2]",
        "value=[0.5,-0.0]|f16[2]", "value=[1.0,-inf]|bf16[2]", "value=[0.1,inf,1e-45]|f32[3]",
        "value=[0.1,5e-324]|f64[2]", "value=[]|f32[0]", "value=[3]|i64[]", "value=-7|i64[]",
        "value=nan|f32[]"}) {
    const std::string_view both = text;
    const size_t bar = both.find('|');
    expect_round_trip(constant_text(std::string(both.substr(0, bar)), std::string(both.substr(bar + 1))));
  }
}

TEST(GraphConstants, LongPayloadsAndNansAreBase64) {
  for (size_t count : {33, 34, 35, 1000}) {
    Graph graph;
    auto data = std::make_shared<ConstantData>();
    for (size_t i = 0; i < count; ++i) data->bytes.push_back(static_cast<std::byte>(i * 37));
    const Type type{Dtype::kU8, {loop::index_const(static_cast<int64_t>(count))}};
    graph.outputs = {{graph.add({Constant{std::nullopt, data}, {}, {type}}), {}}};
    const std::string text = print(graph);
    EXPECT_NE(text.find("data=\""), std::string::npos);
    const Graph back = parse(text);
    EXPECT_EQ(back.nodes[0].get<Constant>().data->bytes, data->bytes);
  }
  const Graph graph = parse(constant_text("data=\"AQDAfw==\"", "f32[1]"));  // a NaN with a payload of its own
  EXPECT_EQ(print(graph), constant_text("data=\"AQDAfw==\"", "f32[1]"));
}

TEST(GraphConstants, WhatTheDtypeCannotHoldIsAnError) {
  EXPECT_THROW(parse(constant_text("value=[256]", "u8[1]")), ParseError);
  EXPECT_THROW(parse(constant_text("value=[2]", "b1[1]")), ParseError);
  EXPECT_THROW(parse(constant_text("value=[0.5]", "i64[1]")), ParseError);
  EXPECT_THROW(parse(constant_text("value=[-2147483649]", "i32[1]")), ParseError);
  EXPECT_THROW(parse(constant_text("value=[1,2]", "f32[3]")), InternalError);
  EXPECT_THROW(parse(constant_text("data=\"AQ=\"", "u8[1]")), ParseError);
  EXPECT_THROW(parse(constant_text("data=\"A*==\"", "u8[1]")), ParseError);
}

TEST(GraphConstants, LiteralsShowThroughViews) {
  const Graph graph = parse(R"(graph main(%x: f32[2]) {
    %c = constant value=2.5 : f32[]
    %e = expand(%c) dims=[] : f32[4,2]
    %r = reshape(%e) : f32[8]
    %one = constant value=[1] : i64[1]
    %t = constant value=[1,1] : i64[2]
    return %r, %one, %t, %x
  })");
  EXPECT_EQ(std::get<double>(*literal_value(graph, graph.outputs[0].value)), 2.5);
  EXPECT_TRUE(is_literal(graph, graph.outputs[1].value, 1));
  EXPECT_FALSE(literal_value(graph, graph.outputs[2].value));
  EXPECT_FALSE(literal_value(graph, graph.outputs[3].value));
}

// ---- errors ----

std::string parse_error(const std::string& text) {
  try {
    parse(text);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(GraphText, ErrorsSayWhere) {
  EXPECT_EQ(parse_error(""), "1:1: expected 'graph'");
  EXPECT_EQ(parse_error("graph main(%x: q7[4]) { return %x }"), "1:18: unknown dtype 'q7'");
  EXPECT_EQ(parse_error("graph main(%x: f32[4]) { return %x } tail"), "1:38: text after the graph");
  EXPECT_EQ(parse_error("graph main(%x: f32[4], %x: f32[4]) { return %x }"), "1:34: %x is defined twice");
  EXPECT_EQ(parse_error("graph main(%x: f32[4"), "1:21: unterminated list of dims");
  EXPECT_NE(parse_error("graph main(%x: f32[4+]) { return %x }").find("1:20: bad dim"), std::string::npos);
  EXPECT_EQ(parse_error(
                "graph main(%x: f32[4]) {\n  %y = pointwise.neg(%x) : f32[4]\n  return\n  mutate %y = %x\n}"),
            "4:17: only an input can be mutated");
}

// Text cut short anywhere is an error, never a crash or an endless loop.
TEST(GraphText, EveryPrefixIsAnError) {
  const std::string text = R"(graph main(%x: f32[4,s0]{s0,1} static, %w: f32[s0,2]) symbols(s0=3) {
  %1 = constant value=[1.0,2.0] : f32[2]
  %2 = group(%x) graph g(%a: f32[4,s0]) symbols(s0=3) { %b = pointwise.neg(%a) : f32[4,s0] return %b } : f32[4,s0]
  %3 = extern.aten::f.x(%2) args="a\"b" returns=[1] strides=(s0,1) : f32[4]
  %4 = matmul(%x, %w) post=["relu"] : f32[4,2]
  return %2{s0,1}, %3, %4
})";
  ASSERT_EQ(parse_error(text), "");
  for (size_t n = 0; n < text.size(); ++n) EXPECT_NE(parse_error(text.substr(0, n)), "") << n;
}

}  // namespace
}  // namespace ipex::graph
