/// Checks of pinned host memory: what the vendor makes, and what it is asked to pin.
#include <stdlib.h>

#include "doctor.h"

static bool check_alloc(struct bench *b) {
  static const size_t sizes[] = {1, 63, 64, 4097, MIB + 1};
  void *ptrs[5];
  for (int i = 0; i < 5; i++) {
    ptrs[i] = NULL;
    CALL(b, host_alloc, sizes[i], &ptrs[i]);
    WANT(b, ptrs[i] && (uintptr_t)ptrs[i] % 64 == 0, "an address that is a multiple of 64",
         "round up what the vendor's runtime gives", "%zu bytes are at %p", sizes[i], ptrs[i]);
    bench_fill(ptrs[i], sizes[i], (unsigned)i);
  }
  for (int i = 0; i < 5; i++) {
    WANT(b, bench_compare(ptrs[i], sizes[i], (unsigned)i) == sizes[i], "memory that the host can read and write",
         "sizes of neighbours", "%zu bytes lost what the host had written", sizes[i]);
    CALL(b, host_free, ptrs[i]);
  }
  return true;
}

static bool check_zero(struct bench *b) {
  void *ptr = NULL;
  CALL(b, host_alloc, 0, &ptr);
  CALL(b, host_free, ptr);
  CALL(b, host_free, NULL);
  return true;
}

static bool check_too_much(struct bench *b) {
  static const size_t sizes[] = {SIZE_MAX / 4, SIZE_MAX - 10};
  for (int i = 0; i < 2; i++) {
    struct dit_error err = bench_make_error();
    void *const before = &err;
    void *ptr = before;
    const enum dit_status status = b->v.host_alloc(sizes[i], &ptr, &err);
    TRY(bench_is_error(b, "host_alloc", status, &err, "more bytes than there are addresses"));
    WANT(b, status == DIT_ERR_NOMEM, "DIT_ERR_NOMEM", "how the vendor's own code becomes a dit_status",
         "it returned %s for %zu bytes", dit_status_get_name(status), sizes[i]);
    WANT(b, ptr == before, "outputs are untouched on failure", "the assignment to *ptr comes last",
         "it failed and changed *ptr to %p", ptr);
  }
  return true;
}

static bool check_wrong_free(struct bench *b) {
  void *first = NULL, *second = NULL, *third = NULL;
  struct dit_error err = bench_make_error();
  CALL(b, host_alloc, 4096, &first);
  CALL(b, host_free, first);
  const enum dit_status status = b->v.host_free(first, &err);
  if (status != DIT_OK) {
    TRY(bench_is_error(b, "host_free", status, &err, "a block that is free"));
  }
  CALL(b, host_alloc, 4096, &second);
  CALL(b, host_alloc, 4096, &third);
  WANT(b, second != third, "a second free is refused or has no effect", "a free list that holds a block twice",
       "after a second free two live blocks are both at %p", second);
  CALL(b, host_free, second);
  CALL(b, host_free, third);
  return true;
}

/// Through the device with copies that the host does not wait for one by one.
static bool send_through(struct bench *b, unsigned char *from, unsigned char *to, size_t size, const char *what) {
  void *memory = NULL, *stream = NULL;
  CALL(b, memory_alloc, 0, size, &memory);
  CALL(b, stream_create, 0, 0, &stream);
  bench_fill(from, size, 77);
  memset(to, 0, size);
  const struct dit_copy in = bench_copy_in(0, memory, from, size), out = bench_copy_out(0, to, memory, size);
  CALL(b, copy_async, &in, 0, stream);
  CALL(b, copy_async, &out, 0, stream);
  CALL(b, stream_synchronize, 0, stream);
  const size_t same = bench_compare(to, size, 77);
  WANT(b, same == size, "the bytes that were put there", "copies from and to this kind of host memory",
       "%zu bytes of %s memory through device 0: byte %zu differs", size, what, same);
  CALL(b, stream_destroy, 0, stream);
  CALL(b, memory_free, 0, memory);
  return true;
}

static bool check_pinned_copies(struct bench *b) {
  void *from = NULL, *to = NULL;
  CALL(b, host_alloc, 3 * MIB, &from);
  CALL(b, host_alloc, 3 * MIB, &to);
  TRY(send_through(b, from, to, 3 * MIB, "pinned"));
  TRY(send_through(b, (unsigned char *)from + 1, (unsigned char *)to + 3, 4099, "pinned"));
  CALL(b, host_free, from);
  CALL(b, host_free, to);
  return true;
}

static bool check_register(struct bench *b) {
  unsigned char *memory = aligned_alloc(4096, 2 * MIB);
  WANT(b, memory, "host memory", "ulimit -v", "no host memory");
  CALL(b, host_register, memory, 2 * MIB);
  TRY(send_through(b, memory, memory + MIB, MIB, "registered"));
  CALL(b, host_unregister, memory);
  CALL(b, host_register, memory, MIB);
  CALL(b, host_unregister, memory);
  free(memory);
  return true;
}

static bool check_unregister(struct bench *b) {
  unsigned char *memory = aligned_alloc(4096, MIB);
  WANT(b, memory, "host memory", "ulimit -v", "no host memory");
  for (int i = 0; i < 3; i++) {
    CALL(b, host_register, memory, MIB);
    CALL(b, host_unregister, memory);
  }
  bench_fill(memory, MIB, 1);
  WANT(b, bench_compare(memory, MIB, 1) == MIB, "the host's own memory as it was", "what unregister takes away",
       "memory that was registered and unregistered cannot be used");
  struct dit_error err = bench_make_error();
  const enum dit_status status = b->v.host_unregister(memory, &err);
  if (status != DIT_OK) {
    TRY(bench_is_error(b, "host_unregister", status, &err, "memory that is not registered"));
  }
  free(memory);
  return true;
}

#define BASE "memory_alloc memory_free copy_async stream_create stream_synchronize"

static const struct check checks[] = {
    {"host_alloc", "aligned to 64, readable, writable", "host_free", check_alloc, 0},
    {"host_alloc", "nothing is a size, and NULL may be freed", "host_free", check_zero, 0},
    {"host_alloc", "more than there is", "", check_too_much, 0},
    {"host_free", "a second free is refused or has no effect", "host_alloc", check_wrong_free, 0},
    {"copy_async", "copies from and to pinned memory", "host_alloc host_free " BASE, check_pinned_copies, 0},
    {"host_register", "copies from and to registered memory", "host_unregister " BASE, check_register, 0},
    {"host_unregister", "memory stays the host's own", "host_register", check_unregister, 0},
};
const struct check_group host_group = {checks, sizeof checks / sizeof checks[0]};
