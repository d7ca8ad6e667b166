// torch_ipex::ipex_lstm: LSTM layers. In inference all layers are one graph, whose steps are the library's
// and keep their weights in its format. In training ATen computes them, whose layers are the library's too,
// forward and backward.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/lstm.h>
#include <torch/library.h>

#include "kernels/torch_ops/compiled_ops.h"
#include "kernels/torch_ops/operators.h"
#include "runtime/cpu.h"

namespace ipex::torch_ops {
namespace {

using at::Tensor;
using at::TensorList;
using Results = std::tuple<Tensor, Tensor, Tensor>;
using Op = Results(const Tensor&, TensorList, TensorList, bool, int64_t, double, bool, bool, bool);

const c10::TypedOperatorHandle<Op>& op() {
  static const auto handle = typed_operator<Op>("torch_ipex::ipex_lstm");
  return handle;
}

// Writes the graph of all layers.
class Layers {
 public:
  Layers(c10::ScalarType dtype, int64_t hidden, bool biased, int64_t layers, int64_t directions,
         bool batch_first)
      : type_(dtype_text(dtype)),
        hidden_(hidden),
        biased_(biased),
        layers_(layers),
        directions_(directions),
        batch_first_(batch_first) {}

  // The dims of x.
  std::string text(const Dims& x) {
    const std::string &batch = x[!batch_first_], &steps = x[batch_first_], &in = x[2];
    std::string layer = "%x";
    if (batch_first_) {
      text_ = "%xt = permute(%x) dims=[1,0,2] : " + of({steps, batch, in}) + "\n";
      layer = "%xt";
    }
    std::string h_all, c_all;
    const std::string width = std::to_string(hidden_), total = std::to_string(hidden_ * directions_);
    for (int64_t l = 0; l < layers_; ++l) {
      std::string outputs;
      for (int64_t d = 0; d < directions_; ++d) {
        const std::string i = std::to_string(l * directions_ + d);
        const std::string h = state("h", i, batch), c = cast(state("c", i, batch), {batch, width});
        text_ += "%y" + i + ", %hn" + i + ", %cn" + i + " = lstm(" + layer + ", %wi" + i + ", %wh" + i +
                 ", " + h + ", " + c + bias(i) + ") bias=" + (biased_ ? "true" : "false") +
                 " reverse=" + (d ? "true" : "false") + " : " + of({steps, batch, width}) + ", " +
                 of({batch, width}) + ", f32" + dims_text({batch, width}) + "\n";
        outputs += (d ? ", %y" : "%y") + i;
        h_all += (h_all.empty() ? "" : ", ") + row("hn" + i, type_, batch);
        c_all += (c_all.empty() ? "" : ", ") + row("cn" + i, "f32", batch);
      }
      layer = "%y" + std::to_string(l);
      if (directions_ == 2) {
        layer = "%both" + std::to_string(l);
        text_ += layer + " = cat(" + outputs + ") axis=2 : " + of({steps, batch, total}) + "\n";
      }
    }
    const Dims states{std::to_string(layers_ * directions_), batch, width};
    text_ += "%h = cat(" + h_all + ") axis=0 : " + of(states) + "\n";
    text_ += "%c32 = cat(" + c_all + ") axis=0 : f32" + dims_text(states) + "\n";
    Dims result{steps, batch, total};
    if (batch_first_) {
      text_ += "%result = permute(" + layer + ") dims=[1,0,2] : " + of({batch, steps, total}) + "\n";
      layer = "%result";
      std::swap(result[0], result[1]);
    }
    const std::string c = type_ == "f32" ? "%c32" : cast("%c32", states, type_);
    return text_ + "return " + layer + contiguous_strides(result) + ", %h" + contiguous_strides(states) +
           ", " + c + contiguous_strides(states);
  }

 private:
  std::string of(const Dims& dims) const { return type_ + dims_text(dims); }
  // One layer's part of h0 or c0.
  std::string state(const std::string& which, const std::string& i, const std::string& batch) {
    const std::string name = "%" + which + i, width = std::to_string(hidden_);
    text_ += name + "s = slice(%" + which + "0) starts=(" + i +
             ",0,0) steps=[1,1,1] : " + of({"1", batch, width}) + "\n" + name + "r = reshape(" + name +
             "s) : " + of({batch, width}) + "\n";
    return name + "r";
  }
  std::string cast(const std::string& value, const Dims& dims, const std::string& to = "f32") {
    if (type_ == "f32") return value;
    text_ += value + "cast = pointwise.cast(" + value + ") : " + to + dims_text(dims) + "\n";
    return value + "cast";
  }
  std::string bias(const std::string& i) {
    if (!biased_) return "";
    const Dims dims{std::to_string(4 * hidden_)};
    const std::string a = cast("%bi" + i, dims), b = cast("%bh" + i, dims);
    text_ += "%b" + i + " = pointwise.add(" + a + ", " + b + ") : f32" + dims_text(dims) + "\n";
    return ", %b" + i;
  }
  std::string row(const std::string& name, const std::string& type, const std::string& batch) {
    text_ += "%" + name + "row = reshape(%" + name + ") : " + type +
             dims_text({"1", batch, std::to_string(hidden_)}) + "\n";
    return "%" + name + "row";
  }

