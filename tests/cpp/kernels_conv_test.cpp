// Convolutions, their gradients and transposed convolutions, compared with loops in double, for layouts,
// groups, dilation and numbers of dims.
#include <thread>

#include "runtime/error.h"
#include "tests/cpp/kernels_fixture.h"

namespace ipex::kernels::testing {
namespace {

struct Geometry {
  std::string label;
  int64_t batch, in, out, groups;
  Sizes image, kernel, stride, padding, dilation;
  bool transposed = false;
  Sizes output_padding;

  int64_t dims() const { return static_cast<int64_t>(image.size()); }
  Sizes x() const {
    Sizes sizes = {batch, in};
    sizes.insert(sizes.end(), image.begin(), image.end());
    return sizes;
  }
  Sizes w() const {
    Sizes sizes = transposed ? Sizes{in, out / groups} : Sizes{out, in / groups};
    sizes.insert(sizes.end(), kernel.begin(), kernel.end());
    return sizes;
  }
  Sizes y() const {
    Sizes sizes = {batch, out};
    for (int64_t d = 0; d < dims(); ++d) {
      const int64_t reach = dilation[d] * (kernel[d] - 1) + 1;
      sizes.push_back(transposed ? (image[d] - 1) * stride[d] - 2 * padding[d] + reach +
                                       (output_padding.empty() ? 0 : output_padding[d])
                                 : (image[d] + 2 * padding[d] - reach) / stride[d] + 1);
    }
    return sizes;
  }
};

const std::vector<Geometry>& geometries() {
  static const std::vector<Geometry> all = {
      {"plain3x3", 2, 16, 32, 1, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"one_by_one", 2, 16, 24, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {"one_by_one_strided", 2, 16, 24, 1, {8, 7}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
      {"odd_channels", 1, 5, 7, 1, {10, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
      {"first_layer", 2, 3, 16, 1, {20, 20}, {7, 7}, {2, 2}, {3, 3}, {1, 1}},
      {"one_channel", 2, 1, 8, 1, {12, 12}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"to_one_channel", 2, 8, 1, 1, {12, 12}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"one_pixel", 3, 8, 16, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {"to_one_pixel", 2, 8, 16, 1, {4, 4}, {4, 4}, {1, 1}, {0, 0}, {1, 1}},
      {"patches", 2, 3, 16, 1, {16, 16}, {4, 4}, {4, 4}, {0, 0}, {1, 1}},
      {"remainder", 2, 4, 8, 1, {9, 10}, {2, 2}, {3, 3}, {0, 0}, {1, 1}},
      {"dilated", 2, 8, 8, 1, {12, 12}, {3, 3}, {1, 1}, {2, 2}, {2, 2}},
      {"grouped", 2, 16, 32, 2, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"grouped_odd", 2, 6, 10, 2, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"depthwise", 2, 16, 16, 16, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"depthwise_odd_strided", 2, 13, 13, 13, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
      {"depthwise_twice", 2, 8, 16, 8, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
      {"uneven", 2, 8, 8, 1, {9, 12}, {3, 5}, {2, 1}, {0, 2}, {1, 2}},
      {"one_dim", 2, 16, 8, 1, {21}, {3}, {2}, {1}, {1}},
      {"one_dim_dilated", 2, 16, 8, 2, {21}, {3}, {1}, {2}, {2}},
      {"three_dims", 1, 8, 16, 1, {5, 6, 7}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
      {"three_dims_strided", 2, 3, 8, 1, {5, 6, 7}, {3, 2, 1}, {2, 2, 1}, {1, 0, 0}, {1, 1, 1}},
      {"transposed", 2, 16, 8, 1, {7, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true, {1, 1}},
      {"transposed_plain", 2, 8, 8, 1, {6, 6}, {3, 3}, {1, 1}, {0, 0}, {1, 1}, true},
      {"transposed_grouped", 2, 8, 16, 4, {6, 6}, {4, 4}, {2, 2}, {1, 1}, {1, 1}, true},
      {"transposed_dilated", 2, 8, 4, 1, {6, 6}, {3, 3}, {2, 2}, {0, 0}, {2, 2}, true, {1, 0}},
      {"transposed_depthwise", 2, 8, 8, 8, {6, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, true, {1, 1}},
      {"transposed_one_dim", 2, 8, 4, 1, {9}, {4}, {2}, {1}, {1}, true},
      {"transposed_three_dims", 1, 4, 8, 1, {3, 4, 5}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}, true},
  };
  return all;
}

// Calls visit(x index, w index, y index) for every product in the convolution.
template <class Visit>
void each_product(const Geometry& g, Visit visit) {
  const int64_t in = g.in / g.groups, out = g.out / g.groups;
  const Sizes w = g.w();
  const Tensor from(Dtype::kF32, g.transposed ? g.x() : g.y()),
      taps(Dtype::kF32, Sizes(w.begin() + 1, w.end()));
  const Sizes bound = g.transposed ? g.y() : g.x();
  // Index `from` of the strided side corresponds to from * stride - padding + tap * dilation of the other
  // side.
  from.each([&](const Sizes& at) {
    const int64_t group = at[1] / (g.transposed ? in : out);
    taps.each([&](const Sizes& tap_of_channel) {
      Sizes tap = {at[1]};
      tap.insert(tap.end(), tap_of_channel.begin(), tap_of_channel.end());
      Sizes other = at;
      other[1] = group * (g.transposed ? out : in) + tap[1];
      for (int64_t d = 0; d < g.dims(); ++d) {
        other[d + 2] = at[d + 2] * g.stride[d] - g.padding[d] + tap[d + 2] * g.dilation[d];
        if (other[d + 2] < 0 || other[d + 2] >= bound[d + 2]) return;
      }
      g.transposed ? visit(at, tap, other) : visit(other, tap, at);
    });
  });
}

// Sums in double by flat row-major position, with the sum of magnitudes for the tolerance.
struct Sums {
  explicit Sums(const Sizes& sizes) : strides(row_major(sizes)) {
    int64_t count = 1;
    for (int64_t size : sizes) count *= size;
    value.assign(count, 0);
    magnitude.assign(count, 1);
  }
  size_t flat(const Sizes& index) const {
    int64_t at = 0;
    for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
    return static_cast<size_t>(at);
  }
  void add(const Sizes& index, double product) {
    value[flat(index)] += product;
    magnitude[flat(index)] += std::abs(product);
  }
  void expect_near(const Tensor& got, const std::string& detail) const {
    double worst = 0;
    got.each([&](const Sizes& index) {
      const double error = std::abs(got.at(index) - value[flat(index)]) / magnitude[flat(index)];
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    });
    EXPECT_LE(worst, tolerance(got.dtype())) << detail;
  }
  Sizes strides;
  std::vector<double> value, magnitude;
};

ConvDesc forward_desc(const Geometry& g, const Tensor& x, const Tensor& w, const Tensor& y) {
  ConvDesc desc{x.spec(1), w.spec(2), y.spec(0)};
  desc.stride = g.stride;
  desc.padding = g.padding;
  desc.dilation = g.dilation;
  desc.output_padding = g.output_padding.empty() ? Sizes(g.dims(), 0) : g.output_padding;
  desc.groups = g.groups;
  desc.transposed = g.transposed;
  return desc;
}

Sizes layout(const Sizes& sizes, bool last) { return last ? channels_last(sizes) : row_major(sizes); }

class Conv : public ByType {};
INSTANTIATE_TEST_SUITE_P(Types, Conv, ::testing::Values(Dtype::kF32, Dtype::kBF16),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(Conv, Forward) {
  for (const Geometry& g : geometries()) {
    Tensor bias = Tensor::random(GetParam(), {g.out}, 3);
    Sums sums(g.y());
    bool summed = false;
    for (int bits = 0; bits < 16; ++bits) {
      SCOPED_TRACE(::testing::Message() << g.label << " bits " << bits);
      Tensor x = Tensor::random(GetParam(), g.x(), 1, layout(g.x(), bits & 1));
      Tensor w = Tensor::random(GetParam(), g.w(), 2, layout(g.w(), bits & 4));
      Tensor y(GetParam(), g.y(), layout(g.y(), bits & 2));
      if (!summed) {
        each_product(g,
                     [&](const Sizes& i, const Sizes& k, const Sizes& o) { sums.add(o, x.at(i) * w.at(k)); });
        y.each([&](const Sizes& index) { sums.add(index, bias.at({index[1]})); });
        summed = true;
      }
      ConvDesc desc = forward_desc(g, x, w, y);
      desc.bias = bias.spec(3);
      desc.pack_w = bits & 8;
      LibrarySteps steps = make_conv(desc, kPacked);
      const std::string detail = steps.main->info.detail;
      if ((bits & 3) == 3) {
        EXPECT_EQ(detail.find("copies x"), std::string::npos) << detail;
      }
      EXPECT_GT(steps.main->info.flops, 0);
      run(*executable_of(std::move(steps), 3), y, {&x, &w, &bias});
      sums.expect_near(y, detail);
    }
  }
}

TEST_P(Conv, Backward) {
  for (const Geometry& g : geometries()) {
    Sums data(g.x()), weights(g.w());
    bool summed = false;
    for (int bits = 0; bits < 8; ++bits) {
      SCOPED_TRACE(::testing::Message() << g.label << " bits " << bits);
      Tensor x = Tensor::random(GetParam(), g.x(), 1, layout(g.x(), bits & 1));
      Tensor w = Tensor::random(GetParam(), g.w(), 2, layout(g.w(), bits & 4));
      Tensor grad = Tensor::random(GetParam(), g.y(), 3, layout(g.y(), bits & 2));
      if (!summed) {
        each_product(g, [&](const Sizes& i, const Sizes& k, const Sizes& o) {
          data.add(i, grad.at(o) * w.at(k));
          weights.add(k, grad.at(o) * x.at(i));
        });
        summed = true;
      }
      const ConvDesc forward = forward_desc(g, x, w, grad);
      ConvBackwardDesc desc{grad.spec(1), x.spec(2), w.spec(2), x.spec(0)};
      desc.stride = forward.stride;
      desc.padding = forward.padding;
      desc.dilation = forward.dilation;
      desc.output_padding = forward.output_padding;
      desc.groups = forward.groups;
      desc.transposed = forward.transposed;

      LibrarySteps steps;
      steps.main = make_conv_backward(desc);
      std::string detail = "data " + steps.main->info.detail;
      Tensor x_grad(GetParam(), g.x(), layout(g.x(), bits & 1));
      run(*executable_of(std::move(steps), 2), x_grad, {&grad, &w});
      data.expect_near(x_grad, detail);

      for (Dtype result : {GetParam(), Dtype::kF32}) {
        Tensor w_grad(result, g.w(), layout(g.w(), bits & 4));
        desc.dst = w_grad.spec(0);
        desc.weights = true;
        steps.main = make_conv_backward(desc);
        detail = "weights " + steps.main->info.detail;
        run(*executable_of(std::move(steps), 2), w_grad, {&grad, &x});
        weights.expect_near(w_grad, detail);
      }
    }
  }
}

TEST_P(Conv, SlicedActivations) {
  const Geometry& g = geometries()[0];
  for (bool last : {false, true}) {
    const auto wider = [&](Sizes sizes) {  // a slice of a tensor with more channels
      Sizes whole = sizes;
      whole[1] += 3;
      return layout(whole, last);
    };
    Tensor x = Tensor::random(GetParam(), g.x(), 1, wider(g.x()), 2);
    Tensor w = Tensor::random(GetParam(), g.w(), 2);
    Tensor y(GetParam(), g.y(), wider(g.y()), 1);
    Sums sums(g.y());
    each_product(g, [&](const Sizes& i, const Sizes& k, const Sizes& o) { sums.add(o, x.at(i) * w.at(k)); });
    LibrarySteps steps = make_conv(forward_desc(g, x, w, y), kPacked);
    const std::string detail = steps.main->info.detail;
    run(*executable_of(std::move(steps), 2), y, {&x, &w});
    sums.expect_near(y, detail);
    Tensor stepped = Tensor::random(GetParam(), g.x(), 1, in_order({4, 32, 18, 22}, {3, 2, 1, 0}));
    steps = make_conv(forward_desc(g, stepped, w, y), kPacked);
    run(*executable_of(std::move(steps), 2), y, {&stepped, &w});
    sums.expect_near(y, "reversed strides");
  }
}

TEST_P(Conv, EveryPostOp) {
  for (const char* label :
       {"plain3x3", "odd_channels", "one_by_one", "depthwise", "grouped_odd", "transposed"}) {
    const Geometry& g = *std::ranges::find(geometries(), label, &Geometry::label);
    const Tensor some_x = Tensor::random(GetParam(), g.x(), 1), some_w = Tensor::random(GetParam(), g.w(), 2);
    Sums plain(g.y());
    each_product(g, [&](const Sizes& i, const Sizes& k, const Sizes& o) {
      plain.add(o, some_x.at(i) * some_w.at(k));
    });
    for (const PostOpRow& row : post_op_rows())
      for (const Sizes& operand_sizes :
           {g.y(), Sizes{g.out, 1, 1}, Sizes{1, 1, 1}, Sizes{g.batch, 1, 1, 1}}) {
        if (!row.takes_operand && operand_sizes != g.y()) continue;
        for (bool last : {false, true})
          for (bool operand_last : {false, true}) {
            if (row.name == "sum" && (operand_sizes != g.y())) continue;
            SCOPED_TRACE(::testing::Message()
                         << label << " " << row.name << " " << ::testing::PrintToString(operand_sizes) << last
                         << operand_last);
            std::string op(row.name);
            if (row.parameters == 2) op += ":-0.5:0.75";
            if (row.parameters == 1) op += ":0.25";
            Tensor x = Tensor::random(GetParam(), g.x(), 1, layout(g.x(), last));
            Tensor w = Tensor::random(GetParam(), g.w(), 2);
            Tensor y(GetParam(), g.y(), layout(g.y(), last));
            Tensor operand = Tensor::random(
                GetParam(), operand_sizes, 4,
                operand_sizes.size() == 4 ? layout(operand_sizes, operand_last) : row_major(operand_sizes));
            ConvDesc desc = forward_desc(g, x, w, y);
            desc.post = {parse_post_op(op)};
            if (row.name == "sqrt") desc.post.insert(desc.post.begin(), parse_post_op("abs"));
            if (row.takes_operand) desc.post[0].operand = operand.spec(3);
            desc.post.push_back(parse_post_op("relu"));
            Sums sums = plain;
            y.each([&](const Sizes& index) {
              for (const PostOp& post : desc.post) {
                double& value = sums.value[sums.flat(index)];
                value = reference(post, value, post.operand ? operand.at_broadcast(index) : 0);
                sums.magnitude[sums.flat(index)] += std::abs(value);
              }
            });
            LibrarySteps steps = make_conv(desc, kPacked);
            const std::string detail = steps.main->info.detail;
            run(*executable_of(std::move(steps), 3), y, {&x, &w, &operand});
            sums.expect_near(y, detail);
          }
      }
  }
}

TEST_P(Conv, ResidualInTheResultsOwnMemory) {
  const Geometry& g = geometries()[0];
  for (bool last : {false, true}) {
    Tensor x = Tensor::random(GetParam(), g.x(), 1, layout(g.x(), last));
    Tensor w = Tensor::random(GetParam(), g.w(), 2);
    Tensor y = Tensor::random(GetParam(), g.y(), 5, layout(g.y(), last));
    Sums sums(g.y());
    y.each([&](const Sizes& index) { sums.add(index, y.at(index)); });
    each_product(g, [&](const Sizes& i, const Sizes& k, const Sizes& o) { sums.add(o, x.at(i) * w.at(k)); });
    for (double& value : sums.value) value = std::max(value, 0.0);
    ConvDesc desc = forward_desc(g, x, w, y);
    desc.post = {parse_post_op("sum"), parse_post_op("relu")};
    desc.post[0].operand = y.spec(0);
    LibrarySteps steps = make_conv(desc, kPacked);
    const std::string detail = steps.main->info.detail;
    run(*executable_of(std::move(steps), 2), y, {&x, &w});
    sums.expect_near(y, detail);
  }
}

TEST_P(Conv, EmptyTensors) {
  Geometry g = geometries()[0];
  g.batch = 0;
  Tensor x(GetParam(), g.x()), w = Tensor::random(GetParam(), g.w(), 2), y(GetParam(), g.y());
  ConvDesc desc = forward_desc(g, x, w, y);
  desc.pack_w = true;
  run(*executable_of(make_conv(desc, kPacked), 2), y, {&x, &w});

  Tensor w_grad = Tensor::random(GetParam(), g.w(), 3, channels_last(g.w()));
  ConvBackwardDesc backward{y.spec(1), x.spec(2), w.spec(2), w_grad.spec(0), true};
  backward.stride = g.stride;
  backward.padding = g.padding;
  backward.dilation = g.dilation;
  LibrarySteps steps;
  steps.main = make_conv_backward(backward);
  run(*executable_of(std::move(steps), 2), w_grad, {&y, &x});
  w_grad.each([&](const Sizes& index) { EXPECT_EQ(w_grad.at(index), 0); });
}

TEST_P(Conv, DynamicBatchAndImage) {
  const SizeExpr n({{SizeExpr::Code::kSymbol, 0}}), side({{SizeExpr::Code::kSymbol, 1}});
  const auto times = [](SizeExpr x, const SizeExpr& y) {
    auto program = x.program();
    program.insert(program.end(), y.program().begin(), y.program().end());
    program.push_back({SizeExpr::Code::kMul});
    return SizeExpr(program);
  };
  const auto image = times(side, side);
  const auto spec = [&](int buffer, int64_t channels) {
    TensorSpec s{buffer, GetParam(), {n, channels, side, side}, {}};
    s.strides = {times(image, channels), 1, times(side, channels), channels};
    return s;
  };
  Geometry g = geometries()[0];
  Tensor w = Tensor::random(GetParam(), g.w(), 2);
  ConvDesc desc{spec(1, g.in), w.spec(2), spec(0, g.out)};
  desc.stride = g.stride;
  desc.padding = g.padding;
  desc.dilation = g.dilation;
  desc.pack_w = true;
  LibrarySteps steps = make_conv(desc, kPacked);
  EXPECT_TRUE(steps.pack);
  const auto executable = executable_of(std::move(steps), 2, 2);
  for (const auto& [batch, size] : {std::pair{1, 5}, {3, 8}, {0, 8}, {2, 1}, {1, 5}}) {
    g.batch = batch;
    g.image = {size, size};
    Tensor x = Tensor::random(GetParam(), g.x(), size, channels_last(g.x())),
           y(GetParam(), g.y(), channels_last(g.y()));
    run(*executable, y, {&x, &w}, {batch, size});
    Sums sums(g.y());
    each_product(g, [&](const Sizes& i, const Sizes& k, const Sizes& o) { sums.add(o, x.at(i) * w.at(k)); });
    sums.expect_near(y, "dynamic");
  }
}

TEST_P(Conv, RunsFromSeveralThreads) {
  const Geometry& g = geometries()[0];
  Tensor x = Tensor::random(GetParam(), g.x(), 1), w = Tensor::random(GetParam(), g.w(), 2),
         y(GetParam(), g.y());
  const auto executable = executable_of(make_conv(forward_desc(g, x, w, y), kPacked), 2);
  run(*executable, y, {&x, &w});
  std::vector<Tensor> results(4, Tensor(GetParam(), g.y()));
  std::vector<std::thread> threads;
  for (Tensor& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) run(*executable, result, {&x, &w});
    });
  for (std::thread& thread : threads) thread.join();
  for (const Tensor& result : results) EXPECT_EQ(result.bytes(), y.bytes());
}

TEST(ConvErrors, SayWhatIsUnsupported) {
  const Geometry& g = geometries()[0];
  ConvDesc desc =
      forward_desc(g, Tensor(Dtype::kF64, g.x()), Tensor(Dtype::kF64, g.w()), Tensor(Dtype::kF64, g.y()));
  EXPECT_THROW(make_conv(desc, kPacked), Unsupported);
}

}  // namespace
}  // namespace ipex::kernels::testing
