/// CRC-32C by the processor's instruction where it has one, by eight tables otherwise.
///
/// Invariant: both ways give the same number. The tables are made once, on first use. Depends on libc only.
#include "record/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "record/format.h"

#if defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) {
      crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0x82F63B78) : 0);
    }
    tables[0][i] = crc;
  }
  for (int t = 1; t < 8; t++) {
    for (int i = 0; i < 256; i++) {
      tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFF];
    }
  }
}

uint32_t dit_crc32c_table(uint32_t crc, const void *data, size_t size) {
  const unsigned char *p = data;
  pthread_once(&tables_once, make_tables);
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    uint32_t low = dit_get_u32(p) ^ crc, high = dit_get_u32(p + 4);
    crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF] ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24] ^
          tables[3][high & 0xFF] ^ tables[2][high >> 8 & 0xFF] ^ tables[1][high >> 16 & 0xFF] ^ tables[0][high >> 24];
  }
  for (; size > 0; size--) {
    crc = crc >> 8 ^ tables[0][(crc ^ *p++) & 0xFF];
  }
  return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(uint32_t crc, const unsigned char *p,
                                                                     size_t size) {
  uint64_t wide = (uint32_t)~crc;
  for (; size >= 8; size -= 8, p += 8) {
    wide = __builtin_ia32_crc32di(wide, dit_get_u64(p));
  }
  uint32_t narrow = (uint32_t)wide;
  for (; size > 0; size--) {
    narrow = __builtin_ia32_crc32qi(narrow, *p++);
  }
  return ~narrow;
}

static int has_instruction(void) {
  return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__) && defined(__linux__)
__attribute__((target("+crc"))) static uint32_t crc_by_instruction(uint32_t crc, const unsigned char *p, size_t size) {
  crc = ~crc;
  for (; size >= 8; size -= 8, p += 8) {
    crc = __crc32cd(crc, dit_get_u64(p));
  }
  for (; size > 0; size--) {
    crc = __crc32cb(crc, *p++);
  }
  return ~crc;
}

static int has_instruction(void) {
  return (getauxval(AT_HWCAP) & 1UL << 7) != 0;  // HWCAP_CRC32
}
#else
static uint32_t crc_by_instruction(uint32_t crc, const unsigned char *p, size_t size) {
  return dit_crc32c_table(crc, p, size);
}

static int has_instruction(void) {
  return 0;
}
#endif

uint32_t dit_crc32c(uint32_t crc, const void *data, size_t size) {
  return has_instruction() ? crc_by_instruction(crc, data, size) : dit_crc32c_table(crc, data, size);
}
