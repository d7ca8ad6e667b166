// Whole groups: what fusion makes of them must equal the node-by-node reference, and the nest must have the
// intended shape.
#include <random>

#include "tests/cpp/graph_fixture.h"

namespace ipex::test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Fused and node by node, compared; the text of the fused kernel.
std::string check(const std::string& text, const std::vector<HostTensor>& inputs,
                  const std::vector<int64_t>& symbols = {}, double tolerance = 2e-6) {
  const graph::Graph g = graph::parse(text);
  const Kernel kernel = run_fused(g, inputs, symbols);
  const auto expected = graph::eval(g, inputs, symbols);
  for (size_t k = 0; k < expected.size(); ++k) {
    const std::string what = "output " + std::to_string(k) + "\n" + loop::print(kernel.function);
    switch (g.type(g.outputs[k].value).dtype) {
      case Dtype::kF32:
        expect_near(values<float>(kernel.outputs[k]), values<float>(expected[k]), tolerance, what);
        break;
      case Dtype::kBF16:
        expect_near(bf16_values(kernel.outputs[k]), bf16_values(expected[k]), 1.0 / 128, what);
        break;
      default:
        EXPECT_EQ(kernel.outputs[k], expected[k]) << what;
    }
  }
  return loop::print(kernel.function);
}

constexpr char kSoftmax[] = R"(graph main(%x: f32[5,7]) {
  %0 = reduce.amax(%x) axes=[1] keepdim=true : f32[5,1]
  %1 = expand(%0) dims=[0,1] : f32[5,7]
  %2 = pointwise.sub(%x, %1) : f32[5,7]
  %3 = pointwise.exp(%2) : f32[5,7]
  %4 = reduce.sum(%3) axes=[1] keepdim=true : f32[5,1]
  %5 = expand(%4) dims=[0,1] : f32[5,7]
  %6 = pointwise.div(%3, %5) : f32[5,7]
  return %6
})";

TEST(Groups, SoftmaxComputesEachExponentialOnce) {
  const std::string text = check(kSoftmax, {tensor(ramp(35))});
  EXPECT_EQ(count(text, "exp("), 1u) << text;  // kept in a row of scratch
  EXPECT_EQ(count(text, "alloc"), 1u) << text;
  EXPECT_EQ(count(text, "for "), 4u) << text;  // rows; max, sum, store
}

// A softmax along the outer of two loops, of values that the inner one repeats: they are kept inside it, and
// read there.
TEST(Groups, ScratchIsReadInsideItsScope) {
  check(R"(graph main(%x: f32[8], %x1: f32[1,2]) {
    %x0 = expand(%x) dims=[1] : f32[2,8]
    %2 = permute(%x0) dims=[1,0] : f32[8,2]
    %3 = reduce.mean(%2) axes=[1] keepdim=true : f32[8,1]
    %4 = expand(%3) dims=[0,1] : f32[8,2]
    %5 = pointwise.sub(%2, %4) : f32[8,2]
    %6 = pointwise.mul(%5, %5) : f32[8,2]
    %7 = reduce.sum(%6) axes=[1] keepdim=true : f32[8,1]
    %8 = reduce.mean(%5) axes=[1] keepdim=true : f32[8,1]
    %9 = pointwise.mul(%8, %8) : f32[8,1]
    %10 = constant value=2.0 : f32[]
    %11 = expand(%10) dims=[] : f32[8,1]
    %12 = pointwise.mul(%9, %11) : f32[8,1]
    %13 = constant value=3.4028234663852886e+38 : f32[]
    %14 = expand(%13) dims=[] : f32[8,1]
    %15 = pointwise.minimum(%12, %14) : f32[8,1]
    %16 = pointwise.add(%3, %8) : f32[8,1]
    %17 = pointwise.sub(%7, %15) : f32[8,1]
    %18 = constant value=0.0 : f32[]
    %19 = expand(%18) dims=[] : f32[8,1]
    %20 = pointwise.maximum(%17, %19) : f32[8,1]
    %21 = pointwise.div(%20, %11) : f32[8,1]
    %22 = constant value=1e-05 : f32[]
    %23 = expand(%22) dims=[] : f32[8,1]
    %24 = pointwise.add(%21, %23) : f32[8,1]
    %25 = pointwise.rsqrt(%24) : f32[8,1]
    %26 = expand(%16) dims=[0,1] : f32[8,2]
    %27 = pointwise.sub(%2, %26) : f32[8,2]
    %28 = expand(%25) dims=[0,1] : f32[8,2]
    %29 = pointwise.mul(%27, %28) : f32[8,2]
    %30 = constant value=1.0 : f32[]
    %31 = expand(%30) dims=[] : f32[8,2]
    %32 = pointwise.elu(%29, %31, %31, %31) : f32[8,2]
    %33 = reduce.fmax(%32) axes=[0] keepdim=true : f32[1,2]
    %34 = expand(%33) dims=[0,1] : f32[8,2]
    %35 = pointwise.sub(%32, %34) : f32[8,2]
    %36 = pointwise.exp_nonpositive(%35) : f32[8,2]
    %37 = reduce.sum(%36) axes=[0] keepdim=true : f32[1,2]
    %38 = pointwise.reciprocal(%37) : f32[1,2]
    %39 = expand(%38) dims=[0,1] : f32[8,2]
    %40 = pointwise.mul(%36, %39) : f32[8,2]
    %41 = expand(%x1) dims=[0,1] : f32[8,2]
    %42 = pointwise.clamp(%41, %40, %40) : f32[8,2]
    return %29, %42
  })",
        {tensor(ramp(8, 0.25f)), tensor(ramp(2))});
}

