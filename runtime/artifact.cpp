// Writes and loads artifacts; see artifact.h.
#include "runtime/artifact.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/error.h"
#include "runtime/loaded_code.h"
#include "runtime/packed_values.h"
#include "runtime/parallel.h"

namespace ipex {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 2;
constexpr char kManifest[] = "manifest.json";

std::string weights_path(const std::string& path) { return path + ".weights"; }

// Reads a manifest. Missing entries and entries of a wrong type are errors.
class Manifest {
 public:
  explicit Manifest(const Archive& archive) : path_(archive.path()) {
    const auto& data = archive.checked(kManifest).data;
    json_ = Json::parse(reinterpret_cast<const char*>(data.data()),
                        reinterpret_cast<const char*>(data.data()) + data.size(), nullptr, false);
    if (!json_.is_object()) fail("it is not JSON");
    const auto format = get<int64_t>(json_, "format");
    if (format != kFormat)
      throw UserError(path_ + " has format " + std::to_string(format) + ", but this library reads format " +
                      std::to_string(kFormat) + ": compile the model again, or load it with ipex " +
                      get<std::string>(json_, "ipex"));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(path_ + ": the manifest is damaged: " + what + "; compile the model again");
  }
  template <class T>
  T get(const Json& object, const char* key) const {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (it == object.end()) fail(std::string("no ") + key);
    try {
      return it->get<T>();
    } catch (const nlohmann::json::exception&) {
      fail(std::string("bad ") + key);
    }
  }
  const Json& json() const { return json_; }

 private:
  std::string path_;
  Json json_;
};

struct VariantEntry {
  Isa isa;
  std::string program, kernels;
};

std::vector<VariantEntry> variants(const Manifest& manifest) {
  std::vector<VariantEntry> all;
  for (const Json& item : manifest.get<Json>(manifest.json(), "isas"))
    all.push_back({parse_isa(manifest.get<std::string>(item, "isa")),
                   manifest.get<std::string>(item, "program"), manifest.get<std::string>(item, "kernels")});
  if (all.empty()) manifest.fail("no isas");
  return all;
}

// The best variant that runs on this CPU, or any variant if it is not linked.
const VariantEntry& choose(const std::string& path, const std::vector<VariantEntry>& all, bool link) {
  const Isa limit = link ? current_isa() : Isa::kAvx512Bf16;
  const VariantEntry* best = nullptr;
  std::string names;
  for (const VariantEntry& variant : all) {
    names += (names.empty() ? "" : ", ") + std::string(name(variant.isa));
    if (variant.isa <= limit && (!best || best->isa < variant.isa)) best = &variant;
  }
  if (!best)
    throw UserError(path + " is compiled for " + names + ", but the target here is " +
                    std::string(name(limit)) + ": compile it with --isa " + std::string(name(limit)));
  return *best;
}

std::string named_operators(const Manifest& manifest) {
  std::string names;
  for (const auto& op : manifest.get<std::vector<std::string>>(manifest.json(), "extern_ops"))
    names += (names.empty() ? "" : ", ") + op;
  return names;
}

std::string_view text_of(const Archive::Member& member) {
  return {reinterpret_cast<const char*>(member.data.data()), member.data.size()};
}

// Bytes from the first to the last element of an input of known sizes; -1 if they are invalid.
int64_t extent_bytes(const TensorSpec& spec) {
  __extension__ using Wide = __int128;
  Wide last = 0;
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    const int64_t size = spec.sizes[d].constant(), stride = spec.strides[d].constant();
    if (size < 0 || stride < 0) return -1;
    if (size == 0) return 0;
    last += Wide{size - 1} * stride;
    if (last > std::numeric_limits<int64_t>::max() / 16) return -1;
  }
  return static_cast<int64_t>(last + 1) * itemsize(spec.dtype);
}

class Loader {
 public:
  Loader(const std::string& path, const LoadOptions& options, const StepReader& read_step)
      : path_(path), options_(options), read_step_(read_step) {}

