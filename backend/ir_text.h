// Input texts of ipex-opt and bench_kernels: reads a file, and tells Graph IR from Loop IR.
#pragma once

#include <string>

namespace ipex {

std::string read_text(const std::string& file);  // "-": standard input

// Decided by the first word outside of comments.
bool is_graph(const std::string& text);

}  // namespace ipex
