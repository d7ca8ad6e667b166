// See pass_names.h.
#include "runtime/pass_names.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

#include "runtime/log.h"

namespace ipex {

std::string_view current_name(std::string_view name, std::span<const FormerName> former_names) {
  const auto found = std::ranges::find(former_names, name, &FormerName::former);
  if (found == former_names.end()) return name;
  static std::mutex mutex;
  static std::set<std::string_view> reported;
  bool first = false;
  {
    std::lock_guard lock(mutex);
    first = reported.insert(found->former).second;
  }
  if (first)
    log(LogLevel::kWarning, "the pass `" + std::string(found->former) + "` is now called `" +
                                std::string(found->current) + "`; the next release will not accept `" +
                                std::string(found->former) + "`");
  return found->current;
}

bool listed(std::string_view list, std::string_view name, std::span<const FormerName> former_names) {
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (current_name(list.substr(begin, end - begin), former_names) == name) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace ipex
