// The ways to fail. Each message says what, where and what to do.
#pragma once

#include <new>
#include <stdexcept>
#include <string>

namespace ipex {

// The caller passed something wrong: an unknown option, a bad input, a target the CPU lacks.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Correct input that the compiler has no lowering for; the importer turns it into an Extern step.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A run-time index is outside its tensor; PyTorch raises IndexError or, for some operators, RuntimeError.
struct IndexError : std::out_of_range {
  using std::out_of_range::out_of_range;
};

// What a model asserts of its data does not hold (PyTorch's RuntimeError).
struct CheckError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The system has no memory of this size left (Python's MemoryError).
class OutOfMemory : public std::bad_alloc {
 public:
  OutOfMemory(size_t wanted, size_t in_use);
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// A bug in this compiler.
struct InternalError : std::logic_error {
  using std::logic_error::logic_error;
};

// Text that does not parse: message has line and column.
struct ParseError : UserError {
  using UserError::UserError;
};

[[noreturn]] void fail_check(const char* condition, const char* file, int line, const std::string& message);

}  // namespace ipex

// An invariant of ours; a failure is an InternalError. The one macro outside .def files: it must quote its
// condition.
#define IPEX_CHECK(condition, message) \
  (static_cast<bool>(condition) ? void(0) : ::ipex::fail_check(#condition, __FILE__, __LINE__, message))
