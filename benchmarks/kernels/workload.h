// The workload of one benchmark: a Graph text or Loop IR functions, compiled and ready to run on memory of
// its own, with nothing between the timer and the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ipex::bench {

class Workload {
 public:
  // Symbols have the value of their hints in a graph, and kSymbol in functions. Throws the compiler's errors,
  // and Unsupported for a graph with an Extern node.
  static Workload compile(const std::string& text);
  void run() const { run_(); }
  int64_t bytes() const { return bytes_; }  // size of inputs and outputs, each counted once
  double flops() const { return flops_; }   // as declared by the steps
  int steps() const { return steps_; }

  static constexpr int64_t kSymbol = 1024;

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  static Memory allocate(int64_t bytes);

  static Workload of_graph(const std::string& text);
  static Workload of_functions(const std::string& text);

  std::vector<Memory> memory_;
  std::function<void()> run_;
  int64_t bytes_ = 0;
  double flops_ = 0;
  int steps_ = 0;
};

}  // namespace ipex::bench
