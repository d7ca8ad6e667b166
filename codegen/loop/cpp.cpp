// Prints Loop IR as C++; see cpp.h. Operations keep the meaning that scalar_ops.def gives them. Where C++
// differs, the prelude has a function.
#include "codegen/loop/cpp.h"

#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "codegen/loop/text.h"

namespace ipex::loop {
namespace {

constexpr std::array<std::string_view, 10> kTypes = {"bool",    "uint8_t", "int8_t", "int16_t", "int32_t",
                                                     "int64_t", "f16",     "bf16",   "float",   "double"};

std::string_view type_name(Dtype dtype) { return kTypes[static_cast<size_t>(dtype)]; }

struct Infix {
  std::string_view text;
  int precedence;
};

// Integers that are narrower than int, and unsigned ones, wrap differently in C++, so functions compute them.
std::optional<Infix> infix(const ExprNode& e) {
  const Dtype dtype = e.args[0]->type.dtype;
  const bool plain = is_float(dtype) || dtype == Dtype::kI64;
  switch (e.op) {
    case ScalarOp::add_:
      if (plain) return Infix{" + ", 2};
      break;
    case ScalarOp::sub_:
      if (plain) return Infix{" - ", 2};
      break;
    case ScalarOp::mul_:
      if (plain) return Infix{" * ", 3};
      break;
    case ScalarOp::div_:
      if (is_float(dtype)) return Infix{" / ", 3};
      break;
    case ScalarOp::eq_:
      return Infix{" == ", 1};
    case ScalarOp::ne_:
      return Infix{" != ", 1};
    case ScalarOp::lt_:
      return Infix{" < ", 1};
    case ScalarOp::le_:
      return Infix{" <= ", 1};
    case ScalarOp::gt_:
      return Infix{" > ", 1};
    case ScalarOp::ge_:
      return Infix{" >= ", 1};
    default:
      break;
  }
  return std::nullopt;
}

class CppPrinter {
 public:
  explicit CppPrinter(const Function& f) : f_(f) {}

  std::string run() {
    out_ = "extern \"C\" void " + identifier(f_.name) + "(void* const* buffers, const int64_t* symbols) {";
    indent_ = 2;
    for (size_t i = 0; i < f_.buffers.size(); ++i) {
      const Buffer& b = f_.buffers[i];
      const std::string constant = b.access == Access::kIn ? "const " : "";
      const std::string type = constant + std::string(type_name(b.dtype)) + "*";
      line(type + " " + identifier(b.name) + " = static_cast<" + type + ">(buffers[" + std::to_string(i) +
           "]);  // " + loop::print(b.extent));
    }
    for (size_t i = 0; i < f_.symbols.size(); ++i)
      line("const int64_t " + identifier(f_.symbols[i]) + " = symbols[" + std::to_string(i) + "];");
    if (f_.symbols.empty()) line("(void)symbols;");
    statements(f_.body);
    return out_ + "\n}\n";
  }

 private:
  // Names in Loop IR may contain dots. Each is bound once in a function.
  const std::string& identifier(const std::string& name) {
    const auto [it, is_new] = names_.try_emplace(name);
    if (!is_new) return it->second;
    std::string text = name;
    for (char& c : text)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    static const std::set<std::string> kTaken = {
        "buffers", "symbols", "float", "double", "int",  "char", "bool", "for", "if",   "while", "in",
        "do",      "f16",     "bf16",  "new",    "this", "auto", "min",  "max", "cast", "select"};
    while (kTaken.contains(text) || !used_.insert(text).second) text += '_';
    return it->second = text;
  }

  std::string constant(const ExprNode& e) {
    const std::string type(type_name(e.type.dtype));
    if (e.type.dtype == Dtype::kBool) return e.int_value ? "true" : "false";
    if (!is_float(e.type.dtype)) {
      // The smallest integer has no literal.
      if (e.int_value == std::numeric_limits<int64_t>::min()) return "INT64_MIN";
      return e.type.dtype == Dtype::kI64 ? std::to_string(e.int_value)
                                         : type + "(" + std::to_string(e.int_value) + ")";
    }
    std::string text;
    if (std::isnan(e.float_value)) {
      text = "NAN";
    } else if (std::isinf(e.float_value)) {
      text = e.float_value < 0 ? "-INFINITY" : "INFINITY";
    } else {
      std::array<char, 40> digits;
      const auto end =
          e.type.dtype == Dtype::kF64
              ? std::to_chars(digits.data(), digits.data() + digits.size(), e.float_value).ptr
              : std::to_chars(digits.data(), digits.data() + digits.size(), static_cast<float>(e.float_value))
                    .ptr;
      text.assign(digits.data(), end);
      if (text.find_first_of(".e") == std::string::npos) text += ".0";
      if (e.type.dtype != Dtype::kF64) text += "f";
    }
    return is_half(e.type.dtype) ? type + "(" + text + ")" : text;
  }

