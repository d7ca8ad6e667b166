// Sleef at run time: vector math functions by name, from the library that already has them in this process.
#pragma once

namespace ipex {

// Address of a function of Sleef, or null. Loads the library on first use; UserError when there is none.
void* find_sleef_function(const char* name);

}  // namespace ipex
