// Checks the layering: a folder includes only folders below it, and each large library is used in one place
// only.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Include {
  fs::path file;  // relative to the repository
  std::string target;
};

std::vector<Include> all_includes() {
  const fs::path root = IPEX_SOURCE_DIR;
  const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^>"]+)[>"])");
  std::vector<Include> found;
  for (const char* folder : {"runtime", "kernels", "codegen", "backend", "python"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".def") continue;
      std::ifstream stream(entry.path());
      for (std::string line; std::getline(stream, line);) {
        std::smatch match;
        if (std::regex_search(line, match, pattern))
          found.push_back({fs::relative(entry.path(), root), match[1]});
      }
    }
  }
  return found;
}

bool starts_with(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

constexpr char kTorchOps[] = "kernels/torch_ops";

// The layer of a file: its first folder. The operators for PyTorch are a layer of their own, above the
// compiler.
std::string layer(const fs::path& path) {
  return starts_with(path.string(), kTorchOps) ? kTorchOps : path.begin()->string();
}

TEST(Layering, FoldersIncludeOnlyFoldersBelow) {
  const std::map<std::string, std::set<std::string>> below = {
      {"runtime", {"runtime"}},
      {"kernels", {"kernels", "runtime"}},
      {"codegen", {"codegen", "runtime"}},
      {"backend", {"backend", "codegen", "kernels", "runtime"}},
      {kTorchOps, {kTorchOps, "backend", "codegen", "kernels", "runtime"}},
      {"python", {"python", kTorchOps, "backend", "codegen", "kernels", "runtime"}},
  };
  const std::vector<Include> includes = all_includes();
  EXPECT_GT(includes.size(), 50u);
  for (const Include& include : includes) {
    const std::string target = layer(include.target);
    if (!below.contains(target)) continue;
    EXPECT_TRUE(below.at(layer(include.file)).contains(target))
        << include.file << " includes " << include.target;
  }
}

TEST(Layering, EachLibraryIsNamedInOnePlace) {
  for (const Include& include : all_includes()) {
    const std::string file = include.file.string();
    const std::string& target = include.target;
    const bool in_llvm = starts_with(file, "codegen/llvm/") && include.file.filename() != "jit.h";
    const bool in_torch = starts_with(file, "python/csrc/") || starts_with(file, kTorchOps) ||
                          starts_with(file, "kernels/extern_call");
    auto names = [&](std::initializer_list<const char*> prefixes) {
      for (const char* prefix : prefixes)
        if (starts_with(target, prefix)) return true;
      return false;
    };
    EXPECT_TRUE(in_llvm || !names({"llvm/", "lld/"})) << file << ": " << target;
    EXPECT_TRUE(starts_with(file, "kernels/") || !names({"oneapi/dnnl", "dnnl"})) << file << ": " << target;
    EXPECT_TRUE(starts_with(file, "runtime/") || !names({"tbb/", "oneapi/tbb", "omp.h"}))
        << file << ": " << target;
    EXPECT_TRUE(in_torch || !names({"ATen/", "torch/", "c10/", "pybind11/"})) << file << ": " << target;
  }
}

}  // namespace
