// Basic values: element types, run-time sizes, knobs and targets.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <set>

#include "runtime/cpu.h"
#include "runtime/dtype.h"
#include "runtime/env.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/size_expr.h"
#include "runtime/tensor.h"

namespace ipex {
namespace {

using Code = SizeExpr::Code;

TEST(Dtypes, NamesAreUniqueAndParseBack) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kDtypes.size(); ++i) {
    const Dtype dtype = static_cast<Dtype>(i);
    EXPECT_TRUE(names.insert(name(dtype)).second) << name(dtype);
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  }
  for (const char* unknown : {"", "f", "f320", "F32", "bf"}) EXPECT_FALSE(parse_dtype(unknown)) << unknown;
}

TEST(Dtypes, SizesAndKinds) {
  EXPECT_EQ(itemsize(Dtype::kBool), 1);
  EXPECT_EQ(itemsize(Dtype::kBF16), 2);
  EXPECT_EQ(itemsize(Dtype::kI64), 8);
  EXPECT_FALSE(is_int(Dtype::kBool));
  EXPECT_TRUE(is_int(Dtype::kU8));
  EXPECT_FALSE(is_int(Dtype::kF16));
  EXPECT_EQ(opmath(Dtype::kF16), Dtype::kF32);
  EXPECT_EQ(opmath(Dtype::kBF16), Dtype::kF32);
  EXPECT_EQ(opmath(Dtype::kF64), Dtype::kF64);
  EXPECT_EQ(opmath(Dtype::kI8), Dtype::kI8);
}

int64_t eval(std::vector<SizeExpr::Instr> program, std::vector<int64_t> symbols = {}) {
  return SizeExpr(std::move(program)).eval(symbols.data());
}

TEST(SizeExprs, ConstantsNeedNoSymbols) {
  const SizeExpr size = 7;
  EXPECT_TRUE(size.is_const());
  EXPECT_EQ(size.eval(nullptr), 7);
  EXPECT_FALSE(SizeExpr({{Code::kSymbol, 0}}).is_const());
  EXPECT_FALSE(SizeExpr({{Code::kConst, 1}, {Code::kConst, 2}, {Code::kAdd}}).is_const());
}

TEST(SizeExprs, Arithmetic) {
  const auto binary = [](Code code, int64_t a, int64_t b) {
    return eval({{Code::kSymbol, 0}, {Code::kSymbol, 1}, {code}}, {a, b});
  };
  EXPECT_EQ(binary(Code::kAdd, 3, -5), -2);
  EXPECT_EQ(binary(Code::kSub, 3, 5), -2);
  EXPECT_EQ(binary(Code::kMul, -3, 5), -15);
  EXPECT_EQ(binary(Code::kMin, -3, 5), -3);
  EXPECT_EQ(binary(Code::kMax, -3, 5), 5);
  for (int64_t a : {-7, -6, -1, 0, 1, 6, 7})
    for (int64_t b : {-3, -1, 1, 3}) {
      const int64_t q = binary(Code::kFloorDiv, a, b), r = binary(Code::kFloorMod, a, b);
      EXPECT_EQ(q * b + r, a) << a << " / " << b;
      EXPECT_TRUE(b > 0 ? (r >= 0 && r < b) : (r <= 0 && r > b)) << a << " % " << b;
    }
  EXPECT_EQ(binary(Code::kFloorDiv, 5, 0), 0) << "an empty dim has no rows, and nothing traps";
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(binary(Code::kMin, most, most - 1), most - 1);
  EXPECT_EQ(binary(Code::kFloorDiv, most, 2), most / 2);
}

TEST(SizeExprs, AsPeopleWriteThem) {
  const std::vector<std::string> names = {"batch", "length"};
  const SizeExpr::Instr batch{Code::kSymbol, 0}, length{Code::kSymbol, 1}, one{Code::kConst, 1};
  const auto text = [&](std::vector<SizeExpr::Instr> program) {
    return SizeExpr(std::move(program)).text(names);
  };
  EXPECT_EQ(text({one}), "1");
  EXPECT_EQ(text({batch, length, {Code::kMul}, one, {Code::kAdd}}), "batch * length + 1");
  EXPECT_EQ(text({batch, length, one, {Code::kAdd}, {Code::kMul}}), "batch * (length + 1)");
  EXPECT_EQ(text({batch, length, one, {Code::kSub}, {Code::kSub}}), "batch - (length - 1)");
  EXPECT_EQ(text({batch, length, {Code::kSub}, one, {Code::kSub}}), "batch - length - 1");
  EXPECT_EQ(text({batch, length, {Code::kFloorDiv}, one, {Code::kFloorMod}}), "batch // length % 1");
  EXPECT_EQ(text({batch, length, one, {Code::kMul}, {Code::kFloorDiv}}), "batch // (length * 1)");
  EXPECT_EQ(text({batch, length, one, {Code::kAdd}, {Code::kMax}}), "max(batch, length + 1)");
}

TEST(SizeExprs, OrderOfOperands) {
  // (s0 - s1) * 2 - s0 / (s1 + 1)
  EXPECT_EQ(eval({{Code::kSymbol, 0},
                  {Code::kSymbol, 1},
                  {Code::kSub},
                  {Code::kConst, 2},
                  {Code::kMul},
                  {Code::kSymbol, 0},
                  {Code::kSymbol, 1},
                  {Code::kConst, 1},
                  {Code::kAdd},
                  {Code::kFloorDiv},
                  {Code::kSub}},
                 {10, 3}),
            12);
}

