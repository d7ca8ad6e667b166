// The instructions that matter, per ISA, by cross-emitting: runs on any host.
#include <gtest/gtest.h>

#include <regex>

#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "tests/cpp/llvm_kernels.h"

namespace ipex::loop::testing {
namespace {

std::string assembly(const std::string& text, Isa isa) {
  const Target target = target_for(isa);
  return emit_assembly({lowered(parse_function(text), target)}, target);
}

void expect_match(const std::string& text, Isa isa, const std::string& pattern) {
  const std::string code = assembly(text, isa);
  EXPECT_TRUE(std::regex_search(code, std::regex(pattern))) << pattern << " on " << name(isa) << "\n" << code;
}
void expect_no_match(const std::string& text, Isa isa, const std::string& pattern) {
  const std::string code = assembly(text, isa);
  EXPECT_FALSE(std::regex_search(code, std::regex(pattern))) << pattern << " on " << name(isa) << "\n"
                                                             << code;
}

std::string vectors(const std::string& type, int lanes, const std::string& value,
                    const std::string& out = "") {
  const std::string n = std::to_string(lanes);
  const std::string at = "ramp(i*" + n + ", 1, " + n + ")";
  return "func f(in x: " + type + "[s0], in z: " + type + "[s0], out y: " + (out.empty() ? type : out) +
         "[s0]) symbols(s0) {\n for i in 0..s0//" + n + " {\n  let a: " + type + "x" + n + " = x[" + at +
         "]\n  let b: " + type + "x" + n + " = z[" + at + "]\n  y[" + at + "] = " + value + "\n }\n}\n";
}

TEST(Assembly, FullWidthFma) {
  const std::string wide = vectors("f32", 16, "fma(a, b, a)"), narrow = vectors("f32", 8, "fma(a, b, a)");
  expect_match(wide, Isa::kAvx512, "vfmadd\\w+ps.*zmm");
  expect_match(narrow, Isa::kAvx2, "vfmadd\\w+ps.*ymm");
  expect_no_match(narrow, Isa::kAvx2, "zmm");
}

TEST(Assembly, StreamedOutputsPassTheCaches) {
  const auto copy = [](const std::string& body) {
    return "func f(in x: f32[4096], out y: f32[4096] streamed) {\n for parallel i in 0..64 {\n" + body +
           "}\n}\n";
  };
  const std::string rows =
      copy("for j in 0..4 { y[ramp(i*64 + j*16, 1, 16)] = x[ramp(i*64 + j*16, 1, 16)] }");
  expect_match(rows, Isa::kAvx512, "vmovntps\\s+%zmm[^]*sfence");
  expect_match(rows, Isa::kAvx2, "vmovntps\\s+%ymm[^]*sfence");
  // Half lines, one behind the other, and a row apart.
  const std::string halves = "for j in 0..8 { y[ramp(STEP, 1, 8)] = x[ramp(j*8, 1, 8)] }";
  expect_match(copy(std::regex_replace(halves, std::regex("STEP"), "i*64 + j*8")), Isa::kAvx2, "vmovntps");
  expect_no_match(copy(std::regex_replace(halves, std::regex("STEP"), "i*8 + j*512")), Isa::kAvx2,
                  "vmovnt|sfence");
}

TEST(Assembly, NoContractionUnlessAsked) {
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
    expect_no_match(vectors("f32", 8, "a*b + a"), isa, "vfm");
}

TEST(Assembly, Bf16Conversion) {
  const std::string text = vectors("f32", 16, "cast.bf16(a)", "bf16");
  expect_match(text, Isa::kAvx512Bf16, "vcvtneps2bf16.*ymm");
  expect_no_match(text, Isa::kAvx512, "vcvtneps2bf16");
  expect_no_match(text, Isa::kAvx512, "call");
  expect_no_match(text, Isa::kAvx2, "call");
  // Widening is a shift everywhere.
  expect_match(vectors("bf16", 16, "cast.f32(a)", "f32"), Isa::kAvx512, "vpslld.*zmm");
}

// Even and odd elements: nothing moves lanes but what puts a result in order.
TEST(Assembly, SplitPairs) {
  const std::string text =
      "func f(in x: bf16[256], out y: bf16[256]) {\n for i in 0..4 {\n"
      "  y[ramp(i*64, 1, 64)] = cast.bf16(neg(cast.f32(x[ramp(i*64, 1, 64)])))\n }\n}\n";
  const auto passes = [&](Isa isa) { return print(deinterleave(parse_function(text), target_for(isa))); };
  expect_match(text, Isa::kAvx512Bf16, "vpmovzxwd");
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
    expect_no_match(passes(isa), isa, "vpmovzxwd|vpmovdw|vpackusdw");
  expect_match(passes(Isa::kAvx512Bf16), Isa::kAvx512Bf16, "vpermw.*zmm");
}

TEST(Assembly, PairsOfBf16) {
  const std::string dot = vectors("f32", 16, "dot_bf16(broadcast(z[i], 16), b, a)");
  expect_match(dot, Isa::kAvx512Bf16, "vdpbf16ps.*zmm");
  expect_no_match(dot, Isa::kAvx512, "vdpbf16ps");
  expect_no_match(dot, Isa::kAvx2, "call");
  expect_match(vectors("f32", 16, "pair_bf16(a, b)"), Isa::kAvx512Bf16, "vcvtneps2bf16.*ymm");
}

TEST(Assembly, F16Conversion) {
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    expect_match(vectors("f16", 8, "cast.f32(a)", "f32"), isa, "vcvtph2ps");
    expect_match(vectors("f32", 8, "cast.f16(a)", "f16"), isa, "vcvtps2ph");
  }
}

// A transposed block costs its rows and one instruction an exchange.
TEST(Assembly, TransposesInRegisters) {
  const auto transpose = [](int n) {
    const std::string lanes = std::to_string(n), all = std::to_string(n * n);
    return "func f(in x: f32[" + all + "], out y: f32[" + all + "]) {\n for i in 0.." + lanes +
           " {\n  for j in 0..1 {\n   y[ramp(i*" + lanes + ", 1, " + lanes + ")] = x[ramp(j*" + lanes +
           " + i, " + lanes + ", " + lanes + ")]\n  }\n }\n}\n";
  };
  const auto passes = [](const std::string& text) {
    return print(transpose_loads(parse_function(text), portable_target(Isa::kAvx2)));
  };
  expect_no_match(transpose(8), Isa::kAvx2, "vunpck");
  expect_match(passes(transpose(8)), Isa::kAvx2, "vunpcklps.*ymm");
  expect_no_match(passes(transpose(8)), Isa::kAvx2, "vgather|vpinsr|vinsertps|vperm[dip]");
  expect_no_match(passes(transpose(16)), Isa::kAvx512, "vgather|vpinsr|vinsertps");
}

// The innermost loop of a product: two vectors of b, a scalar of a for each row, the multiply-adds; no sum
// leaves its register.
TEST(Assembly, ProductsStayInRegisters) {
  const std::string product = R"(func f(in x: f32[152064], in w: f32[393216], out y: f32[101376]) {
 for i in 0..198 {
  for j in 0..512 {
   for k in 0..768 reduce(s: f32 = 0.0) {
   } yield(s + x[i*768 + k]*w[j*768 + k]) merge(s + s.other)
   y[i*512 + j] = s
  }
 }
}
)";
  for (const auto& [isa, rows, vectors, terms] : {std::tuple{Isa::kAvx2, 6, 2, 4}, {Isa::kAvx512, 6, 4, 2}}) {
    const Target target = target_for(isa);
    const std::string code = emit_assembly(run_pipeline({parse_function(product)}, target), target);
    const size_t first = code.find("vfmadd"), last = code.rfind("vfmadd");
    ASSERT_NE(first, std::string::npos);
    const std::string between = code.substr(first, last - first);
    const auto count = [&](const std::string& pattern) {
      const std::regex regex(pattern);
      return std::distance(std::sregex_iterator(between.begin(), between.end(), regex),
                           std::sregex_iterator());
    };
    // Between the first product and the last is nothing but products and what they load.
    const int products = rows * vectors * terms - 1, scalars = rows * terms - 1,
              loads = vectors * (terms - 1);
    EXPECT_EQ(count("vfmadd"), products) << name(isa) << "\n" << between;
    EXPECT_EQ(count("vbroadcastss"), scalars) << name(isa) << "\n" << between;
    EXPECT_EQ(count("vmovups\t\\d*\\(%\\w+,%\\w+\\), %[yz]mm"), loads) << name(isa) << "\n" << between;
    EXPECT_EQ(count("\n"), products + scalars + loads) << name(isa) << "\n" << between;
    EXPECT_EQ(count("%rsp"), 0) << name(isa) << "\n" << between;  // what they load is no spilled sum
  }
}