  std::string arguments(const std::vector<Expr>& list) {
    std::string text = "(";
    for (const Expr& e : list) {
      // Of an i64 literal, a template would deduce int.
      const bool literal = e->is(ExprKind::kConst) && e->type.dtype == Dtype::kI64;
      text += (text.size() > 1 ? ", " : "") + (literal ? "int64_t(" + expr(e) + ")" : expr(e));
    }
    return text + ")";
  }

  // An operation whose precedence is lower than `least` gets parentheses.
  std::string expr(const Expr& e, int least = 0) {
    if (e->type.is_vector())
      throw InternalError("C++ of kernel " + f_.name +
                          ": vectors cannot be written as C++; stop the pipeline after tile_reduction");
    switch (e->kind) {
      case ExprKind::kConst:
        return constant(*e);
      case ExprKind::kVar:
        return identifier(e->name);
      case ExprKind::kLoad: {
        const std::string element = identifier(e->name) + "[" + expr(e->args[0]) + "]";
        if (e->args.size() == 1) return element;
        return "(" + expr(e->args[1]) + " ? " + element + " : " + std::string(type_name(e->type.dtype)) +
               "(0))";
      }
      case ExprKind::kCast:
        return "cast<" + std::string(type_name(e->type.dtype)) + ">" + arguments(e->args);
      case ExprKind::kApply:
        break;
      default:
        throw InternalError("C++ of kernel " + f_.name + ": " + loop::print(e) + " cannot be written as C++");
    }
    if (const auto op = infix(*e)) {
      const int left = op->precedence == 1 ? 2 : op->precedence;
      const std::string text =
          expr(e->args[0], left) + std::string(op->text) + expr(e->args[1], op->precedence + 1);
      return op->precedence < least ? "(" + text + ")" : text;
    }
    if (e->op == ScalarOp::select_)
      return "(" + expr(e->args[0], 2) + " ? " + expr(e->args[1]) + " : " + expr(e->args[2]) + ")";
    std::string name = "op_" + std::string(info(e->op).name);
    if (e->op == ScalarOp::bitcast_int_ || e->op == ScalarOp::bitcast_float_)
      name = "std::bit_cast<" + std::string(type_name(e->type.dtype)) + ">";
    return name + arguments(e->args);
  }

  void line(const std::string& text) { out_ += "\n" + std::string(indent_, ' ') + text; }

  void statements(const Block& block) {
    if (!block) return;
    for (const Stmt& s : block->stmts) std::visit([this](const auto& stmt) { statement(stmt); }, s);
  }

  void braces(const std::string& head, const Block& block) {
    line(head + " {");
    indent_ += 2;
    statements(block);
    indent_ -= 2;
    line("}");
  }

  void statement(const Block& block) { braces("", block); }

  void statement(const For& s) {
    if (s.reduction)
      for (const State& state : s.reduction->states)
        line(std::string(type_name(state.type.dtype)) + " " + identifier(state.name) + " = " +
             expr(state.init) + ";");
    if (s.kind == ForKind::kParallel) line("#pragma omp parallel for");
    if (s.kind == ForKind::kVector)
      line("// in vectors of " + std::to_string(s.lanes) + ", " + std::to_string(s.unroll) + " at a time");
    const std::string& var = identifier(s.var);
    line("for (int64_t " + var + " = " + expr(s.begin) + "; " + var + " < " + expr(s.end) + "; ++" + var +
         ") {");
    indent_ += 2;
    statements(s.body);
    if (s.reduction) yield(*s.reduction);
    indent_ -= 2;
    line("}");
  }

  // All states are updated together: each next value reads the old values.
  void yield(const Reduction& reduction) {
    const bool one = reduction.states.size() == 1;
    for (size_t i = 0; i < reduction.states.size(); ++i) {
      const State& state = reduction.states[i];
      const std::string& name = identifier(state.name);
      line((one ? name
                : "const " + std::string(type_name(state.type.dtype)) + " " +
                      identifier(state.name + ".next")) +
           " = " + expr(reduction.yield[i]) + ";");
    }
    if (one) return;
    for (const State& state : reduction.states)
      line(identifier(state.name) + " = " + identifier(state.name + ".next") + ";");
  }

  void statement(const Let& s) {
    line("const " + std::string(type_name(s.value->type.dtype)) + " " + identifier(s.name) + " = " +
         expr(s.value) + ";");
  }

  void statement(const Store& s) {
    line((s.mask ? "if (" + expr(s.mask) + ") " : "") + identifier(s.buffer) + "[" + expr(s.index) +
         "] = " + expr(s.value) + ";");
  }

