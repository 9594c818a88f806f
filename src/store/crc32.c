/// CRC-32 by carry-less multiplication (x86-64), by the CRC instruction (aarch64), else by sixteen tables.
///
/// Invariant: all ways give the same number. x86-64: four 128-bit remainders are carried forward over 64 bytes a step:
/// a remainder X = (high, low) stands for X * x^D with D the bits in between, and low * (x^(D+32) mod P) + high *
/// (x^(D-32) mod P) is congruent to it (the exponents are those of the bit-reflected form). What is left, 16 bytes,
/// goes through the tables. Constants and tables are computed once, on first use. Depends on record's byte readers.
#include "store/crc32.h"

#include <pthread.h>
#include <string.h>

#include "record/format.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

#define POLYNOMIAL UINT32_C(0xEDB88320)  // reflected

static uint32_t tables[16][256];
static uint64_t fold_far[2], fold_near[2];  // over 64 bytes and over 16
static int has_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/// x^n mod P, reflected and shifted by one as the reflected product wants it.
static uint64_t get_power(int n) {
  uint32_t value = UINT32_C(1) << 31;  // x^0
  for (int i = 0; i < n; i++) {
    value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
  }
  return (uint64_t)value << 1;
}

static int find_instruction(void) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#elif defined(__aarch64__) && defined(__linux__)
  return (getauxval(AT_HWCAP) & 1UL << 7) != 0;  // HWCAP_CRC32
#else
  return 0;
#endif
}

static void prepare(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) {
      crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
    }
    tables[0][i] = crc;
  }
  for (int t = 1; t < 16; t++) {
    for (int i = 0; i < 256; i++) {
      tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFF];
    }
  }
  fold_far[0] = get_power(4 * 128 + 32);
  fold_far[1] = get_power(4 * 128 - 32);
  fold_near[0] = get_power(128 + 32);
  fold_near[1] = get_power(128 - 32);
  has_instruction = find_instruction();
}

/// On the register itself: no inversion.
static uint32_t take_table(uint32_t crc, const unsigned char *p, size_t size) {
  for (; size >= 16; size -= 16, p += 16) {
    uint32_t word[4] = {dit_get_u32(p) ^ crc, dit_get_u32(p + 4), dit_get_u32(p + 8), dit_get_u32(p + 12)};
    crc = 0;
    for (int i = 0; i < 4; i++) {
      uint32_t(*t)[256] = &tables[12 - 4 * i];
      crc ^= t[3][word[i] & 0xFF] ^ t[2][word[i] >> 8 & 0xFF] ^ t[1][word[i] >> 16 & 0xFF] ^ t[0][word[i] >> 24];
    }
  }
  for (; size > 0; size--) {
    crc = crc >> 8 ^ tables[0][(crc ^ *p++) & 0xFF];
  }
  return crc;
}

#if defined(__x86_64__)
#define FOLD_TARGET __attribute__((target("pclmul,sse4.1")))

FOLD_TARGET static inline __m128i load(const unsigned char *p) {
  return _mm_loadu_si128((const __m128i *)(const void *)p);
}

FOLD_TARGET static inline __m128i fold(__m128i x, __m128i k, __m128i next) {
  __m128i low = _mm_clmulepi64_si128(x, k, 0x00), high = _mm_clmulepi64_si128(x, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FOLD_TARGET static uint32_t take_instruction(uint32_t crc, const unsigned char *p, size_t size) {
  if (size < 64) {
    return take_table(crc, p, size);
  }
  const __m128i far = _mm_set_epi64x((long long)fold_far[1], (long long)fold_far[0]);
  const __m128i near = _mm_set_epi64x((long long)fold_near[1], (long long)fold_near[0]);
  __m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)crc));
  __m128i b = load(p + 16), c = load(p + 32), d = load(p + 48);
  for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
    a = fold(a, far, load(p));
    b = fold(b, far, load(p + 16));
    c = fold(c, far, load(p + 32));
    d = fold(d, far, load(p + 48));
  }
  a = fold(fold(fold(a, near, b), near, c), near, d);
  for (; size >= 16; p += 16, size -= 16) {
    a = fold(a, near, load(p));
  }
  unsigned char rest[16];
  _mm_storeu_si128((__m128i *)(void *)rest, a);
  return take_table(take_table(0, rest, sizeof(rest)), p, size);
}
#elif defined(__aarch64__) && defined(__linux__)
__attribute__((target("+crc"))) static uint32_t take_instruction(uint32_t crc, const unsigned char *p, size_t size) {
  for (; size >= 8; size -= 8, p += 8) {
    crc = __crc32d(crc, dit_get_u64(p));
  }
  for (; size > 0; size--) {
    crc = __crc32b(crc, *p++);
  }
  return crc;
}
#else
static uint32_t take_instruction(uint32_t crc, const unsigned char *p, size_t size) {
  return take_table(crc, p, size);
}
#endif

uint32_t dit_crc32_table(uint32_t crc, const void *data, size_t size) {
  pthread_once(&once, prepare);
  return ~take_table(~crc, data, size);
}

uint32_t dit_crc32(uint32_t crc, const void *data, size_t size) {
  pthread_once(&once, prepare);
  return ~(has_instruction ? take_instruction(~crc, data, size) : take_table(~crc, data, size));
}
