// See the header. The package oneccl_bindings_for_pytorch calls these functions; it agrees with the other
// ranks on when.
#include "python/csrc/distributed.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <system_error>

#include "kernels/torch_ops/ccl_backend.h"

namespace ipex::python {

namespace py = pybind11;
using namespace py::literals;
using torch_ops::CclBackend;
using torch_ops::SharedSegment;

namespace {

// Calls a function that throws std::system_error, which Python knows as OSError.
template <class Call>
auto with_os_error(Call call) {
  try {
    return call();
  } catch (const std::system_error& error) {
    PyErr_SetObject(PyExc_OSError, py::make_tuple(error.code().value(), error.what()).ptr());
    throw py::error_already_set();
  }
}

}  // namespace

void bind_distributed(py::module_& m) {
  py::class_<SharedSegment, std::shared_ptr<SharedSegment>>(m, "SharedSegment")
      .def_static(
          "create", [](int ranks) { return with_os_error([&] { return SharedSegment::create(ranks); }); },
          "ranks"_a, "The memory of a group of ranks, made by rank 0.")
      .def_static(
          "open",
          [](const std::string& path, int rank, int ranks) {
            return with_os_error([&] { return SharedSegment::open(path, rank, ranks); });
          },
          "path"_a, "rank"_a, "ranks"_a, "Rank 0's memory, in another rank.")
      .def_property_readonly("path", &SharedSegment::path,
                             "Where the other ranks can open it, while it exists.");
  m.def(
      "ccl_backend",
      [](c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<SharedSegment> segment,
         std::chrono::milliseconds timeout) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<CclBackend>(std::move(gloo), std::move(segment), timeout);
      },
      "gloo"_a, "segment"_a.none(true), "timeout"_a,
      "A backend of torch.distributed that adds floating-point tensors in shared memory, if there is a "
      "segment, "
      "and leaves the rest to gloo.");
  m.def(
      "has_shared_memory",
      [](const c10::intrusive_ptr<c10d::Backend>& backend) {
        const auto* ccl = dynamic_cast<const CclBackend*>(backend.get());
        return ccl && ccl->has_shared_memory();
      },
      "backend"_a, "Whether a backend of torch.distributed adds tensors in shared memory.");
}

}  // namespace ipex::python
