// Random nests of the shapes that lowering emits, before and after the scheduling passes: the interpreter
// must not see the difference, and compiled code must agree with the interpreter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "codegen/analyses/loop_tree.h"
#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "passes_evaluation.h"

namespace ipex::loop {
namespace {

constexpr int64_t kSizes[] = {1, 2, 3, 7, 16, 17, 33, 64, 100, 128};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  std::string nest() {
    switch (pick(8)) {
      case 0:
        return softmax();
      case 1:
        return normalization();
      case 2:
        return column_reduction();
      case 3:
        return full_reduction();
      case 4:
        return arg_max();
      case 5:
        return gather_or_scatter();
      default:
        return pointwise();
    }
  }

 private:
  int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  int64_t size() { return kSizes[pick(10)]; }
  int64_t size_or_empty() { return pick(12) == 0 ? 0 : size(); }
  static std::string str(int64_t n) { return std::to_string(n); }

  // Row-major strides of `sizes` laid out in a random order of dims; 0 for broadcast dims.
  std::string index(const std::vector<int64_t>& sizes, bool may_broadcast, int64_t& extent) {
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    if (pick(2) == 0) std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::string> terms;
    extent = 1;
    for (size_t k = order.size(); k-- > 0;) {
      if (may_broadcast && pick(4) == 0) continue;
      terms.push_back("i" + str(static_cast<int64_t>(order[k])) + "*" + str(extent));
      extent *= sizes[order[k]];
    }
    std::string out = "0";
    for (const std::string& t : terms) out += " + " + t;
    return out;
  }

  std::string open_loops(const std::vector<int64_t>& sizes) {
    std::string text;
    for (size_t i = 0; i < sizes.size(); ++i)
      text += "for i" + str(static_cast<int64_t>(i)) + " in 0.." + str(sizes[i]) + " {\n";
    return text;
  }

  std::string pointwise() {
    std::vector<int64_t> sizes;
    int64_t total = 1;
    for (int dims = 1 + pick(4); dims > 0; --dims) {
      int64_t n = size_or_empty();
      if (total * n > 20000) n = 3;
      sizes.push_back(n);
      total *= std::max<int64_t>(n, 1);
    }
    int64_t ea, eb, ec, ey, ez;
    const std::string a = index(sizes, true, ea), b = index(sizes, true, eb), c = index(sizes, true, ec);
    const std::string y = index(sizes, false, ey), z = index(sizes, false, ez);
    const char* half = pick(2) == 0 ? "bf16" : "f16";
    std::string text = "func f(in a: f32[" + str(ea) + "], in b: " + half + "[" + str(eb) + "], in c: b1[" +
                       str(ec) + "], in n: i64[" + str(ec) + "], out y: f32[" + str(ey) +
                       "], out z: " + half + "[" + str(ez) + "], out w: i64[" + str(ey) + "]) {\n" +
                       open_loops(sizes);
    text += "let p: f32 = a[" + a + "]\nlet q: f32 = cast.f32(b[" + b + "])\nlet m: b1 = c[" + c + "]\n";
    text += "y[" + y + "] = select(m, p*q, max(p, q) + 0.5f)\n";
    text += "z[" + z + std::string("] = cast.") + half + "(a[" + a + " if m] - q)\n";
    text += "w[" + y + "] = n[" + c + "] + (i0 + 3) % 5\n";
    return text + std::string(sizes.size(), '}') + "}\n";
  }

  // A dtype to read and write, and how an element of it becomes f32 and comes of it.
  struct Storage {
    std::string dtype, from, to;
  };
  Storage storage() {
    return pick(2) == 0 ? Storage{"f32", "(", "("} : Storage{"bf16", "cast.f32(", "cast.bf16("};
  }

