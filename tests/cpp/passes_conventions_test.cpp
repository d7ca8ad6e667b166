// What every loop pass has: a contract in passes.h, three goldens, files that are short enough to read. Also,
// the names that passes had in the last release.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "runtime/log.h"

namespace ipex::loop {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = IPEX_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// simplify runs twice and is described once.
std::string described_name(std::string_view pass) {
  return std::string(pass == "final_simplify" ? "simplify" : pass);
}

TEST(PassConventions, EachPassHasAContractAndAnExample) {
  const std::string header = text_of(kRoot / "codegen/passes/passes.h");
  for (const LoopPass& pass : pipeline()) {
    const std::string name = described_name(pass.name);
    const size_t begin = header.find("\n// " + name + ": ");
    ASSERT_NE(begin, std::string::npos) << "passes.h does not describe " << name;
    size_t end = begin + 1;
    while (header.compare(end, 2, "//") == 0) end = header.find('\n', end) + 1;
    const std::string comment = header.substr(begin, end - begin);
    for (const char* part : {"//   pre: ", "post: ", "=>  "})
      EXPECT_NE(comment.find(part), std::string::npos) << name << " has no `" << part << "`:" << comment;
  }
}

TEST(PassConventions, EachPassHasThreeGoldens) {
  std::map<std::string, int> goldens;
  for (const auto& entry : fs::directory_iterator(kRoot / "tests/golden/loop")) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line) && line.starts_with("# ");)
      if (line.starts_with("# pass: ")) ++goldens[line.substr(8)];
  }
  for (const LoopPass& pass : pipeline())
    EXPECT_GE(goldens[described_name(pass.name)], 3)
        << pass.name << " has too few goldens in tests/golden/loop";
}

TEST(PassConventions, FilesAreShortAndSayWhatTheyAre) {
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "codegen")) {
    if (!entry.is_regular_file()) continue;
    const std::string text = text_of(entry.path()), extension = entry.path().extension();
    EXPECT_LE(std::ranges::count(text, '\n'), 600) << entry.path();
    const bool is_source = extension == ".cpp" || extension == ".h" || extension == ".def";
    EXPECT_TRUE(!is_source || text.starts_with("// ")) << entry.path() << " has no opening comment";
  }
}

// A new CPU is a row of target.cpp: everything else reads fields of Target.
TEST(PassConventions, OnlyTargetKnowsIsas) {
  const std::regex comparison(R"(Isa::k|\bisa *[!=]=|\bvector_(bytes|registers) *[!=<>]=?)");
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "codegen")) {
    if (!entry.is_regular_file() || entry.path().stem() == "target") continue;
    std::smatch found;
    const std::string text = text_of(entry.path());
    EXPECT_FALSE(std::regex_search(text, found, comparison)) << entry.path() << ": " << found.str();
  }
}

// ---- former names ----

std::string warnings;

struct CaughtWarnings {
  CaughtWarnings() {
    warnings.clear();
    set_log_sink([](LogLevel, const std::string& message) { warnings += message + "\n"; });
  }
  ~CaughtWarnings() { set_log_sink(nullptr); }
};

TEST(FormerNames, AreAcceptedWithOneWarning) {
  const CaughtWarnings caught;
  ASSERT_NE(find_pass("join_rows"), nullptr);
  EXPECT_EQ(find_pass("join_rows")->name, "fuse_loops");
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 1) << warnings;
  EXPECT_NE(warnings.find("`join_rows` is now called `fuse_loops`"), std::string::npos) << warnings;
  EXPECT_EQ(find_pass("fuse_loops"), find_pass("join_rows"));
  EXPECT_EQ(find_pass("no_such_pass"), nullptr);
}

TEST(FormerNames, DisableAPassAndStopAfterIt) {
  const std::vector<Function> module = {
      parse_function(R"(func f(in x: bf16[64], in w: bf16[64], out y: f32[1]) {
    for k in 0..64 reduce(s: f32 = 0f) {} yield(s + cast.f32(x[k])*cast.f32(w[k])) merge(s + s.other)
    y[0] = s
  })")};
  const Target target = portable_target(Isa::kAvx512Bf16);
  const CaughtWarnings caught;
  const std::string packed = print(run_pipeline(module, target, "pair_products"));
  EXPECT_EQ(packed, print(run_pipeline(module, target, "pack_dot_products")));
  EXPECT_NE(packed.find("dot_bf16"), std::string::npos) << packed;
  setenv("IPEX_DISABLE_PASS", "split_chains,pair_products", 1);
  EXPECT_EQ(print(run_pipeline(module, target, "pack_dot_products")).find("dot_bf16"), std::string::npos);
  unsetenv("IPEX_DISABLE_PASS");
}

}  // namespace
}  // namespace ipex::loop
