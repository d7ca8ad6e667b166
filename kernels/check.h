// The step that checks a condition on a model's data at run time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/executable.h"

namespace ipex::kernels {

inline constexpr std::string_view kCheck =
    "ipex::check.default";  // its name among the Extern nodes of a graph

// The message of an Extern node of that name, from its attribute `args`, the operator's arguments as JSON.
std::string check_message(const std::string& args);

// Throws CheckError(message) in a run if `condition`, a single bool, is false.
struct CheckDesc {
  TensorSpec condition;
  std::string message;
};
std::unique_ptr<Step> make_check(const CheckDesc& desc);

}  // namespace ipex::kernels
