// Text form of Loop IR: parse(print(x)) is x, print(parse(text)) is text for canonical text, and errors say
// where.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codegen/loop/text.h"

namespace ipex::loop {
namespace {

// Canonical texts: printed exactly as written.
constexpr std::string_view kFunctions[] = {
    R"(func empty() {
}
)",
    R"(func softmax(in x: f32[64*s0], out y: f32[64*s0]) symbols(s0) {
  for parallel(grain=4) r in 0..64 {
    for vector(lanes=16, unroll=4) c in 0..s0 reduce(m: f32 = -inff) {
      let t: f32 = x[r*s0 + c]
    } yield(max(m, t)) merge(max(m, m.other))
    for c1 in 0..s0 {
      y[r*s0 + c1] = exp(x[r*s0 + c1] - m)
    }
  }
}
)",
    R"(func tail(in x: bf16[100], out y: bf16[100]) {
  for i in 0..7 {
    let at: i64x16 = ramp(i*16, 1, 16)
    let on: b1x16 = at < broadcast(100, 16)
    y[at] = cast.bf16(cast.f32(x[at if on])*broadcast(0.5f, 16)) if on
  }
}
)",
    R"(func nested(in x: f32[8], inout acc: f64[1]) {
  for i in 0..2 reduce(s: f64 = acc[0] identity(0d), best: f32 = -inff, at: i64 = -1) {
    for serial(grain=3) j in i*4..i*4 + 4 reduce(t: f64 = s identity(0d)) {
    } yield(t + cast.f64(x[j])) merge(t + t.other)
    let bigger: b1 = x[i] > best
  } yield(t, select(bigger, x[i], best), select(bigger, i, at)) merge(s + s.other, max(best, best.other), max(at, at.other))
  acc[0] = s
}
)",
    R"(func control(in index: i64[4], in table: f32[10], out y: f32[4]) {
  alloc scratch: f32[4]
  for parallel i in 0..4 {
    let k: i64 = index[i]
    call prefetch(table[i])
    if bitor(k < 0, k >= 10) {
      call ipex_report_index(k, 10, 0)
    } else {
      scratch[i] = table[k if k < 10]
    }
    if y[i] == 0f {
      {
        y[i] = scratch[i] if i != 2
      }
    }
  }
}
)",
};

TEST(LoopText, CanonicalTextPrintsAsWritten) {
  for (std::string_view text : kFunctions) {
    Function f = parse_function(text);
    EXPECT_EQ(print(f), text);
    EXPECT_NO_THROW(verify(f));
  }
}

TEST(LoopText, ModuleOfSeveralFunctions) {
  std::string text = std::string(kFunctions[0]) + std::string(kFunctions[1]);
  auto module = parse_module(text);
  ASSERT_EQ(module.size(), 2u);
  EXPECT_EQ(print(module), text);
  EXPECT_TRUE(parse_module("  # nothing\n").empty());
}

TEST(LoopText, OnlyOutputsAreStreamed) {
  const std::string text = "func f(in x: f32[8], out y: f32[8] streamed) {\n}\n";
  const Function f = parse_function(text);
  EXPECT_TRUE(f.buffers[1].streamed);
  EXPECT_EQ(print(f), text);
  EXPECT_NO_THROW(verify(f));
  EXPECT_THROW(verify(parse_function("func f(in x: f32[8] streamed) {\n}\n")), InternalError);
  EXPECT_THROW(verify(parse_function("func f(in x: f32[8]) {\n  call prefetch(3)\n}\n")), InternalError);
}

TEST(LoopText, ExpressionsRoundTrip) {
  const std::vector<std::pair<std::string, Type>> scope = {
      {"x", {Dtype::kF32, 1}},  {"h", {Dtype::kBF16, 1}}, {"v", {Dtype::kF32, 8}}, {"p", kBool1},
      {"m", {Dtype::kBool, 8}}, {"d", {Dtype::kF64, 1}},  {"q", {Dtype::kI32, 1}}, {"w", {Dtype::kI16, 1}}};
  for (std::string_view text : {
           "a",
           "-1",
           "a - -1",
           "-a",
           "-(a + b)",
           "neg(1)",
           "neg(-0.5f)",
           "--a",
           "a - (b - c)",
           "a - b - c",
           "a*(b + c)",
           "a*b*c",
           "a*(b*c)",
           "a//b%c",
           "a//(b%c)",
           "(a + b)//c",
           "a < b",
           "(a < b) == (c < a)",
           "-9223372036854775808",
           "9223372036854775807",
           "255u8",
           "-128i8",
           "1b1",
           "-32768i16",
           "-2147483648i32",
           "0f",
           "-0f",
           "0.1f",
           "1e+20f",
           "1e-45f",
           "3.4028235e+38f",
           "inff",
           "-inff",
           "nanf",
           "0.1d",
           "-infd",
           "nand",
           "5e-324d",
           "1.7976931348623157e+308d",
           "0.5bf16",
           "-infbf16",
           "nanbf16",
           "65504f16",
           "-inff16",
           "nanf16",
           "x + 1f",
           "fma(x, x, 1f)",
           "select(p, x, 0f)",
           "cast.bf16(x)",
           "cast.i64(cast.f32(h))",
           "bitcast_int(x)",
           "bitcast_float(q)",
           "bitcast_float.bf16(w)",
           "bitcast_float.f16(w)",
           "bitcast_int(h)",
           "reduce_lanes.add(v)",
           "reduce_lanes.bitor(m)",
           "shuffle(v, v, [0, 15, 7, 8])",
           "v*broadcast(x, 8)",
           "x[ramp(a, 1, 8) if m]",
           "x[a if a < 4]",
           "bitnot(p)",
           "bitand(p, a != b)",
           "max(a, min(b, c))",
           "ramp(0i32, 2i32, 4)",
       }) {
    Expr e = parse_expr(text, scope);
    EXPECT_EQ(print(e), text);
    EXPECT_TRUE(equal(e, parse_expr(print(e), scope))) << text;
  }
}

