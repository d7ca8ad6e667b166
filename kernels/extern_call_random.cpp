// Random operators: ipex::bernoulli (the dropout masks of eager PyTorch, bit for bit, from its own
// generator), ipex::normal (the numbers that normal_ writes into memory with gaps), and operators on the
// generator's state, for random numbers that a backward pass draws again.
//
// ATen draws masks one number at a time (14 ns each on Zen 3) or, on Intel CPUs, with a generator of MKL. We
// test once, with a separate generator, whether ATen's masks equal ours. If they do not, ATen draws them.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <string>

#include "kernels/mersenne_twister.h"
#include "runtime/cpu.h"

namespace ipex::kernels {
namespace {

void draw(at::Tensor& mask, double p, at::CPUGeneratorImpl& generator) {
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod data = engine.data();
  MersenneTwister twister{data.state_, data.left_ - 1};
  draw_bernoulli(twister, p, {mask.mutable_data_ptr<bool>(), static_cast<size_t>(mask.numel())});
  data.state_ = twister.state;
  data.left_ = twister.unused + 1;
  data.next_ = static_cast<uint32_t>(MersenneTwister::kWords - twister.unused);
  engine.set_data(data);
  generator.set_engine(engine);
}

bool draws_as_aten() {
  if (!cpu_supports(Isa::kAvx2)) return false;
  const auto drawn = [](auto how) {
    at::Tensor mask = at::empty({2 * MersenneTwister::kWords}, at::kBool);
    at::Generator generator = at::detail::createCPUGenerator();
    how(mask, generator);
    return std::pair(mask, generator.get_state());
  };
  const auto [mine, my_state] = drawn([](at::Tensor& mask, at::Generator& generator) {
    draw(mask, 0.5, *at::check_generator<at::CPUGeneratorImpl>(generator));
  });
  const auto [atens, its_state] =
      drawn([](at::Tensor& mask, at::Generator& generator) { mask.bernoulli_(0.5, generator); });
  return mine.equal(atens) && my_state.equal(its_state);
}

at::Tensor bernoulli(at::IntArrayRef size, at::IntArrayRef stride, double p) {
  static const bool ours = draws_as_aten();
  at::Tensor mask = at::empty_strided(size, stride, at::kBool);
  // Draw in memory order, as ATen's serial loop does for any tensor without gaps.
  if (!ours || !mask.is_non_overlapping_and_dense()) return mask.bernoulli_(p);
  TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  auto* generator = at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
  const std::lock_guard lock(generator->mutex_);
  draw(mask, p, *generator);
  return mask;
}

// The numbers that normal_ writes into a tensor with these strides, as a contiguous tensor. For contiguous
// memory ATen would draw other numbers.
at::Tensor normal(at::IntArrayRef size, at::IntArrayRef stride, at::ScalarType dtype, double mean,
                  double std) {
  return at::empty_strided(size, stride, dtype).normal_(mean, std).contiguous();
}

// A copy of the generator's state, as torch.get_rng_state() returns.
at::Tensor rng_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

// Sets the generator's state and returns the previous one.
at::Tensor exchange_rng_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  at::Tensor before = generator.get_state();
  generator.set_state(state);
  return before;
}

// Registers the operators once per process. Both the Python module and libipex_runtime_torch.so may be
// loaded.
const auto registered = [] {
  torch::Library library(torch::Library::FRAGMENT, "ipex", std::nullopt, __FILE__, __LINE__);
  const auto define = [&](const char* name, const char* signature, auto* function) {
    if (c10::Dispatcher::singleton().findSchema({std::string("ipex::") + name, ""})) return;
    library.def(torch::schema((std::string(name) + signature).c_str()), {at::Tag::nondeterministic_seeded});
    library.impl(name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, function));
  };
  define("bernoulli", "(SymInt[] size, SymInt[] stride, float p) -> Tensor", &bernoulli);
  define("normal", "(SymInt[] size, SymInt[] stride, ScalarType dtype, float mean, float std) -> Tensor",
         &normal);
  define("rng_state", "() -> Tensor", &rng_state);
  define("exchange_rng_state", "(Tensor state) -> Tensor", &exchange_rng_state);
  return library;
}();

}  // namespace
}  // namespace ipex::kernels
