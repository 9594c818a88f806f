/// An emulated NCCL for tests: ranks are threads of this process, each with a device of the emulated driver.
///
/// A call (or a closed group) is a round that all ranks of a communicator take part in. In the order of its stream a
/// rank publishes a copy of what it sends; its results are computed behind everybody's events, so that a stream that
/// was forgotten shows. Calls wait for the other ranks on the host, which the real library does not. EMULATED_NCCL_LOG
/// in the environment: a line on stderr for each.
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define RANKS 4
#define ITEMS 16
#define INVALID 4

struct unique_id {
  char bytes[128];
};

enum kind { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
struct item {
  enum kind kind;
  const void *send;
  void *recv, *copy;
  size_t count, send_size;
  int dtype, op, peer;
};
struct part {
  struct item items[ITEMS];
  int count;
  void *event, *stream;
};
struct round {
  struct round *next;
  uint64_t number;
  struct part parts[RANKS];
  int arrived;
};
struct group {
  struct group *next;
  char id[128];
  int ranks, joined;
  struct round *rounds;
};
struct comm {
  struct group *group;
  int rank;
  uint64_t rounds;
};
struct task {
  struct round *round;
  int rank, ranks;
};

int cuLaunchHostFunc(void *stream, void (*function)(void *), void *argument);
int cuEventCreate(void **event, unsigned flags);
int cuEventRecord(void *event, void *stream);
int cuStreamWaitEvent(void *stream, void *event, unsigned flags);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct group *groups;
static _Thread_local int depth;
static _Thread_local struct comm *pending_comm;
static _Thread_local struct part pending;

API const char *ncclGetErrorString(int result) {
  return result == INVALID ? "invalid argument" : "emulated";
}

API int ncclGetUniqueId(struct unique_id *id) {
  static int number;
  memset(id, 0, sizeof *id);
  pthread_mutex_lock(&lock);
  snprintf(id->bytes, sizeof id->bytes, "emulated %d", ++number);
  pthread_mutex_unlock(&lock);
  return 0;
}

API int ncclCommInitRank(void **comm, int ranks, struct unique_id id, int rank) {
  if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks) {
    return INVALID;
  }
  pthread_mutex_lock(&lock);
  struct group *group = groups;
  while (group && memcmp(group->id, id.bytes, sizeof id.bytes) != 0) {
    group = group->next;
  }
  if (!group) {
    group = calloc(1, sizeof *group);
    memcpy(group->id, id.bytes, sizeof id.bytes);
    group->ranks = ranks;
    group->next = groups;
    groups = group;
  }
  group->joined++;
  pthread_cond_broadcast(&changed);
  while (group->joined < group->ranks) {
    pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
  struct comm *fresh = calloc(1, sizeof *fresh);
  *fresh = (struct comm){group, rank, 0};
  *comm = fresh;
  return 0;
}

API int ncclCommDestroy(void *comm) {
  free(comm);
  return 0;
}
API int ncclCommGetAsyncError(void *comm, int *result) {
  *result = comm ? 0 : INVALID;
  return 0;
}

// Elements: int8, uint8, int32, uint32, int64, uint64, float16, float, double, bfloat16

static size_t get_size(int dtype) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[dtype];
}
static double get(const void *data, int dtype, size_t i) {
  switch (dtype) {
    case 0:
      return ((const int8_t *)data)[i];
    case 1:
      return ((const uint8_t *)data)[i];
    case 2:
      return ((const int32_t *)data)[i];
    case 3:
      return ((const uint32_t *)data)[i];
    case 4:
      return (double)((const int64_t *)data)[i];
    case 5:
      return (double)((const uint64_t *)data)[i];
    case 6:
      return (double)((const _Float16 *)data)[i];
    case 9: {
      float wide = 0;
      memcpy((char *)&wide + 2, (const char *)data + 2 * i, 2);
      return (double)wide;
    }
    case 7:
      return (double)((const float *)data)[i];
    default:
      return ((const double *)data)[i];
  }
}
static void set(void *data, int dtype, size_t i, double value) {
  switch (dtype) {
    case 0:
      ((int8_t *)data)[i] = (int8_t)value;
      return;
    case 1:
      ((uint8_t *)data)[i] = (uint8_t)value;
      return;
    case 2:
      ((int32_t *)data)[i] = (int32_t)value;
      return;
    case 3:
      ((uint32_t *)data)[i] = (uint32_t)value;
      return;
    case 4:
      ((int64_t *)data)[i] = (int64_t)value;
      return;
    case 5:
      ((uint64_t *)data)[i] = (uint64_t)value;
      return;
    case 6:
      ((_Float16 *)data)[i] = (_Float16)value;
      return;
    case 9: {
      uint32_t bits;
      const float wide = (float)value;
      memcpy(&bits, &wide, sizeof bits);
      bits += 0x7FFF + (bits >> 16 & 1);  // to the nearest, ties to even
      memcpy((char *)data + 2 * i, (const char *)&bits + 2, 2);
      return;
    }
    case 7:
      ((float *)data)[i] = (float)value;
      return;
    default:
      ((double *)data)[i] = value;
  }
}
static double join(double a, double b, int op) {
  return op == 1 ? a * b : op == 2 ? (a > b ? a : b) : op == 3 ? (a < b ? a : b) : a + b;
}

