// Goldens of the graph passes: tests/golden/graph/ (one pass), pipeline/ (all of them) and error/ (messages).
// A file is
//
//   # pass: form_groups             a pass by name, or `pipeline`
//   # target: avx2                 default avx512_bf16
//   # eval                          eval(input) == eval(output) on random inputs
//   graph main(...) {...}
//   ---
//   the printed result, or in error/ the message
//
// IPEX_UPDATE_GOLDEN=1 rewrites what follows the line of dashes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "backend/graph/ir.h"
#include "backend/lower/lower.h"
#include "backend/passes/passes.h"

namespace ipex::graph {
namespace {

namespace fs = std::filesystem;

fs::path golden_directory() { return fs::path(IPEX_SOURCE_DIR) / "tests" / "golden"; }

struct Golden {
  std::string header, input, expected, pass;
  Isa isa = Isa::kAvx512Bf16;
  bool eval = false;
};

Golden read_golden(const fs::path& path) {
  Golden golden;
  std::ifstream file(path);
  bool output = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "---") {
      output = true;
    } else if (output) {
      golden.expected += line + "\n";
    } else if (line.rfind("# ", 0) == 0) {
      golden.header += line + "\n";
      if (line.rfind("# pass: ", 0) == 0) golden.pass = line.substr(8);
      if (line.rfind("# target: ", 0) == 0) golden.isa = parse_isa(line.substr(10));
      golden.eval |= line == "# eval";
    } else {
      golden.input += line + "\n";
    }
  }
  return golden;
}

HostTensor random_tensor(const Type& type, const Graph& graph, std::mt19937& random) {
  const int64_t count = hint(numel(type.shape), graph);
  HostTensor bytes(static_cast<size_t>(count * itemsize(type.dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t integer = static_cast<int64_t>(random() % 3);
    const float real = static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 500.0f;
    const double wide = real;
    std::byte* at = bytes.data() + i * itemsize(type.dtype);
    switch (type.dtype) {
      case Dtype::kF32:
        std::memcpy(at, &real, 4);
        break;
      case Dtype::kF64:
        std::memcpy(at, &wide, 8);
        break;
      case Dtype::kBF16:
        std::memcpy(at, reinterpret_cast<const char*>(&real) + 2, 2);
        break;
      case Dtype::kBool:
        *at = static_cast<std::byte>(integer & 1);
        break;
      default:
        std::memcpy(at, &integer, static_cast<size_t>(itemsize(type.dtype)));
    }
  }
  return bytes;
}

void expect_same_values(const Graph& before, const Graph& after) {
  std::mt19937 random(7);
  std::vector<HostTensor> inputs;
  for (int32_t input : before.inputs)
    inputs.push_back(random_tensor(before.nodes[input].types[0], before, random));
  const auto a = eval(before, inputs, before.symbol_hints), b = eval(after, inputs, after.symbol_hints);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    if (before.type(before.outputs[i].value).dtype != Dtype::kF32) {
      EXPECT_EQ(a[i], b[i]) << "output " << i;
      continue;
    }
    for (size_t k = 0; k < a[i].size(); k += 4) {
      float x, y;
      std::memcpy(&x, a[i].data() + k, 4);
      std::memcpy(&y, b[i].data() + k, 4);
      EXPECT_NEAR(x, y, 1e-5f * (1 + std::abs(x))) << "output " << i << " element " << k / 4;
    }
  }
}

class GraphGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(GraphGolden, Matches) {
  const fs::path path = golden_directory() / (GetParam() + ".golden");
  const Golden golden = read_golden(path);
  std::string actual;
  if (GetParam().rfind("error/", 0) == 0) {
    try {
      parse(golden.input);
    } catch (const std::exception& error) {
      actual = std::string(error.what()) + "\n";
    }
    EXPECT_FALSE(actual.empty()) << "no error";
  } else {
    const Graph before = parse(golden.input);
    EXPECT_EQ(print(parse(print(before))), print(before));
    PassContext context(loop::target_for(golden.isa));
    context.jit = false;  // whatever the library has on this machine
    const Graph after =
        golden.pass == "pipeline" ? run_pipeline(before, context) : run_pass(before, golden.pass, context);
    verify(after);
    actual = print(after);
    EXPECT_EQ(print(parse(actual)), actual);
    if (golden.eval) expect_same_values(before, after);
  }
  if (const char* update = std::getenv("IPEX_UPDATE_GOLDEN"); update && std::string_view(update) != "0") {
    std::ofstream(path) << golden.header << golden.input << "---\n" << actual;
  } else {
    EXPECT_EQ(actual, golden.expected);
  }
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const char* folder : {"graph", "pipeline", "error"})
    for (const auto& entry : fs::directory_iterator(golden_directory() / folder))
      if (entry.path().extension() == ".golden")
        names.push_back(std::string(folder) + "/" + entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, GraphGolden, ::testing::ValuesIn(golden_names()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '/') c = '_';
  return name;
});

}  // namespace
}  // namespace ipex::graph