// The gradient of a bias beside that of its activation: columns are summed in a nest of their own, which
// reads what the first one stored, in whichever order the two are returned.
TEST(Groups, ColumnSumsReadWhatAnotherNestStored) {
  for (const char* outputs : {"%0, %1", "%1, %0"}) {
    const std::string text = check(R"(graph main(%x: f32[5,7]) {
      %0 = pointwise.exp(%x) : f32[5,7]
      %1 = reduce.sum(%0) axes=[0] keepdim=false : f32[7]
      return )" + std::string(outputs) +
                                       "\n}",
                                   {tensor(ramp(35))});
    EXPECT_EQ(count(text, "exp("), 1u) << text;
    EXPECT_EQ(count(text, "inout out"), 1u) << text;
  }
}

// Two softmaxes of rows, one after the other, that sums down the columns ask for at each row once more: what
// a loop over such a row keeps is stored above where it is read.
TEST(Groups, RowsComputedAgainAreKeptBeforeTheyAreRead) {
  const std::string text = check(R"(graph main(%a: f32[8,8], %b: f32[8,8]) {
    %e = pointwise.exp(%a) : f32[8,8]
    %s = reduce.sum(%e) axes=[1] keepdim=true : f32[8,1]
    %s1 = expand(%s) dims=[0,1] : f32[8,8]
    %p = pointwise.div(%e, %s1) : f32[8,8]
    %z = pointwise.add(%p, %b) : f32[8,8]
    %m = reduce.amax(%z) axes=[1] keepdim=true : f32[8,1]
    %m1 = expand(%m) dims=[0,1] : f32[8,8]
    %d = pointwise.sub(%z, %m1) : f32[8,8]
    %f = pointwise.exp(%d) : f32[8,8]
    %t = reduce.sum(%f) axes=[1] keepdim=true : f32[8,1]
    %t1 = expand(%t) dims=[0,1] : f32[8,8]
    %q = pointwise.div(%f, %t1) : f32[8,8]
    %x = reduce.amax(%q) axes=[0] keepdim=true : f32[1,8]
    %x1 = expand(%x) dims=[0,1] : f32[8,8]
    %y = pointwise.sub(%q, %x1) : f32[8,8]
    %g = pointwise.exp(%y) : f32[8,8]
    %c = reduce.sum(%g) axes=[0] keepdim=true : f32[1,8]
    %c1 = expand(%c) dims=[0,1] : f32[8,8]
    %r = pointwise.div(%g, %c1) : f32[8,8]
    return %q, %r
  })",
                                 {tensor(ramp(64)), tensor(ramp(64))});
  for (size_t at = text.find("alloc row"); at != std::string::npos; at = text.find("alloc row", at + 1)) {
    const std::string name = text.substr(at + 6, text.find(':', at) - at - 6);
    const size_t first = text.find(name + "[", at), line = text.rfind('\n', first) + 1;
    EXPECT_EQ(text.find_first_not_of(' ', line), first) << name << " is read first in\n" << text;
  }
}

