// Released pages of code and constants leave memory, and are reloaded when they are read.
#include "runtime/code_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace ipex {
namespace {

constexpr size_t kBytes = 4 << 20;
const unsigned char constants[kBytes] = {1, 2,
                                         3};  // stored in the program's file, because they are not all 0

size_t sum_of_constants() {
  size_t sum = 0;
  const volatile unsigned char* data = constants;
  for (size_t i = 0; i < kBytes; ++i) sum += data[i];
  return sum;
}

// Resident bytes of the mapping that contains the address.
size_t resident_bytes(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    if (range >> std::hex >> begin >> dash >> end && dash == '-') inside = begin <= wanted && wanted < end;
    if (inside && line.starts_with("Rss:")) return std::stoul(line.substr(4)) << 10;
  }
  return 0;
}

TEST(CodePages, LeaveMemoryAndComeBack) {
  EXPECT_EQ(sum_of_constants(), 6u);
  EXPECT_GE(resident_bytes(constants), kBytes);
  release_code_pages(constants);
  EXPECT_LT(resident_bytes(constants), kBytes / 2);
  EXPECT_EQ(sum_of_constants(), 6u);
}

TEST(CodePages, AnAddressOfNoObjectIsLetBe) {
  const std::string on_the_heap(1000, 'x');
  release_code_pages(on_the_heap.data());
  EXPECT_EQ(on_the_heap, std::string(1000, 'x'));
}

}  // namespace
}  // namespace ipex
