// Prints Loop IR. The grammar is in text.h and codegen/README.md; parse.cpp reads exactly what this writes.
#include <array>
#include <charconv>
#include <cmath>

#include "codegen/loop/text.h"
#include "codegen/loop/type_rules.h"

namespace ipex::loop {
namespace {

// The precedence of an expression. An operand gets parentheses if its precedence is lower than its place
// requires.
enum Precedence { kComparison = 1, kAdditive, kMultiplicative, kUnary, kPrimary };

struct Infix {
  std::string_view text;
  Precedence precedence;
};

std::optional<Infix> infix(ScalarOp op) {
  switch (op) {
    case ScalarOp::add_:
      return Infix{" + ", kAdditive};
    case ScalarOp::sub_:
      return Infix{" - ", kAdditive};
    case ScalarOp::mul_:
      return Infix{"*", kMultiplicative};
    case ScalarOp::floordiv_:
      return Infix{"//", kMultiplicative};
    case ScalarOp::floormod_:
      return Infix{"%", kMultiplicative};
    case ScalarOp::eq_:
      return Infix{" == ", kComparison};
    case ScalarOp::ne_:
      return Infix{" != ", kComparison};
    case ScalarOp::lt_:
      return Infix{" < ", kComparison};
    case ScalarOp::le_:
      return Infix{" <= ", kComparison};
    case ScalarOp::gt_:
      return Infix{" > ", kComparison};
    case ScalarOp::ge_:
      return Infix{" >= ", kComparison};
    default:
      return std::nullopt;
  }
}

class Printer {
 public:
  std::string take() { return std::move(out_); }

  void expr(const Expr& e, int least = kComparison) {
    if (!e) {
      out_ += "<null>";
      return;
    }
    switch (e->kind) {
      case ExprKind::kConst:
        constant(*e);
        break;
      case ExprKind::kVar:
        out_ += e->name;
        break;
      case ExprKind::kLoad:
        load(*e);
        break;
      case ExprKind::kApply:
        apply(*e, least);
        break;
      case ExprKind::kCast:
        named("cast." + std::string(name(e->type.dtype)), e->args);
        break;
      case ExprKind::kReduceLanes:
        named("reduce_lanes." + std::string(info(e->op).name), e->args);
        break;
      case ExprKind::kRamp:
      case ExprKind::kBroadcast:
      case ExprKind::kShuffle:
        out_ += e->is(ExprKind::kRamp) ? "ramp(" : e->is(ExprKind::kBroadcast) ? "broadcast(" : "shuffle(";
        for (const Expr& arg : e->args) {
          expr(arg);
          out_ += ", ";
        }
        if (e->is(ExprKind::kShuffle))
          mask(e->shuffle_mask);
        else
          number(e->type.lanes);
        out_ += ')';
        break;
    }
  }

  void function(const Function& f) {
    out_ += "func " + f.name + "(";
    constexpr std::array access = {"in ", "out ", "inout "};
    for (size_t i = 0; i < f.buffers.size(); ++i) {
      const Buffer& b = f.buffers[i];
      if (i) out_ += ", ";
      out_ += access[static_cast<size_t>(b.access)] + b.name + ": ";
      buffer_type(b.dtype, b.extent);
      if (b.streamed) out_ += " streamed";
    }
    out_ += ") ";
    if (!f.symbols.empty()) {
      out_ += "symbols(";
      for (size_t i = 0; i < f.symbols.size(); ++i) {
        out_ += (i ? ", " : "") + f.symbols[i];
        if (auto low = f.symbol_lows.find(f.symbols[i]); low != f.symbol_lows.end())
          out_ += " >= " + std::to_string(low->second);
      }
      out_ += ") ";
    }
    block(f.body);
    out_ += '\n';
  }

 private:
  void mask(const std::vector<int>& lanes) {
    for (size_t i = 0; i < lanes.size(); ++i) {
      out_ += i == 0 ? "[" : ", ";
      number(lanes[i]);
    }
    out_ += ']';
  }

  void number(int64_t value) {
    std::array<char, 24> text;
    out_.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
  }

  void constant(const ExprNode& e) {
    if (!is_float(e.type.dtype)) {
      number(e.int_value);
      if (e.type.dtype != Dtype::kI64) out_ += name(e.type.dtype);
      return;
    }
    if (std::isnan(e.float_value)) {
      out_ += "nan";
    } else if (std::isinf(e.float_value)) {
      out_ += e.float_value < 0 ? "-inf" : "inf";
    } else {
      std::array<char, 32> text;
      char *begin = text.data(), *end = begin + text.size();
      // Half values are f32 values, and the shortest digits of the f32 read back exactly.
      auto result = e.type.dtype == Dtype::kF64
                        ? std::to_chars(begin, end, e.float_value)
                        : std::to_chars(begin, end, static_cast<float>(e.float_value));
      out_.append(begin, result.ptr);
    }
    switch (e.type.dtype) {
      case Dtype::kF32:
        out_ += 'f';
        break;
      case Dtype::kF64:
        out_ += 'd';
        break;
      default:
        out_ += name(e.type.dtype);
    }
  }

