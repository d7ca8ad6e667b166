// Constructors, the tree walks, and the verifier's refusals.
#include "codegen/loop/rewrite.h"

#include <gtest/gtest.h>

#include <limits>

#include "codegen/loop/text.h"
#include "codegen/loop/type_rules.h"

namespace ipex::loop {
namespace {

const Expr kI = make_var("i"), kJ = make_var("j"), kX = make_var("x", {Dtype::kF32, 1});
constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();

// ---- constructors ----

TEST(LoopIr, IndexConstantsFold) {
  auto c = [](int64_t v) { return index_const(v); };
  EXPECT_EQ(as_const_int(c(3) + c(4)), 7);
  EXPECT_EQ(as_const_int(c(3) - c(4)), -1);
  EXPECT_EQ(as_const_int(c(3) * c(-4)), -12);
  EXPECT_EQ(as_const_int(floordiv(c(-7), c(2))), -4);
  EXPECT_EQ(as_const_int(floormod(c(-7), c(2))), 1);
  EXPECT_EQ(as_const_int(floormod(c(7), c(-2))), -1);
  EXPECT_EQ(as_const_int(floordiv(c(7), c(0))), 0);
  EXPECT_EQ(as_const_int(floordiv(c(kMin), c(-1))), kMin);
  EXPECT_EQ(as_const_int(floormod(c(kMin), c(-1))), 0);
  EXPECT_EQ(as_const_int(c(kMax) + c(1)), kMin);
  EXPECT_EQ(kI + c(0), kI);
  EXPECT_EQ(c(0) + kI, kI);
  EXPECT_EQ(kI - c(0), kI);
  EXPECT_EQ(kI * c(1), kI);
  EXPECT_EQ(as_const_int(kI * c(0)), 0);
  EXPECT_EQ(floordiv(kI, c(1)), kI);
  EXPECT_EQ(as_const_int(floormod(kI, c(1))), 0);
  EXPECT_EQ(print(kI * c(4) + kJ), "i*4 + j");
}

TEST(LoopIr, ConstantsHaveTheirTypesValue) {
  EXPECT_EQ(make_int({Dtype::kU8, 1}, 300)->int_value, 44);
  EXPECT_EQ(make_int({Dtype::kI8, 1}, 200)->int_value, -56);
  EXPECT_EQ(make_int(kBool1, 7)->int_value, 1);
  EXPECT_EQ(make_int({Dtype::kF32, 1}, 16777217)->float_value, 16777216);
  EXPECT_EQ(make_const({Dtype::kF32, 1}, 0.1)->float_value, 0.1f);
  EXPECT_EQ(make_const({Dtype::kBF16, 1}, 1.001)->float_value, 1);
  EXPECT_EQ(make_const({Dtype::kF16, 1}, 1e6)->float_value, std::numeric_limits<double>::infinity());
  EXPECT_EQ(make_const(kIndex, -3)->int_value, -3);
  EXPECT_THROW(make_const(kIndex, 0.5), InternalError);
  EXPECT_THROW(make_const(kIndex, std::numeric_limits<double>::quiet_NaN()), InternalError);
  Expr wide = make_int({Dtype::kI32, 8}, 5);
  EXPECT_TRUE(wide->is(ExprKind::kBroadcast));
  EXPECT_EQ(as_const_int(wide), 5);
  EXPECT_EQ(as_const_int(kX), std::nullopt);
  EXPECT_EQ(as_const_int(make_const({Dtype::kF32, 1}, 1)), std::nullopt);
}

TEST(LoopIr, ConstructorsCheckAndBroadcast) {
  Expr v = make_var("v", {Dtype::kF32, 8});
  EXPECT_EQ(make_apply(ScalarOp::add_, {v, kX})->type, (Type{Dtype::kF32, 8}));
  EXPECT_EQ(make_apply(ScalarOp::lt_, {v, v})->type, (Type{Dtype::kBool, 8}));
  EXPECT_EQ(make_apply(ScalarOp::select_, {make_var("p", kBool1), v, kX})->type, (Type{Dtype::kF32, 8}));
  EXPECT_EQ(make_cast(Dtype::kF32, kX), kX);
  EXPECT_EQ(make_broadcast(kX, 1), kX);
  EXPECT_EQ(make_reduce_lanes(ScalarOp::add_, kX), kX);
  EXPECT_EQ(make_load("b", Dtype::kU8, make_ramp(kI, kJ, 4))->type, (Type{Dtype::kU8, 4}));
  EXPECT_THROW(make_apply(ScalarOp::add_, {kI, kX}), InternalError);
  EXPECT_THROW(make_apply(ScalarOp::add_, {kI}), InternalError);
  EXPECT_THROW(make_apply(ScalarOp::add_, {kI, nullptr}), InternalError);
  EXPECT_THROW(make_apply(ScalarOp::exp_, {kI}), InternalError);
  EXPECT_THROW(make_apply(ScalarOp::bitand_, {kX, kX}), InternalError);
  EXPECT_THROW(make_apply(ScalarOp::select_, {kI, kX, kX}), InternalError);
  EXPECT_THROW(
      make_apply(ScalarOp::add_, {make_var("h", {Dtype::kBF16, 1}), make_var("h", {Dtype::kBF16, 1})}),
      InternalError);
  EXPECT_THROW(make_apply(ScalarOp::add_, {v, make_var("w", {Dtype::kF32, 4})}), InternalError);
  EXPECT_THROW(make_ramp(kX, kX, 4), InternalError);
  EXPECT_THROW(make_broadcast(v, 4), InternalError);
  EXPECT_THROW(make_load("b", Dtype::kF32, kX), InternalError);
  EXPECT_THROW(make_load("b", Dtype::kF32, kI, kI), InternalError);
  EXPECT_THROW(make_reduce_lanes(ScalarOp::sub_, v), InternalError);
  EXPECT_THROW(make_apply_as(ScalarOp::bitcast_int_, {kX}, kIndex), InternalError);
}

TEST(LoopIr, StructuralEquality) {
  EXPECT_TRUE(equal(kI + kJ, make_var("i") + make_var("j")));
  EXPECT_FALSE(equal(kI + kJ, kJ + kI));
  EXPECT_FALSE(equal(make_const({Dtype::kF32, 1}, 0.0), make_const({Dtype::kF32, 1}, -0.0)));
  EXPECT_TRUE(equal(make_const({Dtype::kF32, 1}, std::numeric_limits<double>::quiet_NaN()),
                    make_const({Dtype::kF32, 1}, -std::numeric_limits<double>::quiet_NaN())));
  EXPECT_FALSE(equal(index_const(1), make_int({Dtype::kI32, 1}, 1)));
  EXPECT_FALSE(equal(kI, nullptr));
}

TEST(LoopIr, NamesOfTheTextForm) {
  for (const char* name : {"x", "_", "s0", "m.other", "a.b.c", "t.1", "reduce", "in", "max"})
    EXPECT_TRUE(is_name(name)) << name;
  for (const char* name : {"", "1x", ".x", "x.", "x..y", "a-b", "for", "vector", "inff", "nanbf16", "<lane>"})
    EXPECT_FALSE(is_name(name)) << name;
}

// ---- rewriting ----

constexpr std::string_view kLoop = R"(func f(in x: f32[n], out y: f32[n]) symbols(n) {
  alloc t: f32[n]
  for i in 0..n reduce(m: f32 = -inff) {
    let a: f32 = x[i]*2f
    t[i] = a
  } yield(max(m, a)) merge(max(m, m.other))
  for j in 0..n {
    y[j] = t[j] - m
  }
}
)";

