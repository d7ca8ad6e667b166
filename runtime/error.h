// Exception classes. Each message says what failed, where, and what to do.
#pragma once

#include <new>
#include <stdexcept>
#include <string>

namespace ipex {

// The caller passed something invalid: an unknown option, a bad input, a target that the CPU does not
// support.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Valid input that the compiler has no lowering for. The importer turns the op into an Extern step.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An index at run time is outside of its tensor. PyTorch raises IndexError, or RuntimeError for some
// operators.
struct IndexError : std::out_of_range {
  using std::out_of_range::out_of_range;
};

// An assertion of the model about its data failed (RuntimeError in PyTorch).
struct CheckError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The system cannot allocate this much memory (MemoryError in Python).
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

// Text that cannot be parsed. The message has line and column.
struct ParseError : UserError {
  using UserError::UserError;
};

[[noreturn]] void fail_check(const char* condition, const char* file, int line, const std::string& message);

}  // namespace ipex

// Checks an invariant; a failure is an InternalError. It is a macro because it quotes its condition.
#define IPEX_CHECK(condition, message) \
  (static_cast<bool>(condition) ? void(0) : ::ipex::fail_check(#condition, __FILE__, __LINE__, message))