  std::string softmax() {
    const int64_t rows = size_or_empty(), columns = size();
    const bool strided = pick(3) == 0, scratch = pick(2) == 0;
    const auto [dtype, from, to] = storage();
    const auto at = [&](const std::string& c) {
      return strided ? c + "*" + str(rows) + " + r" : "r*" + str(columns) + " + " + c;
    };
    const auto x = [&, from = from](const std::string& c) { return from + "x[" + at(c) + "])"; };
    const std::string n = str(columns), all = str(rows * columns);
    std::string text = "func f(in x: " + dtype + "[" + all + "], out y: " + dtype + "[" + all +
                       "], out lse: f32[" + str(rows) + "]) {\nfor r in 0.." + str(rows) + " {\n";
    if (scratch) text += "alloc t: f32[" + n + "]\n";
    text += "for c in 0.." + n + " reduce(m: f32 = -inff) {\n} yield(max(m, " + x("c") +
            ")) merge(max(m, m.other))\n";
    text += "for c1 in 0.." + n + " reduce(s: f32 = 0.0f) {\nlet e: f32 = exp(" + x("c1") + " - m)\n" +
            (scratch ? "t[c1] = e\n" : "") + "} yield(s + e) merge(s + s.other)\n";
    text += "for c2 in 0.." + n + " {\ny[" + at("c2") + "] = " + to + "div(" +
            (scratch ? "t[c2]" : "exp(" + x("c2") + " - m)") + ", s))\n}\nlse[r] = m + log(s)\n}\n}\n";
    return text;
  }

  std::string normalization() {
    const int64_t rows = size(), outer = 1 + pick(4), inner = size();
    const std::string all = str(rows * outer * inner),
                      at = "r*" + str(outer * inner) + " + a*" + str(inner) + " + b";
    const std::string count = str(outer * inner) + ".0f";
    return "func f(in x: bf16[" + all + "], in g: f32[" + str(outer * inner) + "], out y: bf16[" + all +
           "], out mean: f32[" + str(rows) + "]) {\nfor r in 0.." + str(rows) + " {\nfor a in 0.." +
           str(outer) + " reduce(s: f32 = 0.0f) {\nfor b in 0.." + str(inner) +
           " reduce(s1: f32 = s identity(0.0f)) {\n} yield(s1 + cast.f32(x[" + at +
           "])) merge(s1 + s1.other)\n} yield(s1) merge(s + s.other)\nlet mu: f32 = div(s, " + count + ")" +
           "\nfor a1 in 0.." + str(outer) + " reduce(v: f32 = 0.0f) {\nfor b1_ in 0.." + str(inner) +
           " reduce(v1: f32 = v identity(0.0f)) {\nlet d: f32 = cast.f32(x[r*" + str(outer * inner) +
           " + a1*" + str(inner) +
           " + b1_]) - mu\n} yield(v1 + d*d) merge(v1 + v1.other)\n} yield(v1) merge(v + v.other)\nlet "
           "scale: f32 = rsqrt(div(v, " +
           count + ") + 0.01f)\nfor a2 in 0.." + str(outer) + " {\nfor b2 in 0.." + str(inner) + " {\ny[r*" +
           str(outer * inner) + " + a2*" + str(inner) + " + b2] = cast.bf16((cast.f32(x[r*" +
           str(outer * inner) + " + a2*" + str(inner) + " + b2]) - mu)*scale*g[a2*" + str(inner) +
           " + b2])\n}\n}\nmean[r] = mu\n}\n}\n";
  }

  std::string column_reduction() {
    const int64_t columns = size_or_empty(), a = size() % 20, b = size() % 20;
    const std::string all = str(columns * a * b);
    const auto [dtype, from, to] = storage();
    return "func f(in x: " + dtype + "[" + all + "], out y: f32[" + str(columns) + "], out k: b1[" +
           str(columns) + "]) {\nfor c in 0.." + str(columns) + " {\nfor a in 0.." + str(a) +
           " reduce(s: f32 = 0.0f, any: b1 = 0b1) {\nfor b in 0.." + str(b) +
           " reduce(s1: f32 = s identity(0.0f), any1: b1 = any identity(0b1)) {\nlet v: f32 = " + from +
           "x[a*" + str(b * columns) + " + b*" + str(columns) +
           " + c])\n} yield(s1 + v, bitor(any1, v > 2.0f)) merge(s1 + s1.other, bitor(any1, any1.other))\n" +
           "} yield(s1, any1) merge(s + s.other, bitor(any, any.other))\ny[c] = s\nk[c] = any\n}\n}\n";
  }

