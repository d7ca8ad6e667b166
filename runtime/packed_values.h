// Packed weights in a file next to an artifact. A load maps them instead of computing them, and all processes
// share one copy.
//
// <path>.packed contains the artifact's hoisted values (hoisting.h), in the layout for one kind of CPU:
//   manifest.json     what they were computed from, and which weights are no longer read
//   packed/<buffer>   the values
// On another kind of CPU, or next to another artifact, the file is ignored with a warning.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "runtime/artifact.h"

namespace ipex {

class PackedValues {
 public:
  // The packed values of an artifact for `isa`, if there are any. UserError when the file is damaged.
  static std::optional<PackedValues> open(const Archive& artifact, Isa isa);
  // Writes the file for a loaded artifact whose hoisted values are computed. UserError when it cannot be
  // written, or when ATen allocated the memory of a value.
  static void write(const Artifact& prepared);

  const Archive& archive() const { return *archive_; }
  // Whether a weight is only needed to compute these values, so that it is not read.
  bool replaces(const std::string& member) const { return replaced_.contains(member); }
  // Passes the values to the executable. Returns false, with a warning, if it needs another layout.
  bool adopt(const Executable& executable, std::span<const InputVersion> versions) const;

 private:
  explicit PackedValues(const std::string& path);
  std::shared_ptr<const Archive> archive_;
  std::set<std::string> replaced_;
  uint32_t artifact_ = 0, layouts_ = 0;
  std::string isa_;
};

std::string packed_path(const std::string& artifact);

}  // namespace ipex
