// The loop pipeline as a table, and what runs it: passes can be skipped by name, and the pipeline can stop
// after one; each is timed, its result is verified, and what it changed is dumped.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "codegen/loop/simplify.h"
#include "codegen/loop/text.h"
#include "codegen/passes/passes.h"
#include "runtime/env.h"
#include "runtime/pass_names.h"
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
    {"pack_dot_products", each<pack_dot_products>},
    {"apply_schedule", each<schedule>},
    {"tile_reduction", each<tile_reduction>},
    {"fuse_loops", each<fuse_loops>},
    {"vectorize", each<vectorize>},
    {"partition_loops", each<partition_loops>},
    {"unroll_loops", each<unroll_loops>},
    {"unroll_and_jam", each<unroll_and_jam>},
    {"transpose_loads", each<transpose_loads>},
    {"prefetch_rows", each<prefetch_rows>},
    {"split_accumulators", each<split_accumulators>},
    {"deinterleave", each<deinterleave>},
    {"block_sums", each<block_sums>},
    {"lower_math", each<lower_math>},
    {"legalize", each<legalize>},
    {"final_simplify", each<simplify>},
}};

// Names that passes had in the release before this one. They are still accepted where a user names a pass.
constexpr std::array<FormerName, 6> kFormerNames = {{
    {"pair_products", "pack_dot_products"},
    {"join_rows", "fuse_loops"},
    {"jam_scans", "unroll_and_jam"},
    {"split_chains", "split_accumulators"},
    {"split_pairs", "deinterleave"},
    {"cascade_sums", "block_sums"},
}};

// Passes that the emitter depends on. The others only make code faster.
bool required(std::string_view pass) {
  return pass == "lower_math" || pass == "legalize" || pass == "vectorize" || pass == "tile_reduction";
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

// `skipped`: one more pass that does not run.
Module run(Module module, const Target& target, std::string_view stop_after, std::string_view skipped = {}) {
  const std::string directory = env::get("IPEX_DUMP"), disabled = env::get("IPEX_DISABLE_PASS");
  const bool timed = env::flag("IPEX_TIME_PASSES");
#ifdef IPEX_DEBUG
  const bool verified = true;
#else
  const bool verified = env::flag("IPEX_VERIFY");
#endif
  if (module.empty()) return module;
  stop_after = current_name(stop_after, kFormerNames);
  const std::string kernel = module[0].name;
  std::string text = directory.empty() ? "" : print(module);
  if (!directory.empty()) dump(directory, 0, "input", kernel, text);
  for (size_t i = 0; i < kPipeline.size(); ++i) {
    const LoopPass& pass = kPipeline[i];
    if (pass.name == skipped || (!required(pass.name) && listed(disabled, pass.name, kFormerNames))) continue;
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

}  // namespace

std::span<const LoopPass> pipeline() { return kPipeline; }

const LoopPass* find_pass(std::string_view name) {
  const auto* found = std::ranges::find(kPipeline, current_name(name, kFormerNames), &LoopPass::name);
  return found == kPipeline.end() ? nullptr : found;
}

Module run_pipeline(Module module, const Target& target, std::string_view stop_after) {
  return run(std::move(module), target, stop_after);
}

Module run_scalar_pipeline(Module module, const Target& target) {
  return run(std::move(module), target, "tile_reduction", "block_products");
}

}  // namespace ipex::loop
