// Reads the knobs of env_knobs.def from the process environment, at each call: they may change at any time.
#include "runtime/env.h"

#include <array>
#include <cstdlib>

#include "runtime/error.h"

namespace ipex::env {
namespace {

constexpr Knob kKnobs[] = {
#define KNOB(name, default_value, help) {name, default_value, help},
#include "runtime/env_knobs.def"
#undef KNOB
};

}  // namespace

std::span<const Knob> knobs() { return kKnobs; }

std::string get(std::string_view name) {
  for (const Knob& knob : kKnobs) {
    if (knob.name != name) continue;
    const char* value = std::getenv(knob.name.data());
    return value ? value : std::string(knob.default_value);
  }
  throw InternalError("no knob named " + std::string(name) + " in runtime/env_knobs.def");
}

bool flag(std::string_view name) {
  const std::string value = get(name);
  return !(value.empty() || value == "0" || value == "off" || value == "false");
}

std::string cache_directory() {
  const std::string value = get("IPEX_CACHE");
  if (value == "off" || value == "0") return "";
  if (!value.empty()) return value;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/ipex";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/ipex";
  return "";
}

}  // namespace ipex::env
