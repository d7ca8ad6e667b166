// Implements ipex/model_c.h. Every function converts C++ exceptions to a status and a message.
#include "ipex/model_c.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "ipex/model.h"

struct ipex_model {
  ipex::Model model;
  struct Info {
    std::vector<int64_t> low, high;
  };
  std::vector<Info> inputs, outputs;
  std::vector<std::pair<std::string, ipex::TensorView>> state;
};

namespace {

thread_local std::string last_error;

ipex_status fail(ipex_status status, const char* what) {
  try {
    last_error = what;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

template <class Body>
ipex_status guarded(Body body) noexcept {
  try {
    body();
    return IPEX_OK;
  } catch (const ipex::UserError& error) {
    return fail(IPEX_USER_ERROR, error.what());
  } catch (const ipex::Unsupported& error) {
    return fail(IPEX_USER_ERROR, error.what());
  } catch (const ipex::CheckError& error) {
    return fail(IPEX_USER_ERROR, error.what());
  } catch (const ipex::IndexError& error) {
    return fail(IPEX_INDEX_ERROR, error.what());
  } catch (const std::bad_alloc& error) {
    return fail(IPEX_OUT_OF_MEMORY, error.what());
  } catch (const std::exception& error) {
    return fail(IPEX_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(IPEX_INTERNAL_ERROR, "unknown error");
  }
}

void require(bool holds, const char* what) {
  if (!holds) throw ipex::UserError(what);
}

ipex::TensorView view_of(const ipex_tensor& tensor) {
  require(tensor.rank >= 0 && (tensor.rank == 0 || tensor.sizes), "a tensor without sizes");
  require(tensor.dtype >= IPEX_BOOL && tensor.dtype <= IPEX_F64, "a tensor of unknown dtype");
  std::vector<int64_t> sizes(tensor.sizes, tensor.sizes + tensor.rank);
  ipex::TensorView view =
      ipex::row_major_view(tensor.data, static_cast<ipex::Dtype>(tensor.dtype), std::move(sizes));
  if (tensor.strides) view.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  return view;
}

std::vector<ipex::TensorView> views_of(const ipex_tensor* tensors, size_t count) {
  require(tensors || count == 0, "no tensors");
  std::vector<ipex::TensorView> views;
  for (size_t i = 0; i < count; ++i) views.push_back(view_of(tensors[i]));
  return views;
}

std::vector<ipex_model::Info> describe(const std::vector<ipex::TensorInfo>& tensors) {
  std::vector<ipex_model::Info> all(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    for (const ipex::Dim& dim : tensors[i].sizes) {
      all[i].low.push_back(dim.low);
      all[i].high.push_back(dim.high);
    }
  return all;
}

ipex_status describe_tensor(const std::vector<ipex::TensorInfo>& tensors,
                            const std::vector<ipex_model::Info>& sizes, int32_t index,
                            ipex_tensor_info* info) {
  return guarded([&] {
    require(info && index >= 0 && static_cast<size_t>(index) < tensors.size(), "no such tensor");
    *info = {tensors[index].name.c_str(), static_cast<ipex_dtype>(tensors[index].dtype),
             static_cast<int32_t>(sizes[index].low.size()), sizes[index].low.data(),
             sizes[index].high.data()};
  });
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

ipex_status ipex_model_load(const char* path, const ipex_options* options, ipex_model** model) {
  return guarded([&] {
    require(path && model, "path or model is NULL");
    *model = nullptr;
    ipex::ModelOptions chosen;
    if (options) {
      if (options->weights) chosen.weights = options->weights;
      chosen.verify_weights = !options->skip_verification;
      chosen.prepare = !options->lazy;
      chosen.threads = options->threads;
    }
    const ipex::Model loaded = ipex::Model::load(path, chosen);
    const auto state = loaded.state();
    *model = new ipex_model{
        loaded, describe(loaded.inputs()), describe(loaded.outputs()), {state.begin(), state.end()}};
  });
}

void ipex_model_free(ipex_model* model) { delete model; }

int32_t ipex_model_input_count(const ipex_model* model) { return static_cast<int32_t>(model->inputs.size()); }
int32_t ipex_model_output_count(const ipex_model* model) {
  return static_cast<int32_t>(model->outputs.size());
}

ipex_status ipex_model_input(const ipex_model* model, int32_t index, ipex_tensor_info* info) {
  return describe_tensor(model->model.inputs(), model->inputs, index, info);
}
ipex_status ipex_model_output(const ipex_model* model, int32_t index, ipex_tensor_info* info) {
  return describe_tensor(model->model.outputs(), model->outputs, index, info);
}

int32_t ipex_model_state_count(const ipex_model* model) { return static_cast<int32_t>(model->state.size()); }
ipex_status ipex_model_state(const ipex_model* model, int32_t index, const char** name, ipex_tensor* tensor) {
  return guarded([&] {
    require(name && tensor && index >= 0 && static_cast<size_t>(index) < model->state.size(),
            "no such buffer");
    const auto& [known_as, view] = model->state[index];
    *name = known_as.c_str();
    *tensor = {view.data, static_cast<ipex_dtype>(view.dtype), static_cast<int32_t>(view.sizes.size()),
               view.sizes.data(), view.strides.data()};
  });
}

ipex_status ipex_model_output_sizes(const ipex_model* model, const ipex_tensor* inputs, int32_t index,
                                    int64_t* sizes) {
  return guarded([&] {
    const auto all = model->model.output_sizes(views_of(inputs, model->inputs.size()));
    require(sizes && index >= 0 && static_cast<size_t>(index) < all.size(), "no such output");
    std::ranges::copy(all[index], sizes);
  });
}

ipex_status ipex_model_run(const ipex_model* model, const ipex_tensor* inputs, const ipex_tensor* outputs) {
  return guarded([&] {
    const auto given = views_of(inputs, model->inputs.size());
    auto wanted = views_of(outputs, model->outputs.size());
    model->model.run(given, wanted);
  });
}

const char* ipex_last_error(void) { return last_error.c_str(); }
}
#pragma GCC visibility pop
