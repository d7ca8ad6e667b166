// See hoisting.h. There are two levels. Every call looks up the executable's sets, by comparing versions of
// tensors (and contents, where versions are not sufficient). Only after a change does it use the second
// level, the process-wide map from keys to values.
#include "runtime/hoisting.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "runtime/error.h"

namespace ipex {
namespace {

// The kind of an operand in a key.
enum KeyTag : uint64_t { kFromInput, kFromHoisted, kFromConstant };

constexpr size_t kMaxSets = 256;  // per executable

uint64_t bits(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// All live values by key. Entries of freed values are removed whenever the size of the map has doubled.
class SharedValues {
 public:
  static SharedValues& instance() {
    static SharedValues* values = new SharedValues;  // outlives executables that die at exit
    return *values;
  }
  std::shared_ptr<const HoistedValue> find(const std::vector<uint64_t>& key) {
    std::lock_guard lock(mutex_);
    const auto it = values_.find(key);
    return it == values_.end() ? nullptr : it->second.lock();
  }
  void insert(const std::vector<uint64_t>& key, const std::weak_ptr<const HoistedValue>& value) {
    std::lock_guard lock(mutex_);
    values_[key] = value;
    if (values_.size() < sweep_at_) return;
    std::erase_if(values_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<size_t>(1024, 2 * values_.size());
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<uint64_t>, std::weak_ptr<const HoistedValue>> values_;
  size_t sweep_at_ = 1024;
};

}  // namespace

// A recipe's id, unique per text while somebody holds the recipe. Ids are never reused.
struct Hoisting::Recipe {
  uint64_t id;
};

std::shared_ptr<const Hoisting::Recipe> Hoisting::intern(const std::string& text) {
  static std::atomic<uint64_t> next{0};
  if (text.empty()) return std::make_shared<Recipe>(Recipe{++next});  // equals no other recipe
  static std::mutex mutex;
  static auto* recipes = new std::map<std::string, std::weak_ptr<const Recipe>>;
  static size_t sweep_at = 1024;
  std::lock_guard lock(mutex);
  std::weak_ptr<const Recipe>& slot = (*recipes)[text];
  std::shared_ptr<const Recipe> recipe = slot.lock();
  if (!recipe) slot = recipe = std::make_shared<Recipe>(Recipe{++next});
  if (recipes->size() >= sweep_at) {
    std::erase_if(*recipes, [](const auto& entry) { return entry.second.expired(); });
    sweep_at = std::max<size_t>(1024, 2 * recipes->size());
  }
  return recipe;
}

struct Hoisting::Set {
  std::vector<InputVersion> versions;                       // in the order of inputs_
  std::vector<uint64_t> contents;                           // checksums of the inputs; 0: not known
  std::vector<std::shared_ptr<const HoistedValue>> values;  // in the order of kept_

  // Whether a storage that it was computed from is freed.
  bool expired() const {
    return std::any_of(values.begin(), values.end(), [](const auto& value) {
      return std::any_of(value->pins.begin(), value->pins.end(),
                         [](const auto& pin) { return !pin->alive(); });
    });
  }
};

// The inputs of hoisted steps in one call, in the order of inputs_.
class Hoisting::Call {
 public:
  Call(const Hoisting& hoisting, std::span<const InputVersion> all, const int64_t* symbols)
      : hoisting_(hoisting), all_(all), symbols_(symbols) {}

  size_t count() const { return hoisting_.inputs_.size(); }
  const InputVersion& version(size_t i) const {
    static const InputVersion kUnknown;
    return all_.empty() ? kUnknown : all_[hoisting_.inputs_[i]];
  }
  std::vector<InputVersion> versions() const {
    std::vector<InputVersion> versions;
    for (size_t i = 0; i < count(); ++i) versions.push_back(version(i));
    return versions;
  }

  // The checksum of an input, computed on first use; 0 for memory whose writes are all counted.
  uint64_t contents(size_t i) {
    contents_.resize(count());
    const InputVersion& v = version(i);
    if (!contents_[i] && v.memory)
      contents_[i] = v.memory->checksum(v.data, span_bytes(hoisting_.parts_.inputs[hoisting_.inputs_[i]]));
    return contents_[i];
  }
  void forget_contents() { contents_.clear(); }

  bool matches(const Set& set) {
    for (size_t i = 0; i < count(); ++i) {
      if (!is_same_tensor(version(i), set.versions[i])) return false;
      if (is_unwritten(version(i), set.versions[i])) continue;
      if (!set.contents[i] || contents(i) != set.contents[i]) return false;
    }
    return true;
  }

  // Whether the set was computed from earlier contents of this call's tensors, so that it cannot be used
  // again.
  bool invalidates(const Set& set) const {
    for (size_t i = 0; i < count(); ++i)
      if (version(i).storage != set.versions[i].storage || version(i).data != set.versions[i].data)
        return false;
    return true;
  }

  // Reuses checksums of a stale set for inputs that cannot have changed.
  void take_contents(const Set& stale) {
    contents_.resize(count());
    for (size_t i = 0; i < count(); ++i)
      if (is_same_tensor(version(i), stale.versions[i]) && is_unwritten(version(i), stale.versions[i]))
        contents_[i] = stale.contents[i];
  }

  // A matching set, updated with the versions of this call, so that inputs that are no longer exposed need
  // not be compared again.
  std::shared_ptr<const Set> refreshed(const std::shared_ptr<const Set>& set) const {
    for (size_t i = 0; i < count(); ++i) {
      const InputVersion &now = version(i), &then = set->versions[i];
      if (now.written == then.written && now.exposed == then.exposed) continue;
      auto renewed = std::make_shared<Set>(*set);
      renewed->versions = versions();
      return renewed;
    }
    return set;
  }

 private:
  static bool is_same_tensor(const InputVersion& now, const InputVersion& then) {
    return now.trackable && then.trackable && now.storage == then.storage && now.data == then.data &&
           now.version == then.version;
  }
  // An input that was exposed then may have been written to before it ceased to be.
  static bool is_unwritten(const InputVersion& now, const InputVersion& then) {
    return now.written == then.written && !now.exposed && !then.exposed;
  }

  // Bytes from the first to the last element.
  size_t span_bytes(const TensorSpec& spec) const {
    TensorView view;
    for (const SizeExpr& size : spec.sizes) view.sizes.push_back(size.eval(symbols_));
    for (const SizeExpr& stride : spec.strides) view.strides.push_back(stride.eval(symbols_));
    return static_cast<size_t>(view.extent()) * itemsize(spec.dtype);
  }

  const Hoisting& hoisting_;
  const std::span<const InputVersion> all_;
  const int64_t* const symbols_;
  std::vector<uint64_t> contents_;
};

// All Hoisting objects of the process.
class Hoisting::Registry {
 public:
  static Registry& instance() {
    static Registry* registry = new Registry;
    return *registry;
  }
  void add(Hoisting* hoisting) {
    std::lock_guard lock(mutex_);
    all_.insert(hoisting);
  }
  void remove(Hoisting* hoisting) {
    std::lock_guard lock(mutex_);
    all_.erase(hoisting);
  }
  void release_dead() {
    std::vector<std::shared_ptr<const Set>> dead;  // freed after the locks are released
    std::lock_guard lock(mutex_);
    for (Hoisting* hoisting : all_) {
      std::lock_guard sets(hoisting->mutex_);
      std::ranges::move(hoisting->take_sets(&Set::expired), std::back_inserter(dead));
    }
  }

 private:
  std::mutex mutex_;
  std::set<Hoisting*> all_;
};

void Hoisting::release_dead() { Registry::instance().release_dead(); }

Hoisting::Hoisting(const Executable::Parts& parts) : parts_(parts) {
  std::vector<bool> made(parts.buffers.size(), false), read(parts.buffers.size(), false);
  for (size_t i = 0; i < parts.steps.size(); ++i) {
    const Step& step = *parts.steps[i];
    if (!parts.hoisted[i]) {
      for (int buffer : step.reads) read[buffer] = true;
      continue;
    }
    hoisted_steps_.push_back({static_cast<int>(i), intern(step.recipe)});
    for (int buffer : step.writes) made[buffer] = true;
    for (int buffer : step.reads) {
      const BufferInfo& info = parts.buffers[buffer];
      if (info.kind == BufferKind::kInput &&
          std::find(inputs_.begin(), inputs_.end(), info.index) == inputs_.end())
        inputs_.push_back(info.index);
    }
  }
  for (size_t buffer = 0; buffer < made.size(); ++buffer)
    if (made[buffer] && read[buffer]) kept_.push_back(static_cast<int>(buffer));
  Registry::instance().add(this);
}

Hoisting::~Hoisting() { Registry::instance().remove(this); }

bool Hoisting::keeps(int buffer) const {
  return std::any_of(hoisted_steps_.begin(), hoisted_steps_.end(), [&](const HoistedStep& hoisted) {
    const std::vector<int>& writes = parts_.steps[hoisted.step]->writes;
    return std::find(writes.begin(), writes.end(), buffer) != writes.end();
  });
}

std::vector<const void*> Hoisting::values() {
  std::lock_guard lock(mutex_);
  std::vector<const void*> data;
  if (last_ < sets_.size())
    for (const auto& value : sets_[last_]->values) data.push_back(value->data);
  return data;
}

void Hoisting::adopt(std::span<const void* const> values, const std::shared_ptr<const void>& owner,
                     std::span<const InputVersion> versions) {
  IPEX_CHECK(values.size() == kept_.size(), "a value for each kept buffer");
  auto set = std::make_shared<Set>();
  set->versions = Call(*this, versions, nullptr).versions();
  set->contents.resize(inputs_.size());
  for (const void* data : values) {
    auto value = std::make_shared<HoistedValue>();
    value->data = const_cast<void*>(data);  // later steps only read it
    value->owner = owner;
    set->values.push_back(std::move(value));
  }
  std::lock_guard lock(mutex_);
  sets_ = {std::move(set)};
  last_ = 0;
}

// Starts with the last call's set: usually the same set, or that of the next layer, is needed.
std::shared_ptr<const Hoisting::Set> Hoisting::find(Call& call) {
  for (size_t i = 0;; ++i) {
    std::unique_lock lock(mutex_);
    if (i >= sets_.size()) return nullptr;
    const size_t place = (last_ + i) % sets_.size();
    const std::shared_ptr<const Set> set = sets_[place];
    const bool is_last = place == last_;
    lock.unlock();  // the comparison may read contents
    if (!call.matches(*set)) continue;
    std::shared_ptr<const Set> renewed = call.refreshed(set);
    if (is_last && renewed == set) return set;
    lock.lock();
    if (place < sets_.size() && sets_[place] == set) {
      sets_[place] = renewed;
      last_ = place;
    }
    return renewed;
  }
}

std::vector<std::shared_ptr<const Hoisting::Set>> Hoisting::take_sets(auto condition) {
  const auto taken = std::stable_partition(sets_.begin(), sets_.end(),
                                           [&](const auto& set) { return !std::invoke(condition, *set); });
  std::vector<std::shared_ptr<const Set>> sets(std::make_move_iterator(taken),
                                               std::make_move_iterator(sets_.end()));
  sets_.erase(taken, sets_.end());
  return sets;
}

std::shared_ptr<const void> Hoisting::bind(RunContext& context, const std::function<void(int)>& run_step) {
  Call call(*this, context.versions_, context.symbols_);
  std::shared_ptr<const Set> set = find(call);
  if (!set) {
    std::lock_guard computing(computing_);
    call.forget_contents();  // they may have changed while waiting for the lock
    set = find(call);
    if (!set) {
      set = compute(context, run_step, call);
      if (std::ranges::all_of(set->versions, &InputVersion::trackable)) {
        std::lock_guard lock(mutex_);
        if (sets_.size() == kMaxSets) sets_.erase(sets_.begin());
        sets_.push_back(set);
        last_ = sets_.size() - 1;
      }
    }
  }
  for (size_t i = 0; i < kept_.size(); ++i) context.buffers_[kept_[i]] = set->values[i]->data;
  return set;
}

// Keys by buffer. A key is empty if an operand is not trackable.
std::vector<Hoisting::Key> Hoisting::keys(Call& call) const {
  std::vector<Key> keys(parts_.buffers.size());
  for (const HoistedStep& hoisted : hoisted_steps_) {
    const Step& step = *parts_.steps[hoisted.step];
    Key key = {hoisted.recipe->id};
    bool known = true;
    for (int buffer : step.reads) {
      const BufferInfo& info = parts_.buffers[buffer];
      if (info.kind == BufferKind::kInput) {
        const size_t input = std::find(inputs_.begin(), inputs_.end(), info.index) - inputs_.begin();
        const InputVersion& version = call.version(input);
        known = known && version.trackable;
        key.insert(key.end(), {kFromInput, bits(version.storage), bits(version.data), version.version,
                               call.contents(input)});
      } else if (info.kind == BufferKind::kConstant) {
        // Recipes do not describe constants, so the key is the address of this executable's constant.
        key.insert(key.end(), {kFromConstant, bits(info.constant.get())});
      } else {
        known = known && !keys[buffer].empty();
        key.insert(key.end(), {kFromHoisted, keys[buffer].size()});
        key.insert(key.end(), keys[buffer].begin(), keys[buffer].end());
      }
    }
    for (size_t w = 0; known && w < step.writes.size(); ++w) {
      keys[step.writes[w]] = key;
      keys[step.writes[w]].push_back(w);
    }
  }
  return keys;
}

std::shared_ptr<const Hoisting::Set> Hoisting::compute(RunContext& context,
                                                       const std::function<void(int)>& run_step, Call& call) {
  release_dead();
  // Pin storages before contents are read, so that later writes are noticed. Pin them before the old values,
  // and with them maybe the last pins, are released: information about a storage is kept only while it is
  // pinned.
  std::vector<std::shared_ptr<const StoragePin>> pins;
  for (const InputVersion& version : call.versions())
    if (version.memory) pins.push_back(version.memory->pin(version.storage));
  std::vector<std::shared_ptr<const Set>> stale;
  {
    std::lock_guard lock(mutex_);
    stale = take_sets([&](const Set& set) { return call.invalidates(set); });
  }
  for (const auto& set : stale) call.take_contents(*set);
  const std::vector<Key> keys = this->keys(call);
  std::vector<std::shared_ptr<const HoistedValue>> found(parts_.buffers.size());
  std::vector<bool> needed(parts_.buffers.size(), false);
  for (int buffer : kept_) needed[buffer] = true;

  // Backwards: a value that is found needs neither its step nor the operands of that step.
  std::vector<int> due;
  for (auto hoisted = hoisted_steps_.rbegin(); hoisted != hoisted_steps_.rend(); ++hoisted) {
    const Step& step = *parts_.steps[hoisted->step];
    bool missing = false;
    for (int buffer : step.writes) {
      if (!needed[buffer]) continue;
      if (!keys[buffer].empty()) found[buffer] = SharedValues::instance().find(keys[buffer]);
      missing = missing || !found[buffer];
    }
    if (!missing) continue;
    due.push_back(hoisted->step);
    for (int buffer : step.reads) needed[buffer] = true;
  }
  std::reverse(due.begin(), due.end());
  // Values that only other hoisted steps read are freed after the last of these steps.
  std::vector<int> last_reader(parts_.buffers.size(), -1);
  for (int index : due)
    for (int buffer : parts_.steps[index]->reads) last_reader[buffer] = index;
  for (int buffer : kept_) last_reader[buffer] = -1;

  // Free stale values that were not found again, so that the new values can reuse their memory.
  stale.clear();

  std::vector<std::shared_ptr<const void>> constants;
  for (const BufferInfo& buffer : parts_.buffers)
    if (buffer.kind == BufferKind::kConstant) constants.push_back(buffer.constant);

  for (size_t buffer = 0; buffer < found.size(); ++buffer)
    if (found[buffer]) context.buffers_[buffer] = found[buffer]->data;
  std::vector<std::pair<int, std::weak_ptr<const HoistedValue>>> made;  // by buffer
  for (int index : due) {
    const Step& step = *parts_.steps[index];
    std::vector<std::shared_ptr<HoistedValue>> values;
    for (int buffer : step.writes) {
      auto value = std::make_shared<HoistedValue>();
      value->pins = pins;
      value->constants = constants;
      if (parts_.buffers[buffer].kind != BufferKind::kProvided) {
        value->block = allocate_block(parts_.buffers[buffer].bytes.eval(context.symbols_));
        context.buffers_[buffer] = value->data = value->block.get();
      }
      values.push_back(std::move(value));
    }
    run_step(index);
    for (size_t w = 0; w < values.size(); ++w) {
      const int buffer = step.writes[w];
      if (parts_.buffers[buffer].kind == BufferKind::kProvided) {
        values[w]->data = context.buffers_[buffer];
        values[w]->owner = std::move(context.owners_[buffer]);
      }
      if (!keys[buffer].empty()) made.emplace_back(buffer, values[w]);
      found[buffer] = std::move(values[w]);
    }
    for (int buffer : step.reads)
      if (last_reader[buffer] == index) found[buffer].reset();
  }

  auto set = std::make_shared<Set>();
  set->versions = call.versions();
  bool disturbed = false;
  for (size_t i = 0; i < call.count(); ++i) {
    const InputVersion& version = call.version(i);
    // After a write in the meantime it is unknown which contents the values were computed from.
    const bool written = version.memory && version.memory->written(version.storage) != version.written;
    set->contents.push_back(written ? 0 : call.contents(i));
    disturbed = disturbed || written;
  }
  for (const auto& [buffer, value] : made)
    if (!disturbed) SharedValues::instance().insert(keys[buffer], value);
  for (int buffer : kept_) {
    IPEX_CHECK(found[buffer] != nullptr, "a hoisted buffer has a step that makes it");
    set->values.push_back(found[buffer]);
  }
  return set;
}

}  // namespace ipex
