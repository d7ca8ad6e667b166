// bench_kernels [options of Google Benchmark] [FILE...]: benchmarks compiled kernels without PyTorch.
// Without files, it runs every row of the op tables in every shape. Files are Graph or Loop IR texts, for
// example from `ipexc bench-kernels --graphs` or explain(). --benchmark_filter selects benchmarks. --limits
// measures this machine first, and shows each kernel's share of its limits.
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "backend/ir_text.h"
#include "benchmarks/kernels/hardware_counters.h"
#include "benchmarks/kernels/table_graphs.h"
#include "benchmarks/kernels/workload.h"
#include "runtime/error.h"
#include "runtime/roofline.h"

namespace ipex::bench {
namespace {

struct Session {
  HardwareCounters counters;
  std::optional<MachineLimits> limits;
};

void time_kernel(benchmark::State& state, const NamedGraph& named, Session& session) {
  std::optional<Workload> workload;
  try {
    workload = Workload::compile(named.text);
    workload->run();
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
    return;
  }
  session.counters.start();
  for (auto _ : state) workload->run();
  session.counters.stop();

  using benchmark::Counter;
  const auto runs = static_cast<double>(state.iterations()), bytes = static_cast<double>(workload->bytes());
  state.counters["GB/s"] = Counter(runs * bytes / 1e9, Counter::kIsRate);
  state.counters["GFLOP/s"] = Counter(runs * workload->flops() / 1e9, Counter::kIsRate);
  state.counters["steps"] = workload->steps();
  if (session.limits) {
    const bool half = named.text.find("bf16[") != std::string::npos && session.limits->bf16_gflops > 0;
    const double peak = half ? session.limits->bf16_gflops : session.limits->f32_gflops;
    const double bandwidth = std::max(session.limits->copy_gbs, session.limits->triad_gbs);
    const double least_seconds = std::max(bytes / bandwidth, workload->flops() / peak) / 1e9;
    state.counters["limit"] =
        Counter(runs * least_seconds, Counter::kIsRate);  // share of the machine's limit
  }
  if (session.counters.available()) {
    state.counters["cycles"] = static_cast<double>(session.counters.cycles()) / runs;
    state.counters["instructions"] = static_cast<double>(session.counters.instructions()) / runs;
  }
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  CLI::App app{"Times compiled kernels; takes Google Benchmark's --benchmark_* options too."};
  std::vector<std::string> files;
  bool limits = false;
  app.add_option("files", files, "Graph or Loop IR texts; without any, every row of the op tables");
  app.add_flag("--limits", limits, "measure this machine first and show each kernel's share of it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  Session session;  // created before any thread is started, so that its counters include all threads
  if (limits) {
    session.limits = measure_limits();
    std::cerr << "limits: memory " << session.limits->triad_gbs << " GB/s, f32 " << session.limits->f32_gflops
              << ", bf16 " << session.limits->bf16_gflops << " GFLOP/s, " << session.limits->threads
              << " threads\n";
  }
  std::vector<NamedGraph> graphs;
  for (const std::string& file : files)
    graphs.push_back({std::filesystem::path(file).filename().string(), read_text(file)});
  if (files.empty()) graphs = table_graphs();
  for (const NamedGraph& named : graphs)
    benchmark::RegisterBenchmark(named.name.c_str(), [&](benchmark::State& state) {
      time_kernel(state, named, session);
    })->UseRealTime();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace ipex::bench

int main(int argc, char** argv) {
  try {
    return ipex::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "bench_kernels: " << error.what() << "\n";
    return 1;
  }
}
