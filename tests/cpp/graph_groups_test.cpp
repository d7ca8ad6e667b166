// form_groups: what becomes one kernel, what must not, and in which order things run.
#include <algorithm>
#include <random>

#include "backend/passes/grouping.h"
#include "backend/passes/passes.h"
#include "tests/cpp/graph_fixture.h"

namespace ipex::graph {
namespace {

Graph grouped(const std::string& text) {
  Graph graph = form_groups(canonicalize(parse(text)));
  verify(graph);
  return graph;
}

int count(const Graph& graph, Op op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [op](const Node& node) { return node.op() == op; }));
}

// Positions of the nodes with this op (and name), in order.
std::vector<int> positions(const Graph& graph, Op op, std::string_view args = {}) {
  std::vector<int> found;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (graph.nodes[i].op() == op && (args.empty() || graph.nodes[i].get<Extern>().args == args))
      found.push_back(static_cast<int>(i));
  return found;
}

struct Case {
  const char* name;
  int groups;
  const char* text;
};

class GroupCount : public ::testing::TestWithParam<Case> {};

TEST_P(GroupCount, IsAsExpected) {
  EXPECT_EQ(count(grouped(GetParam().text), Op::kGroup), GetParam().groups);
}

constexpr Case kCases[] = {
    {"LayerNorm", 1, R"(graph main(%x: f32[16,64], %w: f32[64], %b: f32[64]) {
      %v, %m = reduce.var_mean(%x) axes=[1] correction=0.0 keepdim=true : f32[16,1], f32[16,1]
      %c = constant value=1e-5 : f32[]
      %ce = expand(%c) dims=[] : f32[16,1]
      %ve = pointwise.add(%v, %ce) : f32[16,1]
      %r = pointwise.rsqrt(%ve) : f32[16,1]
      %me = expand(%m) dims=[0,1] : f32[16,64]
      %d = pointwise.sub(%x, %me) : f32[16,64]
      %re = expand(%r) dims=[0,1] : f32[16,64]
      %n = pointwise.mul(%d, %re) : f32[16,64]
      %we = expand(%w) dims=[1] : f32[16,64]
      %s = pointwise.mul(%n, %we) : f32[16,64]
      %be = expand(%b) dims=[1] : f32[16,64]
      %y = pointwise.add(%s, %be) : f32[16,64]
      return %y, %m, %r
    })"},
    // The gradient of x is one kernel; the column sums of the parameters' gradients are another.
    {"LayerNormBackward", 1, R"(graph main(%g: f32[16,64], %n: f32[16,64], %r: f32[16,1], %w: f32[64]) {
      %we = expand(%w) dims=[1] : f32[16,64]
      %gw = pointwise.mul(%g, %we) : f32[16,64]
      %a = reduce.mean(%gw) axes=[1] keepdim=true : f32[16,1]
      %gn = pointwise.mul(%gw, %n) : f32[16,64]
      %b = reduce.mean(%gn) axes=[1] keepdim=true : f32[16,1]
      %be = expand(%b) dims=[0,1] : f32[16,64]
      %nb = pointwise.mul(%n, %be) : f32[16,64]
      %ae = expand(%a) dims=[0,1] : f32[16,64]
      %d = pointwise.sub(%gw, %ae) : f32[16,64]
      %e = pointwise.sub(%d, %nb) : f32[16,64]
      %re = expand(%r) dims=[0,1] : f32[16,64]
      %dx = pointwise.mul(%e, %re) : f32[16,64]
      %p = pointwise.mul(%g, %n) : f32[16,64]
      %dw = reduce.sum(%p) axes=[0] keepdim=false : f32[64]
      %db = reduce.sum(%g) axes=[0] keepdim=false : f32[64]
      return %dx, %dw, %db
    })"},
    {"RmsNorm", 1, R"(graph main(%x: bf16[16,64], %w: bf16[64]) {
      %f = pointwise.cast(%x) : f32[16,64]
      %q = pointwise.mul(%f, %f) : f32[16,64]
      %m = reduce.mean(%q) axes=[1] keepdim=true : f32[16,1]
      %r = pointwise.rsqrt(%m) : f32[16,1]
      %re = expand(%r) dims=[0,1] : f32[16,64]
      %n = pointwise.mul(%f, %re) : f32[16,64]
      %h = pointwise.cast(%n) : bf16[16,64]
      %we = expand(%w) dims=[1] : bf16[16,64]
      %y = pointwise.mul(%we, %h) : bf16[16,64]
      return %y
    })"},
    {"LogSoftmax", 1, R"(graph main(%x: f32[16,64]) {
      %m = reduce.amax(%x) axes=[1] keepdim=true : f32[16,1]
      %me = expand(%m) dims=[0,1] : f32[16,64]
      %s = pointwise.sub(%x, %me) : f32[16,64]
      %e = pointwise.exp(%s) : f32[16,64]
      %t = reduce.sum(%e) axes=[1] keepdim=true : f32[16,1]
      %l = pointwise.log(%t) : f32[16,1]
      %le = expand(%l) dims=[0,1] : f32[16,64]
      %y = pointwise.sub(%s, %le) : f32[16,64]
      return %y
    })"},
    {"SoftmaxOverFourDims", 1, R"(graph main(%x: f32[2,3,16,64], %scale: f32[]) {
      %se = expand(%scale) dims=[] : f32[2,3,16,64]
      %z = pointwise.mul(%x, %se) : f32[2,3,16,64]
      %m = reduce.amax(%z) axes=[3] keepdim=true : f32[2,3,16,1]
      %me = expand(%m) dims=[0,1,2,3] : f32[2,3,16,64]
      %s = pointwise.sub(%z, %me) : f32[2,3,16,64]
      %e = pointwise.exp(%s) : f32[2,3,16,64]
      %t = reduce.sum(%e) axes=[3] keepdim=false : f32[2,3,16]
      %te = expand(%t) dims=[0,1,2] : f32[2,3,16,64]
      %y = pointwise.div(%e, %te) : f32[2,3,16,64]
      return %y
    })"},
    // Sums of one value over the same axes, as in batch norm's statistics.
    {"IndependentReductions", 1, R"(graph main(%x: f32[8,4,5,5], %y: f32[8,4,5,5]) {
      %p = pointwise.mul(%x, %y) : f32[8,4,5,5]
      %a = reduce.sum(%x) axes=[0,2,3] keepdim=false : f32[4]
      %b = reduce.sum(%p) axes=[0,2,3] keepdim=false : f32[4]
      return %a, %b
    })"},
    {"SumsOfRowsAndOfColumns", 1, R"(graph main(%x: f32[8,4]) {
      %a = reduce.sum(%x) axes=[0] keepdim=false : f32[4]
      %b = reduce.sum(%x) axes=[1] keepdim=false : f32[8]
      return %a, %b
    })"},
    {"ScatterTakesItsProducers", 1, R"(graph main(%g: f32[6,4], %i: i64[6,4], %w: f32[6,4]) {
      %z = constant value=0.0 : f32[]
      %ze = expand(%z) dims=[] : f32[10,4]
      %s = pointwise.mul(%g, %w) : f32[6,4]
      %y = scatter(%ze, %i, %s) map=[-1,1] combine="add" : f32[10,4]
      return %y
    })"},
    {"NothingFollowsScatterInItsKernel", 2, R"(graph main(%x: f32[10,4], %i: i64[6,4], %s: f32[6,4]) {
      %y = scatter(%x, %i, %s) map=[-1,1] combine="add" : f32[10,4]
      %z = pointwise.relu(%y) : f32[10,4]
      return %z
    })"},
    {"PoolDoesNotRecomputeItsWindow", 2, R"(graph main(%x: f32[1,2,8,8]) {
      %r = pointwise.exp(%x) : f32[1,2,8,8]
      %y, %i = pool(%r) kind="max" kernel=[2,2] stride=[2,2] padding=[0,0] dilation=[1,1] ceil_mode=false count_include_pad=false divisor=0 : f32[1,2,4,4], i64[1,2,4,4]
      return %y, %i
    })"},
    {"ScanTakesItsProducers", 1, R"(graph main(%x: f32[8,16]) {
      %e = pointwise.exp(%x) : f32[8,16]
      %y = scan.cumsum(%e) axis=1 : f32[8,16]
      return %y
    })"},
    {"EmbeddingAndWhatFollows", 1, R"(graph main(%t: f32[100,16], %i: i64[4,7], %p: f32[7,16]) {
      %ie = expand(%i) dims=[0,1] : i64[4,7,16]
      %e = gather(%t, %ie) map=[-1,2] : f32[4,7,16]
      %pe = expand(%p) dims=[1,2] : f32[4,7,16]
      %y = pointwise.add(%e, %pe) : f32[4,7,16]
      return %y
    })"},
    // A view of an input that strides express is no kernel, and neither is one of a library result.
    {"ViewsAreNoKernels", 0, R"(graph main(%x: f32[4,6], %w: f32[4,5]) {
      %t = permute(%x) dims=[1,0] : f32[6,4]
      %m = matmul(%t, %w) : f32[6,5]
      %v = reshape(%m) : f32[2,3,5]
      %s = slice(%v) starts=(1,0,0) steps=[1,1,1] : f32[1,3,5]
      return %s
    })"},
    // A reshape that no strides express has to be copied for the library.
    {"ReshapeThatMovesData", 1, R"(graph main(%x: f32[4,6], %w: f32[24,5]) {
      %t = permute(%x) dims=[1,0] : f32[6,4]
      %r = reshape(%t) : f32[1,24]
      %m = matmul(%r, %w) : f32[1,5]
      return %m
    })"},
    {"EmptyGraph", 0, "graph main(%x: f32[4]) { return %x }"},
    {"LiteralOutput", 0, "graph main() { %c = constant value=1.5 : f32[] return %c }"},
    {"ZeroElements", 1, "graph main(%x: f32[0,4]) { %y = pointwise.exp(%x) : f32[0,4] return %y }"},
};

