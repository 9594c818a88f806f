/// The collectives of the CUDA vendor over an emulated NCCL (tests/cuda_emulator/nccl.c): two ranks, a thread and a
/// device each. Work waits in its stream, so what is read too early, or runs in another stream, shows.
#include <dlfcn.h>
#include <string.h>

#include "device_test.h"

#define RANKS 2
#define COUNT ((size_t)6)

struct rank {
  pthread_t thread;
  int rank;
  void *comm, *stream, *send, *recv;
};

static struct dit_unique_id id;

static const struct dit_device_vtable *get(void) {
  return dit_runtime_get_vtable();
}

/// Fill what is sent: behind everything that the stream holds.
static void put(const struct rank *r, const void *bytes, size_t size) {
  struct dit_error err = {0};
  CHECK_OK(get()->memory_set(r->rank, r->stream, r->recv, 0x5A, 4096, &err));
  CHECK_OK(get()->copy_async(&(struct dit_copy){r->send, bytes, size, DIT_COPY_HOST_TO_DEVICE, r->rank, r->rank},
                             r->rank, r->stream, &err));
}

static void take(const struct rank *r, void *bytes, size_t size) {
  struct dit_error err = {0};
  CHECK_OK(get()->copy_async(&(struct dit_copy){bytes, r->recv, size, DIT_COPY_DEVICE_TO_HOST, r->rank, r->rank},
                             r->rank, r->stream, &err));
  CHECK_OK(get()->stream_synchronize(r->rank, r->stream, &err));
}

static void put_floats(const struct rank *r, float *values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    values[i] = (float)(i + 1) * (r->rank == 0 ? 1 : 10);
  }
  put(r, values, count * sizeof(float));
}

static void test_reductions(const struct rank *r) {
  const struct dit_collective_vtable *all = get()->collectives;
  struct dit_error err = {0};
  float values[2 * COUNT], got[2 * COUNT];
  static const struct {
    enum dit_reduce_op op;
    float first;  ///< of elements 1 and 10
  } ops[] = {{DIT_REDUCE_OP_SUM, 11},
             {DIT_REDUCE_OP_AVG, 5.5f},
             {DIT_REDUCE_OP_PRODUCT, 10},
             {DIT_REDUCE_OP_MIN, 1},
             {DIT_REDUCE_OP_MAX, 10}};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
    put_floats(r, values, COUNT);
    CHECK_OK(all->all_reduce(r->send, r->recv, COUNT, DIT_DTYPE_F32, ops[i].op, r->comm, r->stream, &err));
    take(r, got, COUNT * sizeof(float));
    const float third = ops[i].op == DIT_REDUCE_OP_PRODUCT ? 9 * ops[i].first : 3 * ops[i].first;
    CHECK(got[0] == ops[i].first && got[2] == third);
  }
  put_floats(r, values, COUNT);
  CHECK_OK(all->reduce(r->send, r->recv, COUNT, DIT_DTYPE_F32, DIT_REDUCE_OP_SUM, 1, r->comm, r->stream, &err));
  take(r, got, COUNT * sizeof(float));
  unsigned char untouched[4] = {0x5A, 0x5A, 0x5A, 0x5A};
  CHECK(r->rank == 1 ? got[1] == 22 : memcmp(got, untouched, 4) == 0);
  put_floats(r, values, 2 * COUNT);
  CHECK_OK(all->reduce_scatter(r->send, r->recv, COUNT, DIT_DTYPE_F32, DIT_REDUCE_OP_SUM, r->comm, r->stream, &err));
  take(r, got, COUNT * sizeof(float));
  CHECK(got[0] == (r->rank == 0 ? 11 : 77));
  // complex numbers are pairs
  put_floats(r, values, 2 * COUNT);
  CHECK_OK(all->all_reduce(r->send, r->recv, COUNT, DIT_DTYPE_C64, DIT_REDUCE_OP_SUM, r->comm, r->stream, &err));
  take(r, got, 2 * COUNT * sizeof(float));
  CHECK(got[0] == 11 && got[2 * COUNT - 1] == 132);
}

/// Bool: sum is "any", product is "all"; what NCCL has not is refused before anything happens.
static void test_dtypes(const struct rank *r) {
  const struct dit_collective_vtable *all = get()->collectives;
  struct dit_error err = {0};
  const unsigned char own[4] = {r->rank == 0, 1, 0, r->rank != 0};
  unsigned char got[4];
  put(r, own, sizeof own);
  CHECK_OK(all->all_reduce(r->send, r->recv, 4, DIT_DTYPE_BOOL, DIT_REDUCE_OP_SUM, r->comm, r->stream, &err));
  take(r, got, sizeof got);
  CHECK(got[0] == 1 && got[1] == 1 && got[2] == 0 && got[3] == 1);
  put(r, own, sizeof own);
  CHECK_OK(all->all_reduce(r->send, r->recv, 4, DIT_DTYPE_BOOL, DIT_REDUCE_OP_PRODUCT, r->comm, r->stream, &err));
  take(r, got, sizeof got);
  CHECK(got[0] == 0 && got[1] == 1 && got[2] == 0 && got[3] == 0);
  CHECK(all->all_reduce(r->send, r->recv, 4, DIT_DTYPE_I16, DIT_REDUCE_OP_SUM, r->comm, r->stream, &err) ==
        DIT_ERR_UNSUPPORTED);
  CHECK(strstr(err.message, "int16"));
  CHECK(all->all_reduce(r->send, r->recv, 4, DIT_DTYPE_C64, DIT_REDUCE_OP_MAX, r->comm, r->stream, &err) ==
        DIT_ERR_UNSUPPORTED);
}

