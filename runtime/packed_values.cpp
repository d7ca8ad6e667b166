// Reads, checks and writes packed weights; see packed_values.h.
#include "runtime/packed_values.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/crc32.h"
#include "runtime/error.h"
#include "runtime/log.h"

namespace ipex {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kManifest[] = "manifest.json";

std::string member_of(int buffer) { return "packed/" + std::to_string(buffer); }

// A checksum of the layouts of hoisted steps on this CPU. (The program is that of the artifact.)
uint32_t layouts(const Executable::Parts& parts) {
  std::string text;
  for (size_t i = 0; i < parts.steps.size(); ++i)
    if (parts.hoisted[i]) text += parts.steps[i]->recipe + "\n";
  return crc32(std::as_bytes(std::span(text)));
}

std::vector<std::string> read_only_by_hoisted_steps(const Artifact& artifact) {
  const Executable::Parts& parts = artifact.executable->parts();
  std::vector<bool> read(parts.buffers.size(), false);
  for (size_t i = 0; i < parts.steps.size(); ++i)
    for (int buffer : parts.steps[i]->reads)
      if (!parts.hoisted[i]) read[buffer] = true;
  std::set<std::string> wanted;  // a set, because two inputs may be the same weight
  std::vector<std::string> members;
  for (size_t b = 0; b < parts.buffers.size(); ++b)
    if (parts.buffers[b].kind == BufferKind::kInput && read[b])
      wanted.insert(artifact.interface.inputs[parts.buffers[b].index].member);
  for (const auto& input : artifact.interface.inputs)
    if (!input.member.empty() && !wanted.contains(input.member)) members.push_back(input.member);
  return members;
}

}  // namespace

std::string packed_path(const std::string& artifact) { return artifact + ".packed"; }

PackedValues::PackedValues(const std::string& path) : archive_(std::make_shared<const Archive>(path)) {
  const auto& data = archive_->checked(kManifest).data;
  const auto* text = reinterpret_cast<const char*>(data.data());
  try {
    const Json json = Json::parse(text, text + data.size());
    artifact_ = json.at("artifact").get<uint32_t>();
    layouts_ = json.at("layouts").get<uint32_t>();
    isa_ = json.at("isa").get<std::string>();
    replaced_ = json.at("replaces").get<std::set<std::string>>();
  } catch (const nlohmann::json::exception& error) {
    throw UserError(path + " is damaged: " + error.what() + "; remove it, or pack the artifact again");
  }
}

std::optional<PackedValues> PackedValues::open(const Archive& artifact, Isa isa) {
  const std::string path = packed_path(artifact.path());
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  PackedValues values(path);
  if (values.artifact_ == artifact.identity() && values.isa_ == name(isa)) return values;
  log(LogLevel::kWarning, path + " is not used: it belongs to another artifact, or to another target than " +
                              std::string(name(isa)) + "; remove it, or pack the artifact again");
  return std::nullopt;
}

bool PackedValues::adopt(const Executable& executable, std::span<const InputVersion> versions) const {
  const Executable::Parts& parts = executable.parts();
  if (layouts(parts) != layouts_) {
    log(LogLevel::kWarning, archive_->path() +
                                " is not used: it is for another kind of CPU; remove it, or pack the " +
                                "artifact again");
    return false;
  }
  std::vector<Executable::HoistedValue> values;
  for (int buffer : executable.hoisted_buffers()) {
    const Archive::Member* member = archive_->find(member_of(buffer));
    const SizeExpr& bytes = parts.buffers[buffer].bytes;
    if (!member || !bytes.is_const() || static_cast<int64_t>(member->data.size()) != bytes.constant())
      throw UserError(archive_->path() + " is damaged: no " + member_of(buffer) +
                      " of the program's size; remove it, or pack the artifact again");
    values.push_back({buffer, member->data});
  }
  executable.adopt(values, archive_, versions);
  return true;
}

void PackedValues::write(const Artifact& prepared) {
  const Executable& executable = *prepared.executable;
  const std::string& path = prepared.archive->path();
  for (int buffer : executable.hoisted_buffers())
    if (const BufferInfo& info = executable.parts().buffers[buffer];
        info.kind == BufferKind::kProvided || !info.bytes.is_const())
      throw UserError(path + " computes weights by ATen operators; such values cannot be packed");
  ArchiveWriter writer(packed_path(path));
  const Json manifest = {{"artifact", prepared.archive->identity()},
                         {"isa", name(prepared.isa)},
                         {"layouts", layouts(executable.parts())},
                         {"replaces", read_only_by_hoisted_steps(prepared)}};
  writer.add(kManifest, manifest.dump(1) + "\n");
  for (const auto& value : executable.hoisted_values()) writer.add(member_of(value.buffer), value.bytes);
  writer.finish();
}

}  // namespace ipex
