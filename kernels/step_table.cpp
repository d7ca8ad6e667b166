// The table of library steps, one row per word. It checks descriptions from a file for everything that the
// makers assume about descriptions from the compiler.
#include "kernels/step_table.h"

#include <algorithm>

#include "kernels/step_fields.h"

namespace ipex::kernels {
namespace {

struct Row {
  std::string_view word;
  MadeSteps (*make)(FieldReader& io);
};

void require(const FieldReader& io, bool holds, const char* what) {
  if (!holds) io.fail(std::string("the ") + io.word() + " before contradicts itself (" + what + "),");
}

// A step of a saved program must run with any implementation that oneDNN has, because there is no
// alternative.
template <class Desc>
WithPacked<Desc> read_packed(FieldReader& io) {
  WithPacked<Desc> read;
  fields(io, read);
  read.desc.planning = Planning::kAny;
  return read;
}

void check_post_ops(const FieldReader& io, const std::vector<PostOp>& post) {
  for (const PostOp& op : post) {
    const auto rows = post_op_rows();
    const auto row = std::ranges::find(rows, op.name, &PostOpRow::name);
    require(io, row != rows.end() && row->takes_operand == op.operand.has_value(), "post");
  }
}

template <class Desc>
void check_geometry(const FieldReader& io, const Desc& desc, size_t rank) {
  require(io, rank >= 3 && rank <= 5 && desc.x.sizes.size() == rank && desc.w.sizes.size() == rank, "rank");
  const size_t dims = rank - 2;
  require(io, desc.stride.size() == dims && desc.padding.size() == dims && desc.dilation.size() == dims,
          "window");
  require(io, desc.output_padding.empty() || desc.output_padding.size() == dims, "output_padding");
  constexpr int64_t kMax = int64_t{1} << 31;
  for (const auto* list : {&desc.stride, &desc.padding, &desc.dilation, &desc.output_padding})
    for (const int64_t value : *list) require(io, value >= 0 && value < kMax, "window");
  require(io, desc.groups > 0 && desc.groups < kMax, "groups");
}

MadeSteps made(LibrarySteps steps, int packed) {
  return {std::move(steps.main), std::move(steps.pack), packed, steps.packed_bytes};
}

MadeSteps read_matmul(FieldReader& io) {
  const auto [desc, packed] = read_packed<MatMulDesc>(io);
  require(io, desc.a.sizes.size() >= 2 && desc.b.sizes.size() >= 2 && desc.dst.sizes.size() >= 2, "rank");
  require(io, packed >= 0, "packed");
  check_post_ops(io, desc.post);
  return made(make_matmul(desc, packed), packed);
}

MadeSteps read_conv(FieldReader& io) {
  const auto [desc, packed] = read_packed<ConvDesc>(io);
  check_geometry(io, desc, desc.dst.sizes.size());
  require(io, !desc.bias || desc.bias->sizes.size() == 1, "bias");
  require(io, packed >= 0, "packed");
  check_post_ops(io, desc.post);
  return made(make_conv(desc, packed), packed);
}

MadeSteps read_conv_backward(FieldReader& io) {
  ConvBackwardDesc desc;
  fields(io, desc);
  desc.planning = Planning::kAny;
  check_geometry(io, desc, desc.grad.sizes.size());
  require(io, desc.dst.sizes.size() == desc.grad.sizes.size(), "rank");
  return {make_conv_backward(desc)};
}

MadeSteps read_lstm(FieldReader& io) {
  const auto [desc, packed] = read_packed<LstmDesc>(io);
  for (const TensorSpec* sequence : {&desc.x, &desc.dst}) require(io, sequence->sizes.size() == 3, "rank");
  for (const TensorSpec* matrix :
       {&desc.h, &desc.c, &desc.h_last, &desc.c_last, &desc.w_input, &desc.w_hidden})
    require(io, matrix->sizes.size() == 2, "rank");
  require(io, !desc.bias || desc.bias->sizes.size() == 1, "bias");
  require(io, packed >= 0, "packed");
  return made(make_lstm(desc, packed), packed);
}

MadeSteps read_sort(FieldReader& io) {
  SortDesc desc;
  fields(io, desc);
  const size_t rank = desc.x.sizes.size();
  require(io, desc.axis >= 0 && static_cast<size_t>(desc.axis) < rank, "axis");
  for (const TensorSpec* result : {&desc.values, &desc.indices})
    require(io, result->buffer < 0 || result->sizes.size() == rank, "rank");
  require(io, desc.values.buffer >= 0 || desc.indices.buffer >= 0, "results");
  return {make_sort(desc)};
}

MadeSteps read_search(FieldReader& io) {
  SearchDesc desc;
  fields(io, desc);
  const size_t rank = desc.sorted.sizes.size();
  require(io, rank == 1 || (rank > 1 && rank == desc.values.sizes.size()), "rank");
  require(io, desc.dst.sizes.size() == desc.values.sizes.size(), "rank");
  require(io, !desc.sorter || desc.sorter->sizes.size() == rank, "sorter");
  return {make_search(desc)};
}

MadeSteps read_check(FieldReader& io) {
  CheckDesc desc;
  fields(io, desc);
  require(io, desc.condition.buffer >= 0 && desc.condition.dtype == Dtype::kBool, "condition");
  return {make_check(desc)};
}

constexpr Row kRows[] = {
    {"onednn.matmul", read_matmul}, {"onednn.conv", read_conv}, {"onednn.conv_backward", read_conv_backward},
    {"onednn.lstm", read_lstm},     {"sort", read_sort},        {"search", read_search},
    {"check", read_check},
};

}  // namespace

MadeSteps read_step(FieldReader& io) {
  const auto row = std::ranges::find(kRows, io.word(), &Row::word);
  if (row == std::end(kRows)) io.fail("unknown step '" + io.word() + "';");
  return row->make(io);
}

}  // namespace ipex::kernels