TEST(Groups, SoftmaxOfInfinitiesAndOneColumn) {
  Floats x = ramp(35);
  x[3] = -INFINITY;
  x[8] = NAN;
  check(kSoftmax, {tensor(x)});
  check(R"(graph main(%x: f32[4,1]) {
  %0 = reduce.amax(%x) axes=[1] keepdim=true : f32[4,1]
  %1 = pointwise.sub(%x, %0) : f32[4,1]
  %2 = pointwise.exp(%1) : f32[4,1]
  return %2
})",
        {tensor(ramp(4))});
}

TEST(Groups, LayerNormSharesOneLoopForItsStatistics) {
  const std::string text = check(R"(graph main(%x: f32[6,9], %w: f32[9], %b: f32[9]) {
  %0, %1 = reduce.var_mean(%x) axes=[1] keepdim=true correction=0.0 : f32[6,1], f32[6,1]
  %2 = expand(%1) dims=[0,1] : f32[6,9]
  %3 = pointwise.sub(%x, %2) : f32[6,9]
  %4 = constant() value=1e-05 : f32[]
  %5 = expand(%4) dims=[] : f32[6,1]
  %6 = pointwise.add(%0, %5) : f32[6,1]
  %7 = pointwise.rsqrt(%6) : f32[6,1]
  %8 = expand(%7) dims=[0,1] : f32[6,9]
  %9 = pointwise.mul(%3, %8) : f32[6,9]
  %10 = expand(%w) dims=[1] : f32[6,9]
  %11 = pointwise.mul(%9, %10) : f32[6,9]
  %12 = expand(%b) dims=[1] : f32[6,9]
  %13 = pointwise.add(%11, %12) : f32[6,9]
  return %13, %1, %7
})",
                                 {tensor(ramp(54)), tensor(ramp(9)), tensor(ramp(9, 0.5f))});
  EXPECT_EQ(count(text, "for "), 3u) << text;  // rows; statistics; result
  EXPECT_EQ(count(text, "rsqrt("), 1u) << text;
}

TEST(Groups, IndependentReductionsOfARowShareALoop) {
  // The backward of a normalisation: sum(g) and sum(g * x) over the same columns.
  const std::string text = check(R"(graph main(%g: f32[4,11], %x: f32[4,11]) {
  %0 = pointwise.mul(%g, %x) : f32[4,11]
  %1 = reduce.sum(%0) axes=[1] keepdim=true : f32[4,1]
  %2 = reduce.sum(%g) axes=[1] keepdim=true : f32[4,1]
  %3 = expand(%1) dims=[0,1] : f32[4,11]
  %4 = expand(%2) dims=[0,1] : f32[4,11]
  %5 = pointwise.mul(%x, %3) : f32[4,11]
  %6 = pointwise.sub(%g, %5) : f32[4,11]
  %7 = pointwise.sub(%6, %4) : f32[4,11]
  return %7
})",
                                 {tensor(ramp(44)), tensor(ramp(44, 0.5f))});
  EXPECT_EQ(count(text, "for "), 3u) << text;
}

