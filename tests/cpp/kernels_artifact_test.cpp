// Artifacts are written, loaded and run, and thousands of damaged ones are refused without a crash.
//
// IPEX_FUZZ_FILES is the number of damaged files (default 3,000; 100,000 in the nightly run).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <random>
#include <thread>

#include "kernels/step_table.h"
#include "runtime/error.h"
#include "runtime/loaded_model.h"
#include "runtime/log.h"
#include "runtime/packed_values.h"

namespace ipex {
namespace {

namespace fs = std::filesystem;

// y = x w + b, the largest two elements of each row, and their positions in a sorted constant.
constexpr char kProgram[] =
    R"(ipex.program version=2 symbols=1 buffers=9
symbol name="rows" input=0 stride=false dim=0 divisor=1 offset=0 low=1 high=64
buffer kind="input" index=0 bytes=0
buffer kind="input" index=1 bytes=0
buffer kind="input" index=2 bytes=0
buffer kind="temporary" index=-1 bytes=(s0 16 *)
buffer kind="hoisted" index=-1 bytes=0
buffer kind="output" index=0 bytes=0
buffer kind="output" index=1 bytes=0
buffer kind="constant" index=-1 bytes=12 member="constants/0"
buffer kind="output" index=2 bytes=0
input name="x" spec=%0:f32[(s0),8]{8,1}
input name="w" member="weights/w" spec=%1:f32[8,4]{4,1}
input name="b" member="weights/b" spec=%2:f32[4]{1}
output spec=%5:f32[(s0),2]{2,1} alias=-1
output spec=%6:i64[(s0),2]{2,1} alias=-1
output spec=%8:i64[(s0),2]{2,1} alias=-1
result kind="tensor" name="values" index=0 dim=0 constant=""
result kind="tensor" name="indices" index=1 dim=0 constant="" sizes=[(s0),2] strides=[2,1]
result kind="tensor" name="places" index=2 dim=0 constant=""
result kind="dim" name="rows" index=0 dim=(s0) constant=""
onednn.matmul dst=%3:f32[(s0),4]{4,1} a=%0:f32[(s0),8]{8,1} b=%1:f32[8,4]{4,1} bias=%2:f32[4]{1} post=[{name="relu" alpha=0 beta=0}] pack=true packed=4 hoisted=false bytes=1 flops=2 sources=["model.py:3 linear"]
sort kind="top" x=%3:f32[(s0),4]{4,1} values=%5:f32[(s0),2]{2,1} indices=%6:i64[(s0),2]{2,1} axis=1 descending=true ordered=true k=2 hoisted=false bytes=1 flops=2 sources=[]
search sorted=%7:f32[3]{1} values=%5:f32[(s0),2]{2,1} dst=%8:i64[(s0),2]{2,1} right=false hoisted=false bytes=1 flops=2 sources=[]
end
)";

class ArtifactFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ipex_artifact_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ / "model.ipex";
    for (int i = 0; i < 32; ++i) w_.push_back(0.25f * static_cast<float>(i % 7 - 3));
  }
  void TearDown() override { fs::remove_all(folder_); }

  ArtifactParts parts() const {
    ArtifactParts parts;
    parts.variants = {{Isa::kAvx2, kProgram, ""}};
    parts.weights = {{"weights/w", std::as_bytes(std::span(w_))},
                     {"weights/b", std::as_bytes(std::span(b_))}};
    parts.constants = {{"constants/0", std::as_bytes(std::span(sorted_))}};
    parts.ipex_version = "test";
    return parts;
  }
  std::string file(const std::string& path) const {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }

  std::string path_;
  fs::path folder_;
  std::vector<float> w_;
  std::vector<float> b_ = {0.5f, -1.0f, 0.0f, 2.0f};
  std::vector<float> sorted_ = {0.0f, 1.0f, 2.0f};
};

TEST_F(ArtifactFileTest, RunsForEverySizeInItsRange) {
  write_artifact(path_, parts());
  const LoadedModel model(path_, {}, kernels::read_step);
  EXPECT_EQ(model.artifact().isa, Isa::kAvx2);
  for (const int64_t rows : {1, 3, 64}) {
    std::vector<float> x;
    for (int64_t i = 0; i < rows * 8; ++i) x.push_back(0.5f * static_cast<float>(i % 5 - 2));
    std::vector<float> values(rows * 2);
    std::vector<int64_t> indices(rows * 2), places(rows * 2);
    const std::vector<TensorView> arguments = {{x.data(), Dtype::kF32, {rows, 8}, {8, 1}}};
    const auto symbols = model.bind(arguments);
    EXPECT_EQ(symbols, std::vector<int64_t>{rows});
    void* outputs[] = {values.data(), indices.data(), places.data()};
    model.run(arguments, symbols, outputs);
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<std::pair<float, int64_t>> row;
      for (int64_t c = 0; c < 4; ++c) {
        float sum = b_[c];
        for (int64_t k = 0; k < 8; ++k) sum += x[r * 8 + k] * w_[k * 4 + c];
        row.emplace_back(-std::max(sum, 0.0f), c);
      }
      std::ranges::sort(row);
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_FLOAT_EQ(values[r * 2 + i], -row[i].first);
        EXPECT_EQ(places[r * 2 + i], std::ranges::lower_bound(sorted_, values[r * 2 + i]) - sorted_.begin());
      }
    }
  }
}

