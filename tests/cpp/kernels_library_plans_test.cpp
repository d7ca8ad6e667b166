// Library steps that are planned once, and made over the buffers of each node that computes the same.
#include "kernels/library_plans.h"
#include "runtime/error.h"
#include "tests/cpp/kernels_products.h"

namespace ipex::kernels::testing {
namespace {

// Planned once over any buffers, and made over those of each node: as the maker makes it, line and all.
TEST(LibraryPlans, MakeWhatTheMakersMake) {
  for (const bool pack : {false, true}) {
    Case c = plain(Dtype::kF32, 16, 512, 512);
    c.pack = pack;
    c.bias = {Tensor::random(Dtype::kF32, {512}, 3)};
    c.post = {"gelu", "add"};
    c.operands = {Tensor::random(Dtype::kF32, {16, 512}, 4)};
    LibraryPlans plans;
    MatMulDesc asked = describe(c);
    int buffer = 40;
    for (TensorSpec* spec : {&asked.b, &asked.a, &*asked.bias, &asked.dst, &*asked.post[1].operand})
      spec->buffer = buffer++;
    EXPECT_EQ(plans.refusal(asked), "");
    LibrarySteps made = plans.make(describe(c), kPacked);
    const LibrarySteps direct = make_matmul(describe(c), kPacked);
    EXPECT_EQ(made.main->text, direct.main->text);
    EXPECT_EQ(made.main->reads, direct.main->reads);
    EXPECT_EQ(made.main->writes, direct.main->writes);
    EXPECT_EQ(made.main->info.detail, direct.main->info.detail);
    EXPECT_EQ(made.packed_bytes, direct.packed_bytes);
    ASSERT_EQ(made.pack == nullptr, direct.pack == nullptr);
    if (made.pack) {
      EXPECT_EQ(made.pack->recipe, direct.pack->recipe);
      EXPECT_EQ(made.pack->writes, direct.pack->writes);
    }
    expect_product(c, std::move(made));
    expect_product(c, plans.make(describe(c), kPacked));
  }
}

TEST(LibraryPlans, RefuseWhatTheMakersRefuse) {
  Case c = plain(Dtype::kF64, 3, 4, 5);
  LibraryPlans plans;
  EXPECT_NE(plans.refusal(describe(c)), "");
  EXPECT_THROW(plans.make(describe(c), kPacked), Unsupported);
}

}  // namespace
}  // namespace ipex::kernels::testing
