/// Checks of device memory: alignment, limits and what happens behind them, frees, fills.
#include <stdlib.h>

#include "doctor.h"

enum { PIECES = 64 };

static bool check_alignment(struct bench *b) {
  static const size_t sizes[] = {1, 7, 511, 512, 513, 4096, 65537, MIB + 1, 4 * MIB};
  void *ptrs[sizeof sizes / sizeof sizes[0]];
  for (int device = 0; device < b->count; device++) {
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
      ptrs[i] = NULL;
      CALL(b, memory_alloc, device, sizes[i], &ptrs[i]);
      WANT(b, ptrs[i], "an address", "the assignment to *ptr", "%zu bytes of device %d are at NULL", sizes[i], device);
      WANT(b, (uintptr_t)ptrs[i] % 512 == 0, "an address that is a multiple of 512",
           "round up what the vendor's runtime gives", "%zu bytes of device %d are at %p", sizes[i], device, ptrs[i]);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
      CALL(b, memory_free, device, ptrs[i]);
    }
  }
  return true;
}

static bool check_nothing(struct bench *b) {
  void *ptr = NULL;
  CALL(b, memory_alloc, 0, 0, &ptr);
  CALL(b, memory_free, 0, ptr);
  return true;
}

static bool check_free_null(struct bench *b) {
  CALL(b, memory_free, 0, NULL);
  return true;
}

static bool expect_nomem(struct bench *b, const char *slot, enum dit_status status, const struct dit_error *err,
                         const void *ptr, const void *before, size_t size) {
  char what[64];
  snprintf(what, sizeof what, "%zu bytes (more than there are)", size);
  TRY(bench_is_error(b, slot, status, err, what));
  WANT(b, status == DIT_ERR_NOMEM, "DIT_ERR_NOMEM: the allocator then gives its unused memory back and asks again",
       "how the vendor's own code becomes a dit_status", "%s returned %s for %zu bytes", slot,
       dit_status_get_name(status), size);
  WANT(b, ptr == before, "outputs are untouched on failure", "the assignment to *ptr comes last",
       "%s failed and changed *ptr to %p", slot, ptr);
  return true;
}

static bool check_too_much(struct bench *b) {
  struct dit_device_properties properties;
  CALL(b, get_properties, 0, &properties);
  const size_t sizes[] = {(size_t)properties.total_memory * 2, SIZE_MAX / 2, SIZE_MAX - 100, SIZE_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    struct dit_error err = bench_make_error();
    void *const before = &err;
    void *ptr = before;
    enum dit_status status = b->v.memory_alloc(0, sizes[i], &ptr, &err);
    TRY(expect_nomem(b, "memory_alloc", status, &err, ptr, before, sizes[i]));
    status = b->v.memory_alloc(0, sizes[i], &ptr, NULL);  // the error may be NULL
    WANT(b, status == DIT_ERR_NOMEM, "the same answer without a struct for the message", "err may be NULL",
         "memory_alloc returned %s for %zu bytes", dit_status_get_name(status), sizes[i]);
  }
  void *ptr = NULL;
  CALL(b, memory_alloc, 0, 4096, &ptr);
  CALL(b, memory_free, 0, ptr);
  return true;
}

/// Take the device's memory in sixteenths until it is full; give it back; take one again.
static bool check_limit(struct bench *b) {
  void *ptrs[PIECES];
  struct dit_device_properties properties;
  size_t taken = 0;
  enum dit_status status = DIT_OK;
  struct dit_error err = bench_make_error();
  if (b->gentle) {
    return true;
  }
  CALL(b, get_properties, 0, &properties);
  const size_t piece = (size_t)properties.total_memory / 16 / 4096 * 4096;
  while (taken < PIECES && status == DIT_OK) {
    ptrs[taken] = NULL;
    status = b->v.memory_alloc(0, piece, &ptrs[taken], &err);
    taken += status == DIT_OK;
  }
  WANT(b, taken <= 18, "DIT_ERR_NOMEM when the device is full", "total_memory, and what counts as in use",
       "%zu blocks of a sixteenth of total_memory (%zu bytes) were handed out", taken, piece);
  TRY(expect_nomem(b, "memory_alloc", status, &err, NULL, NULL, piece));
  for (size_t i = 0; i < taken; i++) {
    CALL(b, memory_free, 0, ptrs[i]);
  }
  for (size_t i = 0; i < taken; i++) {
    void *ptr = NULL;
    err = bench_make_error();
    status = b->v.memory_alloc(0, piece, &ptr, &err);
    if (status != DIT_OK) {
      return bench_blame(b, "memory_free", "memory that was freed can be had again", "what free gives back",
                         "the device was full, everything was freed, and then only %zu of %zu blocks could be had: %s",
                         i, taken, err.message);
    }
    ptrs[i] = ptr;
  }
  for (size_t i = 0; i < taken; i++) {
    CALL(b, memory_free, 0, ptrs[i]);
  }
  return true;
}

/// A quarter of the memory, many times: what free does not give back is missed soon.
static bool check_again(struct bench *b) {
  struct dit_device_properties properties;
  CALL(b, get_properties, 0, &properties);
  const size_t size = b->gentle ? MIB : (size_t)properties.total_memory / 4;
  for (int i = 0; i < 24; i++) {
    void *ptr = NULL;
    struct dit_error err = bench_make_error();
    const enum dit_status status = b->v.memory_alloc(0, size, &ptr, &err);
    WANT(b, status == DIT_OK, "memory that was freed can be had again", "what free gives back",
         "%zu bytes were taken and freed %d times, then memory_alloc said %s: %s", size, i, dit_status_get_name(status),
         err.message);
    CALL(b, memory_free, 0, ptr);
  }
  return true;
}

/// A second free of a block, and a free of host memory: refused or without effect, and no crash.
static bool check_wrong_free(struct bench *b) {
  void *first = NULL, *second = NULL, *third = NULL;
  static char host[1024];
  CALL(b, memory_alloc, 0, 4096, &first);
  CALL(b, memory_free, 0, first);
  void *const wrong[] = {first, host + 512};
  for (size_t i = 0; i < 2; i++) {
    struct dit_error err = bench_make_error();
    const enum dit_status status = b->v.memory_free(0, wrong[i], &err);
    if (status != DIT_OK) {
      TRY(bench_is_error(b, "memory_free", status, &err, i ? "an address of the host" : "a block that is free"));
    }
  }
  CALL(b, memory_alloc, 0, 4096, &second);
  CALL(b, memory_alloc, 0, 4096, &third);
  WANT(b, second != third, "a second free is refused or has no effect", "a free list that holds a block twice",
       "after a second free of %p two live blocks are both at %p", first, second);
  CALL(b, memory_free, 0, second);
  CALL(b, memory_free, 0, third);
  return true;
}

static const struct check checks[] = {
    {"memory_alloc", "addresses are aligned to 512", "memory_free", check_alignment, 0},
    {"memory_alloc", "nothing is a size, too", "memory_free", check_nothing, 0},
    {"memory_free", "NULL may be freed", "", check_free_null, 0},
    {"memory_alloc", "more than there is", "memory_free get_properties", check_too_much, 0},
    {"memory_alloc", "the device can be filled, and emptied again", "memory_free get_properties", check_limit, 0},
    {"memory_free", "memory comes back", "memory_alloc get_properties", check_again, 0},
    {"memory_free", "a wrong address is refused or has no effect", "memory_alloc", check_wrong_free, 0},
};
const struct check_group memory_group = {checks, sizeof checks / sizeof checks[0]};