// x w + b with each of these epilogues: one library step each, with weights to pack and code to generate.
constexpr std::array kEpilogues = {"relu", "gelu", "tanh", "sigmoid", "abs", "square"};

std::string many_products() {
  const auto number = [](size_t n) { return std::to_string(n); };
  const size_t count = kEpilogues.size(), first_output = 3, first_packed = 3 + count;
  std::string text = "ipex.program version=2 symbols=0 buffers=" + number(3 + 2 * count) + "\n";
  for (const char* index : {"0", "1", "2"})
    text += std::string("buffer kind=\"input\" index=") + index + " bytes=0\n";
  for (size_t i = 0; i < count; ++i) text += "buffer kind=\"output\" index=" + number(i) + " bytes=0\n";
  for (size_t i = 0; i < count; ++i) text += "buffer kind=\"hoisted\" index=-1 bytes=0\n";
  text +=
      "input name=\"x\" spec=%0:f32[16,8]{8,1}\n"
      "input name=\"w\" member=\"weights/w\" spec=%1:f32[8,4]{4,1}\n"
      "input name=\"b\" member=\"weights/b\" spec=%2:f32[4]{1}\n";
  for (size_t i = 0; i < count; ++i)
    text += "output spec=%" + number(first_output + i) + ":f32[16,4]{4,1} alias=-1\n";
  for (size_t i = 0; i < count; ++i)
    text += "onednn.matmul dst=%" + number(first_output + i) +
            ":f32[16,4]{4,1} a=%0:f32[16,8]{8,1} b=%1:f32[8,4]{4,1} bias=%2:f32[4]{1} post=[{name=\"" +
            kEpilogues[i] + "\" alpha=0 beta=0}] pack=true packed=" + number(first_packed + i) +
            " hoisted=false bytes=1 flops=2 sources=[]\n";
  return text + "end\n";
}

// Each thread's load reads steps in parallel. All loads share oneDNN's caches and the map of hoisted values.
TEST_F(ArtifactFileTest, LoadsAndRunsOnSeveralThreadsAtOnce) {
  ArtifactParts products = parts();
  products.variants[0].program = many_products();
  products.constants.clear();
  write_artifact(path_, products);
  std::vector<float> x;
  for (int i = 0; i < 16 * 8; ++i) x.push_back(0.5f * static_cast<float>(i % 5 - 2));
  using Results = std::array<std::vector<float>, kEpilogues.size()>;
  const auto run = [&x](const LoadedModel& model) {
    const std::vector<TensorView> arguments = {{x.data(), Dtype::kF32, {16, 8}, {8, 1}}};
    Results results;
    std::array<void*, kEpilogues.size()> outputs;
    for (size_t i = 0; i < results.size(); ++i) {
      results[i].resize(16 * 4);
      outputs[i] = results[i].data();
    }
    model.run(arguments, model.bind(arguments), outputs);
    return results;
  };
  constexpr int kThreads = 4, kRounds = 5;
  std::array<std::vector<Results>, kThreads> results;
  // First runs, on a model shared by all threads and on models of each thread.
  const LoadedModel shared(path_, {}, kernels::read_step, /*prepare=*/false);
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (std::vector<Results>& mine : results)
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (int round = 0; round < kRounds; ++round) {
        mine.push_back(run(LoadedModel(path_, {}, kernels::read_step)));
        mine.push_back(run(shared));
      }
    });
  for (std::thread& thread : threads) thread.join();
  const Results expected = run(shared);
  for (int r = 0; r < 16; ++r)
    for (int c = 0; c < 4; ++c) {
      float sum = b_[c];
      for (int k = 0; k < 8; ++k) sum += x[r * 8 + k] * w_[k * 4 + c];
      EXPECT_FLOAT_EQ(expected[0][r * 4 + c], std::max(sum, 0.0f));
      EXPECT_FLOAT_EQ(expected[5][r * 4 + c], sum * sum);
    }
  for (const std::vector<Results>& mine : results)
    for (const Results& one : mine) EXPECT_EQ(one, expected);
}

