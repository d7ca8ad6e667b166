// A compiled model in one file: what `ipexc compile` writes and every loader reads.
//
// The file is an archive (archive.h) with
//   manifest.json        format version, versions of ipex and torch it needs, ISAs, where each part lies
//   <isa>/program.txt    the Executable as text (program.h); ISAs with equal programs share one
//   <isa>/kernels.so     compiled kernels (loaded_code.h)
//   constants/...        constants that the compiler made
//   weights/...          parameters and buffers; in an archive of their own beside this one when not embedded
//
// What is parsed or executed is checked first: the archive's headers, then the checksum of the manifest, then
// those of the parts it names. A checksum tells damage, not malice: an artifact holds machine code, so load
// only what you would execute.
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

// What is written.
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
  bool embed_weights = true;                      // else in <path>.weights
  std::string ipex_version, torch_version;        // torch: empty without extern ops
  std::vector<std::string> extern_ops;            // names
  std::map<std::string, std::string> structures;  // of the language that compiled it: opaque texts
};
void write_artifact(const std::string& path, const ArtifactParts& parts);

// What reads the steps of a program that calls ATen operators.
struct TorchSteps {
  std::string version;  // of libtorch
  StepReader read_step;
};

struct LoadOptions {
  std::string weights;                // path of the weights' archive; empty: <path>.weights
  bool verify_weights = true;         // reads all of them once
  bool link = true;                   // false: only to look at, no code is loaded
  bool packed = true;                 // take packed weights from <path>.packed, if there is one
  std::function<TorchSteps()> torch;  // asked when the artifact has such calls; empty: it is refused
};

// A loaded artifact. Immutable; the executable runs on any number of threads.
struct Artifact {
  std::shared_ptr<const Archive> archive, weights;
  std::string manifest;   // JSON
  std::vector<Isa> isas;  // all that it has
  Isa isa = Isa::kAvx2;   // the one that was loaded
  std::string kernels;    // member with its kernels; may be empty
  Interface interface;
  std::shared_ptr<const Executable> executable;
  std::vector<void*> weight_data;      // by input of the executable; null: the caller's. Read-only memory
  std::vector<InputVersion> versions;  // by input
};

// Loads the best ISA that this CPU runs and IPEX_TARGET allows. UserError when the file is damaged, hostile,
// of a later format or needs what this process does not have.
Artifact load_artifact(const std::string& path, const LoadOptions& options, const StepReader& read_step);

}  // namespace ipex
