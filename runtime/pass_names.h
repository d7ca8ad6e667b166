// Names of compiler passes as users write them in settings: comma-separated lists, and the names that passes
// had in the release before this one.
#pragma once

#include <span>
#include <string_view>

namespace ipex {

struct FormerName {
  std::string_view former, current;
};

// The name that a pass has now. The first use of a former name in a process logs a warning.
std::string_view current_name(std::string_view name, std::span<const FormerName> former_names);

// Whether a comma-separated list has the name in it, or a former name of it.
bool listed(std::string_view list, std::string_view name, std::span<const FormerName> former_names = {});

}  // namespace ipex
