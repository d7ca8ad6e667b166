// Vector math functions of Sleef by name, found at run time.
#pragma once

namespace ipex {

// The address of a Sleef function, or null. Loads the library on first use; UserError if there is none.
void* find_sleef_function(const char* name);

}  // namespace ipex
