// Runs an artifact on inputs from raw files and writes raw results, from several threads at once:
//
//   run_model MODEL.ipex THREADS name=FILE:2x128 ... OUTPUT_DIRECTORY
//
// Every thread makes the same call on the one loaded model; all must get the same bytes. Buffers of the model
// that calls write are written to files too.
#include <ipex/model.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ipex::UserError("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<int64_t> parse_sizes(const std::string& text) {
  std::vector<int64_t> sizes;
  for (size_t at = 0; at < text.size();
       at = text.find('x', at) == std::string::npos ? text.size() : text.find('x', at) + 1)
    sizes.push_back(std::stoll(text.substr(at)));
  return sizes;
}

int run(const std::vector<std::string>& arguments) {
  const ipex::Model model = ipex::Model::load(arguments.at(0));
  const int threads = std::stoi(arguments.at(1));
  std::list<std::vector<char>> files;
  std::map<std::string, ipex::TensorView> inputs;
  for (size_t i = 2; i + 1 < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('='), colon = arguments[i].rfind(':');
    const std::string name = arguments[i].substr(0, equals);
    files.push_back(read_file(arguments[i].substr(equals + 1, colon - equals - 1)));
    for (const ipex::TensorInfo& info : model.inputs())
      if (info.name == name)
        inputs[name] = ipex::row_major_view(files.back().data(), info.dtype,
                                            parse_sizes(arguments[i].substr(colon + 1)));
  }
  std::vector<std::map<std::string, ipex::Tensor>> results(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (auto& result : results) running.emplace_back([&] { result = model.run(inputs); });
  for (std::thread& thread : running) thread.join();
  const auto write = [&](const std::string& name, const ipex::TensorView& view) {
    const auto bytes = static_cast<size_t>(view.numel() * ipex::itemsize(view.dtype));
    std::ofstream(arguments.back() + "/" + name + ".raw", std::ios::binary)
        .write(static_cast<const char*>(view.data), static_cast<std::streamsize>(bytes));
    std::printf("%s %zu bytes, %s\n", name.c_str(), bytes, model.isa().c_str());
  };
  for (const auto& [name, tensor] : results[0]) {
    const auto bytes = static_cast<size_t>(tensor.view().numel() * ipex::itemsize(tensor.view().dtype));
    for (const auto& other : results)
      if (std::memcmp(other.at(name).view().data, tensor.view().data, bytes) != 0)
        throw ipex::InternalError("threads disagree about " + name);
    write(name, tensor.view());
  }
  for (const auto& [name, view] : model.state()) write(name, view);  // buffers that the calls wrote
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "run_model: %s\n", error.what());
    return 1;
  }
}
