// run_script MODEL INPUT RESULT [CALLS [THREADS]]: loads a frozen TorchScript model, calls it several times
// in each of several threads on the tensor saved in INPUT, and saves the last result. It prints how many
// results of the other threads differ from it, and how often compiled parts of the model ran and were
// interpreted. The first call of a model always runs in PyTorch's interpreter. The program includes no header
// of IPEX.
#include <torch/script.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

namespace {

at::Tensor read_tensor(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  return torch::jit::pickle_load(bytes).toTensor();
}

void write_tensor(const char* path, const at::Tensor& tensor) {
  const std::vector<char> bytes = torch::jit::pickle_save(tensor);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// IPEX's counts: programs compiled, their runs, runs by the interpreter. The operator exists if the library
// is loaded.
std::tuple<int64_t, int64_t, int64_t> counts() {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("torch_ipex::compiled_graph_counts", "")
      .typed<std::tuple<int64_t, int64_t, int64_t>()>()
      .call();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: run_script MODEL INPUT RESULT [CALLS [THREADS]]\n";
    return 2;
  }
  const int calls = argc > 4 ? std::stoi(argv[4]) : 3, threads = argc > 5 ? std::stoi(argv[5]) : 1;
  try {
    const torch::NoGradGuard no_gradients;
    torch::jit::Module model = torch::jit::load(argv[1]);
    const at::Tensor input = read_tensor(argv[2]);
    at::Tensor result;
    for (int i = 0; i < calls; ++i) result = model.forward({input}).toTensor();
    std::atomic<int> differing = 0;
    std::vector<std::thread> workers;
    for (int i = 1; i < threads; ++i)
      workers.emplace_back([&] {
        const torch::NoGradGuard no_gradients_here;
        for (int j = 0; j < calls; ++j) differing += !torch::equal(model.forward({input}).toTensor(), result);
      });
    for (std::thread& worker : workers) worker.join();
    write_tensor(argv[3], result);
    const auto [compiled, native, interpreted] = counts();
    std::cout << differing << " results differ; compiled " << compiled << ", native " << native
              << ", interpreted " << interpreted << '\n';
    return differing != 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