INSTANTIATE_TEST_SUITE_P(Patterns, GroupCount, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FormGroups, CastsAreRepeatedRatherThanStored) {
  const Graph graph = grouped(R"(graph main(%x: bf16[64,64], %w: f32[64,64]) {
    %f = pointwise.cast(%x) : f32[64,64]
    %a = reduce.sum(%f) axes=[0] keepdim=false : f32[64]
    %b = pointwise.exp(%f) : f32[64,64]
    %m = matmul(%b, %w) : f32[64,64]
    %c = pointwise.add(%f, %m) : f32[64,64]
    return %a, %c
  })");
  for (const Node& node : graph.nodes) {
    EXPECT_NE(node.op(), Op::kPointwise);
    if (node.op() != Op::kGroup) continue;
    for (const GraphOutput& output : node.get<Group>().body->outputs)
      EXPECT_FALSE(node.get<Group>().body->node(output.value).is(PointwiseOp::cast_));
  }
}

TEST(FormGroups, ProductsForColumnSumsAreNotStored) {
  const Graph graph = grouped(kCases[1].text);
  ASSERT_EQ(count(graph, Op::kGroup), 1);
  int matrices = 0;
  for (const Node& node : graph.nodes)
    if (node.op() == Op::kGroup)
      for (const Type& type : node.types) matrices += type.shape.size() == 2;
  EXPECT_EQ(matrices, 1) << print(graph);
}

