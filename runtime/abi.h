// The ABI between generated code and the runtime: the signature of a kernel and the functions that it may
// call.
#pragma once

#include <cstdint>

extern "C" {

// A kernel: buffers in the order of the loop function's parameters, symbols in the order of its symbols.
using ipex_kernel_fn = void (*)(void* const* buffers, const int64_t* symbols);

// Called by kernels; resolved by name when code is loaded.
// body(closure, begin, end, chunk); see runtime/parallel.h
void ipex_parallel_for(int64_t begin, int64_t end, int64_t grain,
                       void (*body)(void*, int64_t, int64_t, int64_t), void* closure);
int64_t ipex_num_threads(void);
// Thread-private scratch memory, 64-byte aligned, valid until the matching release (stack discipline).
void* ipex_scratch_acquire(int64_t bytes);
void ipex_scratch_release(void* pointer);
// Records an out-of-range index; Executable::run raises its error after the step. Loads with such an index
// are masked off. `error`: a code from runtime/index_errors.h.
void ipex_report_index(int64_t index, int64_t size, int64_t error);
}
