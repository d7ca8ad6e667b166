// A compiler is needed for moments. What its code keeps resident afterwards is given back.
#pragma once

namespace ipex {

// Lets go of the resident pages of code and constants in the shared object (or program) that holds `address`.
// They are read-only pages of a file: whoever needs one next gets it from the system's cache, at the price of
// a page fault. Pages that were ever written to, relocated ones too, stay.
void release_code_pages(const void* address);

}  // namespace ipex