// Neither a chain through a library step nor one that a sibling closes may become a loop.
TEST(FormGroups, SiblingsWithAPathBetweenThemStayApart) {
  const Graph graph = grouped(R"(graph main(%x: f32[4,8], %y: f32[4,4], %w: f32[4,8], %w2: f32[4,4]) {
    %low = pointwise.exp(%y) : f32[4,4]
    %m = matmul(%low, %w) : f32[4,8]
    %bp = pointwise.mul(%x, %m) : f32[4,8]
    %b = reduce.sum(%bp) axes=[1] keepdim=false : f32[4]
    %a = reduce.sum(%x) axes=[1] keepdim=false : f32[4]
    %ar = reshape(%a) : f32[1,4]
    %next = matmul(%ar, %w2) : f32[1,4]
    %ne = expand(%next) dims=[0,1] : f32[4,4]
    %high = pointwise.add(%low, %ne) : f32[4,4]
    return %high, %b, %a
  })");
  EXPECT_EQ(count(graph, Op::kGroup), 3);
}

TEST(FormGroups, AtenCallsKeepTheirOrder) {
  const Graph graph = grouped(R"(graph main(%x: f32[4,8], %y: f32[4,8]) {
    %a = pointwise.exp(%x) : f32[4,8]
    %r1 = extern.aten::bernoulli.default(%a) args="1" : f32[4,8]
    %r2 = extern.aten::bernoulli.default(%y) args="2" : f32[4,8]
    %b = pointwise.add(%a, %r2) : f32[4,8]
    return %r1, %b
  })");
  EXPECT_LT(positions(graph, Op::kExtern, "1").at(0), positions(graph, Op::kExtern, "2").at(0));
}