TEST(Assembly, TailsArePredicated) {
  const std::string tail = R"(func f(in x: f32[s0], out y: f32[s0]) symbols(s0) {
  let on: b1x16 = ramp(0, 1, 16) < broadcast(s0, 16)
  y[ramp(0, 1, 16)] = x[ramp(0, 1, 16) if on] if on
}
)";
  expect_match(tail, Isa::kAvx512, "vpcmp\\w+.*zmm.*%k[1-7]");
  expect_match(tail, Isa::kAvx512, "vmovups.*%zmm\\d+, .*\\{%k[1-7]\\}");
  expect_match(tail, Isa::kAvx512, "\\{%k[1-7]\\} \\{z\\}");
  expect_match(tail, Isa::kAvx2, "vmaskmovps");
}

TEST(Assembly, IntegerMultiplyAndGather) {
  expect_match(vectors("i64", 8, "a*b"), Isa::kAvx512, "vpmullq.*zmm");
  expect_match(R"(func f(in x: f32[s0], in at: i64[16], out y: f32[16]) symbols(s0) {
  y[ramp(0, 1, 16)] = x[at[ramp(0, 1, 16)]]
}
)",
               Isa::kAvx512, "vgatherqps");
  expect_match(R"(func f(in at: i64[16], in x: f32[16], out y: f32[s0]) symbols(s0) {
  y[at[ramp(0, 1, 16)]] = x[ramp(0, 1, 16)]
}
)",
               Isa::kAvx512, "vscatterqps");
}