static void fold(const struct task *task, int number, size_t from) {
  const struct item *own = &task->round->parts[task->rank].items[number];
  for (size_t i = 0; i < own->count; i++) {
    double total = get(task->round->parts[0].items[number].copy, own->dtype, from + i);
    for (int rank = 1; rank < task->ranks; rank++) {
      total = join(total, get(task->round->parts[rank].items[number].copy, own->dtype, from + i), own->op);
    }
    set(own->recv, own->dtype, i, own->op == 4 ? total / task->ranks : total);
  }
}

/// The message that the `number`-th receive from this peer gets.
static const struct item *find_message(const struct task *task, int number) {
  const struct part *own = &task->round->parts[task->rank], *other = &task->round->parts[own->items[number].peer];
  int before = 0;
  for (int i = 0; i < number; i++) {
    before += own->items[i].kind == RECV && own->items[i].peer == own->items[number].peer;
  }
  for (int i = 0; i < other->count; i++) {
    if (other->items[i].kind == SEND && other->items[i].peer == task->rank && before-- == 0) {
      return &other->items[i];
    }
  }
  return NULL;
}

static void run_item(const struct task *task, int number) {
  const struct part *parts = task->round->parts;
  const struct item *item = &parts[task->rank].items[number];
  const size_t size = item->count * get_size(item->dtype);
  if (item->kind == ALL_REDUCE || (item->kind == REDUCE && item->peer == task->rank)) {
    fold(task, number, 0);
  } else if (item->kind == REDUCE_SCATTER) {
    fold(task, number, (size_t)task->rank * item->count);
  } else if (item->kind == BROADCAST) {
    memcpy(item->recv, parts[item->peer].items[number].copy, size);
  } else if (item->kind == ALL_GATHER) {
    for (int rank = 0; rank < task->ranks; rank++) {
      memcpy((char *)item->recv + (size_t)rank * size, parts[rank].items[number].copy, size);
    }
  } else if (item->kind == RECV) {
    const struct item *message = find_message(task, number);
    if (!message || message->send_size != size) {
      abort();  // the real library would hang
    }
    memcpy(item->recv, message->copy, size);
  }
}

static void publish(void *argument) {
  struct part *part = argument;
  for (int i = 0; i < part->count; i++) {
    struct item *item = &part->items[i];
    item->copy = malloc(item->send_size + 1);
    if (item->send_size > 0) {
      memcpy(item->copy, item->send, item->send_size);
    }
  }
}
static void compute(void *argument) {
  struct task *task = argument;
  for (int i = 0; i < task->round->parts[task->rank].count; i++) {
    run_item(task, i);
  }
  free(task);
}

