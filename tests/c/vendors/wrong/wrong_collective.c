/// Wrong collectives, and the right ones that they are made of: ranks are threads of one process, which meet in the
/// caller. float32 and int64 are reduced.
#include <pthread.h>
#include <stdbool.h>

#include "dit/dtype.h"
#include "wrong.h"

enum { RANKS = 2, SIZE = 4096 };

enum fault {
  NO_FAULT,
  AVERAGE_SUMS,
  COUNTS_BYTES,
  ROOT_IGNORED,
  PARTS_SWAPPED,
  FIRST_PART,
  READS_EARLY,
  WRITES_EVERYWHERE,
  OFFSETS_IGNORED,
  NARROW,
  ANY_DTYPE,
  SAME_ID,
  ANY_RANK,
  FALSE_ALARM,
  ONE_STAYS_AWAY,
};

struct communicator {
  int device, ranks, rank;
};

static enum fault fault;
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int waiting, round;
  char sent[RANKS][SIZE];
  size_t offsets[RANKS][RANKS];
} place = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void meet(int ranks) {
  pthread_mutex_lock(&place.lock);
  const int round = place.round;
  if (++place.waiting == ranks) {
    place.waiting = 0;
    place.round++;
    pthread_cond_broadcast(&place.changed);
  }
  while (place.round == round) {
    pthread_cond_wait(&place.changed, &place.lock);
  }
  pthread_mutex_unlock(&place.lock);
}

static size_t get_bytes(size_t count, int dtype) {
  return fault == COUNTS_BYTES ? count : count * dit_dtype_get_size(dtype);
}

/// What this rank sends is there for all, when it and they have come.
static enum dit_status bring(const struct communicator *own, const void *send, size_t size, void *stream,
                             struct dit_error *err) {
  const struct dit_copy copy = {place.sent[own->rank], send, size, DIT_COPY_DEVICE_TO_HOST, -1, own->device};
  if (fault != READS_EARLY) {
    DIT_RETURN_IF_NOT_OK(wrong_base->stream_synchronize(own->device, stream, err));
  }
  DIT_RETURN_IF_NOT_OK(wrong_base->copy(&copy, err));
  meet(own->ranks);
  return DIT_OK;
}

static enum dit_status take(const struct communicator *own, void *recv, const void *bytes, size_t size,
                            struct dit_error *err) {
  const struct dit_copy copy = {recv, bytes, size, DIT_COPY_HOST_TO_DEVICE, own->device, -1};
  const enum dit_status status = size > 0 ? wrong_base->copy(&copy, err) : DIT_OK;
  meet(own->ranks);  // nobody writes before all have read
  return status;
}

static double fold(double a, double b, enum dit_reduce_op op) {
  switch (op) {
    case DIT_REDUCE_OP_PRODUCT:
      return a * b;
    case DIT_REDUCE_OP_MIN:
      return a < b ? a : b;
    case DIT_REDUCE_OP_MAX:
      return a > b ? a : b;
    default:
      return a + b;
  }
}

/// The i-th element over all ranks.
static void reduce_one(const struct communicator *own, int dtype, enum dit_reduce_op op, size_t i, char *out) {
  double all = 0;
  for (int rank = 0; rank < own->ranks; rank++) {
    const char *at = place.sent[rank] + i * dit_dtype_get_size(dtype);
    float narrow;
    int64_t whole;
    memcpy(&narrow, at, sizeof narrow);
    memcpy(&whole, place.sent[rank] + i * sizeof whole, sizeof whole);
    const double value = dtype == DIT_DTYPE_F32 ? (double)narrow : (double)whole;
    all = rank == 0 ? value : fold(all, value, op);
  }
  all = op == DIT_REDUCE_OP_AVG && fault != AVERAGE_SUMS ? all / own->ranks : all;
  const float narrow = (float)all;
  const int64_t whole = fault == NARROW ? (int64_t)(float)all : (int64_t)all;
  memcpy(out, dtype == DIT_DTYPE_F32 ? (const void *)&narrow : (const void *)&whole, dit_dtype_get_size(dtype));
}