TEST(LoopText, ReadsMoreThanItPrints) {
  const std::vector<std::pair<std::string, Type>> scope = {{"v", {Dtype::kF32, 8}}};
  EXPECT_EQ(print(parse_expr(" ( a )+b # comment")), "a + b");
  EXPECT_EQ(print(parse_expr("-inf")), "-inff");
  EXPECT_EQ(print(parse_expr("1.50")), "1.5f");
  EXPECT_EQ(print(parse_expr("1e3")), "1000f");
  EXPECT_EQ(print(parse_expr("v + 1f", scope)), "v + broadcast(1f, 8)");
  EXPECT_EQ(print(parse_expr("broadcast(a, 1)")), "a");
  EXPECT_EQ(print(parse_expr("add(a, b)")), "a + b");
  Function f = parse_function("func f(out y: f32[1]) { let t = 1f y[0] = t\n if 1b1 { } }");
  EXPECT_EQ(f.body->stmts.size(), 3u);
}

TEST(LoopText, AdjacentIfIsAMaskAndOnItsOwnLineAStatement) {
  Function f = parse_function(
      "func f(out y: f32[2], in p: b1[1]) {\n y[0] = 1f if p[0]\n y[1] = 1f\n if p[0] {\n }\n}");
  ASSERT_EQ(f.body->stmts.size(), 3u);
  EXPECT_TRUE(std::get<Store>(f.body->stmts[0]).mask);
  EXPECT_FALSE(std::get<Store>(f.body->stmts[1]).mask);
  EXPECT_TRUE(std::holds_alternative<If>(f.body->stmts[2]));
}

TEST(LoopText, EveryScalarOpRoundTrips) {
  for (int i = 0; i < scalar_op_count(); ++i) {
    auto op = static_cast<ScalarOp>(i);
    Dtype dtype = info(op).domain == Domain::kFloatOnly ? Dtype::kF32 : Dtype::kI32;
    std::vector<Expr> args;
    for (int k = 0; k < info(op).arity; ++k)
      args.push_back(
          make_var("x" + std::to_string(k), {op == ScalarOp::select_ && k == 0 ? Dtype::kBool : dtype, 1}));
    std::vector<std::pair<std::string, Type>> scope;
    for (const Expr& arg : args) scope.emplace_back(arg->name, arg->type);
    Expr e = make_apply(op, args);
    EXPECT_TRUE(equal(parse_expr(print(e), scope), e)) << print(e);
    EXPECT_EQ(parse_scalar_op(info(op).name), op);
  }
  EXPECT_EQ(parse_scalar_op("frobnicate"), std::nullopt);
}

std::string parse_failure(std::string_view text) {
  try {
    verify(parse_function(text));
  } catch (const ParseError& error) {
    return error.what();
  } catch (const InternalError& error) {
    return std::string("invalid: ") + error.what();
  }
  return "no error";
}

TEST(LoopText, ErrorsHaveAPosition) {
  auto starts = [](std::string_view text, std::string_view expected) {
    std::string message = parse_failure(text);
    EXPECT_TRUE(message.starts_with(expected)) << message << "\n  expected " << expected;
  };
  starts("", "1:1: expected 'func'");
  starts("func", "1:5: expected a function name, got the end of the text");
  starts("func f(x: f32[1]) {}", "1:8: expected in, out or inout, got 'x'");
  starts("func f(in x: f31[1]) {}", "1:14: expected a type such as f32 or i64, got 'f31'");
  starts("func f() {\n  let t: f32 = u\n}", "2:16: unknown name 'u'");
  starts("func f() {\n  y[0] = 1f\n}", "2:3: unknown buffer 'y'");
  starts("func f() {", "1:11: expected '}', got the end of the text");
  starts("func f() { let t: f32 = 1 }", "1:17: 't' is declared f32, its value is i64");
  starts("func f() { let t = 1 + 1f }", "1:22: ill-typed loop expression: operands of 'add' differ");
  starts("func f() { let t = frob(1) }", "1:20: unknown scalar op 'frob'");
  starts("func f() { let t = 300u8 }", "1:20: '300u8' is out of range for u8");
  starts("func f() { let t = 9223372036854775808 }", "1:20: '9223372036854775808' is out of range for i64");
  starts("func f() { let t = 1e99f }", "1:20: '1e99f' is out of range for f32");
  starts("func f() { let t = 1zz }", "1:20: '1zz' is not a number");
  starts("func f() { for for in 0..1 { } }", "1:16: expected a loop variable, got 'for'");
  starts("func f() { for vector(width=8) i in 0..1 { } }",
         "1:23: expected grain, lanes or unroll, got 'width'");
  starts("func f() { for vector(lanes=0) i in 0..1 { } }", "1:29: expected a number of lanes from 1 to 4096");
  starts("func f() { } func g() { }", "1:14: expected the end of the text");
  starts("func f() { let t = cast.f99(1) }", "1:20: a cast is cast.<type>(x)");
  starts("func f() { let t = ramp(1f, 1f, 4) }",
         "1:20: ill-typed loop expression: ramp takes two integer scalars");
}

}  // namespace
}  // namespace ipex::loop
