/// Collectives of CUDA devices by NCCL, which is looked up at run time (libnccl.so.2; option cuda_nccl).
///
/// Its functions and numbers are declared here in our own words (nccl.h's stable interface). What only moves is moved
/// as bytes, so that every dtype can be; reductions know NCCL's own dtypes, complex numbers as pairs (sum and mean),
/// and bool as in PyTorch: sum is "any", product is "all". A call enters its communicator's device and only queues
/// work.
#include "collective.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "device.h"
#include "dit/alloc.h"
#include "dit/dtype.h"
#include "dit/log.h"
#include "engine/packages.h"

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };
enum {
  NCCL_INT8,
  NCCL_UINT8,
  NCCL_INT32,
  NCCL_UINT32,
  NCCL_INT64,
  NCCL_UINT64,
  NCCL_FLOAT16,
  NCCL_FLOAT32,
  NCCL_FLOAT64,
  NCCL_BFLOAT16
};
enum { NCCL_SUM, NCCL_PRODUCT, NCCL_MAX, NCCL_MIN, NCCL_AVERAGE };

/// Result, name without nccl, parameters. An id is passed by value, 128 bytes.
#define NCCL_FUNCTIONS(X)                                                                                             \
  X(const char *, GetErrorString, (int result))                                                                       \
  X(int, GetUniqueId, (struct dit_unique_id * id))                                                                    \
  X(int, CommInitRank, (void **comm, int ranks, struct dit_unique_id id, int rank))                                   \
  X(int, CommDestroy, (void *comm))                                                                                   \
  X(int, CommGetAsyncError, (void *comm, int *result))                                                                \
  X(int, AllReduce, (const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream))        \
  X(int, Broadcast, (const void *send, void *recv, size_t count, int dtype, int root, void *comm, void *stream))      \
  X(int, Reduce, (const void *send, void *recv, size_t count, int dtype, int op, int root, void *comm, void *stream)) \
  X(int, AllGather, (const void *send, void *recv, size_t count, int dtype, void *comm, void *stream))                \
  X(int, ReduceScatter, (const void *send, void *recv, size_t count, int dtype, int op, void *comm, void *stream))    \
  X(int, Send, (const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream))                     \
  X(int, Recv, (void *buffer, size_t count, int dtype, int peer, void *comm, void *stream))                           \
  X(int, GroupStart, (void))                                                                                          \
  X(int, GroupEnd, (void))

static struct {
#define NCCL_MEMBER(result, name, parameters) result(*name) parameters;
  NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
} nccl;

struct communicator {
  void *comm;
  int device, ranks, rank;
};

// The library

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_available;
static char library_text[2048];  ///< its path, or why there is none

static void find_library(void) {
  static const char *const places[] = {"nvidia/nccl/lib/libnccl.so.2", NULL}, *const names[] = {"libnccl.so.2", NULL};
#define NCCL_NAME(result, name, parameters) "nccl" #name,
  static const char *const functions[] = {NCCL_FUNCTIONS(NCCL_NAME) NULL};
#undef NCCL_NAME
  const struct packages_library wanted = {"cuda_nccl", places, names, functions, &nccl};
  is_available = packages_load_library(&wanted, library_text, sizeof(library_text));
  dit_log_write(DIT_LOG_INFO, "cuda: %s%s", is_available ? "collectives by " : "no collectives: ", library_text);
}

static enum dit_status check_library(struct dit_error *err) {
  pthread_once(&once, find_library);
  return is_available ? DIT_OK : dit_error_set(err, DIT_ERR_UNSUPPORTED, "no collectives: %s", library_text);
}

static enum dit_status check(int result, const char *what, struct dit_error *err) {
  return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
             ? DIT_OK
             : dit_error_set(err, DIT_ERR_DEVICE, "NCCL: %s: %s (%d)", what, nccl.GetErrorString(result), result);
}

// What is reduced

struct reduction {
  int dtype, op;
  size_t count;
};

static int find_dtype(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_I8:
      return NCCL_INT8;
    case DIT_DTYPE_U8:
    case DIT_DTYPE_BOOL:
      return NCCL_UINT8;
    case DIT_DTYPE_I32:
      return NCCL_INT32;
    case DIT_DTYPE_U32:
      return NCCL_UINT32;
    case DIT_DTYPE_I64:
      return NCCL_INT64;
    case DIT_DTYPE_U64:
      return NCCL_UINT64;
    case DIT_DTYPE_F16:
      return NCCL_FLOAT16;
    case DIT_DTYPE_F32:
    case DIT_DTYPE_C64:
      return NCCL_FLOAT32;
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      return NCCL_FLOAT64;
    case DIT_DTYPE_BF16:
      return NCCL_BFLOAT16;
    default:
      return -1;
  }
}

