// The one table of every IPEX_* knob: name, default, meaning. `ipexc env` prints it; nothing else calls
// getenv.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ipex::env {

struct Knob {
  std::string_view name;
  std::string_view default_value;
  std::string_view help;
};

std::span<const Knob> knobs();
std::string get(std::string_view name);  // value or default; InternalError for a name not in the table
bool flag(std::string_view name);        // "", "0", "off", "false" are false
std::string cache_directory();           // IPEX_CACHE or its default under the user's cache home; "" when off

}  // namespace ipex::env