  void list(const std::vector<Expr>& items) {
    out_ += '(';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out_ += ", ";
      expr(items[i]);
    }
    out_ += ')';
  }

  void named(std::string_view head, const std::vector<Expr>& args) {
    out_ += head;
    list(args);
  }

  void load(const ExprNode& e) {
    out_ += e.name + "[";
    expr(e.args[0]);
    if (e.args.size() > 1) {
      out_ += " if ";
      expr(e.args[1]);
    }
    out_ += ']';
  }

  void apply(const ExprNode& e, int least) {
    if (auto op = infix(e.op)) {
      bool parentheses = op->precedence < least;
      if (parentheses) out_ += '(';
      // Chains of + and -, and of * // %, are left-associative. Comparisons do not chain.
      expr(e.args[0], op->precedence == kComparison ? kAdditive : op->precedence);
      out_ += op->text;
      expr(e.args[1], op->precedence + 1);
      if (parentheses) out_ += ')';
    } else if (e.op == ScalarOp::neg_ && !e.args[0]->is(ExprKind::kConst)) {
      out_ += '-';  // `-1` would read back as the constant -1
      expr(e.args[0], kPrimary);
    } else {
      out_ += info(e.op).name;
      bool bitcast = e.op == ScalarOp::bitcast_int_ || e.op == ScalarOp::bitcast_float_;
      if (bitcast && e.type != apply_type(e.op, e.args)) {
        out_ += '.';
        out_ += name(e.type.dtype);
      }
      list(e.args);
    }
  }

  void buffer_type(Dtype dtype, const Expr& extent) {
    out_ += name(dtype);
    out_ += '[';
    expr(extent);
    out_ += ']';
  }

  void line() {
    out_ += '\n';
    out_.append(indent_, ' ');
  }

  void block(const Block& b) {
    out_ += '{';
    indent_ += 2;
    if (b)
      for (const Stmt& s : b->stmts) {
        line();
        std::visit([this](const auto& stmt) { statement(stmt); }, s);
      }
    indent_ -= 2;
    line();
    out_ += '}';
  }

  void statement(const Block& b) { block(b); }

  void statement(const For& s) {
    out_ += "for ";
    bool plain = s.kind == ForKind::kSerial && s.grain == 1 && s.lanes == 1 && s.unroll == 1;
    if (!plain) {
      constexpr std::array kinds = {"serial", "parallel", "vector"};
      out_ += kinds[static_cast<size_t>(s.kind)];
      std::string_view separator = "(";
      auto option = [&](std::string_view key, int64_t value) {
        if (value == 1) return;
        out_ += separator;
        out_ += key;
        number(value);
        separator = ", ";
      };
      option("grain=", s.grain);
      option("lanes=", s.lanes);
      option("unroll=", s.unroll);
      out_ += separator == "(" ? " " : ") ";
    }
    out_ += s.var + " in ";
    expr(s.begin);
    out_ += "..";
    expr(s.end);
    out_ += ' ';
    if (s.reduction) {
      out_ += "reduce(";
      for (size_t i = 0; i < s.reduction->states.size(); ++i) {
        const State& state = s.reduction->states[i];
        if (i) out_ += ", ";
        out_ += state.name + ": " + to_string(state.type) + " = ";
        expr(state.init);
        if (equal(state.init, state.identity)) continue;
        out_ += " identity(";
        expr(state.identity);
        out_ += ')';
      }
      out_ += ") ";
    }
    block(s.body);
    if (s.reduction) {
      named(" yield", s.reduction->yield);
      named(" merge", s.reduction->merge);
    }
  }

  void statement(const Let& s) {
    out_ += "let " + s.name + ": " + (s.value ? to_string(s.value->type) : "<null>") + " = ";
    expr(s.value);
  }

  void statement(const Store& s) {
    out_ += s.buffer + "[";
    expr(s.index);
    out_ += "] = ";
    expr(s.value);
    if (!s.mask) return;
    out_ += " if ";
    expr(s.mask);
  }

  void statement(const Alloc& s) {
    out_ += "alloc " + s.buffer + ": ";
    buffer_type(s.dtype, s.extent);
  }

  void statement(const If& s) {
    out_ += "if ";
    expr(s.condition);
    out_ += ' ';
    block(s.then_body);
    if (!s.else_body) return;
    out_ += " else ";
    block(s.else_body);
  }

  void statement(const Call& s) { named("call " + s.function, s.args); }

  std::string out_;
  size_t indent_ = 0;
};

}  // namespace

std::string print(const Expr& e) {
  Printer printer;
  printer.expr(e);
  return printer.take();
}

std::string print(const Function& f) {
  Printer printer;
  printer.function(f);
  return printer.take();
}

std::string print(const std::vector<Function>& module) {
  Printer printer;
  for (const Function& f : module) printer.function(f);
  return printer.take();
}

}  // namespace ipex::loop
