// ipex::check: aten::_assert_async with a result, as every node of a graph has one. The result is empty.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace ipex::kernels {
namespace {

at::Tensor check(const at::Tensor& condition, c10::string_view message) {
  TORCH_CHECK(condition.is_nonzero(), message);
  return at::empty({0}, at::kBool);
}

// As in extern_call_random.cpp.
const auto registered = [] {
  torch::Library library(torch::Library::FRAGMENT, "ipex", std::nullopt, __FILE__, __LINE__);
  if (!c10::Dispatcher::singleton().findSchema({"ipex::check", ""}))
    library.def(torch::schema("check(Tensor condition, str message) -> Tensor"), check);
  return library;
}();

}  // namespace
}  // namespace ipex::kernels
