// Artifacts: a compiled model in one file, written by `ipexc compile` and read by every loader.
//
// The file is an archive (archive.h) with these members:
//   manifest.json        format version, required versions of ipex and torch, ISAs, names of the other parts
//   <isa>/program.txt    the Executable as text (program.h); ISAs with equal programs share one
//   <isa>/kernels.so     compiled kernels (loaded_code.h)
//   constants/...        constants that the compiler computed
//   weights/...          parameters and buffers; if not embedded, they are in a separate archive
//
// Every part is checked before it is parsed or executed: first the archive's headers, then the checksum of
// the manifest, then those of the parts that it names. Checksums detect damage, not malice: an artifact
// contains machine code, so load only artifacts from a source you trust.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/archive.h"
#include "runtime/cpu.h"
#include "runtime/executable.h"
#include "runtime/program.h"

namespace ipex {

// The contents of an artifact to write.
struct ArtifactParts {
  struct Variant {
    Isa isa = Isa::kAvx2;
    std::string program, kernels;  // text; ELF bytes, empty when there are none
  };
  struct Data {
    std::string member;
    std::span<const std::byte> bytes;
  };
  std::vector<Variant> variants;  // ascending ISA
  std::vector<Data> weights, constants;
  bool embed_weights = true;                // false: weights go to <path>.weights
  std::string ipex_version, torch_version;  // torch: empty without extern ops
  std::vector<std::string> extern_ops;      // names of ATen ops that it calls
  std::map<std::string, std::string>
      structures;  // opaque texts by language: the inputs' and outputs' nesting
};
void write_artifact(const std::string& path, const ArtifactParts& parts);

// A reader for the steps of a program that calls ATen operators.
struct TorchSteps {
  std::string version;  // of libtorch
  StepReader read_step;
};

struct LoadOptions {
  std::string weights;                // path of the weights' archive; empty: <path>.weights
  bool verify_weights = true;         // check their checksums, which reads all of them once
  bool link = true;                   // false: load no code, only for inspection
  bool packed = true;                 // use packed weights from <path>.packed if the file exists
  std::function<TorchSteps()> torch;  // called if the artifact calls ATen; empty: such artifacts are refused
};

// A loaded artifact. Immutable; the executable runs on any number of threads.
struct Artifact {
  std::shared_ptr<const Archive> archive, weights;
  std::string manifest;   // JSON
  std::vector<Isa> isas;  // all ISAs that it contains
  Isa isa = Isa::kAvx2;   // the loaded one
  std::string kernels;    // member with the kernels; may be empty
  Interface interface;
  std::shared_ptr<const Executable> executable;
  std::vector<void*> weight_data;      // by input of the executable: read-only memory; null: the caller's
  std::vector<InputVersion> versions;  // by input
};

// Loads the best ISA that this CPU supports and IPEX_TARGET allows. UserError when the file is damaged or
// malicious, has another format, or needs something that this process does not have.
Artifact load_artifact(const std::string& path, const LoadOptions& options, const StepReader& read_step);

}  // namespace ipex
