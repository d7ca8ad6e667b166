// Text to Graph: a recursive-descent parser over the characters. The Loop IR's expression parser reads dims.
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "backend/graph/constants.h"
#include "backend/graph/ir.h"
#include "codegen/loop/text.h"

namespace ipex::graph {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph parse_all() {
    Graph graph = parse_graph();
    skip_space();
    if (at_ != text_.size()) fail("text after the graph");
    return graph;
  }

 private:
  using Scope = std::map<std::string, Value, std::less<>>;

  [[noreturn]] void fail(const std::string& message) const {
    int line = 1, column = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) {
      if (text_[i] == '\n') {
        ++line;
        column = 1;
      } else {
        ++column;
      }
    }
    throw ParseError(std::to_string(line) + ":" + std::to_string(column) + ": " + message);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  // Skips white space and comments. (A comment after a node is its source; parse_node reads it.)
  void skip_space() {
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
      if (peek() != '#') return;
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    }
  }

  bool accept(std::string_view token) {
    skip_space();
    if (text_.substr(at_, token.size()) != token) return false;
    const size_t end = at_ + token.size();
    if (is_word(token.back()) && end < text_.size() && is_word(text_[end])) return false;  // a longer word
    at_ = end;
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail("expected '" + std::string(token) + "'");
  }

  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

  std::string word(std::string_view extra = "") {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || extra.find(text_[at_]) != std::string_view::npos))
      ++at_;
    if (begin == at_) fail("expected a name");
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string value_word() {
    expect("%");
    return word(".");
  }

  int64_t integer() {
    skip_space();
    int64_t value = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("expected an integer");
    at_ = end - text_.data();
    return value;
  }

  std::string quoted() {
    expect("\"");
    std::string text;
    while (peek() != '"') {
      if (at_ >= text_.size()) fail("unterminated string");
      if (peek() == '\\') {
        ++at_;
        text += peek() == 'n' ? '\n' : peek();
      } else {
        text += peek();
      }
      ++at_;
    }
    ++at_;
    return text;
  }

  // Comma-separated dims up to the closing character; commas inside parentheses belong to an expression.
  std::vector<Dim> dims(char close) {
    std::vector<Dim> result;
    skip_space();
    while (peek() != close) {
      const size_t begin = at_;
      int depth = 0;
      for (; at_ < text_.size(); ++at_) {
        const char c = text_[at_];
        if (depth == 0 && (c == ',' || c == close)) break;
        if (c == '(') ++depth;
        if (c == ')') --depth;
        if (c == '\n') fail("unterminated list of dims");
      }
      if (at_ >= text_.size()) fail("unterminated list of dims");
      try {
        result.push_back(loop::parse_expr(text_.substr(begin, at_ - begin)));
      } catch (const ParseError& error) {
        at_ = begin;
        fail(std::string("bad dim: ") + error.what());
      }
      if (peek() == ',') {
        ++at_;
        skip_space();
      }
    }
    ++at_;
    return result;
  }

  Dtype dtype() {
    const std::string text = word();
    const auto parsed = parse_dtype(text);
    if (!parsed) fail("unknown dtype '" + text + "'");
    return *parsed;
  }

  Type type() {
    Type result;
    result.dtype = dtype();
    expect("[");
    result.shape = dims(']');
    return result;
  }

  Strides optional_strides() { return peek() == '{' ? (++at_, dims('}')) : Strides{}; }

  Attr number() {
    skip_space();
    if (accept("-inf")) return -std::numeric_limits<double>::infinity();
    if (accept("inf")) return std::numeric_limits<double>::infinity();
    if (accept("nan")) return std::numeric_limits<double>::quiet_NaN();
    size_t end = at_;
    bool real = false;
    while (end < text_.size() &&
           (is_word(text_[end]) || text_[end] == '.' || text_[end] == '-' || text_[end] == '+')) {
      real |= text_[end] == '.' || text_[end] == 'e';
      ++end;
    }
    if (!real) return integer();
    double value = 0;
    auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + end, value);
    if (error != std::errc() || stop != text_.data() + end) fail("bad number");
    at_ = end;
    return value;
  }

  Attr attribute() {
    skip_space();
    if (accept("true")) return true;
    if (accept("false")) return false;
    if (peek() == '"') return quoted();
    if (accept("dim(")) {
      std::vector<Dim> one = dims(')');
      if (one.size() != 1) fail("dim(...) holds one expression");
      return one[0];
    }
    if (accept("(")) return dims(')');
    if (!accept("[")) return number();
    skip_space();
    if (peek() == '"') {
      std::vector<std::string> strings;
      do strings.push_back(quoted());
      while (accept(","));
      expect("]");
      return strings;
    }
    std::vector<int64_t> integers;
    while (!accept("]")) {
      integers.push_back(integer());
      accept(",");
    }
    return integers;
  }

  // Runs `read` and reports its errors at a position of the text.
  template <class Fn>
  auto at(size_t begin, Fn read) {
    try {
      return read();
    } catch (const UserError& error) {
      at_ = begin;
      fail(error.what());
    }
  }

  std::vector<Number> numbers() {
    std::vector<Number> result;
    while (!accept("]")) {
      const Attr value = number();
      if (const double* real = std::get_if<double>(&value)) {
        result.push_back(*real);
      } else {
        result.push_back(std::get<int64_t>(value));
      }
      accept(",");
    }
    return result;
  }

  // The numbers of a list have the constant's dtype, which the text gives after them.
  struct Payload {
    size_t at = 0;
    std::vector<Number> numbers;
    std::optional<std::vector<std::byte>> bytes;
  };
  void set_payload(Node& node, const Payload& payload) {
    auto data = std::make_shared<ConstantData>();
    if (payload.bytes) {
      data->bytes = *payload.bytes;
    } else {
      at(payload.at, [&] {
        for (Number n : payload.numbers) encode_number(n, node.types[0].dtype, data->bytes);
      });
    }
    node.get<Constant>().data = std::move(data);
  }

  Value look_up(const Scope& scope) {
    const size_t begin = at_;
    const std::string name = value_word();
    auto it = scope.find(name);
    if (it == scope.end()) {
      at_ = begin;
      fail("unknown value %" + name);
    }
    return it->second;
  }

  void parse_node(Graph& graph, Scope& scope) {
    std::vector<std::string> results;
    do results.push_back(value_word());
    while (accept(","));
    expect("=");
    Node node;
    skip_space();
    const size_t op_at = at_;
    const std::string op = word(), name = peek() == '.' ? (++at_, word(".:")) : "";
    if (accept("(")) {
      while (!accept(")")) {
        node.operands.push_back(look_up(scope));
        accept(",");
      }
    }
    std::optional<Payload> payload;
    std::shared_ptr<const Graph> body;
    Attrs attrs;
    skip_space();
    while (peek() != ':') {
      if (accept("graph")) {
        at_ -= 5;
        body = std::make_shared<Graph>(parse_graph());
      } else {
        const std::string key = word();
        expect("=");
        skip_space();
        const size_t begin = at_;
        if (op == "constant" && key == "data") {
          const std::string text = quoted();
          payload = Payload{begin, {}, at(begin, [&] { return decode_base64(text); })};
        } else if (op == "constant" && accept("[")) {
          payload = Payload{begin, numbers(), std::nullopt};
        } else {
          attrs[key] = attribute();
        }
      }
      skip_space();
    }
    node.operation = at(op_at, [&] { return make_operation(op, name, std::move(attrs)); });
    if (auto* group = std::get_if<Group>(&node.operation)) group->body = std::move(body);
    ++at_;
    for (size_t r = 0; r < results.size(); ++r) {
      if (r) expect(",");
      node.types.push_back(type());
      Strides strides = optional_strides();
      if (strides.empty()) continue;
      node.layouts.resize(results.size());
      node.layouts[r] = std::move(strides);
    }
    if (payload) set_payload(node, *payload);
    while (peek() == ' ') ++at_;
    if (peek() == '#') {
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      const size_t begin = std::min(text_.find_first_not_of("# ", at_), end);
      node.source = std::string(text_.substr(begin, end - begin));
      at_ = end;
    }
    const Value value = graph.add(std::move(node));
    for (size_t r = 0; r < results.size(); ++r)
      if (!scope.emplace(results[r], Value{value.node, static_cast<int32_t>(r)}).second)
        fail("%" + results[r] + " is defined twice");
  }

  Graph parse_graph() {
    Graph graph;
    Scope scope;
    expect("graph");
    graph.name = word();
    expect("(");
    while (!accept(")")) {
      const std::string name = value_word();
      Node input{Input{name, false}};
      expect(":");
      input.types.push_back(type());
      if (Strides strides = optional_strides(); !strides.empty()) input.layouts.push_back(std::move(strides));
      input.get<Input>().is_static = accept("static");
      const Value value = graph.add(std::move(input));
      graph.inputs.push_back(value.node);
      if (!scope.emplace(name, value).second) fail("%" + name + " is defined twice");
      accept(",");
    }
    if (accept("symbols")) {
      expect("(");
      while (!accept(")")) {
        graph.symbols.push_back(word());
        graph.symbol_hints.push_back(accept("=") ? integer() : 64);
        if (accept(">=")) graph.symbol_lows[graph.symbols.back()] = integer();
        accept(",");
      }
    }
    expect("{");
    while (!accept("return")) parse_node(graph, scope);
    for (;;) {
      while (peek() == ' ' || peek() == ',') ++at_;
      if (peek() != '%') break;
      const Value value = look_up(scope);
      graph.outputs.push_back({value, optional_strides()});
    }
    while (accept("mutate")) {
      const Value target = look_up(scope);
      expect("=");
      const Value value = look_up(scope);
      InputMutation mutation{-1, value};
      for (size_t i = 0; i < graph.inputs.size(); ++i)
        if (graph.inputs[i] == target.node) mutation.input = static_cast<int>(i);
      if (mutation.input < 0) fail("only an input can be mutated");
      graph.mutations.push_back(mutation);
    }
    expect("}");
    return graph;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Graph parse(std::string_view text) {
  Graph graph = Parser(text).parse_all();
  verify(graph);
  return graph;
}

}  // namespace ipex::graph