  std::string full_reduction() {
    const int64_t n = size_or_empty() * (1 + pick(5));
    const char* op = pick(2) == 0 ? "min(s, x[i])" : "max(s, x[i])";
    const char* merge = op[1] == 'i' ? "min(s, s.other)" : "max(s, s.other)";
    const char* identity = op[1] == 'i' ? "inff" : "-inff";
    return "func f(in x: f32[" + str(n) + "], in n: i64[" + str(n) +
           "], out y: f32[1], out z: i64[1]) {\nfor i in 0.." + str(n) + " reduce(s: f32 = " + identity +
           ", t: i64 = 3 identity(0)) {\n} yield(" + op + ", t + n[i]) merge(" + merge +
           ", t + t.other)\ny[0] = s\nz[0] = t\n}\n";
  }

  std::string arg_max() {
    const int64_t rows = size(), columns = size();
    const bool strided = pick(2) == 0;
    const std::string at = strided ? "c*" + str(rows) + " + r" : "r*" + str(columns) + " + c";
    return "func f(in x: f32[" + str(rows * columns) + "], out y: i64[" + str(rows) + "]) {\nfor r in 0.." +
           str(rows) + " {\nfor c in 0.." + str(columns) +
           " reduce(m: f32 = -inff, at: i64 = 9223372036854775807) {\nlet v: f32 = x[" + at +
           "]\nlet better: b1 = v > m\n} yield(select(better, v, m), select(better, c, at)) merge(max(m, "
           "m.other), " +
           "select(m == m.other, min(at, at.other), select(m > m.other, at, at.other)))\ny[r] = at\n}\n}\n";
  }

  std::string gather_or_scatter() {
    const int64_t rows = size(), columns = size();
    const bool scatter = pick(2) == 0;
    const std::string table = "f32[" + str(8 * columns) + "]", body = "f32[" + str(rows * columns) + "]";
    return "func f(in idx: i64[" + str(rows) + "], " +
           (scatter ? "in x: " + body + ", inout y: " + table : "in x: " + table + ", out y: " + body) +
           ") {\nfor e in 0.." + str(rows) +
           " {\nlet at: i64 = idx[e]\nlet fine: b1 = bitand(at >= 0, at < 8)\nfor c in 0.." + str(columns) +
           " {\n" +
           (scatter ? "y[at*" + str(columns) + " + c] = y[at*" + str(columns) + " + c if fine] + x[e*" +
                          str(columns) + " + c] if fine\n"
                    : "y[e*" + str(columns) + " + c] = x[at*" + str(columns) + " + c if fine]\n") +
           "}\n}\n}\n";
  }