TEST(LoopRewrite, TransformSharesWhatDidNotChange) {
  Function f = parse_function(kLoop);
  EXPECT_EQ(transform(f.body, [](const Expr& e) { return e; }), f.body);
  EXPECT_EQ(substitute(f.body, {{"absent", kI}}), f.body);
  Block changed = substitute(f.body, {{"j", kI}});
  ASSERT_NE(changed, f.body);
  EXPECT_EQ(std::get<For>(changed->stmts[1]).body, std::get<For>(f.body->stmts[1]).body);
  EXPECT_NE(std::get<For>(changed->stmts[2]).body, std::get<For>(f.body->stmts[2]).body);
}

TEST(LoopRewrite, SubstitutionByAVectorRetypes) {
  Expr e = parse_expr("x[i*4 + j]*2f", {{"x", {Dtype::kF32, 1}}});
  EXPECT_EQ(print(substitute(e, {{"j", make_ramp(index_const(0), index_const(1), 8)}})),
            "x[broadcast(i*4, 8) + ramp(0, 1, 8)]*broadcast(2f, 8)");
  Expr masked = parse_expr("x[i if j < 3]", {{"x", {Dtype::kF32, 1}}});
  EXPECT_EQ(substitute(masked, {{"j", make_ramp(index_const(0), index_const(1), 8)}})->type,
            (Type{Dtype::kF32, 8}));
  Expr bits = parse_expr("bitcast_float.bf16(cast.i16(j))");
  EXPECT_EQ(substitute(bits, {{"j", make_ramp(kI, kI, 8)}})->type, (Type{Dtype::kBF16, 8}));
}

