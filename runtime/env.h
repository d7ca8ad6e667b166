// Access to the IPEX_* environment variables and ATEN_CPU_CAPABILITY, called knobs, which are listed in
// env_knobs.def. `ipexc env` prints them. No other code calls getenv for them.
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
std::string get(
    std::string_view name);        // value or default; InternalError for a name that is not in the table
bool flag(std::string_view name);  // "", "0", "off", "false" are false
std::string cache_directory();     // of IPEX_CACHE, or below the user's cache directory; "" when off

}  // namespace ipex::env
