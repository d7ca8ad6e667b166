// How the contents of a parameter or buffer are told from its earlier ones, so that what was made from it
// (packed and cast weights) may be kept between calls.
//
// PyTorch counts the writes to a tensor, but not those through another tensor over the same memory that has a
// counter of its own (`weight.data.mul_()`), through numpy, by fused optimizers, collectives or another
// process. Therefore:
//   - what may be such a write and passes by is noted (uncounted_writes.h), and contents are compared at the
//     next call;
//   - memory that somebody can write to at any time without being counted (numpy arrays, shared memory, other
//     tensors of another counter, storages that a variable names, tensors of inference mode) is compared at
//     each call.
// Contents are compared by a checksum of 64 bits, "ipex::checksum" in torch.profiler.
// What is not noticed:
//   - a write by the bare address: C code that was given `data_ptr()`, importers of DLPack;
//   - a write in passing to a storage (`weight.untyped_storage().copy_()`), or to a tensor made from it;
//   - a collective's write (`async_op=True`) that ends after a call that ran beside it;
//   - a write by an op of another library that neither counts it nor takes `.data`;
//   - a write through an alias with a counter of its own that is older than the first call, while a tensor
//     lives that shares the weight's counter, but no longer its memory (the weight's `.data` was replaced);
//   - a write through a numpy view that is older than the first call, of memory that torch.load or
//     safetensors allocated.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/executable.h"

namespace ipex::python {

// `tensor`: dense, on the CPU.
InputVersion version_of(const at::Tensor& tensor);

}  // namespace ipex::python
