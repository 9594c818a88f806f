/// Checks of memory between processes. The second process is made before the library starts, as spawned workers are.
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include "doctor.h"

enum { SIZE = 4 << 20, OFFSET = 4096 + 24 };

struct message {
  bool right;
  struct dit_memory_handle handle;
  uint64_t offset;
  struct finding finding;
};

static bool exchange(struct bench *b, int socket, void *message, size_t size, bool sends) {
  char *at = message;
  while (size > 0) {
    const ssize_t moved = sends ? write(socket, at, size) : read(socket, at, size);
    if (moved <= 0) {
      return bench_blame(b, b->finding->slot, "a second process that uses the device at the same time",
                         "state that is kept outside of the process", "the second process ended");
    }
    at += moved;
    size -= (size_t)moved;
  }
  return true;
}

/// What the second process does with the handle: read, write, close.
static bool use_import(struct bench *b, const struct message *m) {
  static unsigned char bytes[1000];
  void *base = NULL;
  size_t size = 0;
  CALL(b, memory_import, 0, &m->handle, &base, &size);
  if (!base || size < m->offset + sizeof bytes) {
    return bench_blame(b, "memory_import", "the whole allocation: its first address and its size",
                       "the assignments to *base and *size", "it says %zu bytes at %p for a block of %d", size, base,
                       SIZE);
  }
  TRY(bench_get(b, 0, bytes, (char *)base + m->offset, sizeof bytes));
  if (bench_compare(bytes, sizeof bytes, 61) != sizeof bytes) {
    return bench_blame(b, "memory_import", "the memory of the other process",
                       "where *base points: the begin of the allocation, as memory_export said",
                       "what the other process had written is not there");
  }
  bench_fill(bytes, sizeof bytes, 62);
  TRY(bench_put(b, 0, (char *)base + m->offset, bytes, sizeof bytes));
  CALL(b, synchronize, 0);
  CALL(b, memory_close, 0, base, size);
  return true;
}

static void run_second(struct bench *b, int socket) {
  static struct message m;
  static struct finding finding;
  close(b->progress);
  b->finding = &finding;
  snprintf(finding.slot, sizeof finding.slot, "init");
  m.right = bench_load(b) && bench_start(b);
  m.finding = finding;
  if (exchange(b, socket, &m, sizeof m, true) && m.right && exchange(b, socket, &m, sizeof m, false)) {
    m.right = use_import(b, &m);
    m.finding = finding;
    (void)exchange(b, socket, &m, sizeof m, true);
  }
  _exit(0);
}

static bool take_answer(struct bench *b, int socket, struct message *m) {
  TRY(exchange(b, socket, m, sizeof *m, false));
  if (!m->right) {
    return bench_blame(b, m->finding.slot, m->finding.expected, m->finding.look, "in a second process: %.700s",
                       m->finding.seen);
  }
  return true;
}

static bool export_block(struct bench *b, char *memory, struct message *m, bool *can) {
  struct dit_memory_handle again;
  void *base = NULL, *base_again = NULL;
  struct dit_error err = bench_make_error();
  const enum dit_status status = b->v.memory_export(0, memory + OFFSET, &m->handle, &base, &err);
  *can = status != DIT_ERR_UNSUPPORTED;
  if (!*can) {
    return bench_is_error(b, "memory_export", status, &err, "a block of 4 MiB");
  }
  TRY(bench_is_ok(b, "memory_export", status, &err));
  WANT(b, base && (char *)base <= memory, "where the allocation begins", "the assignment to *base",
       "the block is at %p, and its allocation begins at %p", (void *)memory, base);
  CALL(b, memory_export, 0, memory, &again, &base_again);
  WANT(b, base == base_again && memcmp(&again, &m->handle, sizeof again) == 0,
       "equal handles for the same allocation: they are compared byte by byte",
       "bytes of the handle that are not set; counters in it", "two handles of one allocation differ");
  m->offset = (uint64_t)(memory + OFFSET - (char *)base);
  return true;
}