TEST_F(ArtifactFileTest, WhatDoesNotFitIsNamed) {
  write_artifact(path_, parts());
  const LoadedModel model(path_, {}, kernels::read_step);
  const auto message = [&](TensorView view) -> std::string {
    try {
      model.bind({&view, 1});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(
      message({nullptr, Dtype::kF32, {65, 8}, {8, 1}}).find("input x: size of dimension 0 (rows) is 65"),
      std::string::npos);
  EXPECT_NE(message({nullptr, Dtype::kF32, {65, 8}, {8, 1}}).find("1 to 64"), std::string::npos);
  EXPECT_NE(message({nullptr, Dtype::kF32, {2, 9}, {9, 1}}).find("dimension 1 is 9"), std::string::npos);
  EXPECT_NE(message({nullptr, Dtype::kF64, {2, 8}, {8, 1}}).find("dtype f64"), std::string::npos);
  EXPECT_NE(message({nullptr, Dtype::kF32, {2}, {1}}).find("1 dimensions"), std::string::npos);
  EXPECT_THROW(model.bind({}), UserError);
}

TEST_F(ArtifactFileTest, VersionsAndNeedsAreChecked) {
  ArtifactParts later = parts();
  later.variants[0].program.replace(later.variants[0].program.find("version=2"), 9, "version=3");
  write_artifact(path_, later);
  EXPECT_THROW(load_artifact(path_, {}, kernels::read_step), UserError);
  ArtifactParts torch = parts();
  torch.torch_version = "2.13.0";
  write_artifact(path_, torch);
  EXPECT_THROW(load_artifact(path_, {}, kernels::read_step), UserError);
  const auto of_version = [](const char* version) {
    return LoadOptions{.torch = [version] { return TorchSteps{version, kernels::read_step}; }};
  };
  EXPECT_THROW(load_artifact(path_, of_version("2.12.0"), kernels::read_step), UserError);
  EXPECT_NO_THROW(load_artifact(path_, of_version("2.13.0"), kernels::read_step));
  ArtifactParts broken = parts();
  broken.variants[0].kernels = "no ELF";
  write_artifact(path_, broken);
  EXPECT_THROW(load_artifact(path_, {}, kernels::read_step), UserError);
  EXPECT_NO_THROW(load_artifact(path_, {.link = false}, kernels::read_step));
  ArtifactParts missing = parts();
  missing.weights.pop_back();
  write_artifact(path_, missing);
  EXPECT_THROW(load_artifact(path_, {}, kernels::read_step), UserError);
  ArtifactParts apart = parts();
  apart.embed_weights = false;
  write_artifact(path_, apart);
  EXPECT_NO_THROW(load_artifact(path_, {}, kernels::read_step));
  fs::remove(path_ + ".weights");
  EXPECT_THROW(load_artifact(path_, {}, kernels::read_step), UserError);
}

TEST_F(ArtifactFileTest, EverySizeComesFromAnInput) {
  ArtifactParts hostile = parts();
  std::string& program = hostile.variants[0].program;
  program.replace(program.find("input=0"), 7, "input=-1");
  write_artifact(path_, hostile);
  EXPECT_THROW(load_artifact(path_, {}, kernels::read_step), UserError);
}

std::string warned;  // the warning of the last load

TEST_F(ArtifactFileTest, PackedValuesOfAnotherCpuAreIgnored) {
  write_artifact(path_, parts());
  const auto load = [&](bool packed = true) {
    warned.clear();
    set_log_sink([](LogLevel, const std::string& message) { warned = message; });
    auto model = std::make_unique<LoadedModel>(path_, LoadOptions{.packed = packed}, kernels::read_step);
    set_log_sink(nullptr);
    return model;
  };
  PackedValues::write(load(false)->artifact());
  load();
  EXPECT_EQ(warned, "");

  // The same file with one entry of its manifest replaced.
  const std::string packed = packed_path(path_);
  const auto rewrite = [&](const std::string& key, const std::string& value) {
    const Archive old(packed);
    ArchiveWriter writer(packed);
    for (const Archive::Member& member : old.members()) {
      std::string text(reinterpret_cast<const char*>(member.data.data()), member.data.size());
      if (const size_t at = text.find("\"" + key + "\": "); at != std::string::npos) {
        const size_t begin = at + key.size() + 4;
        text.replace(begin, text.find_first_of(",\n", begin) - begin, value);
      }
      writer.add(member.name, text);
    }
    writer.finish();
  };
  rewrite("layouts", "7");
  load();
  EXPECT_NE(warned.find("for another kind of CPU"), std::string::npos) << warned;
  rewrite("artifact", "7");
  load();
  EXPECT_NE(warned.find("another artifact"), std::string::npos) << warned;
  rewrite("artifact", "\"7\"");
  EXPECT_THROW(load(), UserError);
  set_log_sink(nullptr);
}

// Products of these sizes would overflow, in elements, in bytes or in flops.
TEST_F(ArtifactFileTest, SizesThatNoMemoryHoldsAreRefused) {
  const std::string x = "a=%0:f32[(s0),8]{8,1}", w = "b=%1:f32[8,4]{4,1}", dst = "dst=%3:f32[(s0),4]{4,1}";
  for (const auto& [good, bad] : {std::pair{dst, "dst=%3:f32[4,9223372036854775807]{4,1}"},
                                  {dst, "dst=%3:f32[(s0),-9223372036854775808]{4,1}"},
                                  {x, "a=%0:f32[4294967296,4294967296]{0,0}"},
                                  {x, "a=%0:f32[(s0 s0 *),8]{9223372036854775807,1}"},
                                  {w, "b=%1:f32[8,4]{-9223372036854775808,1}"}}) {
    ArtifactParts hostile = parts();
    std::string& program = hostile.variants[0].program;
    const size_t at = program.find(good);
    ASSERT_NE(at, std::string::npos) << good;
    program.replace(at, good.size(), bad);
    write_artifact(path_, hostile);
    EXPECT_THROW(load_artifact(path_, {}, kernels::read_step), Unsupported) << bad;
  }
}

// Applies one kind of damage: bytes are changed, cut, repeated or spliced, or numbers and names are replaced
// by malicious ones.
std::string damaged(std::string text, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return n ? random() % n : 0; };
  const int times = 1 + static_cast<int>(below(3));
  for (int i = 0; i < times; ++i) {
    const size_t at = below(text.size());
    switch (below(7)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.erase(at, 1 + below(16));
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), below(64)));
        break;
      case 4: {
        static const char* const kHostile[] = {"-1",
                                               "0",
                                               "9223372036854775807",
                                               "-9223372036854775808",
                                               "4294967296",
                                               "1e30",
                                               "(s0 s0 *)",
                                               "(s0 0 /)",
                                               "[]",
                                               "{}",
                                               "\"",
                                               "true",
                                               "s9"};
        size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        size_t end = digit;
        while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
        text.replace(digit, end - digit, kHostile[below(std::size(kHostile))]);
        break;
      }
      case 5: {  // swap two lines
        const size_t a = text.find('\n', at), b = a == std::string::npos ? a : text.find('\n', a + 1);
        if (b != std::string::npos) std::rotate(text.begin() + at, text.begin() + a, text.begin() + b);
        break;
      }
      default:
        if (!text.empty()) text[at] ^= static_cast<char>(1 << below(8));
    }
  }
  return text;
}

