// The default sink writes to stderr. IPEX_LOG is read for each message, as messages are rare.
#include "runtime/log.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <string_view>

#include "runtime/env.h"

namespace ipex {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"error", "warning", "info", "debug"};
std::atomic<LogSink> current_sink{nullptr};

}  // namespace

void set_log_sink(LogSink sink) { current_sink = sink; }

bool log_enabled(LogLevel level) {
  const std::string wanted = env::get("IPEX_LOG");
  for (size_t i = 0; i < kLevelNames.size(); ++i)
    if (kLevelNames[i] == wanted) return static_cast<size_t>(level) <= i;
  return level <= LogLevel::kWarning;
}

void log(LogLevel level, const std::string& message) {
  if (!log_enabled(level)) return;
  if (LogSink sink = current_sink) return sink(level, message);
  std::fprintf(stderr, "ipex %s: %s\n", kLevelNames[static_cast<size_t>(level)].data(), message.c_str());
}

}  // namespace ipex
