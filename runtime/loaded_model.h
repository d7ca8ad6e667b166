// A loaded artifact as a callable: the common part of the C++ library and the Python loader.
//
// A call takes the inputs that are not weights, in the model's order. It checks dtype, rank and sizes,
// computes the symbols, copies inputs whose layout differs from the compiled one, and runs. Calls may run
// concurrently; they share weights and code, and each has its own arena. If calls write buffers of the model,
// these belong to this object, and calls run one after the other.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/artifact.h"

namespace ipex {

class LoadedModel {
 public:
  LoadedModel(const std::string& path, const LoadOptions& options, const StepReader& read_step,
              bool prepare = true);

  // Not movable: calls may be running.
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const Artifact& artifact() const { return artifact_; }
  const Interface& interface() const { return artifact_.interface; }
  const Executable::Parts& parts() const { return artifact_.executable->parts(); }
  // The executable's inputs that are arguments of a call.
  const std::vector<int>& arguments() const { return arguments_; }
  const std::string& argument_name(size_t argument) const {
    return interface().inputs[arguments_[argument]].name;
  }

  // The executable's inputs that are buffers written by calls, and the memory of one. The caller may change
  // their contents between calls.
  const std::vector<int>& state() const { return state_; }
  TensorView state_view(int input) const;

  // The values of the symbols for these arguments. UserError, with the input, dimension and range, for wrong
  // sizes.
  std::vector<int64_t> bind(std::span<const TensorView> arguments) const;

  // A result of kind kTensor, with sizes and strides; data is null.
  TensorView result_view(const Interface::Result& result, std::span<const int64_t> symbols) const;
  // One output of the executable, with sizes and strides; data is null.
  TensorView output_view(const OutputSpec& output, std::span<const int64_t> symbols) const;

  // `outputs`: memory for each output of the executable.
  void run(std::span<const TensorView> arguments, std::span<const int64_t> symbols,
           std::span<void* const> outputs) const;

 private:
  Artifact artifact_;
  std::vector<int> arguments_, state_;
  std::vector<void*> data_;                // by input of the executable; null: the caller's
  std::vector<CachedBlock> state_memory_;  // of state_
  mutable std::mutex turn_;                // serializes calls that write state
};

// Copies elements between layouts of the same sizes and dtype.
void copy_elements(const TensorView& from, const TensorView& to);

std::string text(std::span<const int64_t> sizes);  // "[2, 3]"

}  // namespace ipex