TEST(Assembly, MathIsInlinedOrCallsSleef) {
  for (const char* op : {"exp", "log", "tanh", "erf"})
    for (Isa isa : {Isa::kAvx2, Isa::kAvx512})
      expect_no_match(vectors("f32", 16, std::string(op) + "(a)"), isa, "call");
  expect_match(vectors("f32", 16, "sin(a)"), Isa::kAvx512, "Sleef_sinf16_u35avx512f");
  expect_match(vectors("f32", 8, "sin(a)"), Isa::kAvx2, "Sleef_sinf8_u35avx2");
  expect_match(vectors("f64", 8, "exp(a)"), Isa::kAvx512, "Sleef_expd8_u10avx512f");
}

TEST(Assembly, NothingSpillsInAnElementwiseKernel) {
  const std::string to_stack = "vmov[au]p[sd]\\s+%zmm\\d+, -?\\d*\\(%rsp\\)";
  const auto sum = [](const char* op) { return vectors("f32", 16, std::string(op) + "(a) + b"); };
  for (const char* op : {"exp", "log", "tanh", "erf"}) expect_no_match(sum(op), Isa::kAvx512, to_stack);
  expect_match(sum("sin"), Isa::kAvx512, to_stack);  // b, over a call
}

TEST(Assembly, ObjectIsElfOnAnyHost) {
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    const Target target = target_for(isa);
    const std::vector<Function> module = {lowered(parse_function(vectors("f32", 8, "a + b")), target)};
    EXPECT_EQ(emit_object(module, target).substr(0, 4), std::string("\x7f") + "ELF");
    EXPECT_NE(emit_llvm(module, target).find("fadd <8 x float>"), std::string::npos);
  }
}

}  // namespace
}  // namespace ipex::loop::testing
