// The object cache on disk: hits, damage, foreign files, directories that cannot be written, and what keys
// tell apart.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "codegen/llvm/cache_directory.h"
#include "codegen/llvm/cache_text.h"
#include "codegen/llvm/object_cache.h"
#include "codegen/loop/text.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "tests/cpp/llvm_kernels.h"

namespace ipex::loop::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string>& warnings() {
  static std::vector<std::string> messages;
  return messages;
}

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "ipex_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    directory_ = root_ / "objects";
    setenv("IPEX_CACHE", directory_.c_str(), 1);
    warnings().clear();
    set_log_sink([](LogLevel level, const std::string& message) {
      if (level <= LogLevel::kWarning) warnings().push_back(message);
    });
  }
  void TearDown() override {
    set_log_sink(nullptr);
    setenv("IPEX_CACHE", "off", 1);
    fs::permissions(root_, fs::perms::owner_all);
    fs::remove_all(root_);
  }

  // Compiles a kernel and checks that it computes; returns whether it came from the cache.
  bool compile_hits(int addend = 1) {
    const Function f = elementwise("add", {Dtype::kI32}, Dtype::kI32, 4, 1, [&](const std::vector<Expr>& x) {
      return make_apply(ScalarOp::add_, {x[0], make_int({Dtype::kI32, 1}, addend)});
    });
    CompileStats stats;
    const auto library = jit_compile({f}, current_target(), &stats);
    Array x = Array::of_ints(Dtype::kI32, {1, 2, 3, 4}), y(Dtype::kI32, 4);
    run(*library, "add", {&x, &y});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(y.get_int(i), i + 1 + addend);
    EXPECT_EQ(stats.kernels, 1);
    return stats.cache_hits == 1;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> result;
    if (fs::exists(directory_))
      for (const auto& entry : fs::directory_iterator(directory_)) result.push_back(entry.path());
    return result;
  }

  fs::path root_, directory_;
};

TEST_F(Cache, SecondCompileIsAHit) {
  EXPECT_FALSE(compile_hits());
  EXPECT_TRUE(compile_hits());
  EXPECT_FALSE(compile_hits(2));
  EXPECT_EQ(files().size(), 2u);
  EXPECT_TRUE(warnings().empty());
}

