/// Philox against the known answers of its authors, and the seed mixer.
#include "check.h"
#include "dit/random.h"

/// Random123's kat_vectors, philox4x32 with 10 rounds.
static void test_known_answers(void) {
  static const struct {
    uint64_t seed, subsequence, offset;
    uint32_t expected[4];
  } cases[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {UINT64_C(0x299f31d0a4093822),
       UINT64_C(0x0370734413198a2e),
       UINT64_C(0x85a308d3243f6a88),
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (int i = 0; i < 3; i++) {
    uint32_t out[4];
    dit_philox_generate(cases[i].seed, cases[i].subsequence, cases[i].offset, out);
    CHECK(memcmp(out, cases[i].expected, sizeof(out)) == 0);
  }
}

/// Every argument moves about half of the bits.
static void test_avalanche(void) {
  uint32_t base[4], other[4];
  dit_philox_generate(42, 7, 9, base);
  for (int bit = 0; bit < 64; bit++) {
    uint64_t flip = UINT64_C(1) << bit;
    for (int which = 0; which < 3; which++) {
      dit_philox_generate(42 ^ (which == 0 ? flip : 0), 7 ^ (which == 1 ? flip : 0), 9 ^ (which == 2 ? flip : 0),
                          other);
      int changed = 0;
      for (int i = 0; i < 4; i++) {
        changed += __builtin_popcount(base[i] ^ other[i]);
      }
      CHECK(changed > 30 && changed < 98);
    }
  }
}

/// Neighbouring (seed, offset) pairs, also those with equal sums, give different seeds.
static void test_mix(void) {
  enum { SIDE = 64 };
  static uint64_t seen[SIDE * SIDE];
  for (uint64_t seed = 0; seed < SIDE; seed++) {
    for (uint64_t offset = 0; offset < SIDE; offset++) {
      uint64_t mixed = dit_random_mix(seed, offset);
      for (uint64_t i = 0; i < seed * SIDE + offset; i++) {
        CHECK(seen[i] != mixed);
      }
      seen[seed * SIDE + offset] = mixed;
    }
  }
  CHECK(dit_random_mix(1, 2) != dit_random_mix(2, 1));
}

int main(void) {
  RUN(test_known_answers);
  RUN(test_avalanche);
  RUN(test_mix);
  return 0;
}
