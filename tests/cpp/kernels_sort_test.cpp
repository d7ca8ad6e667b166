// Sorting, selection and searching, compared with a stable sort of (value, position) in double.
#include "kernels/sort.h"

#include "kernels_fixture.h"

namespace ipex::kernels {
namespace {

using testing::Sizes;
using testing::Tensor;

// NaN last, -0 equal to +0.
bool less(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

struct Case {
  Dtype dtype;
  Sizes sizes, strides;
  int axis;
};

// Small integers with many ties, and NaN and infinities for floats.
Tensor filled(const Case& c, int seed) {
  Tensor x(c.dtype, c.sizes, c.strides);
  std::mt19937 random(seed);
  x.each([&](const Sizes& index) {
    double value = static_cast<double>(random() % 9);
    if (c.dtype == Dtype::kBool) value = random() % 2;
    if (info(c.dtype).is_signed) value -= 4;
    if (info(c.dtype).is_float && random() % 11 == 0) value = std::nan("");
    if (info(c.dtype).is_float && random() % 11 == 0) value = -std::numeric_limits<double>::infinity();
    x.set(index, value);
  });
  return x;
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (int d = 0; d < static_cast<int>(kDtypes.size()); ++d) {
    const auto dtype = static_cast<Dtype>(d);
    out.push_back({dtype, {1500}, {}, 0});
    out.push_back({dtype, {3, 40, 5}, {}, 1});
    out.push_back({dtype, {7, 30}, {1, 7}, 1});
    out.push_back({dtype, {1, 1}, {}, 0});
  }
  return out;
}

// The sorted (value, position) pairs of a row, with equal values by position.
std::vector<std::pair<double, int64_t>> ordered(const Tensor& x, Sizes index, int axis, bool descending) {
  std::vector<std::pair<double, int64_t>> row;
  for (index[axis] = 0; index[axis] < x.sizes()[axis]; ++index[axis])
    row.push_back({x.at(index), index[axis]});
  std::stable_sort(row.begin(), row.end(), [&](const auto& a, const auto& b) {
    return descending ? less(b.first, a.first) : less(a.first, b.first);
  });
  return row;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Buffers: operands in order, then results.
void run_step(std::unique_ptr<Step> step, std::vector<Tensor*> operands, std::vector<Tensor*> results) {
  Executable::Parts parts;
  std::vector<void*> inputs, outputs;
  for (Tensor* operand : operands) {
    parts.buffers.push_back({BufferKind::kInput, static_cast<int>(inputs.size())});
    inputs.push_back(operand->data());
  }
  for (Tensor* result : results) {
    parts.buffers.push_back({BufferKind::kOutput, static_cast<int>(outputs.size())});
    outputs.push_back(result->data());
  }
  parts.inputs.resize(inputs.size());
  parts.outputs.resize(outputs.size());
  parts.steps.push_back(std::move(step));
  parts.hoisted = {false};
  Executable(std::move(parts)).run(inputs, outputs, {}, {});
}

// Runs the step and calls check with each row's first index, expected order, values and indices.
template <class Check>
void each_row(const Case& c, SortDesc desc, int64_t extent, Check check) {
  Tensor x = filled(c, 7);
  Sizes sizes = c.sizes;
  sizes[c.axis] = extent;
  Tensor values(c.dtype, sizes), indices(Dtype::kI64, sizes);
  desc.axis = c.axis;
  desc.x = x.spec(0);
  desc.values = values.spec(1);
  desc.indices = indices.spec(2);
  run_step(make_sort(desc), {&x}, {&values, &indices});
  x.each([&](const Sizes& index) {
    if (index[c.axis] != 0) return;
    std::vector<std::pair<double, int64_t>> got;
    Sizes at = index;
    for (at[c.axis] = 0; at[c.axis] < extent; ++at[c.axis])
      got.push_back({values.at(at), static_cast<int64_t>(indices.at(at))});
    check(x, index, ordered(x, index, c.axis, desc.descending), got);
  });
}

TEST(Sort, AllIsStable) {
  for (const Case& c : cases())
    for (bool descending : {false, true}) {
      SortDesc desc;
      desc.descending = descending;
      each_row(c, desc, c.sizes[c.axis],
               [&](const Tensor&, const Sizes&, const auto& expected, const auto& got) {
                 for (size_t i = 0; i < got.size(); ++i) {
                   ASSERT_TRUE(same(got[i].first, expected[i].first)) << name(c.dtype) << " at " << i;
                   ASSERT_EQ(got[i].second, expected[i].second) << name(c.dtype) << " at " << i;
                 }
               });
    }
}

TEST(Sort, TopHasTheFirstValuesAndWhereTheyAre) {
  for (const Case& c : cases())
    for (bool is_ordered : {false, true}) {
      const int64_t k = (c.sizes[c.axis] + 2) / 3;
      SortDesc desc;
      desc.kind = SortKind::kTop;
      desc.descending = true;
      desc.ordered = is_ordered;
      each_row(c, desc, k, [&](const Tensor& x, Sizes index, const auto& expected, auto got) {
        std::vector<int64_t> positions;
        for (const auto& [value, position] : got) {
          index[c.axis] = position;
          ASSERT_TRUE(same(x.at(index), value));
          positions.push_back(position);
        }
        std::sort(positions.begin(), positions.end());
        ASSERT_EQ(std::unique(positions.begin(), positions.end()), positions.end());
        if (!is_ordered)
          std::sort(got.begin(), got.end(),
                    [](const auto& a, const auto& b) { return less(b.first, a.first); });
        for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(same(got[i].first, expected[i].first));
      });
    }
}

TEST(Sort, KthMedianAndMode) {
  for (const Case& c : cases())
    for (SortKind kind : {SortKind::kKth, SortKind::kMedian, SortKind::kNanMedian, SortKind::kMode}) {
      SortDesc desc;
      desc.kind = kind;
      desc.k = c.sizes[c.axis] / 4;
      each_row(c, desc, 1, [&](const Tensor& x, Sizes index, const auto& row, const auto& got) {
        const auto numbers = static_cast<size_t>(
            std::count_if(row.begin(), row.end(), [](const auto& e) { return !std::isnan(e.first); }));
        size_t at = static_cast<size_t>(desc.k.constant());
        if (kind == SortKind::kMedian) at = numbers < row.size() ? numbers : (row.size() - 1) / 2;
        if (kind == SortKind::kNanMedian) at = numbers == 0 ? 0 : (numbers - 1) / 2;
        if (kind == SortKind::kMode) {
          size_t longest = 0;
          for (size_t i = 0, run = 0; i < row.size(); ++i) {
            run = i > 0 && same(row[i].first, row[i - 1].first) ? run + 1 : 1;
            if (run > longest) longest = run, at = i;
          }
        }
        ASSERT_TRUE(same(got[0].first, row[at].first)) << name(c.dtype) << " kind " << static_cast<int>(kind);
        index[c.axis] = got[0].second;
        ASSERT_TRUE(same(x.at(index), got[0].first));
      });
    }
}

TEST(Sort, UnwantedResultsAreNotWritten) {
  const Case c{Dtype::kF32, {4, 9}, {}, 1};
  Tensor x = filled(c, 3);
  Tensor indices(Dtype::kI64, c.sizes);
  SortDesc desc;
  desc.axis = 1;
  desc.x = x.spec(0);
  desc.values = x.spec(-1);
  desc.indices = indices.spec(1);
  auto step = make_sort(desc);
  EXPECT_EQ(step->writes, std::vector<int>{1});
  run_step(std::move(step), {&x}, {&indices});
  for (int64_t r = 0; r < 4; ++r) {
    const auto expected = ordered(x, {r, 0}, 1, false);
    for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(indices.at({r, i}), expected[i].second);
  }
}

TEST(Search, FirstPositionOnEitherSide) {
  for (int d = 1; d < static_cast<int>(kDtypes.size()); ++d)
    for (bool right : {false, true}) {
      const auto dtype = static_cast<Dtype>(d);
      Tensor sorted(dtype, {3, 20}), values(dtype, {3, 15}), dst(Dtype::kI32, {3, 15});
      sorted.each([&](const Sizes& i) { sorted.set(i, static_cast<double>(i[1] / 3 * 2)); });
      values.each([&](const Sizes& i) { values.set(i, static_cast<double>(i[1])); });
      run_step(make_search({sorted.spec(0), values.spec(1), std::nullopt, dst.spec(2), right}),
               {&sorted, &values}, {&dst});
      values.each([&](const Sizes& i) {
        int expected = 0;
        while (expected < 20 && (right ? sorted.at({i[0], expected}) <= values.at(i)
                                       : sorted.at({i[0], expected}) < values.at(i)))
          ++expected;
        EXPECT_EQ(dst.at(i), expected) << name(dtype) << " " << values.at(i);
      });
    }
}

}  // namespace
}  // namespace ipex::kernels
