// Parses Loop IR by recursive descent with one token of lookahead. Types are found bottom-up: constants carry
// theirs, and buffers and variables have them from their declarations. Constructors check operand types, and
// the parser adds a position to their errors. The parser only records what a name was declared as; the
// verifier checks scopes and that names are bound once.
#include <array>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "codegen/loop/lexer.h"
#include "codegen/loop/text.h"
#include "codegen/loop/type_rules.h"

namespace ipex::loop {
namespace {

[[noreturn]] void fail(const Token& at, const std::string& message) {
  throw ParseError(std::to_string(at.line) + ":" + std::to_string(at.column) + ": " + message);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) { advance(); }

  bool at_end() const { return token_.kind == Token::kEnd; }
  void expect_end() {
    if (!at_end()) fail(token_, "expected the end of the text, got " + quoted());
  }
  void declare(std::string name, Type type) { types_[std::move(name)] = type; }
  void unknown_names_are_indices(bool on) { unknown_is_index_ = on; }

  Expr expr() {
    Expr left = additive();
    constexpr std::array<std::pair<std::string_view, ScalarOp>, 6> comparisons = {{{"==", ScalarOp::eq_},
                                                                                   {"!=", ScalarOp::ne_},
                                                                                   {"<", ScalarOp::lt_},
                                                                                   {"<=", ScalarOp::le_},
                                                                                   {">", ScalarOp::gt_},
                                                                                   {">=", ScalarOp::ge_}}};
    for (auto [text, op] : comparisons)
      if (is(text)) {
        Token at = take();
        return binary(at, op, std::move(left), additive());
      }
    return left;
  }

  Function function() {
    types_.clear();
    keyword("func");
    Function f;
    f.name = name("a function name");
    symbol("(");
    unknown_is_index_ = true;  // extents precede the symbols that they use
    if (!is(")")) do {
        f.buffers.push_back(buffer());
      } while (accept(","));
    symbol(")");
    if (accept("symbols")) {
      symbol("(");
      do {
        f.symbols.push_back(name("a symbol"));
        if (accept(">=")) {
          const bool negative = accept("-");
          const int64_t low = integer("the symbol's least value");
          f.symbol_lows[f.symbols.back()] = negative ? -low : low;
        }
      } while (accept(","));
      symbol(")");
    }
    unknown_is_index_ = false;
    for (const std::string& s : f.symbols) declare(s, kIndex);
    f.body = block();
    return f;
  }

 private:
  // ---- tokens ----

  void advance() { token_ = lexer_.next(); }
  Token take() {
    Token token = token_;
    advance();
    return token;
  }
  bool is(std::string_view text) const { return token_.kind != Token::kEnd && token_.text == text; }
  bool accept(std::string_view text) {
    if (!is(text)) return false;
    advance();
    return true;
  }
  std::string quoted() const {
    return at_end() ? "the end of the text" : "'" + std::string(token_.text) + "'";
  }
  void symbol(std::string_view text) {
    if (!accept(text)) fail(token_, "expected '" + std::string(text) + "', got " + quoted());
  }
  void keyword(std::string_view text) { symbol(text); }

  std::string name(const std::string& what) {
    if (token_.kind != Token::kWord || !is_name(token_.text))
      fail(token_, "expected " + what + ", got " + quoted());
    return std::string(take().text);
  }

  int64_t integer(const std::string& what) {
    Token at = token_;
    int64_t value = 0;
    const char* end = at.text.data() + at.text.size();
    if (at.kind != Token::kNumber || std::from_chars(at.text.data(), end, value).ptr != end)
      fail(at, "expected " + what + ", got " + quoted());
    advance();
    return value;
  }
  int small_integer(const std::string& what, int least = 1) {
    Token at = token_;
    int64_t value = integer(what);
    if (value < least || value > 4096)
      fail(at, "expected " + what + " from " + std::to_string(least) + " to 4096, got '" +
                   std::string(at.text) + "'");
    return static_cast<int>(value);
  }

  Dtype dtype() {
    auto parsed = token_.kind == Token::kWord ? parse_dtype(token_.text) : std::nullopt;
    if (!parsed) fail(token_, "expected a type such as f32 or i64, got " + quoted());
    advance();
    return *parsed;
  }

