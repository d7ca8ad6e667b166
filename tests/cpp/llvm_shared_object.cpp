// Kernels as shared objects: linked in the process, for any ISA, the same bytes each time.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "codegen/llvm/shared_object.h"
#include "codegen/loop/text.h"

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

}  // namespace
}  // namespace ipex::loop