  std::mt19937_64 random_;
};

// Runs the passes one by one; the interpreter must agree after each.
void expect_same_values(const Function& input, Isa isa, const std::vector<int64_t>& symbols, uint64_t seed) {
  const Target target = target_for(isa);
  testing::Buffers expected = testing::random_buffers(input, symbols, seed);
  const testing::Buffers start = expected;
  testing::run_eval(input, expected, symbols);
  std::vector<Function> module = {input};
  for (const LoopPass& pass : pipeline()) {
    module = pass.run(std::move(module), target);
    verify(module.at(0));
    if (pass.name == "vectorize" || pass.name == "final_simplify") {
      testing::Buffers actual = start;
      testing::run_eval(module[0], actual, symbols);
      const std::string what = testing::difference(input, expected, actual);
      ASSERT_EQ(what, "") << "seed " << seed << ", after " << pass.name << " of\n"
                          << print(input) << "\n"
                          << print(module[0]);
    }
  }
}

TEST(Nests, PassesKeepValues) {
  for (uint64_t seed = 0; seed < 500 && !HasFatalFailure(); ++seed) {
    const Function input = parse_function(Generator(seed).nest());
    verify(input);
    expect_same_values(input, seed % 2 == 0 ? Isa::kAvx512 : Isa::kAvx2, {}, seed);
  }
}

// Compiles all at once, under names of their own, and runs each against the interpreter.
void expect_compiled_agrees(std::vector<Function> kernels, Isa isa) {
  if (!cpu_supports(isa)) GTEST_SKIP() << "this CPU lacks " << name(isa);
  for (size_t i = 0; i < kernels.size(); ++i) kernels[i].name = "nest" + std::to_string(i);
  const auto library = schedule_and_compile(kernels, target_for(isa));
  for (size_t i = 0; i < kernels.size(); ++i) {
    testing::Buffers expected = testing::random_buffers(kernels[i], {}, i), actual = expected;
    testing::run_eval(kernels[i], expected, {});
    testing::run_compiled(*library, kernels[i], actual, {});
    ASSERT_EQ(testing::difference(kernels[i], expected, actual), "") << print(kernels[i]);
  }
}

// The first bad lane of a vector is the one reported, as in the serial loop.
TEST(Nests, VectorLoopsReportTheSameIndex) {
  const Function input = parse_function(R"(func f(in idx: i64[40], in x: f32[4], out y: f32[40]) {
    for i in 0..40 {
      let at: i64 = idx[i]
      let good: b1 = bitand(at >= 0, at < 4)
      if bitnot(good) { call ipex_report_index(at, 4, 0) }
      y[i] = x[at if good]
    }
  })");
  const auto message = [&](const Function& f, int64_t bad) {
    testing::Buffers buffers = testing::random_buffers(input, {}, 1, 4);
    for (size_t i : {size_t{19}, size_t{21}, size_t{39}}) {
      const int64_t value = bad + static_cast<int64_t>(i);
      std::memcpy(buffers[0].data() + i * sizeof value, &value, sizeof value);
    }
    try {
      testing::run_eval(f, buffers, {});
    } catch (const IndexError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  std::vector<Function> module = {input};
  for (const LoopPass& pass : pipeline()) module = pass.run(std::move(module), target_for(Isa::kAvx512));
  for (int64_t bad : {int64_t{100}, int64_t{-100}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_NE(message(input, bad), "no error");
    EXPECT_EQ(message(module[0], bad), message(input, bad));
  }
}

TEST(Nests, CompiledCodeAgrees) {
  for (Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    std::vector<Function> kernels;
    for (uint64_t seed = 1000; seed < 1060; ++seed) kernels.push_back(parse_function(Generator(seed).nest()));
    expect_compiled_agrees(std::move(kernels), isa);
  }
}

// Large enough for threads, tiles and two stages.
TEST(Nests, LargeNestsKeepValues) {
  const char* texts[] = {
      R"(func f(in x: f32[300000], out y: f32[1]) {
           for i in 0..300000 reduce(s: f64 = 0.0d) {} yield(s + cast.f64(x[i]*x[i])) merge(s + s.other)
           y[0] = cast.f32(s)
         })",
      R"(func f(in x: f32[300000], out y: f32[1], out z: i64[1]) {
           for i in 0..300000 reduce(m: f32 = -inff, at: i64 = 999999) {
             let v: f32 = x[i]
             let better: b1 = v > m
           } yield(select(better, v, m), select(better, i, at))
             merge(max(m, m.other), select(m == m.other, min(at, at.other), select(m > m.other, at, at.other)))
           y[0] = m
           z[0] = at
         })",
      R"(func f(in x: bf16[300000], out y: f32[75], out z: f32[75]) {
           for c in 0..75 {
             for n in 0..4000 reduce(s: f32 = 0.0f) {} yield(s + cast.f32(x[n*75 + c])) merge(s + s.other)
             let mean: f32 = div(s, 4000.0f)
             for k in 0..4000 reduce(v: f32 = 0.0f) {
               let d: f32 = cast.f32(x[k*75 + c]) - mean
             } yield(v + d*d) merge(v + v.other)
             y[c] = mean
             z[c] = div(v, 4000.0f)
           }
         })",
      R"(func f(in x: f32[120000], out y: f32[120000]) {
           for i in 0..300 { for j in 0..400 { y[i*400 + j] = x[j*300 + i]*2.0f } }
         })",
      R"(func f(in x: f32[120000], in b: f32[300], out y: f32[120000]) {
           for n in 0..2 { for i in 0..300 { for j in 0..200 {
             y[n*60000 + i*200 + j] = x[n*60000 + i*200 + j] + b[i]
           } } }
         })",
      R"(func f(in x: f32[120000], out y: f32[120000]) {
           for r in 0..3 {
             for c in 0..40000 reduce(m: f32 = -inff) {} yield(max(m, x[r*40000 + c])) merge(max(m, m.other))
             for c1 in 0..40000 reduce(s: f32 = 0.0f) {} yield(s + exp(x[r*40000 + c1] - m)) merge(s + s.other)
             for c2 in 0..40000 { y[r*40000 + c2] = div(exp(x[r*40000 + c2] - m), s) }
           }
         })"};
  std::vector<Function> kernels;
  for (const char* text : texts) {
    kernels.push_back(parse_function(text));
    expect_same_values(kernels.back(), Isa::kAvx512, {}, 11);
  }
  expect_compiled_agrees(std::move(kernels), current_isa());
}

