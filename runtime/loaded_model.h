// An artifact as a function of tensors: what the C++ library and the Python loader have in common.
//
// Calls take the inputs that are not weights, in the order of the model's own. They check dtype, rank and
// every size, read the symbols, copy what has another layout than compiled, and run. Any number of calls may
// run at once; they share weights and code and have an arena each. Where calls write buffers of the model,
// each loaded model has its own, and calls take turns.
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

  // Moved never: calls may be under way.
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const Artifact& artifact() const { return artifact_; }
  const Interface& interface() const { return artifact_.interface; }
  const Executable::Parts& parts() const { return artifact_.executable->parts(); }
  // The executable's inputs that a call gives.
  const std::vector<int>& arguments() const { return arguments_; }
  const std::string& argument_name(size_t argument) const {
    return interface().inputs[arguments_[argument]].name;
  }

  // The executable's inputs that are buffers which calls write, and the memory of one. The owner may change
  // their contents between calls.
  const std::vector<int>& state() const { return state_; }
  TensorView state_view(int input) const;

  // The symbols' values for these arguments. UserError naming the input, and the dimension and its range.
  std::vector<int64_t> bind(std::span<const TensorView> arguments) const;

  // A result of the executable: sizes and strides known, data null. `result` is of kind kTensor.
  TensorView result_view(const Interface::Result& result, std::span<const int64_t> symbols) const;
  // What the executable writes for one of its outputs; data is null.
  TensorView output_view(const OutputSpec& output, std::span<const int64_t> symbols) const;

  // `outputs`: memory for each output of the executable.
  void run(std::span<const TensorView> arguments, std::span<const int64_t> symbols,
           std::span<void* const> outputs) const;

 private:
  Artifact artifact_;
  std::vector<int> arguments_, state_;
  std::vector<void*> data_;                // by input of the executable; null: the caller's
  std::vector<CachedBlock> state_memory_;  // of state_
  mutable std::mutex turn_;                // of calls that write state
};

// Copies elements between layouts of the same sizes and dtype.
void copy_elements(const TensorView& from, const TensorView& to);

std::string text(std::span<const int64_t> sizes);  // "[2, 3]"

}  // namespace ipex
