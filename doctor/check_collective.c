/// Checks of the collectives: ranks are threads, a device each, as a process with several devices has them.
///
/// Every rank makes the same trials one after another. A trial fills what is sent, marks what is received, calls, and
/// compares every element with what the other ranks sent, also those that must not be written.
#include <math.h>
#include <pthread.h>
#include <stdarg.h>

#include "dit/dtype.h"
#include "doctor.h"
#include "element.h"

enum { MOST_RANKS = 2, COUNT = 6, ELEMENTS = 16, SIZE = ELEMENTS * 8, MARK = 0x5A };

struct rank {
  struct bench *b;
  pthread_t thread;
  int rank, ranks;
  const struct dit_unique_id *id;
  void *comm, *stream;
  char *send, *recv;
  char seen[600];
  atomic_bool failed, done;
};

struct trial {
  const char *name;
  enum dit_status (*run)(const struct rank *r, const struct trial *t, struct dit_error *err);
  /// The i-th received element of this rank; NAN: not written.
  double (*expect)(const struct rank *r, const struct trial *t, int i);
  int dtype;
  enum dit_reduce_op op;
  int root;
  bool in_place;
};

static struct dit_collective_vtable table;

/// What a rank sends.
static double get_value(int dtype, int rank, int i) {
  const double large = dtype == DIT_DTYPE_I64 ? (double)(INT64_C(1) << 40) : 0;  // more than float and int32 hold
  return large + (i + 1) * (rank == 0 ? 1 : 10);
}

static double fold(const struct trial *t, int ranks, int i) {
  const enum dit_reduce_op op = t->op;
  double all = get_value(t->dtype, 0, i);
  for (int rank = 1; rank < ranks; rank++) {
    const double value = get_value(t->dtype, rank, i);
    all = op == DIT_REDUCE_OP_PRODUCT ? all * value
          : op == DIT_REDUCE_OP_MIN   ? (value < all ? value : all)
          : op == DIT_REDUCE_OP_MAX   ? (value > all ? value : all)
                                      : all + value;
  }
  return op == DIT_REDUCE_OP_AVG ? all / ranks : all;
}

// Trials

#define RUN(name) static enum dit_status run_##name(const struct rank *r, const struct trial *t, struct dit_error *err)
#define EXPECT(name) static double expect_##name(const struct rank *r, const struct trial *t, int i)

RUN(all_reduce) {
  return table.all_reduce(t->in_place ? r->recv : r->send, r->recv, COUNT, t->dtype, t->op, r->comm, r->stream, err);
}
EXPECT(all_reduce) {
  const double untouched = t->in_place && i < ELEMENTS ? get_value(t->dtype, r->rank, i) : (double)NAN;
  return i < COUNT ? fold(t, r->ranks, i) : untouched;
}

RUN(reduce) {
  const int root = t->root % r->ranks;
  return table.reduce(r->send, r->recv, COUNT, t->dtype, t->op, root, r->comm, r->stream, err);
}
EXPECT(reduce) {
  return i < COUNT && r->rank == t->root % r->ranks ? fold(t, r->ranks, i) : (double)NAN;
}

RUN(reduce_scatter) {
  return table.reduce_scatter(r->send, r->recv, COUNT, t->dtype, t->op, r->comm, r->stream, err);
}
EXPECT(reduce_scatter) {
  return i < COUNT ? fold(t, r->ranks, r->rank * COUNT + i) : (double)NAN;
}

RUN(broadcast) {
  return table.broadcast(r->send, r->recv, COUNT, t->dtype, t->root % r->ranks, r->comm, r->stream, err);
}
EXPECT(broadcast) {
  return i < COUNT ? get_value(t->dtype, t->root % r->ranks, i) : (double)NAN;
}

RUN(all_gather) {
  return table.all_gather(r->send, r->recv, COUNT, t->dtype, r->comm, r->stream, err);
}
EXPECT(all_gather) {
  return i < COUNT * r->ranks ? get_value(t->dtype, i / COUNT, i % COUNT) : (double)NAN;
}

/// Rank `root` to the other one.
RUN(message) {
  const int other = 1 - r->rank;
  return r->ranks < 2         ? DIT_ERR_UNSUPPORTED
         : r->rank == t->root ? table.send(r->send, COUNT, t->dtype, other, r->comm, r->stream, err)
                              : table.recv(r->recv, COUNT, t->dtype, other, r->comm, r->stream, err);
}
EXPECT(message) {
  return i < COUNT && r->rank != t->root ? get_value(t->dtype, t->root, i) : (double)NAN;
}

