// Goldens of the loop passes, tests/golden/loop/*.golden. A file is a header of directives, the input, `---`,
// the output:
//
//   # pass: vectorize               any pass of pipeline(), or choose_schedule (whose output is a schedule)
//   # target: avx512                default avx512
//   # schedule: loop i vector ...   for apply_schedule: lines of the schedule; none: choose_schedule's
//   # eval: 5 7                     eval(input) == eval(output) with these symbols (none: no symbols); may be
//   repeated func ...
//   ---
//   func ...
//
// Both texts must also be what print gives back for them. IPEX_UPDATE_GOLDEN=1 rewrites the outputs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "passes_evaluation.h"

namespace ipex::loop {
namespace {

namespace fs = std::filesystem;

fs::path golden_directory() { return fs::path(IPEX_SOURCE_DIR) / "tests" / "golden" / "loop"; }

struct Golden {
  std::string header, input, expected;
  std::string pass, schedule;
  Isa isa = Isa::kAvx512;
  std::vector<std::vector<int64_t>> evals;
};

Golden read_golden(const fs::path& path) {
  Golden g;
  std::ifstream file(path);
  std::string line;
  bool output = false;
  while (std::getline(file, line)) {
    if (line == "---") {
      output = true;
      continue;
    }
    if (output) {
      g.expected += line + "\n";
    } else if (line.rfind("# ", 0) == 0) {
      g.header += line + "\n";
      const size_t colon = line.find(':');
      const std::string key = line.substr(2, colon - 2);
      std::string value = colon == std::string::npos ? "" : line.substr(colon + 1);
      value.erase(0, value.find_first_not_of(' '));
      if (key == "pass") g.pass = value;
      if (key == "target") g.isa = parse_isa(value);
      if (key == "schedule") g.schedule += value + "\n";
      if (key == "eval") {
        std::istringstream numbers(value);
        std::vector<int64_t>& symbols = g.evals.emplace_back();
        for (int64_t n; numbers >> n;) symbols.push_back(n);
      }
    } else {
      g.input += line + "\n";
    }
  }
  return g;
}

class LoopGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(LoopGolden, Matches) {
  const fs::path path = golden_directory() / (GetParam() + ".golden");
  const Golden g = read_golden(path);
  Target target = portable_target(g.isa);  // whatever caches and threads this machine has
  target.threads = 2;
  const Function input = parse_function(g.input);
  verify(input);
  EXPECT_EQ(print(parse_function(print(input))), print(input));

  std::string actual;
  std::optional<Function> output;
  if (g.pass == "choose_schedule") {
    const Schedule schedule = choose_schedule(input, target);
    actual = print(schedule);
    EXPECT_EQ(parse_schedule(actual), schedule);
  } else if (g.pass == "apply_schedule" && !g.schedule.empty()) {
    output = apply_schedule(input, parse_schedule(g.schedule));
  } else {
    for (const LoopPass& pass : pipeline())
      if (pass.name == g.pass) output = pass.run({input}, target).at(0);
    ASSERT_TRUE(output) << "no pass named `" << g.pass << "`";
  }
  if (output) {
    verify(*output);
    actual = print(*output);
    EXPECT_EQ(print(parse_function(actual)), actual);
  }

  if (const char* update = std::getenv("IPEX_UPDATE_GOLDEN"); update && std::string_view(update) != "0") {
    std::ofstream(path) << g.header << g.input << "---\n" << actual;
  } else {
    EXPECT_EQ(actual, g.expected);
  }

  for (const std::vector<int64_t>& symbols : g.evals) {
    ASSERT_TRUE(output) << "eval needs a pass that gives a function";
    testing::Buffers before = testing::random_buffers(input, symbols, 1), after = before;
    testing::run_eval(input, before, symbols);
    testing::run_eval(*output, after, symbols);
    EXPECT_EQ(testing::difference(input, before, after), "");
  }
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden_directory()))
    if (entry.path().extension() == ".golden") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, LoopGolden, ::testing::ValuesIn(golden_names()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace ipex::loop
