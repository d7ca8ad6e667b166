// The container of artifacts: a zip file with stored members, each beginning at a multiple of 64 bytes, so
// that a member is used where the file is mapped. Any zip tool lists and extracts it.
//
// There is one way to write a given list of members, byte for byte (ZIP64 records throughout, no times, no
// comments). The reader rebuilds every header from the directory and compares: a file with one byte changed
// anywhere is refused, by a header or by the CRC-32 of a member.
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
  // Writes beside `path`; finish() moves the file there. UserError when it cannot be written.
  explicit ArchiveWriter(const std::string& path);
  ~ArchiveWriter();
  void add(std::string name, std::span<const std::byte> data);
  void add(std::string name, std::string_view data);
  void finish();

  struct Entry {
    std::string name;
    uint64_t size = 0, offset = 0;  // of the local header
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
  // Checks everything but the contents of members. UserError: no file, or not an archive as we write them.
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
  // The member with its contents checked; UserError when it is missing or damaged.
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
