// Messages of the exception classes, and the failure of IPEX_CHECK.
#include "runtime/error.h"

namespace ipex {

OutOfMemory::OutOfMemory(size_t wanted, size_t in_use)
    : message_("out of memory: cannot allocate " + std::to_string(wanted) + " bytes; compiled graphs hold " +
               std::to_string(in_use) + " bytes. Use a smaller batch, or free unused memory") {}

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(message + " (" + condition + " failed at " + file + ":" + std::to_string(line) +
                      "; this is a bug in ipex: please report it with the output of IPEX_DUMP=dir)");
}

}  // namespace ipex