  Type type() {  // f32, f32x16
    std::string_view text = token_.text;
    size_t x = text.rfind('x');
    if (token_.kind == Token::kWord && x != std::string_view::npos)
      if (auto scalar = parse_dtype(text.substr(0, x))) {
        Type parsed{*scalar, 0};
        const char* end = text.data() + text.size();
        auto result = std::from_chars(text.data() + x + 1, end, parsed.lanes);
        if (result.ec == std::errc() && result.ptr == end && parsed.lanes > 1) {
          advance();
          return parsed;
        }
      }
    return {dtype(), 1};
  }

  // Runs a constructor. An ill-typed node is a mistake in the text, so it is reported with its position.
  template <class Make>
  Expr checked(const Token& at, Make make) {
    try {
      return make();
    } catch (const InternalError& error) {
      fail(at, error.what());
    }
  }

  // ---- expressions ----

  Expr binary(const Token& at, ScalarOp op, Expr a, Expr b) {
    return checked(at, [&] { return make_apply(op, {std::move(a), std::move(b)}); });
  }

  Expr additive() {
    Expr left = multiplicative();
    while (is("+") || is("-")) {
      Token at = take();
      left = binary(at, at.text == "+" ? ScalarOp::add_ : ScalarOp::sub_, std::move(left), multiplicative());
    }
    return left;
  }

  Expr multiplicative() {
    Expr left = unary();
    while (is("*") || is("//") || is("%")) {
      Token at = take();
      ScalarOp op = at.text == "*"    ? ScalarOp::mul_
                    : at.text == "//" ? ScalarOp::floordiv_
                                      : ScalarOp::floormod_;
      left = binary(at, op, std::move(left), unary());
    }
    return left;
  }

  Expr unary() {
    if (!is("-")) return primary();
    Token at = take();
    if (token_.kind == Token::kNumber || is_special(token_.text)) return constant(true);
    Expr x = unary();
    return checked(at, [&] { return make_apply(ScalarOp::neg_, {std::move(x)}); });
  }

  Expr primary() {
    if (token_.kind == Token::kNumber || is_special(token_.text)) return constant(false);
    if (accept("(")) {
      Expr e = expr();
      symbol(")");
      return e;
    }
    if (token_.kind != Token::kWord) fail(token_, "expected an expression, got " + quoted());
    Token at = take();
    if (is("(")) return call(at);
    if (is("[")) return load(at);
    std::string text(at.text);
    auto it = types_.find(text);
    if (it != types_.end()) return make_var(std::move(text), it->second);
    if (!unknown_is_index_ || !is_name(text)) fail(at, "unknown name '" + text + "'");
    return make_var(std::move(text));
  }

  static bool is_special(std::string_view text) {
    return (text.starts_with("inf") || text.starts_with("nan")) && float_suffix(text.substr(3));
  }
  static std::optional<Dtype> float_suffix(std::string_view suffix) {
    if (suffix.empty() || suffix == "f") return Dtype::kF32;
    if (suffix == "d") return Dtype::kF64;
    auto parsed = parse_dtype(suffix);
    return parsed && is_half(*parsed) ? parsed : std::nullopt;
  }

  Expr constant(bool negative) {
    Token at = take();
    std::string_view text = at.text;
    if (is_special(text)) {
      double value =
          text[0] == 'n' ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
      return make_const({*float_suffix(text.substr(3)), 1}, negative ? -value : value);
    }
    size_t digits = text.find_first_not_of("0123456789");
    std::string_view suffix = digits == std::string_view::npos ? "" : text.substr(digits);
    bool integer_suffix = suffix.empty();
    Dtype dtype = Dtype::kI64;
    if (auto parsed = parse_dtype(suffix); parsed && !is_float(*parsed)) {
      dtype = *parsed;
      integer_suffix = true;
    }
    return integer_suffix ? integer_constant(at, text.substr(0, digits), dtype, negative)
                          : float_constant(at, negative);
  }

  Expr integer_constant(const Token& at, std::string_view digits, Dtype dtype, bool negative) {
    uint64_t magnitude = 0;
    auto result = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude);
    auto value = static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
    uint64_t limit = static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + (negative ? 1 : 0);
    bool fits = result.ec == std::errc() && magnitude <= limit;
    Expr e = make_int({dtype, 1}, value);
    if (!fits || e->int_value != value)
      fail(at, "'" + std::string(negative ? "-" : "") + std::string(at.text) + "' is out of range for " +
                   std::string(ipex::name(dtype)));
    return e;
  }