TEST(Groups, CrossEntropyGathersFromTheLogSoftmax) {
  check(R"(graph main(%x: f32[6,10], %t: i64[6]) {
  %0 = reduce.amax(%x) axes=[1] keepdim=true : f32[6,1]
  %1 = expand(%0) dims=[0,1] : f32[6,10]
  %2 = pointwise.sub(%x, %1) : f32[6,10]
  %3 = pointwise.exp(%2) : f32[6,10]
  %4 = reduce.sum(%3) axes=[1] keepdim=true : f32[6,1]
  %5 = pointwise.log(%4) : f32[6,1]
  %6 = expand(%5) dims=[0,1] : f32[6,10]
  %7 = pointwise.sub(%2, %6) : f32[6,10]
  %8 = reshape(%t) : i64[6,1]
  %9 = gather(%7, %8) map=[0,-1] : f32[6,1]
  %10 = reshape(%9) : f32[6]
  %11 = pointwise.neg(%10) : f32[6]
  %12 = reduce.sum(%11) axes=[0] keepdim=false : f32[]
  return %12, %7
})",
        {tensor(ramp(60)), tensor<int64_t>({0, 9, 3, -1, 5, 5})});
}

TEST(Groups, GroupNormReducesOverAReshape) {
  const std::string text = check(R"(graph main(%x: f32[2,6,3,5]) {
  %0 = reshape(%x) : f32[2,3,30]
  %1, %2 = reduce.var_mean(%0) axes=[2] keepdim=true correction=0.0 : f32[2,3,1], f32[2,3,1]
  %3 = expand(%2) dims=[0,1,2] : f32[2,3,30]
  %4 = pointwise.sub(%0, %3) : f32[2,3,30]
  %5 = expand(%1) dims=[0,1,2] : f32[2,3,30]
  %6 = pointwise.mul(%4, %5) : f32[2,3,30]
  %7 = reshape(%6) : f32[2,6,3,5]
  return %7
})",
                                 {tensor(ramp(180))});
  EXPECT_EQ(text.find("//"), std::string::npos) << text;
}

TEST(Groups, BatchNormRowsAreChannels) {
  check(R"(graph main(%x: f32[3,4,2,5]) {
  %0, %1 = reduce.var_mean(%x) axes=[0,2,3] keepdim=true correction=0.0 : f32[1,4,1,1], f32[1,4,1,1]
  %2 = expand(%1) dims=[0,1,2,3] : f32[3,4,2,5]
  %3 = pointwise.sub(%x, %2) : f32[3,4,2,5]
  %4 = pointwise.rsqrt(%0) : f32[1,4,1,1]
  %5 = expand(%4) dims=[0,1,2,3] : f32[3,4,2,5]
  %6 = pointwise.mul(%3, %5) : f32[3,4,2,5]
  %7 = reshape(%1) : f32[4]
  return %6, %7
})",
        {tensor(ramp(120))});
}

TEST(Groups, ReductionOverRowsBesideAPointwiseOutput) {
  // The gradient of a bias: one pass stores, another reduces over the rows.
  check(R"(graph main(%g: f32[7,4], %x: f32[7,4]) {
  %0 = constant() value=0.0 : f32[]
  %1 = expand(%0) dims=[] : f32[7,4]
  %2 = pointwise.threshold_backward(%g, %x, %1) : f32[7,4]
  %3 = reduce.sum(%2) axes=[0] keepdim=false : f32[4]
  return %2, %3
})",
        {tensor(ramp(28)), tensor(ramp(28, 0.5f))});
}

TEST(Groups, FullReductionsAndArgmax) {
  check(R"(graph main(%x: f32[3,5]) {
  %0 = reduce.sum(%x) axes=[0,1] keepdim=false : f32[]
  %1 = reduce.argmax(%x) axes=[0,1] keepdim=false : i64[]
  %2, %3 = reduce.min_with_index(%x) axes=[0] keepdim=false : f32[5], i64[5]
  %4 = reduce.var(%x) axes=[0,1] keepdim=false correction=1.0 : f32[]
  return %0, %1, %2, %3, %4
})",
        {tensor(ramp(15))});
}

TEST(Groups, ReductionOfNothingAndOfScalars) {
  check(R"(graph main(%x: f32[], %y: f32[0,3], %z: f32[4,0]) {
  %0 = reduce.sum(%x) axes=[] keepdim=false : f32[]
  %1 = reduce.sum(%y) axes=[0] keepdim=false : f32[3]
  %2 = pointwise.neg(%y) : f32[0,3]
  %3 = reduce.prod(%z) axes=[1] keepdim=false : f32[4]
  return %0, %1, %2, %3
})",
        {tensor<float>({3}), tensor<float>({}), tensor<float>({})});
}

