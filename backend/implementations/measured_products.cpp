// Kernel and library are compiled as separate graphs, with separate memory, and run alternately, so that
// other load on the machine slows both. Products are small and a model has few different ones, so this takes
// a fraction of a second.
#include "backend/implementations/measured_products.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>

#include "backend/plan_memory.h"
#include "codegen/llvm/cache_text.h"
#include "codegen/llvm/object_cache.h"
#include "codegen/loop/simplify.h"
#include "runtime/alignment.h"
#include "runtime/env.h"
#include "runtime/error.h"
#include "runtime/parallel.h"

namespace ipex::graph {
namespace {

constexpr int kMaxTurns = 15, kMinTurns = 3;
constexpr double kTurnUs = 300;        // one turn repeats shorter calls for this long
constexpr double kEnoughUs = 400'000;  // total after which no further turn starts
constexpr int64_t kMaxEvicted = 512 << 20;

using Memory = std::vector<std::byte>;

// The byte gives a small normal number in every float type: 0.01 in f32 and bf16, 1 in f16.
Memory filled(const Type& type, const Strides& strides) {
  const int64_t elements = *loop::as_const_int(span(type.shape, strides));
  return Memory(elements * itemsize(type.dtype) + kAlignment, std::byte{0x3c});
}

void* aligned_data(Memory& memory) {
  return reinterpret_cast<void*>(aligned(reinterpret_cast<int64_t>(memory.data())));
}

void read(const Memory& memory) {
  const auto body = [](void* closure, int64_t begin, int64_t end, int64_t) {
    const auto* data = static_cast<const Memory*>(closure)->data();
    int64_t sum = 0;
    for (int64_t at = begin; at < end; ++at) sum += static_cast<int64_t>(data[at * kAlignment]);
    [[maybe_unused]] volatile int64_t kept = sum;
  };
  parallel_for(0, std::ssize(memory) / kAlignment, 1024, body, const_cast<Memory*>(&memory));
}

// One implementation of the product, with its own operands.
class Candidate {
 public:
  Candidate(const Graph& product, CompileOptions options, MatmulSelection selection) {
    options.matmul = selection;
    compiled_ = compile(product, options);
    for (int32_t input : product.inputs)
      memory_.push_back(filled(product.type({input, 0}), product.layout({input, 0})));
    memory_.push_back(filled(product.type(product.outputs[0].value), product.outputs[0].strides));
    for (Memory& memory : memory_) pointers_.push_back(aligned_data(memory));
    for (size_t k = 0; k < product.inputs.size(); ++k)
      versions_.push_back({.storage = &memory_[k], .data = pointers_[k], .version = 0, .trackable = true});
  }

  bool is_of_library() const { return compiled_.report.library_steps > 0; }

  // Microseconds per call. `evicted`: memory that is read before each call, so that only the left operand (an
  // activation, which the previous step has written) is in a cache.
  double turn(const Memory* evicted) {
    const int calls = evicted ? 1 : std::clamp(static_cast<int>(kTurnUs / std::max(fastest_, 1.0)), 1, 100);
    if (evicted) {
      read(*evicted);
      read(memory_[0]);
    }
    const auto start = std::chrono::steady_clock::now();
    for (int call = 0; call < calls; ++call) run();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    fastest_ = std::min(fastest_, time.count() / calls);
    return time.count() / calls;
  }

  void run() {
    const std::span<void* const> pointers(pointers_);
    compiled_.executable->run(pointers.first(versions_.size()), pointers.subspan(versions_.size()), {},
                              versions_);
  }

 private:
  CompiledGraph compiled_;
  std::vector<Memory> memory_;  // inputs, then the result
  std::vector<void*> pointers_;
  std::vector<InputVersion> versions_;
  double fastest_ = 1e9;
};

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

std::optional<MeasuredProduct> measure(const Graph& product, const CompileOptions& options, bool streams) {
  Candidate kernel(product, options, MatmulSelection::kKernel),
      library(product, options, MatmulSelection::kLibrary);
  if (!library.is_of_library()) return std::nullopt;
  Memory evicted;
  if (streams) evicted.assign(std::min(2 * options.target.l3_bytes, kMaxEvicted), std::byte{1});
  const Memory* evict = streams ? &evicted : nullptr;
  std::vector<double> kernel_us, library_us;
  kernel.run();  // packs the weights, touches the memory
  library.run();
  double spent = 0;
  for (int turn = 0; turn < kMaxTurns && (turn < kMinTurns || spent < kEnoughUs); ++turn) {
    kernel_us.push_back(kernel.turn(evict));
    library_us.push_back(library.turn(evict));
    spent += kernel_us.back() + library_us.back();
  }
  return MeasuredProduct{median(kernel_us), median(library_us)};
}

std::string written(const std::optional<MeasuredProduct>& m) {
  std::ostringstream out;
  if (m)
    out << std::setprecision(std::numeric_limits<double>::max_digits10) << m->kernel_us << ' '
        << m->library_us;
  return out.str();
}

std::optional<MeasuredProduct> parsed(const std::string& text) {
  std::istringstream in(text);
  MeasuredProduct m;
  if (!(in >> m.kernel_us >> m.library_us)) return std::nullopt;
  return m;
}

}  // namespace

std::optional<MeasuredProduct> measure_product(const Graph& product, const CompileOptions& options,
                                               bool streams) {
  static std::mutex mutex;  // one measurement at a time
  static std::map<std::string, std::optional<MeasuredProduct>> known;
  std::lock_guard lock(mutex);
  const std::string key =
      loop::cache_key("product\n" + loop::target_text(options.target) + (options.hoist ? "hoisted " : "") +
                      (streams ? "streams\n" : "cached\n") + print(product));
  if (const auto it = known.find(key); it != known.end()) return it->second;
  const loop::ObjectCache cache(env::cache_directory());
  if (const auto kept = cache.load(key)) return known[key] = parsed(*kept);
  const auto measured = measure(product, options, streams);
  cache.store(key, written(measured));
  return known[key] = measured;
}

}  // namespace ipex::graph