  void statement(const Alloc& s) {
    line("const auto " + identifier(s.buffer) + " = std::make_unique_for_overwrite<" +
         std::string(type_name(s.dtype)) + "[]>(static_cast<size_t>(" + expr(s.extent) + "));");
  }

  void statement(const If& s) {
    braces("if (" + expr(s.condition) + ")", s.then_body);
    if (s.else_body) braces("else", s.else_body);
  }

  void statement(const Call& s) { line(s.function + arguments(s.args) + ";"); }

  const Function& f_;
  std::string out_;
  size_t indent_ = 0;
  std::map<std::string, std::string> names_;
  std::set<std::string> used_;
};

}  // namespace

std::string print_cpp(const Function& f) { return CppPrinter(f).run(); }

std::string_view cpp_prelude() {
  return R"(// Kernels written by ipexc --emit cpp. Compile with: g++ -std=c++20 -O3 -march=native -ffp-contract=off -fopenmp
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <numbers>
#include <type_traits>

namespace {

// The 16-bit floats: stored in memory, computed with as float.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float x) {
    const uint32_t wide = std::bit_cast<uint32_t>(x);
    bits = x != x ? 0x7fc0 : static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  explicit f16(float x) : bits(std::bit_cast<uint16_t>(static_cast<_Float16>(x))) {}
  explicit operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};
template <class T>
constexpr bool is_half = std::is_same_v<T, bf16> || std::is_same_v<T, f16>;
template <class T>
constexpr bool is_floating = std::is_floating_point_v<T> || is_half<T>;

// Conversions as PyTorch's: integers wrap, floats truncate, NaN and what does not fit give the least integer.
template <class To, class From>
To cast(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (is_half<From>) {
    return cast<To>(static_cast<float>(x));
  } else if constexpr (is_half<To>) {
    return To(static_cast<float>(x));
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Wide = std::conditional_t<sizeof(To) == 8, int64_t, int32_t>;
    const double limit = sizeof(To) == 8 ? 0x1p63 : 0x1p31, whole = std::trunc(static_cast<double>(x));
    return static_cast<To>(whole >= -limit && whole < limit ? static_cast<Wide>(whole)
                                                            : std::numeric_limits<Wide>::min());
  } else {
    return static_cast<To>(x);
  }
}

// Integers wrap at their width; division by zero gives zero.
template <class T>
using Unsigned = std::make_unsigned_t<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>;
template <class T> T op_add(T a, T b) { return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
template <class T> T op_sub(T a, T b) { return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b)); }
template <class T> T op_mul(T a, T b) { return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }
template <class T> T op_div(T a, T b) { return b == 0 ? T(0) : std::is_signed_v<T> && b == T(-1) ? op_sub(T(0), a) : static_cast<T>(a / b); }
template <class T> T op_rem(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmod(a, b);
  else return b == 0 || (std::is_signed_v<T> && b == T(-1)) ? T(0) : static_cast<T>(a % b);
}
template <class T> T op_floormod(T a, T b) {
  const T r = op_rem(a, b);
  return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
}
template <class T> T op_floordiv(T a, T b) {
  const T r = op_rem(a, b);
  if constexpr (std::is_floating_point_v<T>) {
    if (b == 0) return a / b;
    T q = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) q -= 1;
    if (q == 0) return std::copysign(T(0), a / b);
    const T floor = std::floor(q);
    return q - floor > T(0.5) ? floor + 1 : floor;
  } else {
    return static_cast<T>(op_div(a, b) - (r != 0 && (r < 0) != (b < 0)));
  }
}
// NaN if either is NaN.
template <class T> T op_min(T a, T b) { return a < b || a != a ? a : b; }
template <class T> T op_max(T a, T b) { return a > b || a != a ? a : b; }
template <class T> T op_neg(T a) { return static_cast<T>(-a); }
template <class T> T op_abs(T a) {
  if constexpr (std::is_floating_point_v<T>) return std::abs(a);
  else return a < 0 ? op_sub(T(0), a) : a;
}
template <class T> T op_bitand(T a, T b) { return static_cast<T>(a & b); }
template <class T> T op_bitor(T a, T b) { return static_cast<T>(a | b); }
template <class T> T op_bitxor(T a, T b) { return static_cast<T>(a ^ b); }
template <class T> T op_bitnot(T a) { return static_cast<T>(~a); }
inline bool op_bitnot(bool a) { return !a; }
template <class T> T op_shl(T a, T b) { return b < 0 || b >= T(8 * sizeof(T)) ? T(0) : static_cast<T>(static_cast<Unsigned<T>>(a) << b); }
template <class T> T op_shr(T a, T b) { return static_cast<T>(a >> (b < 0 || b >= T(8 * sizeof(T)) ? 8 * sizeof(T) - 1 : b)); }
template <class T> T op_fma(T a, T b, T c) { return std::fma(a, b, c); }
template <class T> void prefetch(const T&) {}
inline float op_pair_bf16(float a, float b) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16(b).bits) << 16 | bf16(a).bits);
}
inline float op_dot_bf16(float a, float b, float c) {
  const auto lower = [](float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) << 16); };
  const auto upper = [](float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u); };
  return std::fma(lower(a), lower(b), std::fma(upper(a), upper(b), c));
}
inline float op_scale(float a, float b) { return std::ldexp(a, static_cast<int>(b)); }
template <class... V> float op_lookup(float a, V... values) {
  return std::array<float, sizeof...(V)>{values...}[std::bit_cast<uint32_t>(a) & 15];
}
template <class T> T op_copysign(T a, T b) { return std::copysign(a, b); }
template <class T> T op_pow(T a, T b) { return std::pow(a, b); }
template <class T> T op_atan2(T a, T b) { return std::atan2(a, b); }
template <class T> bool op_isnan(T a) { return a != a; }
template <class T> bool op_isinf(T a) { return std::isinf(a); }
template <class T> T op_rsqrt(T a) { return T(1) / std::sqrt(a); }
template <class T> T op_round(T a) { return std::nearbyint(a); }
)"
         // One line for each function of <cmath>; the length of a string literal is limited.
         R"(template <class T> T op_floor(T a) { return std::floor(a); }
