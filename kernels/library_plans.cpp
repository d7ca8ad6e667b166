// See library_plans.h.
#include "kernels/library_plans.h"

#include <limits>
#include <type_traits>

#include "kernels/planned_step.h"
#include "kernels/step_fields.h"
#include "runtime/error.h"

namespace ipex::kernels {
namespace {

// Calls fn(buffer) for each tensor that a description names, in the order of its text.
template <class Fn>
struct EachBuffer {
  const Fn& fn;
  void operator()(std::string_view, TensorSpec& spec) { fn(spec.buffer); }
  void operator()(std::string_view key, std::optional<TensorSpec>& spec) {
    if (spec) (*this)(key, *spec);
  }
  void operator()(std::string_view, std::vector<PostOp>& post) {
    for (PostOp& op : post) fields(*this, op);
  }
  template <class T>
  void operator()(std::string_view, T&) {}
};

template <class Desc, class Fn>
void each_buffer(Desc& desc, const Fn& fn) {
  EachBuffer<Fn> visit{fn};
  fields(visit, desc);
}

LibrarySteps make_steps(const MatMulDesc& desc, int packed) { return make_matmul(desc, packed); }
LibrarySteps make_steps(const ConvDesc& desc, int packed) { return make_conv(desc, packed); }
LibrarySteps make_steps(const LstmDesc& desc, int packed) { return make_lstm(desc, packed); }
LibrarySteps make_steps(const ConvBackwardDesc& desc, int) { return {make_conv_backward(desc), nullptr, 0}; }

// Only weights that are packed have a buffer of their own.
template <class Desc>
using Saved = std::conditional_t<std::is_same_v<Desc, ConvBackwardDesc>, Desc, WithPacked<Desc>>;

// The line of a saved program with other buffers.
template <class Desc>
std::string over_buffers(const std::string& line, const std::map<int, int>& buffers) {
  constexpr int kAny = std::numeric_limits<int>::max();
  FieldReader reader(line, "a library step", {kAny, kAny});
  Saved<Desc> saved;
  fields(reader, saved);
  each_buffer(saved, [&](int& buffer) { buffer = buffers.at(buffer); });
  if constexpr (!std::is_same_v<Saved<Desc>, Desc>) saved.packed = buffers.at(saved.packed);
  return to_line(reader.word(), saved);
}

}  // namespace

template <class Desc>
const LibraryPlans::Entry& LibraryPlans::find(Desc desc) {
  std::map<int, int> numbers;
  each_buffer(desc, [&](int& buffer) {
    buffer = numbers.try_emplace(buffer, static_cast<int>(numbers.size())).first->second;
  });
  const std::string key =
      to_line(typeid(Desc).name(), desc) + std::to_string(static_cast<int>(desc.planning));
  const auto [it, is_new] = entries_.try_emplace(key);
  if (is_new) try {
      it->second.steps = make_steps(desc, static_cast<int>(numbers.size()));
    } catch (const Unsupported& refusal) {
      it->second.refusal = refusal.what();
    }
  return it->second;
}

template <class Desc>
LibrarySteps LibraryPlans::make(const Desc& desc, int packed_buffer) {
  const Entry& entry = find(desc);
  if (!entry.refusal.empty()) throw Unsupported(entry.refusal);
  std::map<int, int> numbers, buffers;  // of this description's buffers, and back
  each_buffer(const_cast<Desc&>(desc), [&](int& buffer) {
    const int number = numbers.try_emplace(buffer, static_cast<int>(numbers.size())).first->second;
    buffers[number] = buffer;
  });
  buffers[static_cast<int>(buffers.size())] = packed_buffer;
  const auto over = [&](const std::unique_ptr<Step>& step) {
    return step ? static_cast<const PlannedStep&>(*step).over(buffers) : nullptr;  // as every maker makes
  };
  LibrarySteps steps{over(entry.steps.main), over(entry.steps.pack), entry.steps.packed_bytes};
  steps.main->text = over_buffers<Desc>(steps.main->text, buffers);
  return steps;
}

template const LibraryPlans::Entry& LibraryPlans::find(MatMulDesc);
template const LibraryPlans::Entry& LibraryPlans::find(ConvDesc);
template const LibraryPlans::Entry& LibraryPlans::find(ConvBackwardDesc);
template const LibraryPlans::Entry& LibraryPlans::find(LstmDesc);
template LibrarySteps LibraryPlans::make(const MatMulDesc&, int);
template LibrarySteps LibraryPlans::make(const ConvDesc&, int);
template LibrarySteps LibraryPlans::make(const ConvBackwardDesc&, int);
template LibrarySteps LibraryPlans::make(const LstmDesc&, int);

}  // namespace ipex::kernels
