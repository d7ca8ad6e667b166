// Enums whose values have a name in text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace ipex {

// Each specialisation has kAll, the names in order, and kWhat, the noun for error messages.
template <class E>
struct EnumText;

#define IPEX_ENUM_TEXT(E, what, ...)                          \
  template <>                                                 \
  struct ipex::EnumText<E> {                                  \
    static constexpr std::string_view kAll[] = {__VA_ARGS__}; \
    static constexpr std::string_view kWhat = what;           \
  };

template <class E>
concept NamedEnum = requires { EnumText<E>::kAll; };

template <NamedEnum E>
constexpr std::string_view text(E value) {
  return EnumText<E>::kAll[static_cast<size_t>(value)];
}

template <NamedEnum E>
std::optional<E> find(std::string_view name) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, E> map;
    for (std::string_view each : EnumText<E>::kAll) map.emplace(each, static_cast<E>(map.size()));
    return map;
  }();
  const auto it = by_name.find(name);
  return it == by_name.end() ? std::nullopt : std::optional(it->second);
}

}  // namespace ipex