static enum dit_status fold_part(const struct communicator *own, const void *send, void *recv, size_t sent,
                                 size_t first, size_t count, int dtype, enum dit_reduce_op op, void *stream,
                                 struct dit_error *err) {
  char bytes[SIZE];
  if (fault == ANY_DTYPE && dtype >= DIT_DTYPE_COUNT) {
    return DIT_OK;
  }
  if (dtype != DIT_DTYPE_F32 && dtype != DIT_DTYPE_I64) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "these collectives reduce float32 and int64 alone");
  }
  if (fault == ONE_STAYS_AWAY && own->rank == 1) {
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(bring(own, send, get_bytes(sent, dtype), stream, err));
  for (size_t i = 0; i < count; i++) {
    reduce_one(own, dtype, op, first + i, bytes + i * dit_dtype_get_size(dtype));
  }
  return take(own, recv, bytes, recv ? get_bytes(count, dtype) : 0, err);
}

static enum dit_status get_unique_id(struct dit_unique_id *id, struct dit_error *err) {
  static atomic_int next;
  (void)err;
  memset(id, 0, sizeof *id);
  id->bytes[0] = (uint8_t)(fault == SAME_ID ? 1 : ++next);
  return DIT_OK;
}

static enum dit_status comm_create(int device, int nranks, int rank, const struct dit_unique_id *id, void **comm,
                                   struct dit_error *err) {
  static struct communicator all[RANKS];
  (void)id;
  if (rank >= nranks && fault != ANY_RANK) {
    return dit_error_set(err, DIT_ERR_INVALID, "there is no rank %d of %d", rank, nranks);
  }
  all[rank % RANKS] = (struct communicator){device, nranks, rank % RANKS};
  *comm = &all[rank % RANKS];
  return DIT_OK;
}

static void comm_destroy(void *comm) {
  (void)comm;
}

static enum dit_status comm_get_async_error(void *comm, struct dit_error *err) {
  (void)comm;
  return fault == FALSE_ALARM ? dit_error_set(err, DIT_ERR_DEVICE, "a link is down") : DIT_OK;
}

static enum dit_status all_reduce(const void *send, void *recv, size_t count, int dtype, enum dit_reduce_op op,
                                  void *comm, void *stream, struct dit_error *err) {
  return fold_part(comm, send, recv, count, 0, count, dtype, op, stream, err);
}

static enum dit_status reduce(const void *send, void *recv, size_t count, int dtype, enum dit_reduce_op op, int root,
                              void *comm, void *stream, struct dit_error *err) {
  const struct communicator *own = comm;
  const bool gets = own->rank == root || fault == WRITES_EVERYWHERE;
  return fold_part(own, send, gets ? recv : NULL, count, 0, count, dtype, op, stream, err);
}

static enum dit_status reduce_scatter(const void *send, void *recv, size_t recv_count, int dtype, enum dit_reduce_op op,
                                      void *comm, void *stream, struct dit_error *err) {
  const struct communicator *own = comm;
  const size_t first = fault == FIRST_PART ? 0 : (size_t)own->rank * recv_count;
  return fold_part(own, send, recv, (size_t)own->ranks * recv_count, first, recv_count, dtype, op, stream, err);
}

static enum dit_status broadcast(const void *send, void *recv, size_t count, int dtype, int root, void *comm,
                                 void *stream, struct dit_error *err) {
  const struct communicator *own = comm;
  const size_t size = get_bytes(count, dtype);
  DIT_RETURN_IF_NOT_OK(bring(own, send, size, stream, err));
  return take(own, recv, place.sent[fault == ROOT_IGNORED ? 0 : root], size, err);
}

static enum dit_status all_gather(const void *send, void *recv, size_t send_count, int dtype, void *comm, void *stream,
                                  struct dit_error *err) {
  const struct communicator *own = comm;
  const size_t size = get_bytes(send_count, dtype);
  char bytes[RANKS * SIZE];
  DIT_RETURN_IF_NOT_OK(bring(own, send, size, stream, err));
  for (int rank = 0; rank < own->ranks; rank++) {
    memcpy(bytes + (size_t)rank * size, place.sent[fault == PARTS_SWAPPED ? own->ranks - 1 - rank : rank], size);
  }
  return take(own, recv, bytes, (size_t)own->ranks * size, err);
}