static enum dit_status set_reduction(struct reduction *out, int dtype, enum dit_reduce_op op, size_t count,
                                     struct dit_error *err) {
  static const int ops[] = {NCCL_SUM, NCCL_AVERAGE, NCCL_PRODUCT, NCCL_MIN, NCCL_MAX};
  const bool is_complex = dtype == DIT_DTYPE_C64 || dtype == DIT_DTYPE_C128, is_bool = dtype == DIT_DTYPE_BOOL;
  *out = (struct reduction){find_dtype(dtype), (unsigned)op < 5 ? ops[op] : -1, is_complex ? 2 * count : count};
  const bool adds = op == DIT_REDUCE_OP_SUM || op == DIT_REDUCE_OP_AVG;
  if (out->dtype < 0 || out->op < 0 || (is_complex && !adds) || (is_bool && op == DIT_REDUCE_OP_AVG)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED, "NCCL does not reduce %s with operation %d",
                         dit_dtype_get_name(dtype), (int)op);
  }
  if (is_bool) {
    out->op = op == DIT_REDUCE_OP_SUM ? NCCL_MAX : op == DIT_REDUCE_OP_PRODUCT ? NCCL_MIN : out->op;
  }
  return DIT_OK;
}

static size_t get_bytes(size_t count, int dtype) {
  return count * dit_dtype_get_size(dtype);
}

// Communicators

static enum dit_status get_unique_id(struct dit_unique_id *id, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(check_library(err));
  return check(nccl.GetUniqueId(id), "ncclGetUniqueId", err);
}

static enum dit_status comm_create(int device, int nranks, int rank, const struct dit_unique_id *id, void **comm,
                                   struct dit_error *err) {
  struct context_guard guard;
  void *inner = NULL;
  DIT_RETURN_IF_NOT_OK(check_library(err));
  struct communicator *fresh = dit_calloc(1, sizeof *fresh);
  if (!fresh) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for a communicator");
  }
  enum dit_status status = context_enter(&guard, device, err);
  if (status == DIT_OK) {
    status = check(nccl.CommInitRank(&inner, nranks, *id, rank), "ncclCommInitRank", err);
    context_leave(&guard);
  }
  if (status != DIT_OK) {
    dit_free(fresh);
    return status;
  }
  *fresh = (struct communicator){inner, device, nranks, rank};
  *comm = fresh;
  return DIT_OK;
}

static void comm_destroy(void *comm) {
  struct communicator *own = comm;
  struct dit_error err = {.message = ""};
  struct context_guard guard;
  if (own && context_enter(&guard, own->device, &err) == DIT_OK) {
    (void)nccl.CommDestroy(own->comm);
    context_leave(&guard);
  }
  dit_free(own);
}

static enum dit_status comm_get_async_error(void *comm, struct dit_error *err) {
  int result = NCCL_SUCCESS;
  DIT_RETURN_IF_NOT_OK(
      check(nccl.CommGetAsyncError(((struct communicator *)comm)->comm, &result), "ncclCommGetAsyncError", err));
  return check(result, "the communicator failed", err);
}

static enum dit_status comm_get_name(void *comm, char *name, size_t size, struct dit_error *err) {
  const struct communicator *own = comm;
  (void)err;
  snprintf(name, size, "nccl:%d/%d", own->rank, own->ranks);
  return DIT_OK;
}

// Collectives. ENTER declares `own`, the communicator, and stands in its device's context until LEAVE.

#define ENTER                            \
  const struct communicator *own = comm; \
  struct context_guard guard;            \
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, own->device, err))
#define LEAVE(call, what)             \
  do {                                \
    const int result_ = (call);       \
    context_leave(&guard);            \
    return check(result_, what, err); \
  } while (0)

static enum dit_status all_reduce(const void *send, void *recv, size_t count, int dtype, enum dit_reduce_op op,
                                  void *comm, void *stream, struct dit_error *err) {
  struct reduction r;
  DIT_RETURN_IF_NOT_OK(set_reduction(&r, dtype, op, count, err));
  ENTER;
  LEAVE(nccl.AllReduce(send, recv, r.count, r.dtype, r.op, own->comm, stream), "ncclAllReduce");
}

static enum dit_status broadcast(const void *send, void *recv, size_t count, int dtype, int root, void *comm,
                                 void *stream, struct dit_error *err) {
  ENTER;
  LEAVE(nccl.Broadcast(send, recv, get_bytes(count, dtype), NCCL_UINT8, root, own->comm, stream), "ncclBroadcast");
}

