// CRC-32 as in zip files (polynomial 0x04C11DB7, reflected), at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ipex {

uint32_t crc32(std::span<const std::byte> bytes);

}  // namespace ipex
