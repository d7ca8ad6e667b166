// Warnings and notes from C++ go through one sink; Python points it at its `ipex` logger, programs at stderr.
#pragma once

#include <string>

namespace ipex {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

using LogSink = void (*)(LogLevel, const std::string& message);
void set_log_sink(LogSink sink);   // null: stderr
bool log_enabled(LogLevel level);  // by IPEX_LOG
void log(LogLevel level, const std::string& message);

}  // namespace ipex
