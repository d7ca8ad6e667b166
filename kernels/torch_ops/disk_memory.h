// Weights in a file instead of memory, for models that read them only to pack them.
//
// The tensors are mapped from a file without a name, which goes away with the last of them. They are read and
// written like any other. After a program has packed such a weight, its pages are given back to the system;
// who reads it later gets them from the file.
#pragma once

#include <c10/core/StorageImpl.h>

namespace ipex::torch_ops {

// Says that the running program reads all of a storage. Does nothing for memory of another kind.
void note_reader(const c10::StorageImpl& storage);
// Gives back the pages of storages whose reader was noted. Call it after a program has run.
void drop_read_pages();

}  // namespace ipex::torch_ops
