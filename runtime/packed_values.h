// Packed weights kept beside an artifact: a load maps them instead of computing them, and all processes share
// one copy.
//
// <path>.packed holds the artifact's hoisted values (hoisting.h) as the library lays them out on one CPU:
//   manifest.json     what they were made from, and which weights nobody reads any more
//   packed/<buffer>   the values
// On another kind of CPU, or beside another artifact, the file is passed over with a warning.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "runtime/artifact.h"

namespace ipex {

class PackedValues {
 public:
  // Those of an artifact's program for `isa`, if there are any. UserError when the file is damaged.
  static std::optional<PackedValues> open(const Archive& artifact, Isa isa);
  // Writes the file. `prepared`: a loaded artifact whose hoisted values were computed. UserError when it
  // cannot be written, or when a value lies in memory that ATen made.
  static void write(const Artifact& prepared);

  const Archive& archive() const { return *archive_; }
  // A weight that was read only to make these values.
  bool replaces(const std::string& member) const { return replaced_.contains(member); }
  // Gives the values to the executable; false, and a warning, when it wants another layout.
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