TEST(Nests, SymbolicSizesKeepValues) {
  const char* texts[] = {
      "func f(in x: f32[s0*s1], in b: f32[s1], out y: f32[s0*s1]) symbols(s0, s1) { for i in 0..s0 { for j "
      "in 0..s1 {"
      " y[i*s1 + j] = x[i*s1 + j]*b[j] } } }",
      "func f(in x: f32[s0*s1], out y: f32[s0*s1]) symbols(s0, s1) { for i in 0..s0 { for j in 0..s1 {"
      " y[i*s1 + j] = x[j*s0 + i] } } }",
      "func f(in x: f32[s0*s1], out y: f32[s0]) symbols(s0, s1) { for i in 0..s0 { for j in 0..s1 reduce(s: "
      "f32 = 0.0f) {"
      " } yield(s + x[i*s1 + j]) merge(s + s.other) y[i] = s } }",
      "func f(in x: f32[s0*s1], out y: f32[s1]) symbols(s0, s1) { for j in 0..s1 { for i in 0..s0 reduce(s: "
      "f32 = 0.0f) {"
      " } yield(s + x[i*s1 + j]) merge(s + s.other) y[j] = s } }"};
  for (const char* text : texts)
    for (const auto& symbols : {std::vector<int64_t>{1, 1}, {3, 17}, {17, 3}, {40, 100}, {200, 30}})
      expect_same_values(parse_function(text), Isa::kAvx512, symbols, 7);
}

// Whether the first loop of `body` may run in any order.
bool reorderable(const std::string& body) {
  const Function f = parse_function(
      "func f(in x: f32[4096], in n: i64[64], in m: i32[64], out y: f32[16384]) {\n" + body + "\n}");
  verify(f);
  return LoopTree(f).reorderable(0);
}

TEST(LoopTree, BoundsMayMakeIterationsMeet) {
  EXPECT_TRUE(reorderable("for i in 0..4096 { for j in 1..3 { y[4*i + j] = x[i] } }"));
  EXPECT_FALSE(reorderable("for i in 0..4096 { for j in 0 - 4*i..2 - 4*i { y[4*i + j] = x[i] } }"));
  EXPECT_FALSE(reorderable(R"(for i in 0..4096 {
    let b: i64 = 0 - 4*i
    for j in b..b + 2 { y[4*i + j] = x[i] }
  })"));
  EXPECT_FALSE(reorderable(R"(for i in 0..4 {
    for r in 0..16 reduce(s: i64 = 0) {} yield(s + n[i*16 + r]) merge(s + s.other)
    for j in s..s + 2 { y[4*i + j] = x[i] }
  })"));
}

TEST(LoopTree, StatesDifferBetweenIterations) {
  const auto indexed = [](const std::string& index) {
    return reorderable(R"(for i in 0..4 {
      for r in 0..16 reduce(s: i32 = 0i32, t: i64 = 0) {} yield(s + m[i*16 + r], t + n[i*16 + r])
        merge(s + s.other, t + t.other)
      let twice: i32 = s*2i32
      y[)" + index + R"(] = x[i]
    })");
  };
  EXPECT_TRUE(indexed("i"));
  EXPECT_FALSE(indexed("i + t"));
  EXPECT_FALSE(indexed("i + cast.i64(s)"));
  EXPECT_FALSE(indexed("i + cast.i64(twice)"));
  EXPECT_FALSE(indexed("i*max(t, 1)"));
}

}  // namespace
}  // namespace ipex::loop
