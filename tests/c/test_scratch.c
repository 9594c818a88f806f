/// Working memory that is kept: reused, aligned, bounded, and never in two hands at once.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "dit/alloc.h"
#include "engine/scratch.h"

#define MIB ((size_t)1 << 20)

static void test_reuse(void) {
  char *first = scratch_take(MIB), *other = scratch_take(MIB);
  CHECK(first && other && first != other);
  CHECK((uintptr_t)first % 64 == 0 && (uintptr_t)other % 64 == 0);
  memset(first, 1, MIB);
  scratch_give(first);
  CHECK(scratch_take(MIB / 2) == first);  // a little smaller fits
  scratch_give(first);
  char *small = scratch_take(MIB / 16);  // much smaller does not: the block would be wasted
  CHECK(small && small != first && small != other);
  scratch_give(small);
  scratch_give(other);
  scratch_give(NULL);
}

static void test_sizes(void) {
  const int64_t live = dit_alloc_get_live();
  char *none = scratch_take(0), *little = scratch_take(100);
  CHECK(none && little);
  memset(little, 1, 100);
  scratch_give(none);
  scratch_give(little);
  CHECK(dit_alloc_get_live() == live);  // small blocks are not kept
  CHECK(!scratch_take(SIZE_MAX) && !scratch_take(SIZE_MAX - 100));
  dit_alloc_set_failure(0);
  CHECK(!scratch_take(40 * MIB));
  dit_alloc_set_failure(-1);
}

static void test_limit(void) {
  const int64_t live = dit_alloc_get_live();
  void *blocks[10];
  for (int i = 0; i < 10; i++) {
    CHECK((blocks[i] = scratch_take(20 * MIB)) != NULL);
  }
  for (int i = 0; i < 10; i++) {
    scratch_give(blocks[i]);
  }
  CHECK(dit_alloc_get_live() - live <= (int64_t)(SCRATCH_KEPT / (20 * MIB)));
}

static void *use_blocks(void *seed) {
  uint64_t state = (uint64_t)(uintptr_t)seed;
  for (int i = 0; i < 3000; i++) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const size_t size = ((size_t)64 << 10) + (size_t)(state >> 44);
    unsigned char *block = scratch_take(size);
    CHECK(block);
    block[0] = block[size - 1] = (unsigned char)(uintptr_t)seed;
    for (int spin = 0; spin < 50; spin++) {
      CHECK(*(volatile unsigned char *)block == (unsigned char)(uintptr_t)seed);
    }
    CHECK(block[size - 1] == (unsigned char)(uintptr_t)seed);
    scratch_give(block);
  }
  return NULL;
}

static void test_threads(void) {
  pthread_t threads[4];
  for (uintptr_t i = 0; i < 4; i++) {
    CHECK(pthread_create(&threads[i], NULL, use_blocks, (void *)(i + 1)) == 0);
  }
  for (int i = 0; i < 4; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
}

int main(void) {
  RUN(test_reuse);
  RUN(test_sizes);
  RUN(test_limit);
  RUN(test_threads);
  return 0;
}