  std::string type_, text_;
  int64_t hidden_;
  bool biased_;
  int64_t layers_, directions_;
  bool batch_first_;
};

Results kernel(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t num_layers,
               double dropout, bool train, bool bidirectional, bool batch_first) {
  const int64_t directions = bidirectional ? 2 : 1, per_layer = has_biases ? 4 : 2;
  TORCH_CHECK(hx.size() == 2, "ipex_lstm expects the states h and c, got ", hx.size(), " tensors");
  TORCH_CHECK(input.dim() == 3, "ipex_lstm expects an input of 3 dimensions, got ", input.sizes());
  const bool projected = static_cast<int64_t>(params.size()) != num_layers * directions * per_layer;
  const auto dtype = input.scalar_type();
  bool same_dtype = true;
  for (const Tensor& tensor : params) same_dtype &= tensor.scalar_type() == dtype;
  for (const Tensor& tensor : hx) same_dtype &= tensor.scalar_type() == dtype;
  const bool in_library =
      has_products(dtype, at::Float32Op::RNN) && (dtype == at::kFloat || current_isa() == Isa::kAvx512Bf16);
  if (projected || !same_dtype || !in_library || (train && dropout != 0) || input.numel() == 0 ||
      hx[0].numel() == 0)
    return at::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  const int64_t hidden = hx[0].size(2), batch = input.size(batch_first ? 0 : 1);
  for (const Tensor& state : hx)
    TORCH_CHECK(state.sizes() == at::IntArrayRef({num_layers * directions, batch, hidden}),
                "ipex_lstm expects states [", num_layers * directions, ", ", batch, ", ", hidden, "], got ",
                state.sizes());
  std::vector<std::string> names;
  for (int64_t i = 0; i < num_layers * directions; ++i)
    for (const char* name : {"wi", "wh", "bi", "bh"})
      if (has_biases || name[0] == 'w') names.push_back(name + std::to_string(i));
  std::vector<OpInput> inputs{{"x", input, false, 3}, {"h0", hx[0], false, 2}, {"c0", hx[1], false, 2}};
  for (size_t i = 0; i < params.size(); ++i) inputs.push_back({names[i], params[i], true});
  const auto body = [&](std::span<const Dims> dims) {
    return Layers(dtype, hidden, has_biases, num_layers, directions, batch_first).text(dims[0]);
  };
  const auto symbolic = [&] {
    std::vector<Dims> all;
    for (const OpInput& each : inputs) all.push_back(dims_of(each.tensor));
    all[0][batch_first ? 0 : 1] = all[1][1] = all[2][1] = "batch";
    all[0][batch_first ? 1 : 0] = "steps";
    return all;
  };
  const OpSettings settings{has_biases, num_layers, bidirectional, batch_first};
  const auto results = run_compiled("lstm", inputs, settings, body, symbolic);
  return {results[0], results[1], results[2]};
}

Results autograd(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t num_layers,
                 double dropout, bool train, bool bidirectional, bool batch_first) {
  const auto plain = [](const auto& tensors) { return all_dense(tensors) && !needs_gradient(tensors); };
  if (!plain(input) || !plain(hx) || !plain(params))
    return at::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  at::AutoDispatchBelowADInplaceOrView below;
  return op().call(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
}

Results autocast(const Tensor& input, TensorList hx, TensorList params, bool has_biases, int64_t num_layers,
                 double dropout, bool train, bool bidirectional, bool batch_first) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::AutocastCPU);
  const auto cast = [](TensorList tensors) {
    std::vector<Tensor> result;
    for (const Tensor& tensor : tensors) result.push_back(autocast_operand(tensor));
    return result;
  };
  return op().call(autocast_operand(input), cast(hx), cast(params), has_biases, num_layers, dropout, train,
                   bidirectional, batch_first);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torch_ipex, m) {
  m.def(
      "ipex_lstm(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, "
      "bool train, "
      "bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(torch_ipex, CPU, m) { m.impl("ipex_lstm", kernel); }
TORCH_LIBRARY_IMPL(torch_ipex, Meta, m) {
  m.impl("ipex_lstm", [](const Tensor& input, TensorList hx, TensorList params, bool has_biases,
                         int64_t num_layers, double dropout, bool train, bool bidirectional,
                         bool batch_first) {
    return at::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  });
}
TORCH_LIBRARY_IMPL(torch_ipex, Autograd, m) { m.impl("ipex_lstm", autograd); }
TORCH_LIBRARY_IMPL(torch_ipex, AutocastCPU, m) { m.impl("ipex_lstm", autocast); }

}  // namespace ipex::torch_ops