static enum dit_status send_to(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream,
                               struct dit_error *err) {
  (void)peer;
  DIT_RETURN_IF_NOT_OK(bring(comm, buffer, get_bytes(count, dtype), stream, err));
  return take(comm, NULL, NULL, 0, err);
}

static enum dit_status receive(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream,
                               struct dit_error *err) {
  const struct communicator *own = comm;
  DIT_RETURN_IF_NOT_OK(wrong_base->stream_synchronize(own->device, stream, err));
  meet(own->ranks);
  return take(own, buffer, place.sent[peer], get_bytes(count, dtype), err);
}

static enum dit_status all_to_all_v(const void *send, const size_t *send_counts, const size_t *send_offsets, void *recv,
                                    const size_t *recv_counts, const size_t *recv_offsets, int dtype, void *comm,
                                    void *stream, struct dit_error *err) {
  const struct communicator *own = comm;
  size_t end = 0, at = 0;
  for (int peer = 0; peer < own->ranks; peer++) {
    const size_t stop = send_offsets[peer] + send_counts[peer];
    end = stop > end ? stop : end;
    place.offsets[own->rank][peer] = send_offsets[peer];
  }
  enum dit_status status = bring(own, send, get_bytes(end, dtype), stream, err);
  for (int peer = 0; peer < own->ranks && status == DIT_OK; peer++) {
    const size_t offset = fault == OFFSETS_IGNORED ? at : recv_offsets[peer];
    const struct dit_copy copy = {(char *)recv + get_bytes(offset, dtype),
                                  place.sent[peer] + get_bytes(place.offsets[peer][own->rank], dtype),
                                  get_bytes(recv_counts[peer], dtype),
                                  DIT_COPY_HOST_TO_DEVICE,
                                  own->device,
                                  -1};
    status = copy.size > 0 ? wrong_base->copy(&copy, err) : DIT_OK;
    at += recv_counts[peer];
  }
  meet(own->ranks);
  return status;
}

static const struct dit_collective_vtable collectives = {.struct_size = sizeof collectives,
                                                         .get_unique_id = get_unique_id,
                                                         .comm_create = comm_create,
                                                         .comm_destroy = comm_destroy,
                                                         .comm_get_async_error = comm_get_async_error,
                                                         .all_reduce = all_reduce,
                                                         .broadcast = broadcast,
                                                         .all_gather = all_gather,
                                                         .reduce = reduce,
                                                         .reduce_scatter = reduce_scatter,
                                                         .send = send_to,
                                                         .recv = receive,
                                                         .all_to_all_v = all_to_all_v};

#define DEFECT(name, value)                 \
  static void name(void) {                  \
    fault = value;                          \
    wrong_table.collectives = &collectives; \
  }
#define DEFECTS(X)                                   \
  X(right_collectives, NO_FAULT)                     \
  X(collective_average_sums, AVERAGE_SUMS)           \
  X(collective_counts_bytes, COUNTS_BYTES)           \
  X(collective_root_ignored, ROOT_IGNORED)           \
  X(collective_parts_swapped, PARTS_SWAPPED)         \
  X(collective_first_part, FIRST_PART)               \
  X(collective_reads_early, READS_EARLY)             \
  X(collective_writes_everywhere, WRITES_EVERYWHERE) \
  X(collective_offsets_ignored, OFFSETS_IGNORED)     \
  X(collective_narrow, NARROW)                       \
  X(collective_any_dtype, ANY_DTYPE)                 \
  X(collective_same_id, SAME_ID)                     \
  X(collective_any_rank, ANY_RANK)                   \
  X(collective_false_alarm, FALSE_ALARM)             \
  X(collective_hangs, ONE_STAYS_AWAY)
DEFECTS(DEFECT)

#define ROW(name, value) {#name, name},
const struct wrong_defect wrong_collective_defects[] = {DEFECTS(ROW){NULL, NULL}};