TEST(SizeExprs, MalformedProgramsAreBugs) {
  EXPECT_THROW(eval({{Code::kAdd}}), InternalError);
  EXPECT_THROW(eval({{Code::kConst, 1}, {Code::kAdd}}), InternalError);
  EXPECT_THROW(eval({{Code::kConst, 1}, {Code::kConst, 2}}), InternalError);
  EXPECT_THROW(eval(std::vector<SizeExpr::Instr>{}), InternalError);
  std::vector<SizeExpr::Instr> deep(100, {Code::kConst, 1});
  deep.insert(deep.end(), 99, {Code::kAdd});
  EXPECT_THROW(eval(deep), InternalError);
}

TEST(Tensors, StaticSpecs) {
  TensorSpec spec{0, Dtype::kF32, {2, 3}, {3, 1}};
  EXPECT_TRUE(spec.is_static());
  spec.offset = SizeExpr({{Code::kSymbol, 0}});
  EXPECT_FALSE(spec.is_static());
  EXPECT_EQ((TensorView{nullptr, Dtype::kF32, {}, {}}).numel(), 1);
  EXPECT_EQ((TensorView{nullptr, Dtype::kF32, {4, 0, 2}, {0, 2, 1}}).numel(), 0);
}

// Sets an environment variable for one test.
class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value, 1);
  }
  ~ScopedEnv() { old_.empty() ? unsetenv(name_) : setenv(name_, old_.c_str(), 1); }

 private:
  const char* name_;
  std::string old_;
};

TEST(Env, EveryKnobIsDescribed) {
  std::set<std::string_view> names;
  for (const env::Knob& knob : env::knobs()) {
    EXPECT_TRUE(knob.name.starts_with("IPEX_") || knob.name == "ATEN_CPU_CAPABILITY") << knob.name;
    EXPECT_FALSE(knob.help.empty()) << knob.name;
    EXPECT_TRUE(names.insert(knob.name).second) << knob.name;
  }
  EXPECT_THROW(env::get("IPEX_NO_SUCH_KNOB"), InternalError);
}

TEST(Env, FlagsAndDefaults) {
  unsetenv("IPEX_STRICT");
  EXPECT_FALSE(env::flag("IPEX_STRICT"));
  for (const char* off : {"", "0", "off", "false"}) {
    ScopedEnv scope("IPEX_STRICT", off);
    EXPECT_FALSE(env::flag("IPEX_STRICT")) << off;
  }
  ScopedEnv scope("IPEX_STRICT", "1");
  EXPECT_TRUE(env::flag("IPEX_STRICT"));
}

TEST(Env, CacheDirectory) {
  {
    ScopedEnv scope("IPEX_CACHE", "off");
    EXPECT_EQ(env::cache_directory(), "");
  }
  {
    ScopedEnv scope("IPEX_CACHE", "/some/where");
    EXPECT_EQ(env::cache_directory(), "/some/where");
  }
  ScopedEnv cache("IPEX_CACHE", "");
  ScopedEnv xdg("XDG_CACHE_HOME", "/user/cache");
  EXPECT_EQ(env::cache_directory(), "/user/cache/ipex");
}

TEST(Cpu, TargetsByName) {
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) EXPECT_EQ(parse_isa(name(isa)), isa);
  try {
    parse_isa("sse2");
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("avx512_bf16"), std::string::npos) << "it lists the known names";
  }
}

TEST(Cpu, ForcedTarget) {
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    ScopedEnv scope("IPEX_TARGET", std::string(name(isa)).c_str());
    if (cpu_supports(isa)) {
      EXPECT_EQ(current_isa(), isa);
    } else {
      EXPECT_THROW(current_isa(), UserError);
    }
  }
  ScopedEnv scope("IPEX_TARGET", "pentium");
  EXPECT_THROW(current_isa(), UserError);
}

TEST(Cpu, CapabilityOfAten) {
  if (supported_isas().empty()) GTEST_SKIP() << "needs avx2";
  const Isa best = supported_isas().back();
  ScopedEnv no_target("IPEX_TARGET", "");
  const std::pair<const char*, Isa> cases[] = {
      {"default", Isa::kAvx2},       {"avx2", Isa::kAvx2},      {"avx512", Isa::kAvx512},
      {"avx512_vnni", Isa::kAvx512}, {"amx", Isa::kAvx512Bf16}, {"", Isa::kAvx512Bf16},
  };
  for (const auto& [capability, limit] : cases) {
    ScopedEnv scope("ATEN_CPU_CAPABILITY", capability);
    EXPECT_EQ(current_isa(), std::min(best, limit)) << capability;  // never above what the CPU has
  }
  ScopedEnv scope("ATEN_CPU_CAPABILITY", "default");
  ScopedEnv target("IPEX_TARGET", std::string(name(best)).c_str());
  EXPECT_EQ(current_isa(), best) << "IPEX_TARGET is the more specific one";
}

std::string last_message;

TEST(Cpu, UnknownCapabilityOfAten) {
  if (supported_isas().empty()) GTEST_SKIP() << "needs avx2";
  set_log_sink([](LogLevel, const std::string& message) { last_message = message; });
  ScopedEnv no_target("IPEX_TARGET", "");
  ScopedEnv scope("ATEN_CPU_CAPABILITY", "sse9");
  EXPECT_EQ(current_isa(), supported_isas().back());
  EXPECT_NE(last_message.find("sse9"), std::string::npos) << last_message;
  set_log_sink(nullptr);
}

TEST(Log, LevelsAndSink) {
  set_log_sink([](LogLevel, const std::string& message) { last_message = message; });
  ScopedEnv scope("IPEX_LOG", "warning");
  log(LogLevel::kWarning, "heard");
  log(LogLevel::kInfo, "not heard");
  EXPECT_EQ(last_message, "heard");
  ScopedEnv louder("IPEX_LOG", "debug");
  log(LogLevel::kDebug, "details");
  EXPECT_EQ(last_message, "details");
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace ipex
