// The oneDNN that this run uses. `make test-onednn` runs the tests with several, and must not test one of
// them twice.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kernels/library.h"

namespace ipex::kernels::testing {
namespace {

TEST(OneDnn, HasTheVersionThatTheRunAsksFor) {
  const char* asked = std::getenv("IPEX_TEST_ONEDNN");
  const std::string version = onednn_version() + ".", wanted = std::string(asked ? asked : "3") + ".";
  EXPECT_EQ(version.substr(0, wanted.size()), wanted);
}

}  // namespace
}  // namespace ipex::kernels::testing