// A backward pass: each weight gradient runs beside the data gradient it shares an operand with, even though
// the caller asks for the first layer's gradient first.
TEST(FormGroups, StepsKeepTheOrderOfTheModel) {
  const Graph graph = grouped(
      R"(graph main(%g: f32[4,4], %x1: f32[4,4], %x2: f32[4,4], %x3: f32[4,4], %w2: f32[4,4], %w3: f32[4,4]) {
    %dw3 = matmul(%x3, %g) : f32[4,4]
    %d3 = matmul(%g, %w3) : f32[4,4]
    %r3 = pointwise.relu(%d3) : f32[4,4]
    %dw2 = matmul(%x2, %r3) : f32[4,4]
    %d2 = matmul(%r3, %w2) : f32[4,4]
    %r2 = pointwise.relu(%d2) : f32[4,4]
    %dw1 = matmul(%x1, %r2) : f32[4,4]
    return %dw1, %dw2, %dw3
  })");
  EXPECT_LT(graph.outputs[2].value.node, graph.outputs[1].value.node);
  EXPECT_LT(graph.outputs[1].value.node, graph.outputs[0].value.node);
}

TEST(FormGroups, DeadNodesDisappear) {
  const Graph graph = form_groups(parse(R"(graph main(%x: f32[4]) {
    %dead = pointwise.exp(%x) : f32[4]
    %y = pointwise.neg(%x) : f32[4]
    return %y
  })"));
  verify(graph);
  EXPECT_EQ(count(graph, Op::kGroup), 1);
}

// Each step reads the state twice: where its own pass has it, and along another axis for the sum.
TEST(FormGroups, RecurrencesAreNotComputedAgain) {
  constexpr int kSteps = 12;
  std::string text = "graph main(%s0: f32[4,5], %t: f32[5,5], %m: b1[4,5]) {\n";
  const std::string cube = " : f32[4,5,5]\n", row = " : f32[4,5]\n";
  text += "  %transition = expand(%t) dims=[1,2]" + cube;
  for (int i = 0; i < kSteps; ++i) {
    const std::string n = std::to_string(i), next = std::to_string(i + 1);
    text += "  %across" + n + " = expand(%s" + n + ") dims=[0,1]" + cube;
    text += "  %moved" + n + " = pointwise.add(%across" + n + ", %transition)" + cube;
    text += "  %powers" + n + " = pointwise.exp(%moved" + n + ")" + cube;
    text += "  %sum" + n + " = reduce.sum(%powers" + n + ") axes=[1] keepdim=false" + row;
    text += "  %log" + n + " = pointwise.log(%sum" + n + ")" + row;
    text += "  %s" + next + " = pointwise.where(%m, %log" + n + ", %s" + n + ")" + row;
  }
  const Graph graph = grouped(text + "  return %s" + std::to_string(kSteps) + "\n}");
  EXPECT_EQ(count(graph, Op::kGroup), kSteps);
  for (const Node& node : graph.nodes) {
    if (node.op() != Op::kGroup) continue;
    EXPECT_LT(node.get<Group>().body->nodes.size(), 16);
  }
}

TEST(FormGroups, LongChainsNeedNoStack) {
  Graph graph;
  const Type type{Dtype::kF32, {loop::index_const(2), loop::index_const(2)}};
  Value v = graph.add({Input{"x", false}, {}, {type}});
  graph.inputs = {0};
  for (int i = 0; i < 20000; ++i) {
    v = i % 2 ? graph.add({MatMul{}, {v, v}, {type}})
              : graph.add({Pointwise{PointwiseOp::neg_}, {v}, {type}});
  }
  graph.outputs = {{v, {}}};
  graph = form_groups(std::move(graph));
  EXPECT_EQ(count(graph, Op::kGroup), 10000);
}

// ---- random graphs ----