TEST_F(ArtifactFileTest, NoDamagedFileCrashes) {
  write_artifact(path_, parts());
  const std::string good = file(path_);
  const char* wanted = std::getenv("IPEX_FUZZ_FILES");
  const int count = wanted ? std::atoi(wanted) : 3000;
  std::mt19937_64 random(20261121);
  const std::string bad = folder_ / "bad.ipex";
  int refused = 0, accepted = 0;
  for (int i = 0; i < count; ++i) {
    // Half of the files are damaged directly. In the others the text is damaged and the checksums are
    // corrected.
    if (i % 2 == 0) {
      std::ofstream(bad, std::ios::binary | std::ios::trunc) << damaged(good, random);
    } else {
      const Archive archive(path_);
      ArchiveWriter writer(bad);
      const size_t victim = random() % 3;
      size_t next = 0;
      for (const Archive::Member& member : archive.members()) {
        const std::string data(reinterpret_cast<const char*>(member.data.data()), member.data.size());
        const bool is_text = member.name == "manifest.json" || member.name == "avx2/program.txt";
        const bool hit = is_text && (victim == 2 || next++ == victim);
        writer.add(member.name, hit ? damaged(data, random) : data);
      }
      writer.finish();
    }
    try {
      const LoadedModel model(bad, {}, kernels::read_step, /*prepare=*/false);
      ++accepted;
    } catch (const std::exception&) {
      ++refused;
    }
  }
  std::printf("%d damaged files: %d refused, %d still a program\n", count, refused, accepted);
  EXPECT_EQ(refused + accepted, count);
  EXPECT_GT(refused, count / 2);
}

}  // namespace
}  // namespace ipex