RUN(all_to_all) {
  return table.all_to_all ? table.all_to_all(r->send, r->recv, COUNT / 2, t->dtype, r->comm, r->stream, err)
                          : DIT_ERR_UNSUPPORTED;
}
EXPECT(all_to_all) {
  const int share = COUNT / 2, from = i / share;
  return from < r->ranks ? get_value(t->dtype, from, r->rank * share + i % share) : (double)NAN;
}

/// How many elements go from a rank to another (0, 1 or 2), and where they begin: what is sent has no gaps and goes to
/// the last rank first; in front of what is received from each rank is a gap.
static size_t get_count(int from, int to) {
  return (size_t)((from + 2 * to + 1) % 3);
}
static size_t get_send_offset(const struct rank *r, int from, int to) {
  size_t offset = 0;
  for (int peer = r->ranks - 1; peer > to; peer--) {
    offset += get_count(from, peer);
  }
  return offset;
}
static size_t get_recv_offset(int from, int to) {
  size_t offset = 1;
  for (int peer = 0; peer < from; peer++) {
    offset += get_count(peer, to) + 1;
  }
  return offset;
}
RUN(all_to_all_v) {
  size_t send_counts[MOST_RANKS], send_offsets[MOST_RANKS], recv_counts[MOST_RANKS], recv_offsets[MOST_RANKS];
  for (int peer = 0; peer < r->ranks; peer++) {
    send_counts[peer] = get_count(r->rank, peer);
    send_offsets[peer] = get_send_offset(r, r->rank, peer);
    recv_counts[peer] = get_count(peer, r->rank);
    recv_offsets[peer] = get_recv_offset(peer, r->rank);
  }
  return table.all_to_all_v ? table.all_to_all_v(r->send, send_counts, send_offsets, r->recv, recv_counts, recv_offsets,
                                                 t->dtype, r->comm, r->stream, err)
                            : DIT_ERR_UNSUPPORTED;
}
EXPECT(all_to_all_v) {
  for (int peer = 0; peer < r->ranks; peer++) {
    const int at = i - (int)get_recv_offset(peer, r->rank);
    if (at >= 0 && at < (int)get_count(peer, r->rank)) {
      return get_value(t->dtype, peer, (int)get_send_offset(r, peer, r->rank) + at);
    }
  }
  return (double)NAN;
}

#define TRIAL(name, ...) {#name, run_##name, expect_##name, __VA_ARGS__}
static const struct trial trials[] = {
    TRIAL(all_reduce, .dtype = DIT_DTYPE_F32, .op = DIT_REDUCE_OP_SUM),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_F32, .op = DIT_REDUCE_OP_AVG),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_F32, .op = DIT_REDUCE_OP_PRODUCT),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_F32, .op = DIT_REDUCE_OP_MIN),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_F32, .op = DIT_REDUCE_OP_MAX),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_F32, .op = DIT_REDUCE_OP_SUM, .in_place = true),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_F64, .op = DIT_REDUCE_OP_SUM),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_BF16, .op = DIT_REDUCE_OP_SUM),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_I64, .op = DIT_REDUCE_OP_SUM),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_I32, .op = DIT_REDUCE_OP_MAX),
    TRIAL(all_reduce, .dtype = DIT_DTYPE_U8, .op = DIT_REDUCE_OP_SUM),
    TRIAL(reduce, .dtype = DIT_DTYPE_F32, .op = DIT_REDUCE_OP_SUM, .root = 1),
    TRIAL(reduce, .dtype = DIT_DTYPE_F32, .op = DIT_REDUCE_OP_MIN, .root = 0),
    TRIAL(reduce_scatter, .dtype = DIT_DTYPE_F32, .op = DIT_REDUCE_OP_SUM),
    TRIAL(reduce_scatter, .dtype = DIT_DTYPE_F64, .op = DIT_REDUCE_OP_MAX),
    TRIAL(broadcast, .dtype = DIT_DTYPE_F32, .root = 0),
    TRIAL(broadcast, .dtype = DIT_DTYPE_I64, .root = 1),
    TRIAL(all_gather, .dtype = DIT_DTYPE_F32),
    TRIAL(all_gather, .dtype = DIT_DTYPE_I16),
    TRIAL(message, .dtype = DIT_DTYPE_F32, .root = 0),
    TRIAL(message, .dtype = DIT_DTYPE_U8, .root = 1),
    TRIAL(all_to_all, .dtype = DIT_DTYPE_F32),
    TRIAL(all_to_all, .dtype = DIT_DTYPE_I16),
    TRIAL(all_to_all_v, .dtype = DIT_DTYPE_F32),
    TRIAL(all_to_all_v, .dtype = DIT_DTYPE_I16),
};

// One rank

static bool say(struct rank *r, const char *format, ...) DIT_PRINTF(2, 3);
static bool say(struct rank *r, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(r->seen, sizeof r->seen, format, arguments);
  va_end(arguments);
  atomic_store(&r->failed, true);
  return false;
}

