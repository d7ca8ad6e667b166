// Texts of either IR, as ipex-opt and bench_kernels are given them: read from a file, told apart.
#pragma once

#include <string>

namespace ipex {

std::string read_text(const std::string& file);  // "-": standard input

// The first word that is not in a comment tells a Graph from Loop IR.
bool is_graph(const std::string& text);

}  // namespace ipex