TEST(LoopRewrite, StatementsMayVanishOrMultiply) {
  Function f = parse_function("func f(out y: f32[4]) { y[0] = 1f { y[1] = 2f } y[2] = 3f }");
  Block b = transform(
      f.body, [](const Expr& e) { return e; },
      [](Stmt s) -> std::vector<Stmt> {
        auto* store = std::get_if<Store>(&s);
        if (!store) return {s};
        if (as_const_int(store->index) == 0) return {};
        return {s, s};
      });
  EXPECT_EQ(print(Function{"f", f.buffers, {}, b}),
            "func f(out y: f32[4]) {\n  {\n    y[1] = 2f\n    y[1] = 2f\n  }\n  y[2] = 3f\n  y[2] = 3f\n}\n");
}

TEST(LoopRewrite, RenameBoundMakesAFreshCopy) {
  Function f = parse_function(kLoop);
  Function twice = f;
  twice.body = make_block({f.body, rename_bound(f.body, "_1")});
  EXPECT_NO_THROW(verify(twice));
  Function renamed = f;
  renamed.body = rename_bound(f.body, "_1");
  EXPECT_EQ(print(renamed), R"(func f(in x: f32[n], out y: f32[n]) symbols(n) {
  alloc t_1: f32[n]
  for i_1 in 0..n reduce(m_1: f32 = -inff) {
    let a_1: f32 = x[i_1]*2f
    t_1[i_1] = a_1
  } yield(max(m_1, a_1)) merge(max(m_1, m_1.other))
  for j_1 in 0..n {
    y[j_1] = t_1[j_1] - m_1
  }
}
)");
}

TEST(LoopRewrite, FreeVariablesAndUses) {
  Expr e = parse_expr("x[i + n*2 if j < n]", {{"x", {Dtype::kF32, 1}}});
  EXPECT_EQ(free_vars(e), (std::set<std::string>{"i", "j", "n"}));
  EXPECT_TRUE(uses(e, "j"));
  EXPECT_FALSE(uses(e, "x"));
}

std::string affine_text(std::string_view text) {
  auto a = affine(parse_expr(text, {{"x", {Dtype::kI64, 1}}}), {"i", "j"});
  if (!a) return "none";
  std::string out;
  for (auto& [name, coefficient] : a->coefficients) out += name + ": " + print(coefficient) + ", ";
  return out + print(a->rest);
}

TEST(LoopRewrite, Affine) {
  EXPECT_EQ(affine_text("n + 3"), "n + 3");
  EXPECT_EQ(affine_text("i*4 + j + 1"), "i: 4, j: 1, 1");
  EXPECT_EQ(affine_text("(i*s + j)*t - i"), "i: s*t - 1, j: t, 0");
  EXPECT_EQ(affine_text("i - i + 7"), "7");
  EXPECT_EQ(affine_text("-(n - i)"), "i: 1, n*-1");
  EXPECT_EQ(affine_text("i - i"), "0");
  EXPECT_EQ(affine_text("(i - i + n)*3"), "n*3");
  EXPECT_EQ(affine_text("x[n] + i"), "i: 1, x[n]");
  EXPECT_EQ(affine_text("i*j"), "none");
  EXPECT_EQ(affine_text("i//2"), "none");
  EXPECT_EQ(affine_text("x[i]"), "none");
}

TEST(LoopRewrite, FreshNames) {
  Names names(parse_function(kLoop));
  EXPECT_EQ(names.fresh("k"), "k");
  EXPECT_EQ(names.fresh("k"), "k1");
  EXPECT_EQ(names.fresh("k"), "k2");
  EXPECT_EQ(names.fresh("m"), "m1");
  EXPECT_EQ(names.fresh("x"), "x1");
  EXPECT_EQ(names.fresh("x1"), "x1_1");
  names.reserve("a1");
  EXPECT_EQ(names.fresh("a"), "a2");
}

// ---- the verifier ----

