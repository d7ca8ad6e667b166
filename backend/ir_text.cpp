// See ir_text.h.
#include "backend/ir_text.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <sstream>

#include "runtime/error.h"

namespace ipex {

std::string read_text(const std::string& file) {
  std::ostringstream text;
  if (file == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream stream(file);
  if (!stream) throw UserError("cannot read " + file);
  text << stream.rdbuf();
  return text.str();
}

bool is_graph(const std::string& text) {
  size_t at = text.find_first_not_of(" \t\r\n");
  while (at != std::string::npos && text[at] == '#')
    at = text.find_first_not_of(" \t\r\n", std::min(text.find('\n', at), text.size()));
  const std::string word = at == std::string::npos ? "" : text.substr(at, 5);
  if (word == "graph") return true;
  if (word.compare(0, 4, "func") == 0) return false;
  throw UserError("the text starts with neither 'graph' nor 'func'");
}

}  // namespace ipex
