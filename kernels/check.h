// A condition that a model asserts of its data.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/executable.h"

namespace ipex::kernels {

inline constexpr std::string_view kCheck =
    "ipex::check.default";  // its name among the Extern nodes of a graph

// Throws CheckError(message) in a run where `condition`, one bool, is false.
struct CheckDesc {
  TensorSpec condition;
  std::string message;
};
std::unique_ptr<Step> make_check(const CheckDesc& desc);

}  // namespace ipex::kernels