/// A call that must succeed.
#define DO(r, name, call)                                                                                           \
  do {                                                                                                              \
    struct dit_error err = bench_make_error();                                                                      \
    const enum dit_status did = (call);                                                                             \
    if (did != DIT_OK) {                                                                                            \
      return say(r, "rank %d of %d: %s returned %s: %.400s", (r)->rank, (r)->ranks, name, dit_status_get_name(did), \
                 err.message);                                                                                      \
    }                                                                                                               \
  } while (0)

static bool put(struct rank *r, char *memory, const void *bytes) {
  const struct dit_copy copy = bench_copy_in(r->rank, memory, bytes, SIZE);
  DO(r, "copy_async", r->b->v.copy_async(&copy, r->rank, r->stream, &err));
  return true;
}

static bool take(struct rank *r, void *bytes) {
  const struct dit_copy copy = bench_copy_out(r->rank, bytes, r->recv, SIZE);
  DO(r, "copy_async", r->b->v.copy_async(&copy, r->rank, r->stream, &err));
  DO(r, "stream_synchronize", r->b->v.stream_synchronize(r->rank, r->stream, &err));
  return true;
}

static bool run_trial(struct rank *r, const struct trial *t) {
  const size_t size = dit_dtype_get_size(t->dtype);
  const char *dtype = dit_dtype_get_name(t->dtype);
  char sent[SIZE] = {0}, got[SIZE], mark[8];
  memset(mark, MARK, sizeof mark);
  for (int i = 0; i < ELEMENTS; i++) {
    element_put(sent + (size_t)i * size, t->dtype, get_value(t->dtype, r->rank, i));
  }
  DO(r, "memory_set", r->b->v.memory_set(r->rank, r->stream, r->recv, MARK, SIZE, &err));
  TRY(put(r, t->in_place ? r->recv : r->send, sent));
  struct dit_error err = bench_make_error();
  const enum dit_status status = t->run(r, t, &err);
  if (status == DIT_ERR_UNSUPPORTED) {
    return true;  // all ranks are told so
  }
  DO(r, t->name, dit_error_set(&err, status, "%s: %.300s", dtype, err.message));
  TRY(take(r, got));
  for (int i = 0; i < ELEMENTS; i++) {
    const char *at = got + (size_t)i * size;
    const double expected = t->expect(r, t, i);
    if (isnan(expected) ? memcmp(at, mark, size) != 0 : element_get(at, t->dtype) != expected) {
      return say(r, "%s of %s, operation %d, root %d%s: on rank %d of %d element %d is %.15g instead of %.15g%s",
                 t->name, dtype, (int)t->op, t->root, t->in_place ? ", in place" : "", r->rank, r->ranks, i,
                 element_get(at, t->dtype), isnan(expected) ? element_get(mark, t->dtype) : expected,
                 isnan(expected) ? ", which was there before: this rank receives nothing there" : "");
    }
  }
  return true;
}

/// What is sent is what the stream's earlier work left there.
static bool run_late(struct rank *r) {
  static struct slow slow[MOST_RANKS];
  unsigned char got[SIZE];
  DO(r, "memory_set", r->b->v.memory_set(r->rank, r->stream, r->send, 1, SIZE, &err));
  DO(r, "stream_synchronize", r->b->v.stream_synchronize(r->rank, r->stream, &err));
  DO(r, "stream_launch_host", r->b->v.stream_launch_host(r->rank, r->stream, slow_run, &slow[r->rank], &err));
  DO(r, "memory_set", r->b->v.memory_set(r->rank, r->stream, r->send, 7, SIZE, &err));
  DO(r, "broadcast", table.broadcast(r->send, r->recv, COUNT, DIT_DTYPE_U8, 0, r->comm, r->stream, &err));
  DO(r, "memory_set", r->b->v.memory_set(r->rank, r->stream, r->send, 9, SIZE, &err));
  TRY(take(r, got));
  for (int i = 0; i < COUNT; i++) {
    if (got[i] != 7) {
      return say(r, "broadcast behind a fill with 7 and before one with 9: on rank %d of %d byte %d is %u", r->rank,
                 r->ranks, i, got[i]);
    }
  }
  return true;
}

static bool refuse(struct rank *r) {
  struct dit_error err = bench_make_error();
  const enum dit_status status =
      table.all_reduce(r->send, r->recv, COUNT, 999, DIT_REDUCE_OP_SUM, r->comm, r->stream, &err);
  return status != DIT_OK || say(r, "all_reduce returned DIT_OK for a dtype that does not exist (999)");
}

