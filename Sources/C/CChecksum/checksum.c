#include "checksum.h"

#include <string.h>

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t by_instruction(const unsigned char *bytes, size_t count) {
  uint64_t crc = UINT32_MAX;
  for (; count >= 8; count -= 8, bytes += 8) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    crc = __builtin_ia32_crc32di(crc, word);
  }
  for (; count > 0; count--) crc = __builtin_ia32_crc32qi((uint32_t)crc, *bytes++);
  return ~(uint32_t)crc;
}

static int has_instruction(void) { return __builtin_cpu_supports("sse4.2"); }

#elif defined(__aarch64__)

#include <sys/auxv.h>

__attribute__((target("crc"))) static uint32_t by_instruction(const unsigned char *bytes, size_t count) {
  uint32_t crc = UINT32_MAX;
  for (; count >= 8; count -= 8, bytes += 8) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    crc = __builtin_arm_crc32cd(crc, word);
  }
  for (; count > 0; count--) crc = __builtin_arm_crc32cb(crc, *bytes++);
  return ~crc;
}

static int has_instruction(void) { return (getauxval(AT_HWCAP) & (1 << 7)) != 0; /* HWCAP_CRC32 */ }

#else

static uint32_t by_instruction(const unsigned char *bytes, size_t count) { return 0; }
static int has_instruction(void) { return 0; }

#endif

/// Four bits at a time.
static uint32_t by_table(const unsigned char *bytes, size_t count) {
  static const uint32_t table[16] = {
      0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
      0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
  };
  uint32_t crc = UINT32_MAX;
  for (; count > 0; count--) {
    crc ^= *bytes++;
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return ~crc;
}

uint32_t crc32c(const void *bytes, size_t count) {
  return has_instruction() ? by_instruction(bytes, count) : by_table(bytes, count);
}
