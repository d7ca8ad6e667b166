// Conversion between the struct of an op and its attributes by key, generic over all ops.
#include "backend/graph/attributes.h"

#include <unordered_map>

#include "codegen/loop/text.h"
#include "runtime/error.h"

namespace ipex::graph {
namespace {

constexpr OpInfo kOps[] = {
#define OP(Name, text, fusion, traits, operands, attributes, summary) \
  {text, Fusion::fusion, traits, operands, summary},
#include "backend/ops/structural.def"
};

// ---- from keys to fields ----

constexpr std::string_view what(const bool&) { return "true or false"; }
constexpr std::string_view what(const int64_t&) { return "an integer"; }
constexpr std::string_view what(const double&) { return "a number"; }
constexpr std::string_view what(const Number&) { return "a number"; }
constexpr std::string_view what(const std::string&) { return "a string"; }
constexpr std::string_view what(const Ints&) { return "a list of integers"; }
constexpr std::string_view what(const Strings&) { return "a list of strings"; }
constexpr std::string_view what(const Dim&) { return "a size"; }
constexpr std::string_view what(const Dims&) { return "a list of sizes"; }
template <NamedEnum E>
std::string what(const E&) {
  std::string names;
  for (std::string_view name : EnumText<E>::kAll) names += (names.empty() ? "" : ", ") + std::string(name);
  return "one of " + names;
}
template <class T>
auto what(const std::optional<T>&) {
  return what(T{});
}
template <class T, auto... kDefault>
auto what(const Defaulted<T, kDefault...>&) {
  return what(T{});
}

template <class T>
bool read(const Attr& attr, T& field) {
  const T* value = std::get_if<T>(&attr);
  if (value) field = *value;
  return value != nullptr;
}
bool read(const Attr& attr, double& field) {
  if (const auto* whole = std::get_if<int64_t>(&attr)) return field = static_cast<double>(*whole), true;
  return read<double>(attr, field);
}
bool read(const Attr& attr, Number& field) {
  if (const auto* whole = std::get_if<int64_t>(&attr)) return field = *whole, true;
  if (const auto* truth = std::get_if<bool>(&attr)) return field = int64_t{*truth}, true;
  if (const auto* real = std::get_if<double>(&attr)) return field = *real, true;
  return false;
}
bool read(const Attr& attr, Strings& field) {
  const auto* none = std::get_if<Ints>(&attr);  // an empty list fits every element type
  return (none && none->empty()) || read<Strings>(attr, field);
}
bool read(const Attr& attr, Dim& field) {
  if (const auto* size = std::get_if<int64_t>(&attr)) return field = loop::index_const(*size), true;
  if (const auto* text = std::get_if<std::string>(&attr)) return field = loop::parse_expr(*text), true;
  return read<Dim>(attr, field);
}
bool read(const Attr& attr, Dims& field) {
  if (const auto* sizes = std::get_if<Ints>(&attr)) {
    for (int64_t size : *sizes) field.push_back(loop::index_const(size));
    return true;
  }
  if (const auto* texts = std::get_if<Strings>(&attr)) {
    for (const std::string& text : *texts) field.push_back(loop::parse_expr(text));
    return true;
  }
  return read<Dims>(attr, field);
}
template <NamedEnum E>
bool read(const Attr& attr, E& field) {
  const auto* name = std::get_if<std::string>(&attr);
  const auto value = name ? find<E>(*name) : std::nullopt;
  if (value) field = *value;
  return value.has_value();
}
template <class T>
bool read(const Attr& attr, std::optional<T>& field) {
  return read(attr, field.emplace());
}
template <class T, auto... kDefault>
bool read(const Attr& attr, Defaulted<T, kDefault...>& field) {
  T value{};
  const bool fits = read(attr, value);
  field = std::move(value);
  return fits;
}

constexpr std::string_view what_name(const auto&) { return "name"; }
template <NamedEnum E>
constexpr std::string_view what_name(const E&) {
  return EnumText<E>::kWhat;
}

template <class Named>
Operation make(std::string_view op, std::string_view name, Attrs& attrs) {
  const auto fail = [&](std::string_view key, const std::string& why) {
    throw UserError(std::string(op) + ": attribute '" + std::string(key) + "' " + why);
  };
  Named operation;
  std::string known;
  bool has_name = false;
  each_attribute(operation, [&](Presence presence, std::string_view key, auto& field) {
    if (presence == Presence::kName) {
      has_name = true;
      if (name.empty() || !read(std::string(name), field))
        throw UserError(std::string(op) + ": '" + std::string(name) + "' is not a " +
                        std::string(what_name(field)));
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(key);
    const auto it = attrs.find(key);
    if (it == attrs.end()) {
      if (presence == Presence::kRequired) fail(key, "is missing");
      return;
    }
    if (!read(it->second, field)) fail(key, "is not " + std::string(what(field)));
    attrs.erase(it);
  });
  if (!has_name && !name.empty())
    throw UserError(std::string(op) + ": takes no name after a dot, but has '" + std::string(name) + "'");
  if (!attrs.empty())
    fail(attrs.begin()->first, "is unknown: " + (known.empty() ? "the op has none" : "the op has " + known));
  return operation;
}

using Maker = Operation (*)(std::string_view op, std::string_view name, Attrs& attrs);
constexpr Maker kMakers[] = {
#define OP(Name, text, fusion, traits, operands, attributes, summary) make<Name>,
#include "backend/ops/structural.def"
};

// ---- from fields to keys ----

template <class T>
Attr as_attr(const T& field) {
  return field;
}
Attr as_attr(const Dim& field) {
  const auto size = loop::as_const_int(field);
  return size ? Attr(*size) : Attr(field);
}
Attr as_attr(const Number& field) {
  return std::visit([](auto number) { return Attr(number); }, field);
}
template <NamedEnum E>
Attr as_attr(const E& field) {
  return std::string(text(field));
}

template <class T>
void write(Attrs& attrs, std::string_view key, const T& field) {
  attrs.emplace(key, as_attr(field));
}
template <class T>
void write(Attrs& attrs, std::string_view key, const std::optional<T>& field) {
  if (field) write(attrs, key, *field);
}
template <class T, auto... kDefault>
void write(Attrs& attrs, std::string_view key, const Defaulted<T, kDefault...>& field) {
  if (field.is_written()) write(attrs, key, *field);
}

}  // namespace

const OpInfo& info(Op op) { return kOps[static_cast<size_t>(op)]; }

Operation make_operation(std::string_view op, std::string_view name, Attrs attrs) {
  static const auto makers = [] {
    std::unordered_map<std::string_view, Maker> map;
    for (size_t i = 0; i < std::size(kOps); ++i) map.emplace(kOps[i].name, kMakers[i]);
    return map;
  }();
  const auto it = makers.find(op);
  if (it == makers.end()) throw UserError("unknown op '" + std::string(op) + "'");
  return it->second(op, name, attrs);
}

std::string name_of(const Operation& operation) {
  std::string name(info(op_of(operation)).name);
  const auto add = [&](Presence presence, std::string_view, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (NamedEnum<Field> || std::is_same_v<Field, std::string>)
      if (presence == Presence::kName) name += "." + std::get<std::string>(as_attr(field));
  };
  std::visit([&](const auto& each) { each_attribute(each, add); }, operation);
  return name;
}

Attrs attributes_of(const Operation& operation) {
  Attrs attrs;
  const auto add = [&](Presence presence, std::string_view key, const auto& field) {
    if (presence != Presence::kName) write(attrs, key, field);
  };
  std::visit([&](const auto& each) { each_attribute(each, add); }, operation);
  return attrs;
}

std::vector<Dim> dims_in(const Operation& operation) {
  std::vector<Dim> dims;
  const auto add = [&](Presence, std::string_view, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, Dim>) dims.push_back(field);
    if constexpr (std::is_same_v<Field, std::optional<Dim>>)
      if (field) dims.push_back(*field);
    if constexpr (std::is_same_v<Field, Dims>) dims.insert(dims.end(), field.begin(), field.end());
    if constexpr (std::is_same_v<Field, std::optional<Dims>>)
      if (field) dims.insert(dims.end(), field->begin(), field->end());
  };
  std::visit([&](const auto& each) { each_attribute(each, add); }, operation);
  return dims;
}

}  // namespace ipex::graph
