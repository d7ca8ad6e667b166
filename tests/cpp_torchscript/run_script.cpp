// run_script MODEL INPUT RESULT [CALLS [THREADS]]: loads a frozen TorchScript model, calls it several times in
// each of several threads on the tensor saved in INPUT, and saves the last result. Every call must give the same
// result from the second on: the first runs in PyTorch's interpreter. It includes no header of IPEX.
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
    std::cout << differing << " results differ\n";
    return differing != 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
