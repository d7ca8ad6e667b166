// Log messages from C++ go to one sink: Python's `ipex` logger, or stderr in a C++ program.
#pragma once

#include <string>

namespace ipex {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

using LogSink = void (*)(LogLevel, const std::string& message);
void set_log_sink(LogSink sink);   // null: stderr
bool log_enabled(LogLevel level);  // according to IPEX_LOG
void log(LogLevel level, const std::string& message);

}  // namespace ipex
