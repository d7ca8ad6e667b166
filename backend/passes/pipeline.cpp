// The graph pipeline as a table, and the function that runs it.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "backend/passes/passes.h"
#include "runtime/env.h"
#include "runtime/error.h"
#include "runtime/pass_names.h"
#include "runtime/time_limit.h"

namespace ipex::graph {
namespace {

template <Graph (*pass)(Graph)>
Graph on_any(Graph graph, const PassContext&) {
  return pass(std::move(graph));
}

constexpr std::array<GraphPass, 14> kPipeline = {{
    {"canonicalize", on_any<canonicalize>, false},
    {"recognize_idioms", on_any<recognize_idioms>, true},
    {"fold_constants", on_any<fold_constants>, true},
    {"canonicalize", on_any<canonicalize>, false},
    {"fuse_library", fuse_library, true},
    {"gather_early", on_any<gather_early>, true},
    {"plan_layouts", on_any<plan_layouts>, true},
    {"place_outputs", on_any<place_outputs>, false},
    {"choose_implementations", choose_implementations, false},
    {"split_variance", on_any<split_variance>, true},
    {"eliminate_bounds_checks", on_any<eliminate_bounds_checks>, true},
    {"form_groups", on_any<form_groups>, false},
    {"batch_groups", on_any<batch_groups>, true},
    {"place_outputs", on_any<place_outputs>, false},
}};

// Former names of passes, which settings may still use.
constexpr std::array<FormerName, 4> kFormerNames = {{
    {"name_formulas", "recognize_idioms"},
    {"prove_indices", "eliminate_bounds_checks"},
    {"widen_library", "choose_implementations"},
    {"choose_convolutions", "choose_implementations"},
}};

// Writes numbered files: for each graph that the process compiles, one per pass that changed it.
class Dump {
 public:
  explicit Dump(const Graph& graph) : directory_(env::get("IPEX_DUMP")) {
    if (directory_.empty()) return;
    static std::atomic<int> graphs{0};
    graph_ = graphs++;
    std::filesystem::create_directories(directory_);
    write("input", graph);
  }
  void write(std::string_view pass, const Graph& graph) {
    if (directory_.empty()) return;
    std::string text = print(graph);
    if (text == last_) return;
    char name[128];
    std::snprintf(name, sizeof name, "g%03d_%02d_%.*s.graph", graph_, step_++, static_cast<int>(pass.size()),
                  pass.data());
    path_ = (std::filesystem::path(directory_) / name).string();
    std::ofstream(path_) << text;
    last_ = std::move(text);
  }
  // The command that repeats a failing pass on the last written graph.
  std::string repro(std::string_view pass) const {
    return path_.empty() ? "; set IPEX_DUMP=<directory> to get the graph it failed on"
                         : "; to reproduce: ipex-opt " + path_ + " --pass=" + std::string(pass);
  }

 private:
  std::string directory_, last_, path_;
  int graph_ = 0, step_ = 0;
};

bool verifies() {
#ifdef IPEX_DEBUG
  return true;
#else
  return env::flag("IPEX_VERIFY");
#endif
}

std::string pass_names() {
  std::string names;
  for (const GraphPass& pass : kPipeline)
    if (!listed(names, pass.name)) names += (names.empty() ? "" : ",") + std::string(pass.name);
  return names;
}

void check_pass_name(std::string_view name) {
  if (!listed(pass_names(), name))
    throw UserError("unknown graph pass '" + std::string(name) + "': use one of " + pass_names());
}

}  // namespace

std::span<const GraphPass> pipeline() { return kPipeline; }

Graph run_pipeline(Graph graph, const PassContext& context, std::string_view stop_after,
                   std::vector<PassTime>* times) {
  const std::string disabled = env::get("IPEX_DISABLE_PASS"), env_stop = env::get("IPEX_STOP_AFTER");
  const std::string_view stop =
      current_name(stop_after.empty() ? std::string_view(env_stop) : stop_after, kFormerNames);
  if (!stop.empty()) check_pass_name(stop);
  const bool verifying = verifies(), timing = env::flag("IPEX_TIME_PASSES");
  if (verifying) verify(graph);
  Dump dump(graph);
  for (const GraphPass& pass : kPipeline) {
    if (pass.optional && listed(disabled, pass.name, kFormerNames)) continue;
    double ms = 0;
    check_time("graph pass", pass.name);
    try {
      const auto start = std::chrono::steady_clock::now();
      graph = pass.run(std::move(graph), context);
      ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
      if (verifying) verify(graph);
    } catch (const InternalError& error) {
      throw InternalError("graph pass " + std::string(pass.name) + ": " + error.what() +
                          dump.repro(pass.name));
    }
    if (times) times->push_back({std::string(pass.name), ms});
    if (timing)
      std::fprintf(stderr, "ipex pass %-16.*s %8.3f ms\n", static_cast<int>(pass.name.size()),
                   pass.name.data(), ms);
    dump.write(pass.name, graph);
    if (pass.name == stop) break;
  }
  return graph;
}

Graph run_pass(Graph graph, std::string_view given, const PassContext& context) {
  const std::string_view name = current_name(given, kFormerNames);
  check_pass_name(name);
  const auto* pass = std::find_if(kPipeline.begin(), kPipeline.end(),
                                  [name](const GraphPass& candidate) { return candidate.name == name; });
  return pass->run(std::move(graph), context);
}

}  // namespace ipex::graph
