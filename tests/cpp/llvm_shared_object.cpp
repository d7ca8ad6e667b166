// Kernels as shared objects: linked in the process, for any ISA, the same bytes each time.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <latch>
#include <span>
#include <thread>

#include "codegen/llvm/shared_object.h"
#include "codegen/loop/text.h"
#include "runtime/loaded_code.h"

namespace ipex::loop {
namespace {

std::vector<Function> kernels() {
  return {parse_function("func double_it(in x: f32[64], out y: f32[64]) {\n"
                         "for parallel(grain=8) i in 0..64 {\n y[i] = x[i] + x[i]\n}\n}"),
          parse_function(
              "func sine(in x: f32[64], out y: f32[64]) {\nfor i in 0..64 {\n y[i] = sin(x[i])\n}\n}")};
}

TEST(SharedObject, ExportsKernelsAndImportsThroughItsTable) {
  const std::string bytes = make_shared_object(kernels(), current_target());
  EXPECT_EQ(bytes.substr(0, 4),
            "\x7f"
            "ELF");
  char path[] = "/tmp/ipex-test-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_EQ(write(file, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  close(file);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  ASSERT_TRUE(library) << dlerror();
  EXPECT_TRUE(dlsym(library, "double_it"));
  EXPECT_TRUE(dlsym(library, "sine"));
  EXPECT_TRUE(dlsym(library, "ipex_imports"));
  EXPECT_FALSE(dlsym(library, "ipex_no_such_kernel"));
  const char* names = static_cast<const char*>(dlsym(library, "ipex_import_names"));
  ASSERT_TRUE(names);
  bool sleef = false;
  for (; *names; names += std::string_view(names).size() + 1)
    sleef |= std::string_view(names).starts_with("Sleef_sin");
  EXPECT_TRUE(sleef);
  dlclose(library);
}

TEST(SharedObject, IsTheSameEachTimeOnAnyIsa) {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    const Target target = target_for(isa);
    EXPECT_EQ(make_shared_object(kernels(), target), make_shared_object(kernels(), target));
  }
}

// Code of one name, different in each thread: nobody gets what another one loads at the same time.
TEST(SharedObject, LoadsOnSeveralThreadsAtOnce) {
  constexpr int kThreads = 4, kRounds = 25;
  std::array<std::string, kThreads> objects;
  for (int t = 0; t < kThreads; ++t)
    objects[t] = make_shared_object(
        {parse_function("func shifted(in x: f32[64], out y: f32[64]) {\nfor parallel(grain=8) i in 0..64 {\n"
                        " y[i] = x[i] + " +
                        std::to_string(t) + ".0f\n}\n}")},
        current_target());
  std::array<int, kThreads> wrong{};
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int round = 0; round < kRounds; ++round) {
        const LoadedCode code(std::as_bytes(std::span(objects[t])));
        std::array<float, 64> x, y;
        x.fill(static_cast<float>(round));
        void* buffers[] = {x.data(), y.data()};
        code.lookup("shifted")(buffers, nullptr);
        for (const float value : y) wrong[t] += value != static_cast<float>(round + t);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace ipex::loop