static enum dit_status all_gather(const void *send, void *recv, size_t send_count, int dtype, void *comm, void *stream,
                                  struct dit_error *err) {
  ENTER;
  LEAVE(nccl.AllGather(send, recv, get_bytes(send_count, dtype), NCCL_UINT8, own->comm, stream), "ncclAllGather");
}

static enum dit_status reduce(const void *send, void *recv, size_t count, int dtype, enum dit_reduce_op op, int root,
                              void *comm, void *stream, struct dit_error *err) {
  struct reduction r;
  DIT_RETURN_IF_NOT_OK(set_reduction(&r, dtype, op, count, err));
  ENTER;
  LEAVE(nccl.Reduce(send, recv, r.count, r.dtype, r.op, root, own->comm, stream), "ncclReduce");
}

static enum dit_status reduce_scatter(const void *send, void *recv, size_t recv_count, int dtype, enum dit_reduce_op op,
                                      void *comm, void *stream, struct dit_error *err) {
  struct reduction r;
  DIT_RETURN_IF_NOT_OK(set_reduction(&r, dtype, op, recv_count, err));
  ENTER;
  LEAVE(nccl.ReduceScatter(send, recv, r.count, r.dtype, r.op, own->comm, stream), "ncclReduceScatter");
}

static enum dit_status send_to(const void *buffer, size_t count, int dtype, int peer, void *comm, void *stream,
                               struct dit_error *err) {
  ENTER;
  LEAVE(nccl.Send(buffer, get_bytes(count, dtype), NCCL_UINT8, peer, own->comm, stream), "ncclSend");
}

static enum dit_status receive(void *buffer, size_t count, int dtype, int peer, void *comm, void *stream,
                               struct dit_error *err) {
  ENTER;
  LEAVE(nccl.Recv(buffer, get_bytes(count, dtype), NCCL_UINT8, peer, own->comm, stream), "ncclRecv");
}

/// Sizes and offsets in bytes; those that are empty are left out on both sides.
static int exchange(const struct communicator *own, int peer, const char *send, size_t send_size, char *recv,
                    size_t recv_size, void *stream) {
  int result = NCCL_SUCCESS;
  if (send_size > 0) {
    result = nccl.Send(send, send_size, NCCL_UINT8, peer, own->comm, stream);
  }
  if (result == NCCL_SUCCESS && recv_size > 0) {
    result = nccl.Recv(recv, recv_size, NCCL_UINT8, peer, own->comm, stream);
  }
  return result;
}

/// The group is closed also after a failure; the first one is told.
static int close_group(int result) {
  const int closed = nccl.GroupEnd();
  return result == NCCL_SUCCESS ? closed : result;
}

static enum dit_status all_to_all(const void *send, void *recv, size_t count_per_rank, int dtype, void *comm,
                                  void *stream, struct dit_error *err) {
  const size_t size = get_bytes(count_per_rank, dtype);
  ENTER;
  int result = nccl.GroupStart();
  for (int peer = 0; peer < own->ranks && result == NCCL_SUCCESS; peer++) {
    result = exchange(own, peer, (const char *)send + (size_t)peer * size, size, (char *)recv + (size_t)peer * size,
                      size, stream);
  }
  LEAVE(close_group(result), "all-to-all by ncclSend and ncclRecv");
}

static enum dit_status all_to_all_v(const void *send, const size_t *send_counts, const size_t *send_offsets, void *recv,
                                    const size_t *recv_counts, const size_t *recv_offsets, int dtype, void *comm,
                                    void *stream, struct dit_error *err) {
  ENTER;
  int result = nccl.GroupStart();
  for (int peer = 0; peer < own->ranks && result == NCCL_SUCCESS; peer++) {
    result = exchange(own, peer, (const char *)send + get_bytes(send_offsets[peer], dtype),
                      get_bytes(send_counts[peer], dtype), (char *)recv + get_bytes(recv_offsets[peer], dtype),
                      get_bytes(recv_counts[peer], dtype), stream);
  }
  LEAVE(close_group(result), "all-to-all by ncclSend and ncclRecv");
}

const struct dit_collective_vtable cuda_collectives = {.struct_size = sizeof(struct dit_collective_vtable),
                                                       .get_unique_id = get_unique_id,
                                                       .comm_create = comm_create,
                                                       .comm_destroy = comm_destroy,
                                                       .comm_get_async_error = comm_get_async_error,
                                                       .comm_get_name = comm_get_name,
                                                       .all_reduce = all_reduce,
                                                       .broadcast = broadcast,
                                                       .all_gather = all_gather,
                                                       .reduce = reduce,
                                                       .reduce_scatter = reduce_scatter,
                                                       .send = send_to,
                                                       .recv = receive,
                                                       .all_to_all = all_to_all,
                                                       .all_to_all_v = all_to_all_v};