/// All ranks of the communicator meet here.
static struct round *meet(struct comm *comm, const struct part *part) {
  struct group *group = comm->group;
  pthread_mutex_lock(&lock);
  struct round *round = group->rounds;
  while (round && round->number != comm->rounds) {
    round = round->next;
  }
  if (!round) {
    round = calloc(1, sizeof *round);
    round->number = comm->rounds;
    round->next = group->rounds;
    group->rounds = round;
  }
  struct part *own = &round->parts[comm->rank];
  *own = *part;
  pthread_mutex_unlock(&lock);
  cuEventCreate(&own->event, 2);
  cuLaunchHostFunc(own->stream, publish, own);
  cuEventRecord(own->event, own->stream);
  pthread_mutex_lock(&lock);
  round->arrived++;
  pthread_cond_broadcast(&changed);
  while (round->arrived < group->ranks) {
    pthread_cond_wait(&changed, &lock);
  }
  pthread_mutex_unlock(&lock);
  comm->rounds++;
  return round;
}

static int run(struct comm *comm, const struct part *part) {
  const int ranks = comm->group->ranks;
  struct round *round = meet(comm, part);
  if (getenv("EMULATED_NCCL_LOG")) {
    fprintf(stderr, "emulated NCCL: rank %d\n", comm->rank);
  }
  for (int rank = 0; rank < ranks; rank++) {
    if (rank != comm->rank) {
      cuStreamWaitEvent(part->stream, round->parts[rank].event, 0);
    }
  }
  struct task *task = malloc(sizeof *task);
  *task = (struct task){round, comm->rank, ranks};
  return cuLaunchHostFunc(part->stream, compute, task);
}

static int add(void *comm, void *stream, struct item item) {
  if (!comm || pending.count == ITEMS || item.dtype < 0 || item.dtype > 9) {
    return INVALID;
  }
  pending_comm = comm;
  pending.stream = stream;
  pending.items[pending.count++] = item;
  if (depth > 0) {
    return 0;
  }
  const struct part part = pending;
  pending.count = 0;
  return run(comm, &part);
}

API int ncclGroupStart(void) {
  depth++;
  return 0;
}
API int ncclGroupEnd(void) {
  if (--depth > 0 || pending.count == 0) {
    return 0;
  }
  const struct part part = pending;
  pending.count = 0;
  return run(pending_comm, &part);
}

API int ncclAllReduce(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream) {
  return add(comm, stream, (struct item){ALL_REDUCE, send, recv, NULL, count, count * get_size(dtype), dtype, op, 0});
}
API int ncclBroadcast(const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream) {
  const bool is_root = ((struct comm *)comm)->rank == root;
  const size_t size = is_root ? count * get_size(dtype) : 0;
  return add(comm, stream, (struct item){BROADCAST, send, recv, NULL, count, size, dtype, 0, root});
}
API int ncclReduce(const void *send, void *recv, size_t count, int dtype, int op, int root, void *comm, void *stream) {
  return add(comm, stream, (struct item){REDUCE, send, recv, NULL, count, count * get_size(dtype), dtype, op, root});
}
API int ncclAllGather(const void *send, void *recv, size_t count, int dtype, void *comm, void *stream) {
  return add(comm, stream, (struct item){ALL_GATHER, send, recv, NULL, count, count * get_size(dtype), dtype, 0, 0});
}
API int ncclReduceScatter(const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream) {
  const size_t size = count * get_size(dtype) * (size_t)((struct comm *)comm)->group->ranks;
  return add(comm, stream, (struct item){REDUCE_SCATTER, send, recv, NULL, count, size, dtype, op, 0});
}
API int ncclSend(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream) {
  return add(comm, stream, (struct item){SEND, buffer, NULL, NULL, count, count * get_size(dtype), dtype, 0, peer});
}
API int ncclRecv(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream) {
  return add(comm, stream, (struct item){RECV, NULL, buffer, NULL, count, 0, dtype, 0, peer});
}
