// Where a failed invariant becomes an InternalError, and the texts of errors that have one.
#include "runtime/error.h"

namespace ipex {

OutOfMemory::OutOfMemory(size_t wanted, size_t in_use)
    : message_("out of memory: the system refuses " + std::to_string(wanted) +
               " bytes; compiled graphs hold " + std::to_string(in_use) +
               " bytes. Use a smaller batch, or free what is not needed") {}

void fail_check(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(message + " (" + condition + " failed at " + file + ":" + std::to_string(line) +
                      "; this is a bug in ipex: please report it with the output of IPEX_DUMP=dir)");
}

}  // namespace ipex
