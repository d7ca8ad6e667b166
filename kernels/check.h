// A condition that a model asserts of its data.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/executable.h"

namespace ipex::kernels {

inline constexpr std::string_view kCheck =
    "ipex::check.default";  // its name among the Extern nodes of a graph

// What an Extern node of that name throws, from its attribute `args`: JSON of the operator's arguments.
std::string check_message(const std::string& args);

// Throws CheckError(message) in a run where `condition`, one bool, is false.
struct CheckDesc {
  TensorSpec condition;
  std::string message;
};
std::unique_ptr<Step> make_check(const CheckDesc& desc);

}  // namespace ipex::kernels
