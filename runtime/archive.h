// The container of artifacts: a zip file with uncompressed members. Each member begins at a multiple of 64
// bytes, so that it can be used directly in the mapped file. Any zip tool can list and extract it.
//
// The encoding of a list of members is unique (ZIP64 records throughout, no times, no comments). The reader
// rebuilds every header from the directory and compares. So a change of any byte is detected, by a header or
// by the CRC-32 of a member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ipex {

class ArchiveWriter {
 public:
  // Writes to a temporary file next to `path`; finish() renames it. UserError when it cannot be written.
  explicit ArchiveWriter(const std::string& path);
  ~ArchiveWriter();
  void add(std::string name, std::span<const std::byte> data);
  void add(std::string name, std::string_view data);
  void finish();

  struct Entry {
    std::string name;
    uint64_t size = 0;
    uint64_t offset = 0;  // of the local header
    uint32_t crc = 0;
  };

 private:
  void write(std::string_view bytes);
  std::string path_, temporary_;
  std::ofstream file_;
  uint64_t at_ = 0;
  std::vector<Entry> entries_;
};

// A mapped file, read-only and shared with other processes. Thread-safe.
class Archive {
 public:
  // Checks everything except the contents of members. UserError when the file cannot be read or is not an
  // archive as ArchiveWriter writes them.
  explicit Archive(const std::string& path);
  ~Archive();
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  struct Member {
    std::string name;
    std::span<const std::byte> data;
    uint32_t crc = 0;
  };
  const std::vector<Member>& members() const { return members_; }
  const Member* find(std::string_view name) const;
  // The member, after a check of its contents; UserError when it is missing or damaged.
  const Member& checked(std::string_view name) const;
  void check(const Member& member) const;
  const std::string& path() const { return path_; }
  // A checksum over the names, sizes and checksums of all members.
  uint32_t identity() const;

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void read_directory();
  std::string path_;
  std::span<const std::byte> file_;
  std::vector<Member> members_;  // sorted by name
};

}  // namespace ipex
