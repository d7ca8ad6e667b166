// Where a failed invariant becomes an InternalError.
#include "runtime/error.h"

namespace ipex {

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(message + " (" + condition + " failed at " + file + ":" + std::to_string(line) +
                      "; this is a bug in ipex: please report it with the output of IPEX_DUMP=dir)");
}

}  // namespace ipex
