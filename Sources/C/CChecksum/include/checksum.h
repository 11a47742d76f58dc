#pragma once
#include <stddef.h>
#include <stdint.h>

/// CRC-32C of `count` bytes, by the processor's instruction if it has one. Source: RFC 3720, section 12.1 and appendix
/// B.4.
uint32_t crc32c(const void *bytes, size_t count);