  Expr float_constant(const Token& at, bool negative) {
    // The longest numeric prefix, followed by the type. The number is read in the precision of the type, so
    // that the shortest digits are exact.
    const char *begin = at.text.data(), *end = begin + at.text.size();
    double wide = 0;
    auto read = std::from_chars(begin, end, wide);
    auto dtype = float_suffix({read.ptr, static_cast<size_t>(end - read.ptr)});
    if (read.ec == std::errc::invalid_argument || !dtype)
      fail(at, "'" + std::string(at.text) + "' is not a number");
    if (*dtype != Dtype::kF64) {
      float narrow = 0;
      read = std::from_chars(begin, end, narrow);
      wide = narrow;
    }
    if (read.ec == std::errc::result_out_of_range)
      fail(at, "'" + std::string(at.text) + "' is out of range for " + std::string(ipex::name(*dtype)));
    return make_const({*dtype, 1}, negative ? -wide : wide);
  }

  std::vector<Expr> arguments() {
    std::vector<Expr> args;
    symbol("(");
    if (!is(")")) do {
        args.push_back(expr());
      } while (accept(","));
    symbol(")");
    return args;
  }

  Expr call(const Token& at) {
    std::string_view head = at.text, suffix;
    if (size_t dot = head.find('.'); dot != std::string_view::npos) {
      suffix = head.substr(dot + 1);
      head = head.substr(0, dot);
    }
    if (head == "ramp" || head == "broadcast") {
      symbol("(");
      Expr x = expr();
      symbol(",");
      Expr stride;
      if (head == "ramp") {
        stride = expr();
        symbol(",");
      }
      int lanes = small_integer("a number of lanes");
      symbol(")");
      return checked(at, [&] { return stride ? make_ramp(x, stride, lanes) : make_broadcast(x, lanes); });
    }
    if (head == "shuffle") {
      symbol("(");
      Expr a = expr();
      symbol(",");
      Expr b = expr();
      symbol(",");
      symbol("[");
      std::vector<int> mask;
      do mask.push_back(small_integer("a lane", 0));
      while (accept(","));
      symbol("]");
      symbol(")");
      return checked(at, [&] { return make_shuffle(std::move(a), std::move(b), std::move(mask)); });
    }
    std::vector<Expr> args = arguments();
    if (head == "cast") {
      auto target = parse_dtype(suffix);
      if (!target || args.size() != 1) fail(at, "a cast is cast.<type>(x), such as cast.f32(x)");
      return make_cast(*target, std::move(args[0]));
    }
    if (head == "reduce_lanes") {
      auto op = parse_scalar_op(suffix);
      if (!op || args.size() != 1)
        fail(at, "a lane reduction is reduce_lanes.<op>(x), such as reduce_lanes.add(x)");
      return checked(at, [&] { return make_reduce_lanes(*op, std::move(args[0])); });
    }
    auto op = parse_scalar_op(head);
    if (!op) fail(at, "unknown scalar op '" + std::string(at.text) + "'");
    if (suffix.empty()) return checked(at, [&] { return make_apply(*op, std::move(args)); });
    auto result = parse_dtype(suffix);
    if (!result || args.empty()) fail(at, "unknown scalar op '" + std::string(at.text) + "'");
    Type type{*result, args[0]->type.lanes};
    return checked(at, [&] { return make_apply_as(*op, std::move(args), type); });
  }

  Expr load(const Token& at) {
    auto it = types_.find(std::string(at.text));
    if (it == types_.end()) fail(at, "unknown buffer '" + std::string(at.text) + "'");
    Dtype dtype = it->second.dtype;
    symbol("[");
    Expr index = expr(), mask;
    if (accept("if")) mask = expr();
    symbol("]");
    return checked(at,
                   [&] { return make_load(std::string(at.text), dtype, std::move(index), std::move(mask)); });
  }

  // ---- statements ----

  Buffer buffer() {
    Buffer b;
    if (accept("in"))
      b.access = Access::kIn;
    else if (accept("out"))
      b.access = Access::kOut;
    else if (accept("inout"))
      b.access = Access::kInOut;
    else
      fail(token_, "expected in, out or inout, got " + quoted());
    b.name = name("a buffer name");
    symbol(":");
    b.dtype = dtype();
    symbol("[");
    b.extent = expr();
    symbol("]");
    b.streamed = accept("streamed");
    declare(b.name, {b.dtype, 1});
    return b;
  }

  Block block() {
    symbol("{");
    std::vector<Stmt> stmts;
    while (!is("}")) {
      if (at_end()) fail(token_, "expected '}', got the end of the text");
      stmts.push_back(statement());
    }
    symbol("}");
    return make_block(std::move(stmts));
  }