/// What only moves: a dtype that NCCL does not know.
static void test_moves(const struct rank *r) {
  const struct dit_collective_vtable *all = get()->collectives;
  struct dit_error err = {0};
  const int16_t own[4] = {(int16_t)(100 * r->rank + 1), (int16_t)(100 * r->rank + 2), (int16_t)(100 * r->rank + 3),
                          (int16_t)(100 * r->rank + 4)};
  int16_t got[8];
  const int other = 1 - r->rank;
  put(r, own, sizeof own);
  CHECK_OK(all->broadcast(r->send, r->recv, 4, DIT_DTYPE_I16, 1, r->comm, r->stream, &err));
  take(r, got, sizeof own);
  CHECK(got[0] == 101 && got[3] == 104);
  put(r, own, sizeof own);
  CHECK_OK(all->all_gather(r->send, r->recv, 4, DIT_DTYPE_I16, r->comm, r->stream, &err));
  take(r, got, sizeof got);
  CHECK(got[0] == 1 && got[3] == 4 && got[4] == 101 && got[7] == 104);
  put(r, own, sizeof own);
  CHECK_OK(all->all_to_all(r->send, r->recv, 2, DIT_DTYPE_I16, r->comm, r->stream, &err));
  take(r, got, sizeof own);
  CHECK(got[0] == 1 + 2 * r->rank && got[2] == 101 + 2 * r->rank);
  // rank 0 sends 3 to rank 1 and nothing to itself; rank 1 sends 1 to each
  const size_t send_counts[2] = {(size_t)(r->rank == 0 ? 0 : 1), (size_t)(r->rank == 0 ? 3 : 1)};
  const size_t send_offsets[2] = {0, 1}, recv_counts[2] = {(size_t)(r->rank == 0 ? 0 : 3), 1}, recv_offsets[2] = {0, 3};
  put(r, own, sizeof own);
  CHECK_OK(all->all_to_all_v(r->send, send_counts, send_offsets, r->recv, recv_counts, recv_offsets, DIT_DTYPE_I16,
                             r->comm, r->stream, &err));
  take(r, got, sizeof own);
  CHECK(r->rank == 0 ? got[3] == 101 && got[0] == 0x5A5A : got[0] == 2 && got[2] == 4 && got[3] == 102);
  put(r, own, sizeof own);
  CHECK_OK(r->rank == 0 ? all->send(r->send, 4, DIT_DTYPE_I16, other, r->comm, r->stream, &err)
                        : all->recv(r->recv, 4, DIT_DTYPE_I16, other, r->comm, r->stream, &err));
  take(r, got, sizeof own);
  CHECK(r->rank == 0 ? got[0] == 0x5A5A : got[0] == 1 && got[3] == 4);
}

static void *run_rank(void *argument) {
  struct rank *r = argument;
  struct dit_error err = {0};
  char name[32];
  const struct dit_collective_vtable *all = get()->collectives;
  CHECK_OK(all->comm_create(r->rank, RANKS, r->rank, &id, &r->comm, &err));
  CHECK_OK(get()->stream_create(r->rank, 0, &r->stream, &err));
  r->send = take_memory(r->rank, 4096);
  r->recv = take_memory(r->rank, 4096);
  test_reductions(r);
  test_dtypes(r);
  test_moves(r);
  CHECK_OK(all->comm_get_name(r->comm, name, sizeof name, &err));
  CHECK(strcmp(name, r->rank == 0 ? "nccl:0/2" : "nccl:1/2") == 0);
  CHECK_OK(all->comm_get_async_error(r->comm, &err));
  all->comm_destroy(r->comm);
  CHECK_OK(get()->stream_destroy(r->rank, r->stream, &err));
  give_memory(r->rank, r->send);
  give_memory(r->rank, r->recv);
  return NULL;
}

int main(void) {
  struct dit_error err = {0};
  struct rank ranks[RANKS] = {{.rank = 0}, {.rank = 1}};
  CHECK(dlopen(DIT_TEST_EMULATOR, RTLD_NOW | RTLD_GLOBAL) != NULL);
  dit_runtime_shutdown();
  dit_options_reset();
  CHECK_OK(dit_option_set("cuda_nccl", DIT_TEST_NCCL, &err));
  CHECK_OK(dit_runtime_init("cuda", &err));
  CHECK(get()->collectives && get()->collectives->struct_size == sizeof(struct dit_collective_vtable));
  CHECK_OK(get()->collectives->get_unique_id(&id, &err));
  void *comm = NULL;
  CHECK(get()->collectives->comm_create(0, RANKS, 7, &id, &comm, &err) == DIT_ERR_DEVICE && !comm);
  CHECK(strstr(err.message, "ncclCommInitRank"));
  for (int i = 0; i < RANKS; i++) {
    CHECK(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]) == 0);
  }
  for (int i = 0; i < RANKS; i++) {
    CHECK(pthread_join(ranks[i].thread, NULL) == 0);
  }
  return 0;
}
