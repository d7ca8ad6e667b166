// Releases the resident pages of the compiler's code, which is needed only while something is compiled.
#pragma once

namespace ipex {

// Releases the resident pages of code and constants of the shared object (or program) that contains
// `address`. They are read-only pages of a file: the next access reads them from the page cache, at the cost
// of a page fault. Pages that were ever written to, for example by relocation, stay.
void release_code_pages(const void* address);

}  // namespace ipex
