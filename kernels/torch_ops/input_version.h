// Detects changes of a parameter or buffer, so that values computed from it (packed and cast weights) can be
// kept between calls.
//
// PyTorch counts writes to a tensor, but not writes through an alias with its own counter
// (`weight.data.mul_()`), through numpy, or by fused optimizers, collectives or other processes. Therefore:
//   - possible uncounted writes that the process can observe are recorded (uncounted_writes.h), and contents
//   are compared in the next call;
//   - memory that can be written at any time without being counted (numpy arrays, shared memory, aliases with
//   another counter, storages that Python code references, tensors of inference mode) is compared in every
//   call.
// Contents are compared by a 64-bit checksum, which torch.profiler shows as "ipex::checksum".
// Not detected:
//   - a write through a raw address: C code that got `data_ptr()`, importers of DLPack;
//   - a write to a temporary storage object (`weight.untyped_storage().copy_()`), or to a tensor made from
//   it;
//   - a write of a collective with `async_op=True` that ends after a concurrent call;
//   - a write by an op of another library that neither counts it nor uses `.data`;
//   - a write through an alias with its own counter that was made before the first call, while another tensor
//   shares the weight's counter but not its memory (because the weight's `.data` was replaced);
//   - a write through a numpy view made before the first call, to memory that torch.load or safetensors
//   allocated.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/executable.h"

namespace ipex::torch_ops {

// Counts the references to a Python object. The extension module sets it; a program without Python has no
// such objects.
using PythonReferences = int64_t (*)(const PyObject* object);
void set_python_references(PythonReferences references);

// `tensor` must be dense and on the CPU.
InputVersion version_of(const at::Tensor& tensor);

}  // namespace ipex::torch_ops