  Stmt statement() {
    if (is("{")) return block();
    if (accept("for")) return for_loop();
    if (accept("let")) return let();
    if (accept("alloc")) return alloc();
    if (accept("if")) return conditional();
    if (accept("call")) {
      std::string function = name("a function name");
      return Call{std::move(function), arguments()};
    }
    return store();
  }

  For for_loop() {
    For loop;
    bool has_kind = true;
    if (accept("parallel"))
      loop.kind = ForKind::kParallel;
    else if (accept("vector"))
      loop.kind = ForKind::kVector;
    else
      has_kind = accept("serial");
    if (has_kind && accept("(")) {
      do {
        Token at = take();
        if (at.text != "grain" && at.text != "lanes" && at.text != "unroll")
          fail(at, "expected grain, lanes or unroll, got '" + std::string(at.text) + "'");
        symbol("=");
        if (at.text == "grain") loop.grain = integer("a grain");
        if (at.text == "lanes") loop.lanes = small_integer("a number of lanes");
        if (at.text == "unroll") loop.unroll = small_integer("a number of vectors");
      } while (accept(","));
      symbol(")");
    }
    loop.var = name("a loop variable");
    keyword("in");
    loop.begin = expr();
    symbol("..");
    loop.end = expr();
    declare(loop.var, kIndex);
    if (accept("reduce")) states(loop.reduction.emplace());
    loop.body = block();
    if (loop.reduction) {
      keyword("yield");
      loop.reduction->yield = arguments();
      for (const State& s : loop.reduction->states) declare(s.name + ".other", s.type);
      keyword("merge");
      loop.reduction->merge = arguments();
    }
    return loop;
  }

  void states(Reduction& reduction) {
    symbol("(");
    do {
      State s;
      s.name = name("a state name");
      symbol(":");
      s.type = type();
      symbol("=");
      s.init = expr();
      s.identity = s.init;
      if (accept("identity")) {
        symbol("(");
        s.identity = expr();
        symbol(")");
      }
      reduction.states.push_back(std::move(s));
    } while (accept(","));
    symbol(")");
    for (const State& s : reduction.states) declare(s.name, s.type);
  }

  Let let() {
    Let s;
    s.name = name("a name");
    Token at = token_;
    std::optional<Type> declared;
    if (accept(":")) declared = type();
    symbol("=");
    s.value = expr();
    if (declared && *declared != s.value->type)
      fail(at, "'" + s.name + "' is declared " + to_string(*declared) + ", its value is " +
                   to_string(s.value->type));
    declare(s.name, s.value->type);
    return s;
  }

  Alloc alloc() {
    Alloc s;
    s.buffer = name("a buffer name");
    symbol(":");
    s.dtype = dtype();
    symbol("[");
    s.extent = expr();
    symbol("]");
    declare(s.buffer, {s.dtype, 1});
    return s;
  }

  If conditional() {
    If s;
    s.condition = expr();
    s.then_body = block();
    if (accept("else")) s.else_body = block();
    return s;
  }

  Store store() {
    Token at = token_;
    Store s;
    s.buffer = name("a statement");
    if (!types_.contains(s.buffer)) fail(at, "unknown buffer '" + s.buffer + "'");
    symbol("[");
    s.index = expr();
    symbol("]");
    symbol("=");
    s.value = expr();
    // On the line of the value, `if` is the mask. On a line of its own, it begins the next statement.
    if (is("if") && !token_.begins_line) {
      advance();
      s.mask = expr();
    }
    return s;
  }

  Lexer lexer_;
  Token token_;
  std::unordered_map<std::string, Type> types_;
  bool unknown_is_index_ = false;
};

}  // namespace

Function parse_function(std::string_view text) {
  Parser parser(text);
  Function f = parser.function();
  parser.expect_end();
  return f;
}

std::vector<Function> parse_module(std::string_view text) {
  Parser parser(text);
  std::vector<Function> module;
  while (!parser.at_end()) module.push_back(parser.function());
  return module;
}

Expr parse_expr(std::string_view text, const std::vector<std::pair<std::string, Type>>& scope) {
  Parser parser(text);
  for (const auto& [name, type] : scope) parser.declare(name, type);
  parser.unknown_names_are_indices(true);
  Expr e = parser.expr();
  parser.expect_end();
  return e;
}

}  // namespace ipex::loop