static bool share(struct bench *b, int socket) {
  static struct message m;
  static unsigned char bytes[1000];
  void *memory = NULL;
  bool can = false;
  TRY(take_answer(b, socket, &m));
  TRY(bench_load(b));
  TRY(bench_start(b));
  if (b->count == 0) {
    return true;
  }
  CALL(b, memory_alloc, 0, SIZE, &memory);
  bench_fill(bytes, sizeof bytes, 61);
  TRY(bench_put(b, 0, (char *)memory + OFFSET, bytes, sizeof bytes));
  TRY(export_block(b, memory, &m, &can));
  if (!can) {
    return true;
  }
  TRY(bench_get(b, 0, bytes, (char *)memory + OFFSET, sizeof bytes));
  WANT(b, bench_compare(bytes, sizeof bytes, 61) == sizeof bytes, "contents and addresses stay as they are",
       "what export does to the block", "after the export the block holds something else");
  TRY(exchange(b, socket, &m, sizeof m, true));
  snprintf(b->finding->slot, sizeof b->finding->slot, "memory_import");
  TRY(take_answer(b, socket, &m));
  TRY(bench_get(b, 0, bytes, (char *)memory + OFFSET, sizeof bytes));
  WANT(b, bench_compare(bytes, sizeof bytes, 62) == sizeof bytes, "the same memory, seen by both",
       "a copy instead of a mapping", "what the second process wrote is not seen here");
  snprintf(b->finding->slot, sizeof b->finding->slot, "memory_export");
  CALL(b, memory_free, 0, memory);
  return true;
}

static bool check_share(struct bench *b) {
  int sockets[2];
  WANT(b, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "a socket", "ulimit -n", "no socket");
  const pid_t second = fork();
  WANT(b, second >= 0, "a process", "ulimit -u", "no process");
  if (second == 0) {
    close(sockets[0]);
    run_second(b, sockets[1]);
  }
  close(sockets[1]);
  const bool right = share(b, sockets[0]);
  close(sockets[0]);
  return right;
}

static bool check_wrong_export(struct bench *b) {
  static char host[64];
  struct dit_memory_handle handle, before;
  struct dit_error err = bench_make_error();
  void *base = host;
  memset(&handle, 0x11, sizeof handle);
  before = handle;
  const enum dit_status status = b->v.memory_export(0, host, &handle, &base, &err);
  TRY(bench_is_error(b, "memory_export", status, &err, "an address of the host"));
  WANT(b, base == host && memcmp(&handle, &before, sizeof handle) == 0, "outputs are untouched on failure",
       "the assignments come last", "it failed and changed its outputs");
  return true;
}

static bool check_wrong_import(struct bench *b) {
  for (int i = 0; i < 3; i++) {
    struct dit_memory_handle handle;
    struct dit_error err = bench_make_error();
    void *base = &err;
    size_t size = 4321;
    memset(&handle, i == 0 ? 0 : i == 1 ? 0xff : 0x41, sizeof handle);
    const enum dit_status status = b->v.memory_import(0, &handle, &base, &size, &err);
    TRY(bench_is_error(b, "memory_import", status, &err, "a handle that nobody made"));
    WANT(b, base == &err && size == 4321, "outputs are untouched on failure", "the assignments come last",
         "it failed and changed its outputs");
  }
  return true;
}

static const struct check checks[] = {
    {"memory_export", "a block is seen by a second process", "memory_alloc memory_free copy memory_import memory_close",
     check_share, CHECK_NOT_LOADED | CHECK_NOT_STARTED},
    {"memory_export", "memory that is not the device's is refused", "", check_wrong_export, 0},
    {"memory_import", "a handle that nobody made is refused", "", check_wrong_import, 0},
};
const struct check_group share_group = {checks, sizeof checks / sizeof checks[0]};