// A random graph of everything that fuses, with library steps in between: shapes 6x6, 6, 6x1, 1x6.
class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {}

  std::string text() {
    for (int i = 0; i < 3; ++i) full_.push_back("x" + std::to_string(i));
    rows_ = {"r"};
    columns_ = {"c"};
    const int size = 4 + static_cast<int>(random_() % 22);
    for (int i = 0; i < size; ++i) add_node();
    std::string returned;
    for (const auto* list : {&full_, &rows_, &columns_})
      for (const std::string& value : *list)
        if (value[0] == 'v' && random_() % 3 == 0) returned += (returned.empty() ? " %" : ", %") + value;
    if (returned.empty()) returned = " %" + full_.back();
    return "graph main(%x0: f32[6,6], %x1: f32[6,6], %x2: f32[6,6], %r: f32[6,1], %c: f32[1,6], %i: "
           "i64[6,6]) {\n" +
           body_ + "  return" + returned + "\n}\n";
  }

 private:
  std::string pick(const std::vector<std::string>& values) { return "%" + values[random_() % values.size()]; }
  std::string let(const std::string& expression) {
    const std::string name = "v" + std::to_string(next_++);
    body_ += "  %" + name + " = " + expression + "\n";
    return name;
  }
  std::string expanded(const std::string& value) {
    return "%" + let("expand(" + value + ") dims=[0,1] : f32[6,6]");
  }

  void add_node() {
    static const char* const kUnary[] = {"tanh", "neg", "relu", "sigmoid", "clone"};
    static const char* const kBinary[] = {"add", "mul", "sub", "maximum"};
    static const char* const kReductions[] = {"sum", "mean", "amax", "amin"};
    const std::string unary = std::string("pointwise.") + kUnary[random_() % 5] + "(";
    const std::string binary = std::string("pointwise.") + kBinary[random_() % 4] + "(";
    const std::string reduction = std::string("reduce.") + kReductions[random_() % 4] + "(";
    const std::string full = " : f32[6,6]";
    switch (random_() % 16) {
      case 0:
      case 1:
        return full_.push_back(let(unary + pick(full_) + ")" + full));
      case 2:
      case 3:
        return full_.push_back(let(binary + pick(full_) + ", " + pick(full_) + ")" + full));
      case 4:
        return rows_.push_back(let(reduction + pick(full_) + ") axes=[1] keepdim=true : f32[6,1]"));
      case 5:
        return columns_.push_back(let(reduction + pick(full_) + ") axes=[0] keepdim=true : f32[1,6]"));
      case 6:
      case 7:
        return full_.push_back(let(binary + pick(full_) + ", " + expanded(pick(rows_)) + ")" + full));
      case 8:
        return full_.push_back(let(binary + pick(full_) + ", " + expanded(pick(columns_)) + ")" + full));
      case 9:
        return full_.push_back(let("permute(" + pick(full_) + ") dims=[1,0]" + full));
      case 10:
        return rows_.push_back(let(unary + pick(rows_) + ") : f32[6,1]"));
      case 11: {
        const std::string product = let("matmul(" + pick(full_) + ", " + pick(full_) + ")" + full);
        return full_.push_back(let("pointwise.tanh(%" + product + ")" + full));
      }
      case 12:
        return full_.push_back(let("gather(" + pick(full_) + ", %i) map=[-1,1]" + full));
      case 13:
        return full_.push_back(
            let("scatter(" + pick(full_) + ", %i, " + pick(full_) + ") map=[-1,1] combine=\"set\"" + full));
      case 14: {
        const std::string head = let("slice(" + pick(full_) + ") starts=(1,0) steps=[1,1] : f32[5,6]");
        const std::string tail = let("slice(" + pick(full_) + ") starts=(0,0) steps=[1,1] : f32[1,6]");
        return full_.push_back(let("cat(%" + head + ", %" + tail + ") axis=0" + full));
      }
      default:
        return full_.push_back(let("scan.cumsum(" + pick(full_) + ") axis=1" + full));
    }
  }

  std::mt19937 random_;
  std::string body_;
  std::vector<std::string> full_, rows_, columns_;
  int next_ = 0;
};

void expect_grouped(const Graph& graph) {
  for (const Node& node : graph.nodes)
    EXPECT_TRUE(!is_fusible(node.op()) || is_free(graph, node) || node.op() == Op::kGroup);
}

TEST(FormGroups, RandomGraphsKeepTheirMeaning) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    const std::string text = RandomGraph(seed).text();
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text);
    const Graph before = parse(text);
    const Graph after = run_pipeline(before, loop::current_target());
    verify(after);
    expect_grouped(after);
    std::vector<HostTensor> inputs;
    for (size_t n : {36, 36, 36, 6, 6}) {
      std::vector<float> values = test::ramp(n, 0.1f);
      std::rotate(values.begin(), values.begin() + static_cast<long>((seed + inputs.size()) % n),
                  values.end());
      inputs.push_back(test::tensor(values));
    }
    std::vector<int64_t> indices(36);
    for (size_t i = 0; i < 36; ++i) indices[i] = static_cast<int64_t>((i / 6 + i * 5 + seed) % 6);
    inputs.push_back(test::tensor(indices));
    const auto expected = eval(before, inputs), actual = eval(after, inputs);
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); ++i)
      test::expect_near(test::values<float>(actual[i]), test::values<float>(expected[i]), 2e-4);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace ipex::graph
