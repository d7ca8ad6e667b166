// Archives are aligned and reproducible, and a change of any byte is detected.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/archive.h"
#include "runtime/crc32.h"
#include "runtime/error.h"

namespace ipex {
namespace {

class ArchiveTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    // Use a unique name, because other builds may run the same test at the same time.
    path_ = std::filesystem::temp_directory_path() /
            ("ipex-" + std::to_string(getpid()) + "-" + info->name() + ".zip");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string written() {
    ArchiveWriter writer(path_);
    writer.add("manifest.json", "{}");
    writer.add("weights/a.b", std::string(1000, 'w'));
    writer.add("weights/empty", "");
    writer.finish();
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes; }

  // Opens the archive and checks every member.
  bool is_accepted() {
    try {
      const Archive archive(path_);
      for (const Archive::Member& member : archive.members()) archive.check(member);
      return true;
    } catch (const UserError&) {
      return false;
    }
  }
  std::string path_;
};

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Crc32, MatchesTheDefinition) {
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xcbf43926u);
  EXPECT_EQ(crc32({}), 0u);
  std::string text;
  for (int i = 0; i < 700; ++i) text += static_cast<char>(i * 131 + 7);
  for (size_t size = 0; size < text.size(); ++size) {
    uint32_t expected = ~0u;
    for (size_t i = 0; i < size; ++i) {
      expected ^= static_cast<unsigned char>(text[i]);
      for (int bit = 0; bit < 8; ++bit) expected = expected >> 1 ^ (expected & 1 ? 0xedb88320u : 0u);
    }
    EXPECT_EQ(crc32(bytes_of(text.substr(0, size))), ~expected) << size;
  }
}

TEST_F(ArchiveTest, MembersAreAlignedAndFound) {
  const std::string bytes = written();
  EXPECT_EQ(bytes, written());
  const Archive archive(path_);
  ASSERT_EQ(archive.members().size(), 3u);
  for (const Archive::Member& member : archive.members()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(member.data.data()) % 64, 0u);
    archive.check(member);
  }
  EXPECT_EQ(archive.checked("weights/a.b").data.size(), 1000u);
  EXPECT_EQ(archive.find("weights"), nullptr);
  EXPECT_THROW(archive.checked("weights"), UserError);
}

TEST_F(ArchiveTest, NoByteChangesUnnoticed) {
  const std::string good = written();
  ASSERT_TRUE(is_accepted());
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      write(bad);
      EXPECT_FALSE(is_accepted()) << "byte " << i;
    }
  }
}

TEST_F(ArchiveTest, TruncatedAndExtendedFilesAreRefused) {
  const std::string good = written();
  for (size_t size = 0; size < good.size(); ++size) {
    write(good.substr(0, size));
    EXPECT_FALSE(is_accepted()) << size;
    write(good.substr(size + 1));
    EXPECT_FALSE(is_accepted()) << size;
  }
  write(good + good);
  EXPECT_FALSE(is_accepted());
  EXPECT_THROW(Archive("/nonexistent/file"), UserError);
  EXPECT_THROW(Archive("/"), UserError);
  EXPECT_THROW(ArchiveWriter("/nonexistent/file"), UserError);
}

}  // namespace
}  // namespace ipex