TEST(Groups, DynamicRowsAndColumns) {
  const std::string softmax = R"(graph main(%x: f32[s0,s1]) symbols(s0, s1) {
  %0 = reduce.amax(%x) axes=[1] keepdim=true : f32[s0,1]
  %1 = expand(%0) dims=[0,1] : f32[s0,s1]
  %2 = pointwise.sub(%x, %1) : f32[s0,s1]
  %3 = pointwise.exp(%2) : f32[s0,s1]
  %4 = reduce.sum(%3) axes=[1] keepdim=true : f32[s0,1]
  %5 = expand(%4) dims=[0,1] : f32[s0,s1]
  %6 = pointwise.div(%3, %5) : f32[s0,s1]
  %7 = reduce.mean(%6) axes=[0,1] keepdim=false : f32[]
  return %6, %7
})";
  check(softmax, {tensor(ramp(15))}, {3, 5});
  check(softmax, {tensor(ramp(1))}, {1, 1});
  check(softmax, {tensor(ramp(140))}, {2, 70});
}

TEST(Groups, HalvesStayInFloatUntilStored) {
  const std::string text = R"(graph main(%x: bf16[8]) {
  %0 = pointwise.mul(%x, %x) : bf16[8]
  %1 = pointwise.sub(%0, %x) : bf16[8]
  %2 = pointwise.cast(%0) : bf16[8]
  %3 = pointwise.sub(%2, %x) : bf16[8]
  return %1, %3
})";
  const Floats x = {1.0078125f, 3.0f, -1.5078125f, 0.333984375f, 0, 5, -7, 2};
  const auto outputs = run_fused(graph::parse(text), {bf16(x)}).outputs;
  const Floats plain = bf16_values(outputs[0]), rounded = bf16_values(outputs[1]);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto round = [](float v) { return loop::bf16_to_f32(loop::f32_to_bf16(v)); };
    EXPECT_EQ(plain[i], round(x[i] * x[i] - x[i]));
    EXPECT_EQ(rounded[i], round(round(x[i] * x[i]) - x[i]));  // the explicit cast rounds
  }
}

TEST(Groups, LoopsFollowTheOutputsMemory) {
  const graph::Graph g = graph::parse(R"(graph main(%x: f32[2,3,4,5]) {
  %0 = pointwise.neg(%x) : f32[2,3,4,5]
  return %0
})");
  // channels_last: strides of N, C, H, W are 60, 1, 15, 3.
  graph::Strides strides;
  for (int64_t s : {60, 1, 15, 3}) strides.push_back(loop::index_const(s));
  const graph::OperandLayout layout{strides, loop::index_const(0), loop::index_const(120)};
  const Floats x = ramp(120);
  const Kernel kernel = run_fused(g, {tensor(x)}, {}, {layout}, {layout});
  const Floats r = values<float>(kernel.outputs[0]);
  for (size_t i = 0; i < 120; ++i) EXPECT_EQ(r[i], -x[i]);
  const std::string text = loop::print(kernel.function);
  EXPECT_LT(text.find("0..2"), text.find("0..4"));
  EXPECT_LT(text.find("0..4"), text.find("0..5"));
  EXPECT_LT(text.find("0..5"), text.find("0..3"));  // channels innermost
}

TEST(Groups, OffsetsAndStridesOfOperands) {
  const graph::Graph g = graph::parse(R"(graph main(%x: f32[2,3]) {
  %0 = pointwise.neg(%x) : f32[2,3]
  return %0
})");
  const Floats memory = ramp(20);
  const graph::OperandLayout in{
      {loop::index_const(10), loop::index_const(2)}, loop::index_const(3), loop::index_const(20)};
  const Kernel kernel = run_fused(g, {tensor(memory)}, {}, {in});
  const Floats r = values<float>(kernel.outputs[0]);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) EXPECT_EQ(r[i * 3 + j], -memory[3 + 10 * i + 2 * j]);
}

