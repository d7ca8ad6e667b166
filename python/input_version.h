// How the contents of a parameter or buffer are told from its earlier ones, so that what was made from it
// (packed and cast weights) may be kept between calls.
//
// PyTorch counts the writes to a tensor, but not those through another tensor over the same memory that has a
// counter of its own (`weight.data.mul_()`), through numpy, or by another process. Therefore:
//   - taking `.data` of memory that a kept value was made from counts as a write to it;
//   - memory that somebody can write to at any time without being counted (numpy arrays, shared memory, other
//     tensors of another counter, tensors of inference mode) is told by a checksum of its contents at each
//     call.
// What is not noticed:
//   - a write by the bare address: C code that was given `data_ptr()`, importers of DLPack, byteswap();
//   - a write through an alias that is older than the first call and has a counter of its own, while another
//     tensor (of a state_dict, a view) shares the weight's counter;
//   - a write through a numpy view that is older than the first call, of memory that torch.load or
//     safetensors allocated.
#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/executable.h"

namespace ipex::python {

// `tensor`: dense, on the CPU.
InputVersion version_of(const at::Tensor& tensor);

// From now on the process notes whose `.data` is taken, from Python or C++. Called once, when the module
// loads.
void watch_data_aliases();

}  // namespace ipex::python
