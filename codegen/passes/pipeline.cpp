// The loop pipeline as a list of verbs, and the runner: verify, dump what changed, time, skip and stop by
// name.
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "runtime/env.h"
#include "runtime/log.h"
#include "runtime/time_limit.h"

namespace ipex::loop {

namespace {

using Module = std::vector<Function>;

template <Function (*pass)(const Function&)>
Module each(Module module, const Target&) {
  for (Function& f : module) f = pass(f);
  return module;
}

template <Function (*pass)(const Function&, const Target&)>
Module each(Module module, const Target& target) {
  for (Function& f : module) f = pass(f, target);
  return module;
}

Function schedule(const Function& f, const Target& target) {
  return apply_schedule(f, choose_schedule(f, target));
}

constexpr std::array<LoopPass, 20> kPipeline = {{
    {"simplify", each<simplify>},
    {"distribute", each<distribute>},
    {"collapse_loops", each<collapse_loops>},
    {"block_products", each<block_products>},
    {"pair_products", each<pair_products>},
    {"apply_schedule", each<schedule>},
    {"tile_reduction", each<tile_reduction>},
    {"join_rows", each<join_rows>},
    {"vectorize", each<vectorize>},
    {"partition_loops", each<partition_loops>},
    {"unroll_loops", each<unroll_loops>},
    {"jam_scans", each<jam_scans>},
    {"transpose_loads", each<transpose_loads>},
    {"prefetch_rows", each<prefetch_rows>},
    {"split_chains", each<split_chains>},
    {"split_pairs", each<split_pairs>},
    {"cascade_sums", each<cascade_sums>},
    {"lower_math", each<lower_math>},
    {"legalize", each<legalize>},
    {"final_simplify", each<simplify>},
}};

// Passes without which the emitter cannot go on; the others only make code faster.
bool required(std::string_view pass) {
  return pass == "lower_math" || pass == "legalize" || pass == "vectorize" || pass == "tile_reduction";
}

bool listed(std::string_view list, std::string_view name) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (list.substr(begin, end - begin) == name) return true;
    begin = end + 1;
  }
  return false;
}

void dump(const std::string& directory, size_t number, std::string_view pass, const std::string& kernel,
          const std::string& text) {
  std::filesystem::create_directories(directory);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%02zu", number);
  std::ofstream(std::filesystem::path(directory) /
                (kernel + "." + digits + "." + std::string(pass) + ".loop"))
      << text;
}

}  // namespace

std::span<const LoopPass> pipeline() { return kPipeline; }

Module run_pipeline(Module module, const Target& target, std::string_view stop_after) {
  const std::string directory = env::get("IPEX_DUMP"), disabled = env::get("IPEX_DISABLE_PASS");
  const bool timed = env::flag("IPEX_TIME_PASSES");
#ifdef IPEX_DEBUG
  const bool verified = true;
#else
  const bool verified = env::flag("IPEX_VERIFY");
#endif
  if (module.empty()) return module;
  const std::string kernel = module[0].name;
  std::string text = directory.empty() ? "" : print(module);
  if (!directory.empty()) dump(directory, 0, "input", kernel, text);
  for (size_t i = 0; i < kPipeline.size(); ++i) {
    const LoopPass& pass = kPipeline[i];
    if (!required(pass.name) && listed(disabled, pass.name)) continue;
    check_time(pass.name, kernel);
    const auto start = std::chrono::steady_clock::now();
    try {
      module = pass.run(std::move(module), target);
      if (verified)
        for (const Function& f : module) verify(f);
    } catch (const InternalError& e) {
      throw InternalError("loop pass " + std::string(pass.name) + " on kernel " + kernel + ": " + e.what());
    }
    if (timed) {
      const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
      std::fprintf(stderr, "ipex: %8.3f ms  loop %-16s %s\n", ms.count(), std::string(pass.name).c_str(),
                   kernel.c_str());
    }
    if (!directory.empty()) {
      std::string after = print(module);
      if (after != text) dump(directory, i + 1, pass.name, kernel, after);
      text = std::move(after);
    }
    if (pass.name == stop_after) break;
  }
  return module;
}

}  // namespace ipex::loop