// Random chains of pointwise ops, views and reductions: fused against node by node.
TEST(Groups, RandomGraphsMeanTheSameFused) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const int a = 1 + pick(3), b = 2 * (1 + pick(3)), c = 1 + pick(5);
    std::string text = "graph main(%x: f32[" + std::to_string(a) + "," + std::to_string(b) + "," +
                       std::to_string(c) + "]) {\n";
    struct V {
      std::string name;
      std::vector<int> shape;
    };
    std::vector<V> all{{"%x", {a, b, c}}};
    auto type = [](const std::vector<int>& shape) {
      std::string s = "f32[";
      for (size_t i = 0; i < shape.size(); ++i) s += (i ? "," : "") + std::to_string(shape[i]);
      return s + "]";
    };
    auto add = [&](const std::string& what, std::vector<int> shape) {
      const std::string name = "%" + std::to_string(all.size());
      text += "  " + name + " = " + what + " : " + type(shape) + "\n";
      all.push_back({name, std::move(shape)});
    };
    for (int step = 0; step < 9; ++step) {
      const V v = all[static_cast<size_t>(pick(static_cast<int>(all.size())))];
      const int rank = static_cast<int>(v.shape.size());
      switch (pick(6)) {
        case 0: {
          const char* rows[] = {"tanh", "neg", "sigmoid", "abs"};
          add(std::string("pointwise.") + rows[pick(4)] + "(" + v.name + ")", v.shape);
          break;
        }
        case 1: {
          std::vector<std::string> same;
          for (const V& u : all)
            if (u.shape == v.shape) same.push_back(u.name);
          const std::string other = same[static_cast<size_t>(pick(static_cast<int>(same.size())))];
          add(std::string("pointwise.") + (pick(2) ? "add" : "maximum") + "(" + v.name + ", " + other + ")",
              v.shape);
          break;
        }
        case 2: {
          if (rank == 0) break;
          const int axis = pick(rank);
          std::vector<int> kept = v.shape;
          kept[axis] = 1;
          std::string dims;
          for (int d = 0; d < rank; ++d) dims += (d ? "," : "") + std::to_string(d);
          const char* rows[] = {"sum", "amax", "mean"};
          add(std::string("reduce.") + rows[pick(3)] + "(" + v.name + ") axes=[" + std::to_string(axis) +
                  "] keepdim=true",
              kept);
          add("expand(" + all.back().name + ") dims=[" + dims + "]", v.shape);
          break;
        }
        case 3: {
          if (rank < 2) break;
          std::vector<int> order(rank), shape;
          std::iota(order.begin(), order.end(), 0);
          std::shuffle(order.begin(), order.end(), random);
          std::string dims;
          for (int d = 0; d < rank; ++d) {
            dims += (d ? "," : "") + std::to_string(order[d]);
            shape.push_back(v.shape[order[d]]);
          }
          add("permute(" + v.name + ") dims=[" + dims + "]", shape);
          break;
        }
        case 4: {
          int n = 1;
          for (int s : v.shape) n *= s;
          std::vector<std::vector<int>> shapes = {{n}, {a, n / a}, {n / c, c}, {a, b, c}};
          const auto& shape = shapes[pick(4)];
          int m = 1;
          for (int s : shape) m *= s;
          if (m == n) add("reshape(" + v.name + ")", shape);
          break;
        }
        default: {
          if (rank == 0) break;
          const int axis = pick(rank);
          std::vector<int> shape = v.shape;
          std::string starts, steps;
          for (int d = 0; d < rank; ++d) {
            starts += (d ? "," : "") + std::to_string(d == axis ? shape[d] - 1 : 0);
            steps += (d ? "," : "") + std::to_string(d == axis ? -1 : 1);
          }
          add("slice(" + v.name + ") starts=(" + starts + ") steps=[" + steps + "]", shape);
        }
      }
    }
    text += "  return " + all.back().name;
    for (int extra = 0; extra < 2; ++extra)
      text += ", " + all[static_cast<size_t>(pick(static_cast<int>(all.size())))].name;
    text += "\n}\n";
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + text);
    check(text, {tensor(ramp(static_cast<size_t>(a * b * c), 0.125f))}, {}, 2e-5);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace ipex::test