TEST_F(Cache, DirectoryIsPrivate) {
  compile_hits();
  struct stat info{};
  ASSERT_EQ(stat(directory_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(Cache, DamagedEntryIsIgnoredAndRewritten) {
  compile_hits();
  const fs::path file = files().at(0);
  const auto size = fs::file_size(file);
  // Cut short inside the header and the object, empty, one byte flipped.
  for (uintmax_t kept : {uintmax_t{0}, uintmax_t{50}, size / 2, size - 1}) {
    fs::resize_file(file, kept);
    EXPECT_FALSE(compile_hits()) << kept;
    EXPECT_TRUE(compile_hits()) << kept;
  }
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(size / 2));
    bytes.put('\x5a');
    bytes.put('\xa5');
  }
  EXPECT_FALSE(compile_hits());
  EXPECT_TRUE(compile_hits());
  EXPECT_EQ(warnings().size(), 5u);
}

TEST_F(Cache, ForeignFilesAreIgnored) {
  compile_hits();
  const fs::path file = files().at(0);
  std::ofstream(file) << std::string(4096, 'x');
  EXPECT_FALSE(compile_hits());
  EXPECT_TRUE(compile_hits());
  {  // another format version
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(8);
    bytes.put('\x7f');
  }
  EXPECT_FALSE(compile_hits());
  EXPECT_TRUE(compile_hits());
  // an object under another kernel's key
  ObjectCache cache(directory_.string());
  const std::string key = cache_key("someone else");
  fs::copy_file(file, directory_ / (key + ".o"));
  EXPECT_FALSE(cache.load(key).has_value());
  EXPECT_EQ(warnings().size(), 3u);
}

TEST_F(Cache, UnwritableDirectoryIsOneWarning) {
  // A file where the directory should be stops root as well, whom permissions do not.
  std::ofstream(directory_.string()) << "in the way";
  EXPECT_FALSE(compile_hits());
  EXPECT_FALSE(compile_hits(2));
  EXPECT_EQ(warnings().size(), 1u);
}

TEST_F(Cache, InjectedFaults) {
  setenv("IPEX_INJECT_FAULT", "cache_write", 1);
  EXPECT_FALSE(compile_hits());
  EXPECT_FALSE(compile_hits());
  EXPECT_TRUE(files().empty());
  setenv("IPEX_INJECT_FAULT", "compile", 1);
  EXPECT_THROW(compile_hits(), InternalError);
  unsetenv("IPEX_INJECT_FAULT");
  EXPECT_FALSE(compile_hits());
}

TEST_F(Cache, OffMeansNoFile) {
  setenv("IPEX_CACHE", "off", 1);
  EXPECT_FALSE(compile_hits());
  EXPECT_FALSE(compile_hits());
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(Cache, DirectoryThatOthersCanWriteToIsRefused) {
  compile_hits();
  for (fs::perms shared : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(directory_, fs::perms::owner_all | shared);
    const auto before = files().size();
    EXPECT_FALSE(compile_hits());
    EXPECT_FALSE(compile_hits(2));
    EXPECT_EQ(files().size(), before);
  }
  EXPECT_EQ(warnings().size(), 1u);
  fs::permissions(directory_, fs::perms::owner_all);
  EXPECT_TRUE(compile_hits());
}

TEST_F(Cache, FullDiskIsOneWarning) {
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{.rlim_cur = 100, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_FALSE(compile_hits());
  EXPECT_FALSE(compile_hits(2));
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, ignored);
  EXPECT_EQ(warnings().size(), 1u);
  EXPECT_TRUE(files().empty());
}

TEST_F(Cache, EvictsLeastRecentlyUsed) {
  const ObjectCache cache(directory_.string());
  const auto key = [](int i) { return cache_key(std::to_string(i)); };
  const auto file = [&](int i) { return directory_ / (key(i) + ".o"); };
  const std::string object(1000, 'o');
  for (int i = 0; i < 10; ++i) {
    cache.store(key(i), object);
    fs::last_write_time(file(i), fs::file_time_type::clock::now() - std::chrono::hours(20 - i));
  }
  EXPECT_TRUE(cache.load(key(0)).has_value());  // now the most recently used
  std::ofstream(directory_ / ".new-abandoned") << "x";
  fs::last_write_time(directory_ / ".new-abandoned",
                      fs::file_time_type::clock::now() - std::chrono::hours(2));
  std::ofstream(directory_ / "notes.txt") << "not ours";
  evict(directory_, 1 << 20);
  EXPECT_EQ(files().size(), 11u);  // within the limit only the abandoned file goes
  evict(directory_, 8000);
  EXPECT_EQ(files().size(), 6u);  // five entries are at most three quarters of the limit
  EXPECT_TRUE(cache.load(key(0)).has_value());
  EXPECT_FALSE(cache.load(key(1)).has_value());
  EXPECT_TRUE(cache.load(key(9)).has_value());
  EXPECT_TRUE(fs::exists(directory_ / "notes.txt"));
  EXPECT_TRUE(warnings().empty());
}

TEST_F(Cache, SizeLimitHoldsWhileWriting) {
  setenv("IPEX_CACHE_SIZE", "1", 1);
  const ObjectCache cache(directory_.string());
  for (int i = 0; i < 40; ++i) cache.store(cache_key(std::to_string(i)), std::string(100 << 10, 'o'));
  uintmax_t bytes = 0;
  for (const fs::path& file : files()) bytes += fs::file_size(file);
  EXPECT_LE(bytes, (1u << 20) + (1u << 18));
  EXPECT_GT(bytes, 1u << 19);
  setenv("IPEX_CACHE_SIZE", "-3", 1);
  EXPECT_THROW(ObjectCache(directory_.string()), UserError);
  unsetenv("IPEX_CACHE_SIZE");
}

TEST_F(Cache, EntriesMoveToAnotherCacheWhole) {
  compile_hits();
  const std::string key = files().at(0).stem();
  const auto entry = ObjectCache(directory_.string()).load_entry(key);
  ASSERT_TRUE(entry.has_value());
  fs::remove(files().at(0));
  const ObjectCache cache(directory_.string());
  std::string damaged = *entry;
  damaged.back() ^= 1;
  EXPECT_FALSE(cache.store_entry(key, damaged));
  EXPECT_FALSE(cache.store_entry(cache_key("another kernel"), *entry));
  EXPECT_FALSE(cache.store_entry("../" + key, *entry));
  EXPECT_TRUE(files().empty());
  EXPECT_TRUE(cache.store_entry(key, *entry));
  EXPECT_TRUE(compile_hits());
}

TEST_F(Cache, LeavesNoTemporaryFile) {
  compile_hits();
  for (const fs::path& file : files()) EXPECT_EQ(file.extension(), ".o") << file;
}

TEST_F(Cache, ScheduledAndUnscheduledAreDifferentEntries) {
  const Function f = elementwise("twice", {Dtype::kF32}, Dtype::kF32, 64, 1,
                                 [](const std::vector<Expr>& x) { return x[0] + x[0]; });
  CompileStats stats;
  schedule_and_compile({f}, current_target(), &stats);
  EXPECT_EQ(stats.cache_hits, 0);
  jit_compile({f}, current_target(), &stats);
  EXPECT_EQ(stats.cache_hits, 0);
  schedule_and_compile({f}, current_target(), &stats);
  EXPECT_EQ(stats.cache_hits, 1);
  EXPECT_EQ(stats.passes_ms, 0);
}

TEST_F(Cache, KernelsAreLoadedByTheirKeys) {
  const auto plus = [](const char* name, int addend) {
    return elementwise(name, {Dtype::kI32}, Dtype::kI32, 4, 1, [&](const std::vector<Expr>& x) {
      return make_apply(ScalarOp::add_, {x[0], make_int({Dtype::kI32, 1}, addend)});
    });
  };
  CompileStats compiled, loaded;
  jit_compile({plus("one", 1), plus("two", 2), plus("also_one", 1)}, current_target(), &compiled);
  EXPECT_EQ(compiled.keys.size(), 3u);
  EXPECT_EQ(compiled.keys["one"], compiled.keys["also_one"]);
  const auto library = load_kernels(compiled.keys, &loaded);
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(loaded.kernels, 2);
  EXPECT_EQ(loaded.cache_hits, 2);
  EXPECT_EQ(loaded.keys, compiled.keys);
  for (const auto& [name, addend] : {std::pair{"one", 1}, {"two", 2}, {"also_one", 1}}) {
    Array x = Array::of_ints(Dtype::kI32, {1, 2, 3, 4}), y(Dtype::kI32, 4);
    run(*library, name, {&x, &y});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(y.get_int(i), i + 1 + addend);
  }
  fs::remove(directory_ / (compiled.keys["two"] + ".o"));
  EXPECT_EQ(load_kernels(compiled.keys), nullptr);
  EXPECT_TRUE(warnings().empty());
}

TEST(CacheText, NamesDoNotMatterAnythingElseDoes) {
  const auto text = [](const std::string& source) { return canonical_text(parse_function(source)); };
  const std::string base =
      "func f(in x: f32[s0], out y: f32[s0]) symbols(s0) {\n for i in 0..s0 {\n let t: f32 = x[i]\n y[i] = "
      "t*t\n }\n}\n";
  const std::string renamed =
      "func g(in a: f32[n], out b: f32[n]) symbols(n) {\n for k in 0..n {\n let u: f32 = a[k]\n b[k] = u*u\n "
      "}\n}\n";
  EXPECT_EQ(text(base), text(renamed));
  std::set<std::string> distinct = {text(base)};
  for (const char* other : {
           "func f(in x: f64[s0], out y: f64[s0]) symbols(s0) {\n for i in 0..s0 {\n let t: f64 = x[i]\n "
           "y[i] = t*t\n }\n}\n",
           "func f(in x: f32[s0], out y: f32[s0]) symbols(s0) {\n for i in 0..s0 {\n let t: f32 = x[i]\n "
           "y[i] = t + t\n }\n}\n",
           "func f(in x: f32[s0], out y: f32[s0]) symbols(s0) {\n for i in 1..s0 {\n let t: f32 = x[i]\n "
           "y[i] = t*t\n }\n}\n",
           "func f(out y: f32[s0], in x: f32[s0]) symbols(s0) {\n for i in 0..s0 {\n let t: f32 = x[i]\n "
           "y[i] = t*t\n }\n}\n",
           // bound names that are words of the grammar
           "func f(in max: f32[s0], out y: f32[s0]) symbols(s0) {\n for i in 0..s0 {\n y[i] = max(max[i], "
           "1f)\n }\n}\n",
           "func f(in min: f32[s0], out y: f32[s0]) symbols(s0) {\n for i in 0..s0 {\n y[i] = min(min[i], "
           "1f)\n }\n}\n",
       })
    EXPECT_TRUE(distinct.insert(text(other)).second) << other;
}

TEST(CacheText, KeyIsSha256) {
  EXPECT_EQ(cache_key(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_FALSE(build_identity().empty());
}

}  // namespace
}  // namespace ipex::loop::testing