  Artifact run() {
    a_.archive = std::make_shared<const Archive>(path_);
    const Manifest manifest(*a_.archive);
    a_.manifest = manifest.json().dump();
    find_torch(manifest);
    const auto all = variants(manifest);
    for (const VariantEntry& variant : all) a_.isas.push_back(variant.isa);
    const VariantEntry& chosen = choose(path_, all, options_.link);
    a_.isa = chosen.isa;
    a_.kernels = chosen.kernels;
    open_weights(manifest);
    if (options_.link && options_.packed) packed_ = PackedValues::open(*a_.archive, a_.isa);

    check_data();
    const Archive::Member& text = a_.archive->checked(chosen.program);
    std::shared_ptr<const FunctionLibrary> kernels;
    if (!chosen.kernels.empty()) {
      const Archive::Member& object = a_.archive->checked(chosen.kernels);
      if (options_.link) kernels = std::make_shared<const LoadedCode>(object.data);
    }
    Program program = parse_program(text_of(text), read_step_, std::move(kernels));
    a_.interface = std::move(program.interface);
    for (const Interface::Symbol& symbol : a_.interface.symbols)
      if (symbol.input < 0) fail("no input determines the size " + symbol.name);
    bind_constants(program);
    bind_weights(program.parts);
    a_.executable = std::make_shared<const Executable>(std::move(program.parts));
    if (packed_ && !packed_->adopt(*a_.executable, a_.versions)) {
      packed_.reset();
      check_data();
    }
    return std::move(a_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(path_ + " is damaged: " + what + "; compile the model again");
  }

  void find_torch(const Manifest& manifest) {
    const auto needed = manifest.get<std::string>(manifest.json(), "torch");
    if (needed.empty()) return;
    const std::string what =
        path_ + " calls operators of torch " + needed + " (" + named_operators(manifest) + ")";
    if (!options_.torch) throw UserError(what + ", and this program has no libtorch");
    TorchSteps torch;
    try {
      torch = options_.torch();
    } catch (const UserError& error) {
      throw UserError(what + ": " + error.what());
    }
    if (options_.link && torch.version != needed)
      throw UserError(what + ", and this process has torch " + torch.version + ": compile it again");
    read_step_ = std::move(torch.read_step);
  }

  void open_weights(const Manifest& manifest) {
    const Json entry = manifest.get<Json>(manifest.json(), "weights");
    if (manifest.get<std::string>(entry, "kind") == "embed") {
      a_.weights = a_.archive;
      return;
    }
    if (!options_.link) return;
    const std::string path = options_.weights.empty() ? weights_path(path_) : options_.weights;
    a_.weights = std::make_shared<const Archive>(path);
    if (a_.weights->identity() != manifest.get<uint32_t>(entry, "identity"))
      throw UserError(path + " does not hold the weights that " + path_ + " was compiled with");
  }

  // Checks constants, and weights that will be read, before anything is parsed or executed.
  void check_data() const {
    std::vector<std::pair<const Archive*, const Archive::Member*>> due;
    const auto add = [&](const Archive& archive, std::string_view folder) {
      for (const Archive::Member& member : archive.members())
        if (member.name.starts_with(folder) && !(packed_ && packed_->replaces(member.name)))
          due.emplace_back(&archive, &member);
    };
    add(*a_.archive, "constants/");
    if (a_.weights && options_.link && options_.verify_weights) {
      add(*a_.weights, "weights/");
      if (packed_) add(packed_->archive(), "packed/");
    }
    parallel_tasks(static_cast<int64_t>(due.size()), [&](int64_t i) { due[i].first->check(*due[i].second); });
  }

  const Archive::Member& data(const std::shared_ptr<const Archive>& archive, const std::string& name,
                              int64_t bytes) {
    const Archive::Member* member = archive->find(name);
    if (!member) fail("no member " + name);
    if (bytes < 0 || member->data.size() < static_cast<uint64_t>(bytes))
      fail("member " + name + " is smaller than its tensor");
    return *member;
  }

  void bind_constants(Program& program) {
    for (size_t b = 0; b < program.parts.buffers.size(); ++b) {
      BufferInfo& buffer = program.parts.buffers[b];
      if (buffer.kind != BufferKind::kConstant) continue;
      const Archive::Member& member = data(a_.archive, program.constants[b], buffer.bytes.constant());
      buffer.constant = std::shared_ptr<const void>(a_.archive, member.data.data());
    }
  }

  void bind_weights(const Executable::Parts& parts) {
    a_.weight_data.resize(parts.inputs.size());
    a_.versions.resize(parts.inputs.size());
    for (size_t input = 0; input < parts.inputs.size(); ++input) {
      const std::string& name = a_.interface.inputs[input].member;
      if (name.empty()) continue;
      if (!parts.inputs[input].is_static()) fail("the size of " + name + " is not known");
      if (!a_.weights) continue;
      const Archive::Member& member = data(a_.weights, name, extent_bytes(parts.inputs[input]));
      void* pointer = const_cast<std::byte*>(member.data.data());
      a_.weight_data[input] = pointer;
      a_.versions[input] = {.storage = pointer, .data = pointer, .trackable = true};
    }
  }

  const std::string& path_;
  const LoadOptions& options_;
  StepReader read_step_;
  std::optional<PackedValues> packed_;
  Artifact a_;
};

}  // namespace

void write_artifact(const std::string& path, const ArtifactParts& parts) {
  Json weights = {{"kind", "embed"}};
  if (!parts.embed_weights) {
    ArchiveWriter writer(weights_path(path));
    for (const auto& weight : parts.weights) writer.add(weight.member, weight.bytes);
    writer.finish();
    weights = {{"kind", "extern"}, {"identity", Archive(weights_path(path)).identity()}};
  }
  ArchiveWriter writer(path);
  Json isas = Json::array();
  std::map<std::string, std::string> programs;  // text -> member
  std::vector<std::pair<std::string, const std::string*>> members;
  for (const auto& variant : parts.variants) {
    const std::string folder(name(variant.isa));
    const auto [program, is_new] = programs.try_emplace(variant.program, folder + "/program.txt");
    if (is_new) members.emplace_back(program->second, &variant.program);
    const std::string kernels = variant.kernels.empty() ? "" : folder + "/kernels.so";
    if (!kernels.empty()) members.emplace_back(kernels, &variant.kernels);
    isas.push_back({{"isa", name(variant.isa)}, {"program", program->second}, {"kernels", kernels}});
  }
  const Json manifest = {
      {"format", kFormat},  {"ipex", parts.ipex_version},     {"torch", parts.torch_version},  {"isas", isas},
      {"weights", weights}, {"extern_ops", parts.extern_ops}, {"structures", parts.structures}};
  writer.add(kManifest, manifest.dump(1) + "\n");
  for (const auto& [member, text] : members) writer.add(member, *text);
  for (const auto& constant : parts.constants) writer.add(constant.member, constant.bytes);
  if (parts.embed_weights)
    for (const auto& weight : parts.weights) writer.add(weight.member, weight.bytes);
  writer.finish();
}

Artifact load_artifact(const std::string& path, const LoadOptions& options, const StepReader& read_step) {
  return Loader(path, options, read_step).run();
}

}  // namespace ipex