std::string complaint(const Function& f) {
  try {
    verify(f);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

void expect_invalid(std::string_view text, std::string_view part) {
  std::string message = complaint(parse_function(text));
  EXPECT_NE(message.find(part), std::string::npos) << "got: " << message << "\n  for: " << text;
  EXPECT_TRUE(message.starts_with("loop function 'f' is invalid: ")) << message;
}

TEST(LoopVerify, RefusesWhatTheTextCanSay) {
  expect_invalid("func f() { let a = 1 let a = 2 }", "'a' is bound twice, in `let a: i64 = 2`");
  expect_invalid("func f(in x: f32[4]) { for x in 0..4 { } }", "'x' is bound twice");
  expect_invalid("func f(out y: f32[4]) { for i in 0..4 { let a = 1f } y[0] = a }",
                 "'a' is not in scope, at `a`, in `y[0] = a`");
  expect_invalid("func f(out y: f32[4]) { for i in 0..4 { } y[i] = 0f }", "'i' is not in scope");
  expect_invalid("func f(out y: f32[4]) { if 1b1 { alloc t: f32[1] } y[0] = t[0] }",
                 "buffer 't' is not in scope");
  expect_invalid("func f(in x: f32[4]) { x[0] = 1f }", "store to the input buffer 'x'");
  expect_invalid("func f(out y: f32[4]) { y[0] = 1d }", "store of f64 to 'y', expected f32");
  expect_invalid("func f(out y: f32[4]) { y[ramp(0, 1, 4)] = 1f }", "store of f32 to 'y', expected f32x4");
  expect_invalid("func f(out y: f32[4]) { y[0i32] = 1f }", "an index is i64, got i32");
  expect_invalid("func f(out y: f32[4]) { y[0] = 1f if 1 }",
                 "a mask has the index's lanes: expected b1, got i64");
  expect_invalid("func f() { if 1 { } }", "a condition is i64, expected b1");
  expect_invalid("func f() { for i in 0..4i32 { } }", "a loop bound is i32, expected i64");
  expect_invalid("func f(in x: f32[n]) { }", "'n' is not in scope");
  expect_invalid("func f(out y: f32[4]) { for i in 0..4 reduce(s: f32 = 0d) { } yield(s) merge(s) }",
                 "the initial value of 's' is f64, expected f32");
  expect_invalid("func f(out y: f32[4]) { for i in 0..4 reduce(s: f32 = 0f) { } yield(s, s) merge(s) }",
                 "a reduction of 1 states has 2 yields and 1 merges");
  expect_invalid(
      "func f(out y: f32[4]) { for i in 0..4 reduce(s: f32 = 0f) { } yield(cast.f32(i)) merge(s + "
      "cast.f32(i)) }",
      "'i' is not in scope");
  expect_invalid("func f(out y: f32[4]) { for i in 0..4 reduce(s: f32 = 0f) { } yield(s) merge(1) }",
                 "the merge of 's' is i64, expected f32");
  expect_invalid("func f() { call g(ramp(0, 1, 4)) }", "call arguments are scalars");
  expect_invalid("func f() { alloc t: f32[1f] }", "the extent of 't' is f32, expected i64");
}

TEST(LoopVerify, RefusesWhatOnlyCodeCanBuild) {
  auto body = [](Stmt s) {
    return Function{"f", {{"y", Dtype::kF32, Access::kOut, index_const(4)}}, {}, make_block({s})};
  };
  auto raw = [](ExprKind kind, Type type, std::vector<Expr> args) {
    auto n = std::make_shared<ExprNode>();
    n->kind = kind;
    n->type = type;
    n->args = std::move(args);
    return n;
  };
  Expr one = make_const({Dtype::kF32, 1}, 1);
  EXPECT_NE(complaint(body(Let{"a", nullptr})).find("an expression is null"), std::string::npos);
  EXPECT_NE(complaint(body(Let{"for", one})).find("'for' is not a name"), std::string::npos);
  EXPECT_NE(complaint(body(Let{"a", raw(ExprKind::kConst, {Dtype::kF32, 8}, {})}))
                .find("a vector constant is a broadcast"),
            std::string::npos);
  EXPECT_NE(complaint(body(Let{"a", raw(ExprKind::kCast, {Dtype::kF32, 1}, {one})}))
                .find("a cast changes the type"),
            std::string::npos);
  EXPECT_NE(complaint(body(Let{"a", raw(ExprKind::kBroadcast, {Dtype::kF64, 8}, {one})}))
                .find("ill-typed broadcast"),
            std::string::npos);
  EXPECT_NE(complaint(body(Let{"a", make_load("y", Dtype::kF64, index_const(0))}))
                .find("a load of 'y' is f32, not f64"),
            std::string::npos);
  EXPECT_NE(complaint(body(For{"i", index_const(0), index_const(1)})).find("a block is null"),
            std::string::npos);
  For loop{"i", index_const(0), index_const(1)};
  loop.body = make_block({});
  loop.lanes = 0;
  EXPECT_NE(complaint(body(loop)).find("grain, lanes and unroll are at least 1"), std::string::npos);
  EXPECT_EQ(complaint(body(Store{"y", index_const(0), one, nullptr})), "");
}

}  // namespace
}  // namespace ipex::loop
