// What the verifier refuses, what views resolve to, and questions about shapes.
#include "backend/compile.h"
#include "backend/graph/ir.h"
#include "backend/passes/passes.h"
#include "backend/views.h"
#include "codegen/loop/text.h"
#include "runtime/error.h"
#include "tests/cpp/graph_fixture.h"

namespace ipex::graph {
namespace {

// ---- the verifier ----

struct Wrong {
  const char* name;
  const char* rule;  // part of the message
  const char* node;
};

class Refused : public ::testing::TestWithParam<Wrong> {};

TEST_P(Refused, ByItsRule) {
  const std::string text =
      "graph main(%x: f32[4,6], %i: i64[4,6], %b: b1[4,6], %im: f32[2,4,8,8], %w: f32[6,4,3,3], %s: f32[]) "
      "symbols(s0=3) {\n  " +
      std::string(GetParam().node) + "\n  return %y\n}\n";
  try {
    parse(text);
    FAIL() << "accepted " << GetParam().node;
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find(GetParam().rule), std::string::npos) << error.what();
  }
}

constexpr Wrong kWrong[] = {
    {"Arity", "takes 2 operands", "%y = pointwise.add(%x) : f32[4,6]"},
    {"Broadcast", "broadcasts are explicit", "%y = pointwise.add(%x, %s) : f32[4,6]"},
    {"MixedDtypes", "one compute dtype", "%y = pointwise.add(%x, %i) : f32[4,6]"},
    {"FloatShift", "accepts the compute dtype", "%y = pointwise.bitwise_left_shift(%x, %x) : f32[4,6]"},
    {"BoolNegation", "accepts the compute dtype", "%y = pointwise.neg(%b) : b1[4,6]"},
    {"ComparisonResult", "gives b1", "%y = pointwise.lt(%x, %x) : f32[4,6]"},
    {"WhereCondition", "condition is b1", "%y = pointwise.where(%i, %x, %x) : f32[4,6]"},
    {"UnknownSymbol", "'s9' is not among", "%y = expand(%s) dims=[] : f32[s9]"},
    {"ReducedShape", "without the axes", "%y = reduce.sum(%x) axes=[1] keepdim=true : f32[4]"},
    {"AxisTwice", "axes are distinct", "%y = reduce.sum(%x) axes=[1,1] keepdim=false : f32[4]"},
    {"AxisRange", "axes are in range", "%y = reduce.sum(%x) axes=[2] keepdim=false : f32[4,6]"},
    {"ScanAxis", "axis is in range", "%y = scan.cumsum(%x) axis=-1 : f32[4,6]"},
    {"ScanResults", "number of results", "%y = scan.cummax(%x) axis=0 : f32[4,6]"},
    {"PermuteTwice", "result dim i", "%y = permute(%x) dims=[0,0] : f32[4,6]"},
    {"ExpandOrder", "dims ascend", "%y = expand(%x) dims=[1,0] : f32[6,4]"},
    {"ExpandExtent", "operand dim is 1", "%y = expand(%x) dims=[0,1] : f32[4,7]"},
    {"ReshapeCount", "number of elements", "%y = reshape(%x) : f32[25]"},
    {"SliceBeyond", "stays inside", "%y = slice(%x) starts=(0,5) steps=[1,1] : f32[4,2]"},
    {"SliceBefore", "stays inside", "%y = slice(%x) starts=(1,0) steps=[-1,1] : f32[3,6]"},
    {"PadExtent", "low and high", "%y = pad(%x, %s) low=[1,0] high=[1,0] : f32[5,6]"},
    {"CatExtent", "add up", "%y = cat(%x, %x) axis=0 : f32[7,6]"},
    {"GatherMap", "entry for each dim", "%y = gather(%x, %i) map=[-1] : f32[4,6]"},
    {"MatMulInner", "gives [.., M, N]", "%y = matmul(%x, %x) : f32[4,6]"},
    {"ConvChannels", "channels of the result",
     "%y = conv(%im, %w) stride=[1,1] padding=[0,0] dilation=[1,1] groups=1 transposed=false "
     "output_padding=[0,0] : f32[2,5,6,6]"},
    {"ConvExtent", "follow from the window",
     "%y = conv(%im, %w) stride=[2,1] padding=[0,0] dilation=[1,1] groups=1 transposed=false "
     "output_padding=[0,0] : f32[2,6,4,6]"},
    {"PoolResults", "values and indices",
     "%y = pool(%im) kind=\"max\" kernel=[2,2] stride=[2,2] padding=[0,0] dilation=[1,1] ceil_mode=false "
     "count_include_pad=false divisor=0 : f32[2,4,4,4]"},
    {"ConstantData", "data fits", "%y = constant value=[1,2] : i64[3]"},
    {"ConstantShape", "is 0-d", "%y = constant value=1.0 : f32[3]"},
    {"ReorderType", "keeps the type", "%y = reorder(%x) : f32[6,4]"},
    {"GroupResult", "result types match",
     "%y = group(%x) graph g(%a: f32[4,6]) { %n = pointwise.neg(%a) : f32[4,6] return %n } : f32[6,4]"},
    {"GroupOperand", "operand types match",
     "%y = group(%i) graph g(%a: f32[4,6]) { %n = pointwise.neg(%a) : f32[4,6] return %n } : f32[4,6]"},
    {"GroupOfLibraryOps", "only fusible ops",
     "%y = group(%im, %w) graph g(%a: f32[2,4,8,8], %c: f32[6,4,3,3]) { %n = conv(%a, %c) stride=[1,1] "
     "padding=[0,0] "
     "dilation=[1,1] groups=1 transposed=false output_padding=[0,0] : f32[2,6,6,6] return %n } : "
     "f32[2,6,6,6]"},
    {"SortIndices", "i64 indices",
     "%y, %p = sort.all(%x) axis=1 descending=false ordered=true : f32[4,6], i32[4,6]"},
    {"SortAll", "all keeps the axis",
     "%y, %p = sort.all(%x) axis=1 descending=false ordered=true : f32[4,3], i64[4,3]"},
    {"SortRows", "only the axis",
     "%y, %p = sort.top(%x) axis=1 descending=true ordered=true : f32[3,2], i64[3,2]"},
    {"SortOne", "reduces the axis to one element",
     "%y, %p = sort.mode(%x) axis=1 descending=false ordered=true : f32[4,2], i64[4,2]"},
    {"SortK", "kth has k", "%y, %p = sort.kth(%x) axis=1 descending=false ordered=true : f32[4,1], i64[4,1]"},
    {"SearchTypes", "have one dtype", "%y = search(%x, %i) right=false : i64[4,6]"},
    {"SearchRows", "leading dims", "%y = search(%w, %im) right=false : i64[2,4,8,8]"},
    {"SearchResult", "i64 or i32", "%y = search(%x, %x) right=false : f32[4,6]"},
    {"AttentionRank", "q, k and v are 4-d", "%y = attention(%x, %x, %x) causal=true scale=0.5 : f32[4,6]"},
};

INSTANTIATE_TEST_SUITE_P(Rules, Refused, ::testing::ValuesIn(kWrong),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- attributes ----

class RefusedAttribute : public ::testing::TestWithParam<Wrong> {};

TEST_P(RefusedAttribute, ByOpAndKey) {
  try {
    parse("graph main(%x: f32[4,6]) {\n  " + std::string(GetParam().node) + "\n  return %y\n}\n");
    FAIL() << "accepted " << GetParam().node;
  } catch (const ParseError& error) {
    EXPECT_EQ(error.what(), std::string("2:8: ") + GetParam().rule);
  }
}

constexpr Wrong kWrongAttributes[] = {
    {"Op", "unknown op 'frob'", "%y = frob(%x) : f32[4,6]"},
    {"PointwiseRow", "pointwise: 'frob' is not a row of pointwise.def", "%y = pointwise.frob(%x) : f32[4,6]"},
    {"ReductionRow", "reduce: '' is not a row of reduction.def",
     "%y = reduce(%x) axes=[1] keepdim=false : f32[4]"},
    {"ScanRow", "scan: 'cummean' is not a row of scan.def", "%y = scan.cummean(%x) axis=0 : f32[4,6]"},
    {"SortKind", "sort: 'heap' is not a kind of sort", "%y = sort.heap(%x) axis=1 : f32[4,6], i64[4,6]"},
    {"NameOfNone", "reshape: takes no name after a dot, but has 'two'", "%y = reshape.two(%x) : f32[24]"},
    {"Missing", "reduce: attribute 'keepdim' is missing", "%y = reduce.sum(%x) axes=[1] : f32[4]"},
    {"Unknown", "cat: attribute 'dim' is unknown: the op has axis", "%y = cat(%x) axis=0 dim=0 : f32[4,6]"},
    {"UnknownOfNone", "reshape: attribute 'dim' is unknown: the op has none",
     "%y = reshape(%x) dim=0 : f32[24]"},
    {"Boolean", "reduce: attribute 'keepdim' is not true or false",
     "%y = reduce.sum(%x) axes=[1] keepdim=1 : f32[4]"},
    {"Integer", "cat: attribute 'axis' is not an integer", "%y = cat(%x) axis=0.5 : f32[4,6]"},
    {"Number", "attention: attribute 'scale' is not a number",
     "%y = attention(%x, %x, %x) causal=true scale=\"big\" : f32[4,6]"},
    {"Integers", "permute: attribute 'dims' is not a list of integers", "%y = permute(%x) dims=1 : f32[6,4]"},
    {"Sizes", "slice: attribute 'starts' is not a list of sizes",
     "%y = slice(%x) starts=0 steps=[1,1] : f32[4,6]"},
    {"Size", "iota: attribute 'step' is not a size", "%y = iota axis=0 start=0 step=0.5 : f32[4,6]"},
    {"Texts", "matmul: attribute 'post' is not a list of strings", "%y = matmul(%x, %x) post=[1] : f32[4,6]"},
    {"Choice", "scatter: attribute 'combine' is not one of set, add, mul, min, max",
     "%y = scatter(%x, %x) map=[0,1] combine=\"sub\" : f32[4,6]"},
};

INSTANTIATE_TEST_SUITE_P(Attributes, RefusedAttribute, ::testing::ValuesIn(kWrongAttributes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(GraphVerifier, AnLstmHasTypesThatFit) {
  const auto check = [](const std::string& w, const std::string& c, const std::string& results) {
    parse("graph main(%x: f32[5,2,7], %wi: f32[" + w + "], %wh: f32[12,3], %h: f32[2,3], %c: " + c +
          ") {\n%y, %hl, %cl = lstm(%x, %wi, %wh, %h, %c) bias=false reverse=true : " + results +
          "\nreturn %y, %hl, %cl }");
  };
  const std::string results = "f32[5,2,3], f32[2,3], f32[2,3]";
  EXPECT_NO_THROW(check("12,7", "f32[2,3]", results));
  EXPECT_THROW(check("9,7", "f32[2,3]", results), InternalError);
  EXPECT_THROW(check("12,7", "bf16[2,3]", results), InternalError);
  EXPECT_THROW(check("12,7", "f32[3,3]", results), InternalError);
  EXPECT_THROW(check("12,7", "f32[2,3]", "f32[2,5,3], f32[2,3], f32[2,3]"), InternalError);
}

TEST(GraphVerifier, AttentionHasTypesThatFit) {
  const auto check = [](const std::string& k, const std::string& mask, const std::string& results) {
    parse("graph main(%q: bf16[2,6,5,16], %k: bf16[" + k + "], %m: " + mask +
          ") {\n%y, %l = attention(%q, %k, %k, %m) causal=false scale=0.25 : " + results +
          "\n%dq, %dk, %dv = attention_backward(%y, %q, %k, %k, %y, %l, %m) causal=false scale=0.25 : "
          "bf16[2,6,5,16], bf16[" +
          k + "], bf16[" + k + "]\nreturn %dq, %dk, %dv }");
  };
  const std::string mask = "f32[2,6,5,7]", results = "bf16[2,6,5,16], f32[2,6,5]";
  EXPECT_NO_THROW(check("2,6,7,16", mask, results));
  EXPECT_NO_THROW(check("2,3,7,16", mask, results));
  EXPECT_THROW(check("2,4,7,16", mask, results), InternalError);
  EXPECT_THROW(check("2,6,7,8", mask, results), InternalError);
  EXPECT_THROW(check("2,6,7,16", "f32[1,6,5,7]", results), InternalError);
  EXPECT_THROW(check("2,6,7,16", "b1[2,6,5,7]", results), InternalError);
  EXPECT_THROW(check("2,6,7,16", mask, "bf16[2,6,5,16], bf16[2,6,5]"), InternalError);
}

TEST(GraphVerifier, MutationsKeepTheType) {
  EXPECT_THROW(parse("graph main(%x: f32[4], %y: f32[5]) { return mutate %x = %y }"), InternalError);
}

// ---- views ----

std::string placed(const std::string& nodes, const std::string& input = "%x: f32[4,6]") {
  const Graph graph = parse("graph main(" + input + ") symbols(s0=3) {\n" + nodes + "\nreturn %y }");
  const View view = resolve_view(graph, graph.outputs[0].value);
  std::string text = graph.node(view.root).op() == Op::kInput ? "" : "copy ";
  for (const Dim& stride : view.strides) text += loop::print(stride) + " ";
  return text + "+ " + loop::print(view.offset);
}

TEST(Views, ComposeToStrides) {
  EXPECT_EQ(placed("%y = permute(%x) dims=[1,0] : f32[6,4]"), "1 6 + 0");
  EXPECT_EQ(placed("%y = slice(%x) starts=(1,1) steps=[2,2] : f32[2,2]"), "12 2 + 7");
  EXPECT_EQ(placed("%y = reshape(%x) : f32[2,2,1,6]"), "12 6 1 1 + 0");
  EXPECT_EQ(placed("%y = expand(%x) dims=[0,2] : f32[4,5,6]"), "6 0 1 + 0");
  EXPECT_EQ(placed("%a = slice(%x) starts=(0,2) steps=[1,1] : f32[4,4]\n%y = reshape(%a) : f32[2,2,2,2]"),
            "12 6 2 1 + 2");
  EXPECT_EQ(placed("%a = permute(%x) dims=[1,0] : f32[6,4]\n%y = reshape(%a) : f32[2,3,4]"), "3 1 6 + 0");
}

TEST(Views, StopWhereDataMoves) {
  EXPECT_EQ(placed("%a = permute(%x) dims=[1,0] : f32[6,4]\n%y = reshape(%a) : f32[24]"), "copy 1 + 0");
  EXPECT_EQ(placed("%a = slice(%x) starts=(0,0) steps=[1,1] : f32[4,5]\n%y = reshape(%a) : f32[20]"),
            "copy 1 + 0");
  EXPECT_EQ(placed("%y = slice(%x) starts=(3,1) steps=[-1,2] : f32[4,2]"), "copy 2 1 + 0");
}

TEST(Views, SymbolicShapes) {
  EXPECT_EQ(placed("%y = reshape(%x) : f32[s0*8]", "%x: f32[s0,8]"), "1 + 0");
  EXPECT_EQ(placed("%y = reshape(%x) : f32[s0,2,4]", "%x: f32[s0*2,4]"), "8 4 1 + 0");
  EXPECT_EQ(placed("%y = permute(%x) dims=[1,0] : f32[8,s0]", "%x: f32[s0,8]"), "1 8 + 0");
}

TEST(Views, OfNoElements) { EXPECT_EQ(placed("%y = reshape(%x) : f32[2,0]", "%x: f32[0,5]"), "1 1 + 0"); }

// ---- shapes ----

TEST(Shapes, ContiguousStridesCountEmptyDimsAsOne) {
  auto strides = [](std::vector<int64_t> sizes) {
    Shape shape;
    for (int64_t size : sizes) shape.push_back(loop::index_const(size));
    return static_shape(contiguous_strides(shape));
  };
  EXPECT_EQ(strides({}), (std::vector<int64_t>{}));
  EXPECT_EQ(strides({2, 3, 4}), (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(strides({2, 0, 4}), (std::vector<int64_t>{4, 4, 1}));
}

TEST(Shapes, EqualUpToAlgebra) {
  auto dim = [](const char* text) { return loop::parse_expr(text); };
  EXPECT_TRUE(equal(Shape{dim("2*s0 + s0")}, Shape{dim("s0*3")}));
  EXPECT_FALSE(equal(Shape{dim("s0")}, Shape{dim("s1")}));
  EXPECT_FALSE(equal(Shape{dim("s0")}, Shape{}));
}

// PyTorch replaces a size by 1 where it adds the guard, not in formulas that it wrote before.
TEST(Shapes, ConcatenatedExtentsMayAgreeByAGuard) {
  const auto text = [](int traced) {
    return "graph main(%x: f32[4,s0]) symbols(s0=" + std::to_string(traced) +
           ") { %h = slice(%x) starts=(0,s0//2) steps=[1,3] : f32[4,1]"
           " %y = cat(%x, %h) axis=1 : f32[4,s0 + (s0 + 2 - s0//2)//3] return %y }";
  };
  EXPECT_NO_THROW(parse(text(2)));
  EXPECT_THROW(parse(text(8)), InternalError);
}

// ---- what passes promise ----

TEST(Canonicalize, ComputedOutputsAreNotTheCallersInputs) {
  for (const char* node : {"%y = pointwise.cast(%x) : f32[4]", "%y = cat(%x) axis=0 : f32[4]",
                           "%c = constant value=1.0 : f32[] %e = expand(%c) dims=[] : f32[4] "
                           "%y = pointwise.mul(%x, %e) : f32[4]"}) {
    CompileOptions options;
    options.target = loop::current_target();
    const CompiledGraph compiled =
        compile(parse("graph main(%x: f32[4]) { " + std::string(node) + " return %y }"), options);
    EXPECT_EQ(compiled.executable->parts().outputs.at(0).alias_input, -1) << node;
  }
}

TEST(Canonicalize, CastChainsThatRoundStay) {
  const Graph graph = canonicalize(parse(R"(graph main(%x: f32[4], %i: i64[4]) {
    %h = pointwise.cast(%x) : bf16[4]
    %f = pointwise.cast(%h) : f32[4]
    %n = pointwise.cast(%i) : f32[4]
    %l = pointwise.cast(%n) : i64[4]
    return %f, %l
  })"));
  EXPECT_EQ(graph.nodes.size(), 6u) << print(graph);
}

TEST(Canonicalize, IsIdempotent) {
  const Graph once = canonicalize(parse(R"(graph main(%x: f32[2,3,4]) {
    %a = permute(%x) dims=[2,0,1] : f32[4,2,3]
    %b = permute(%a) dims=[1,0,2] : f32[2,4,3]
    %c = reshape(%b) : f32[8,3]
    %d = slice(%c) starts=(1,0) steps=[1,1] : f32[6,3]
    %e = slice(%d) starts=(1,1) steps=[2,1] : f32[3,2]
    %f = pointwise.add(%e, %e) : f32[3,2]
    return %f
  })"));
  EXPECT_EQ(print(canonicalize(once)), print(once));
}

TEST(Pipeline, UnknownNamesListTheKnown) {
  const Graph graph = parse("graph main(%x: f32[4]) { return %x }");
  EXPECT_THROW(run_pass(graph, "frob", loop::current_target()), UserError);
  for (const char* former : {"name_formulas", "prove_indices", "widen_library", "choose_convolutions"})
    EXPECT_NO_THROW(run_pass(graph, former, loop::current_target()));
  EXPECT_THROW(run_pipeline(graph, loop::current_target(), "frob"), UserError);
}

TEST(Pipeline, StopsAfterAPass) {
  std::vector<PassTime> times;
  run_pipeline(parse("graph main(%x: f32[4]) { return %x }"), loop::current_target(), "fold_constants",
               &times);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[2].name, "fold_constants");
}

}  // namespace
}  // namespace ipex::graph