template <class T> T op_ceil(T a) { return std::ceil(a); }
template <class T> T op_trunc(T a) { return std::trunc(a); }
template <class T> T op_sqrt(T a) { return std::sqrt(a); }
template <class T> T op_exp(T a) { return std::exp(a); }
template <class T> T op_exp2(T a) { return std::exp2(a); }
template <class T> T op_expm1(T a) { return std::expm1(a); }
template <class T> T op_log(T a) { return std::log(a); }
template <class T> T op_log2(T a) { return std::log2(a); }
template <class T> T op_log10(T a) { return std::log10(a); }
template <class T> T op_log1p(T a) { return std::log1p(a); }
template <class T> T op_sin(T a) { return std::sin(a); }
template <class T> T op_cos(T a) { return std::cos(a); }
template <class T> T op_tan(T a) { return std::tan(a); }
template <class T> T op_asin(T a) { return std::asin(a); }
template <class T> T op_acos(T a) { return std::acos(a); }
template <class T> T op_atan(T a) { return std::atan(a); }
template <class T> T op_sinh(T a) { return std::sinh(a); }
template <class T> T op_cosh(T a) { return std::cosh(a); }
template <class T> T op_tanh(T a) { return std::tanh(a); }
template <class T> T op_asinh(T a) { return std::asinh(a); }
template <class T> T op_acosh(T a) { return std::acosh(a); }
template <class T> T op_atanh(T a) { return std::atanh(a); }
template <class T> T op_erf(T a) { return std::erf(a); }
template <class T> T op_erfc(T a) { return std::erfc(a); }
template <class T> T op_exp_nonpositive(T a, T) { return std::exp(a); }
template <class T> T op_normal_cdf(T a) { return std::erfc(-a * std::numbers::sqrt2_v<T> / 2) / 2; }
template <class T> T op_gelu_slope(T a) {
  if (std::isinf(a)) return op_normal_cdf(a);
  return op_normal_cdf(a) + a * std::exp(-a * a / 2) * std::numbers::inv_sqrtpi_v<T> * std::numbers::sqrt2_v<T> / 2;
}
template <class T> T tanh_inner(T a) {
  return std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T> * (a + T(0.044715) * a * a * a);
}
template <class T> T op_tanh_cdf(T a) { return 1 / (1 + std::exp(-2 * tanh_inner(a))); }
template <class T> T op_gelu_tanh_slope(T a) {
  if (std::abs(a) > 40) return op_tanh_cdf(a);
  const T e = std::exp(-2 * std::abs(tanh_inner(a)));
  const T inner_slope = std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T> * (1 + T(3 * 0.044715) * a * a);
  return op_tanh_cdf(a) + a * 2 * inner_slope * e / ((1 + e) * (1 + e));
}
template <class T> T op_lgamma(T a) { return std::lgamma(a); }

[[maybe_unused]] void ipex_report_index(int64_t index, int64_t size, int64_t error) {
  std::fprintf(stderr, "index %lld is out of bounds for a dimension of size %lld (error %lld)\n",
               static_cast<long long>(index), static_cast<long long>(size), static_cast<long long>(error));
  std::abort();
}

}  // namespace
)";
}

}  // namespace ipex::loop