static bool use_rank(struct rank *r) {
  char name[64] = "";
  void *memory = NULL;
  DO(r, "bind_thread", r->b->v.bind_thread ? r->b->v.bind_thread(r->rank, &err) : DIT_OK);
  DO(r, "stream_create", r->b->v.stream_create(r->rank, 0, &r->stream, &err));
  DO(r, "memory_alloc", r->b->v.memory_alloc(r->rank, (size_t)2 * SIZE, &memory, &err));
  r->send = memory;
  r->recv = r->send + SIZE;
  DO(r, "comm_create", table.comm_create(r->rank, r->ranks, r->rank, r->id, &r->comm, &err));
  for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++) {
    TRY(run_trial(r, &trials[i]));
  }
  TRY(run_late(r));
  TRY(refuse(r));
  DO(r, "comm_get_async_error", table.comm_get_async_error(r->comm, &err));
  DO(r, "comm_get_name", table.comm_get_name ? table.comm_get_name(r->comm, name, sizeof name, &err) : DIT_OK);
  if (memchr(name, '\0', sizeof name) == NULL) {
    return say(r, "comm_get_name wrote %zu bytes without an end", sizeof name);
  }
  DO(r, "stream_synchronize", r->b->v.stream_synchronize(r->rank, r->stream, &err));
  table.comm_destroy(r->comm);
  DO(r, "stream_destroy", r->b->v.stream_destroy(r->rank, r->stream, &err));
  DO(r, "memory_free", r->b->v.memory_free(r->rank, memory, &err));
  return true;
}

static void *run_rank(void *argument) {
  struct rank *r = argument;
  (void)use_rank(r);
  atomic_store(&r->done, true);
  return NULL;
}

// Checks

/// The first rank that is not right is told at once: the others may wait for it for ever.
static bool await_ranks(struct bench *b, struct rank *ranks, int count) {
  for (int done = 0; done < count;) {
    done = 0;
    for (int i = 0; i < count; i++) {
      WANT(b, !atomic_load(&ranks[i].failed), "what the ranks sent, in the order of the stream",
           "counts are elements, not bytes; which rank's part is which; the stream that was passed", "%s",
           ranks[i].seen);
      done += atomic_load(&ranks[i].done);
    }
    bench_sleep(1e-3);
  }
  for (int i = 0; i < count; i++) {
    pthread_join(ranks[i].thread, NULL);
  }
  return true;
}

static bool take_table(struct bench *b, struct dit_unique_id *id, bool *there) {
  const struct dit_collective_vtable *own = b->v.collectives;
  struct dit_error err = bench_make_error();
  memcpy(&table, own, own->struct_size < sizeof table ? own->struct_size : sizeof table);
  const enum dit_status status = table.get_unique_id(id, &err);
  *there = status != DIT_ERR_UNSUPPORTED;
  return *there ? bench_is_ok(b, "collectives", status, &err)
                : bench_is_error(b, "collectives", status, &err, "get_unique_id without the library behind it");
}

static bool run_ranks(struct bench *b, int count) {
  static struct rank ranks[MOST_RANKS];
  static struct dit_unique_id id;
  bool there = false;
  TRY(take_table(b, &id, &there));
  for (int i = 0; i < count && there; i++) {
    ranks[i].b = b;
    ranks[i].rank = i;
    ranks[i].ranks = count;
    ranks[i].id = &id;
    WANT(b, pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) == 0, "threads", "ulimit -u", "no thread");
  }
  return !there || await_ranks(b, ranks, count);
}

static bool check_alone(struct bench *b) {
  return run_ranks(b, 1);
}

static bool check_two(struct bench *b) {
  return b->count < 2 || run_ranks(b, 2);
}

static bool check_refusals(struct bench *b) {
  struct dit_unique_id id, other;
  struct dit_error err = bench_make_error();
  bool there = false;
  void *comm = NULL;
  TRY(take_table(b, &id, &there));
  if (!there) {
    return true;
  }
  TRY(take_table(b, &other, &there));
  WANT(b, memcmp(&id, &other, sizeof id) != 0, "an id of its own for each communicator", "get_unique_id",
       "get_unique_id gave the same id twice");
  const enum dit_status status = table.comm_create(0, 2, 7, &id, &comm, &err);
  TRY(bench_is_error(b, "collectives", status, &err, "comm_create of rank 7 of 2"));
  table.comm_destroy(NULL);
  return true;
}

#define BASE \
  "memory_alloc memory_free memory_set copy_async stream_create stream_destroy stream_synchronize stream_launch_host"

static const struct check checks[] = {
    {"collectives", "one rank alone", BASE, check_alone, 0},
    {"collectives", "two ranks, a device each", BASE, check_two, 0},
    {"collectives", "ids, and what must be refused", "", check_refusals, 0},
};
const struct check_group collective_group = {checks, sizeof checks / sizeof checks[0]};
