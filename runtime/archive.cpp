// See archive.h. Numbers are little-endian, as on every machine we compile for.
#include "runtime/archive.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/alignment.h"
#include "runtime/crc32.h"
#include "runtime/error.h"

namespace ipex {
namespace {

constexpr uint16_t kVersion = 45;         // of the zip format: ZIP64
constexpr uint16_t kUtf8 = 0x0800;        // flag: names are UTF-8
constexpr uint16_t kFirstDay = 0x0021;    // 1980-01-01
constexpr uint16_t kZip64Field = 0x0001;  // of extra data
constexpr uint16_t kPaddingField = 0xd935;
constexpr uint32_t kInField = 0xffffffff;  // placeholder: the value is in the ZIP64 field
constexpr size_t kDirectoryEntry = 46, kDirectoryExtra = 28;
constexpr size_t kTail = 56 + 20 + 22;
constexpr size_t kMaxNameBytes = 4096;

template <class... Numbers>
void append(std::string& bytes, Numbers... numbers) {
  (bytes.append(reinterpret_cast<const char*>(&numbers), sizeof(numbers)), ...);
}

template <class Number>
Number number_at(std::span<const std::byte> bytes, size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

std::string local_header(const ArchiveWriter::Entry& e) {
  constexpr size_t kFixed = 30 + 20 + 4;
  const uint64_t unpadded = e.offset + kFixed + e.name.size();
  const auto padding = static_cast<uint16_t>(aligned(static_cast<int64_t>(unpadded)) - unpadded);
  std::string bytes;
  append(bytes, uint32_t{0x04034b50}, kVersion, kUtf8, uint16_t{0}, uint16_t{0}, kFirstDay, e.crc, kInField,
         kInField, static_cast<uint16_t>(e.name.size()), static_cast<uint16_t>(24 + padding));
  bytes += e.name;
  append(bytes, kZip64Field, uint16_t{16}, e.size, e.size, kPaddingField, padding);
  bytes.append(padding, '\0');
  return bytes;
}

std::string directory_entry(const ArchiveWriter::Entry& e) {
  std::string bytes;
  append(bytes, uint32_t{0x02014b50}, kVersion, kVersion, kUtf8, uint16_t{0}, uint16_t{0}, kFirstDay, e.crc,
         kInField, kInField, static_cast<uint16_t>(e.name.size()), static_cast<uint16_t>(kDirectoryExtra),
         uint16_t{0}, uint16_t{0}, uint16_t{0}, uint32_t{0}, kInField);
  bytes += e.name;
  append(bytes, kZip64Field, uint16_t{24}, e.size, e.size, e.offset);
  return bytes;
}

std::string tail(uint64_t count, uint64_t directory_bytes, uint64_t directory_offset) {
  std::string bytes;
  append(bytes, uint32_t{0x06064b50}, uint64_t{44}, kVersion, kVersion, uint32_t{0}, uint32_t{0}, count,
         count, directory_bytes, directory_offset);
  append(bytes, uint32_t{0x07064b50}, uint32_t{0}, directory_offset + directory_bytes, uint32_t{1});
  append(bytes, uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, uint16_t{0xffff}, uint16_t{0xffff}, kInField,
         kInField, uint16_t{0});
  return bytes;
}

}  // namespace

ArchiveWriter::ArchiveWriter(const std::string& path) : path_(path), temporary_(path + ".part") {
  file_.open(temporary_, std::ios::binary | std::ios::trunc);
  if (!file_) throw UserError("cannot write " + path + ": " + std::strerror(errno));
}

ArchiveWriter::~ArchiveWriter() {
  if (!temporary_.empty()) std::remove(temporary_.c_str());
}

void ArchiveWriter::write(std::string_view bytes) {
  file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file_) throw UserError("cannot write " + path_ + ": " + std::strerror(errno));
  at_ += bytes.size();
}

void ArchiveWriter::add(std::string name, std::span<const std::byte> data) {
  if (name.empty() || name.size() > kMaxNameBytes) throw UserError("bad name of a member: '" + name + "'");
  entries_.push_back({std::move(name), data.size(), at_, crc32(data)});
  write(local_header(entries_.back()));
  write({reinterpret_cast<const char*>(data.data()), data.size()});
}

void ArchiveWriter::add(std::string name, std::string_view data) {
  add(std::move(name), std::as_bytes(std::span(data)));
}

void ArchiveWriter::finish() {
  const uint64_t directory = at_;
  for (const Entry& entry : entries_) write(directory_entry(entry));
  write(tail(entries_.size(), at_ - directory, directory));
  file_.close();
  if (!file_ || std::rename(temporary_.c_str(), path_.c_str()) != 0)
    throw UserError("cannot write " + path_ + ": " + std::strerror(errno));
  temporary_.clear();
}

Archive::Archive(const std::string& path) : path_(path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw UserError("cannot read " + path + ": " + std::strerror(errno));
  struct stat info{};
  const bool plain = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  const auto size = plain ? static_cast<size_t>(info.st_size) : 0;
  void* data = size < kTail ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  const int error = errno;
  close(file);
  if (size < kTail) fail("it is too short");
  if (data == MAP_FAILED) throw UserError("cannot map " + path + ": " + std::strerror(error));
  file_ = {static_cast<const std::byte*>(data), size};
  try {
    read_directory();
  } catch (...) {
    munmap(data, size);
    throw;
  }
}

Archive::~Archive() { munmap(const_cast<std::byte*>(file_.data()), file_.size()); }

void Archive::fail(const std::string& what) const {
  throw UserError(path_ + " is not an artifact, or it is damaged: " + what +
                  ". Copy it again, or compile the model again");
}

void Archive::read_directory() {
  const auto matches = [&](size_t at, std::string_view expected) {
    return std::memcmp(file_.data() + at, expected.data(), expected.size()) == 0;
  };
  // Three numbers determine everything in the tail. The file's size limits them.
  const size_t tail_at = file_.size() - kTail;
  const auto count = number_at<uint64_t>(file_, tail_at + 24);
  const auto directory_bytes = number_at<uint64_t>(file_, tail_at + 40);
  const auto directory = number_at<uint64_t>(file_, tail_at + 48);
  if (directory > tail_at || directory_bytes != tail_at - directory ||
      count > directory_bytes / (kDirectoryEntry + kDirectoryExtra) ||
      !matches(tail_at, tail(count, directory_bytes, directory)))
    fail("it does not end like an archive");

  size_t at = directory;
  uint64_t next = 0;  // where the next local header lies
  for (uint64_t i = 0; i < count; ++i) {
    if (tail_at - at < kDirectoryEntry + kDirectoryExtra) fail("its directory is truncated");
    const size_t name_bytes = number_at<uint16_t>(file_, at + 28);
    const size_t entry_bytes = kDirectoryEntry + name_bytes + kDirectoryExtra;
    if (name_bytes == 0 || name_bytes > kMaxNameBytes || entry_bytes > tail_at - at)
      fail("its directory has a name that is too long");
    ArchiveWriter::Entry entry;
    entry.name.assign(reinterpret_cast<const char*>(file_.data() + at + kDirectoryEntry), name_bytes);
    entry.crc = number_at<uint32_t>(file_, at + 16);
    entry.size = number_at<uint64_t>(file_, at + kDirectoryEntry + name_bytes + 4);
    entry.offset = next;
    const std::string header = local_header(entry);
    if (!matches(at, directory_entry(entry))) fail("its directory is malformed");
    if (header.size() > directory - next || entry.size > directory - next - header.size())
      fail("member " + entry.name + " is larger than the file");
    if (!matches(next, header)) fail("the header of member " + entry.name + " is malformed");
    members_.push_back({entry.name, file_.subspan(next + header.size(), entry.size), entry.crc});
    next += header.size() + entry.size;
    at += entry_bytes;
  }
  if (at != tail_at || next != directory) fail("it has bytes that its directory does not list");
  std::ranges::sort(members_, {}, &Member::name);
  for (size_t i = 1; i < members_.size(); ++i)
    if (members_[i].name == members_[i - 1].name) fail("it has two members named " + members_[i].name);
}

const Archive::Member* Archive::find(std::string_view name) const {
  const auto it = std::ranges::lower_bound(members_, name, {},
                                           [](const Member& m) -> std::string_view { return m.name; });
  return it == members_.end() || it->name != name ? nullptr : &*it;
}

uint32_t Archive::identity() const {
  std::string text;
  for (const Member& member : members_)
    text += member.name + " " + std::to_string(member.data.size()) + " " + std::to_string(member.crc) + "\n";
  return crc32(std::as_bytes(std::span(text)));
}

void Archive::check(const Member& member) const {
  if (crc32(member.data) != member.crc) fail("member " + member.name + " has a wrong checksum");
}

const Archive::Member& Archive::checked(std::string_view name) const {
  const Member* member = find(name);
  if (!member) fail("it has no member " + std::string(name));
  check(*member);
  return *member;
}

}  // namespace ipex
