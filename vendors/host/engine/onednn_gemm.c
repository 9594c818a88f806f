/// Matrix products by oneDNN (see onednn.h): a batch is cut into ranges, a large matrix into tiles, by shape alone.
#include <stdatomic.h>
#include <string.h>

#include "dit/dtype.h"
#include "dit/parallel.h"
#include "onednn.h"
#include "onednn_plan.h"

enum {
  KEY_KIND,
  KEY_DTYPE,
  KEY_BIAS,
  KEY_ADDS,
  KEY_BATCH,
  KEY_M,
  KEY_N,
  KEY_K,
  KEY_A,
  KEY_B = KEY_A + 3,
  KEY_OUT = KEY_B + 3
};
enum { KIND_GEMM = 16, TILES = 64, TILE_ROWS = 256, TILE_COLUMNS = 128 };
#define TILE_WORK 16777216.0  // multiplications of a tile

// One plan

static bool make_desc(const struct onednn_library *library, void **out, const int64_t *key, int rows, int columns,
                      int strides, int dtype) {
  // a batch that repeats one matrix has size 1
  const int64_t dims[ONEDNN_DIMS] = {key[strides] == 0 ? 1 : key[KEY_BATCH], key[rows], key[columns]};
  int64_t steps[ONEDNN_DIMS] = {key[strides], key[strides + 1], key[strides + 2]};
  if (dims[0] == 1) {
    steps[0] = dims[1] * dims[2] * (steps[1] > steps[2] ? steps[1] : steps[2]);
  }
  return library->memory_desc_create_with_strides(out, 3, dims, dtype, steps) == ONEDNN_SUCCESS;
}

static bool set_attributes(const struct onednn_library *library, void **attr, void **post_ops, bool adds) {
  if (library->primitive_attr_create(attr) != ONEDNN_SUCCESS ||
      library->primitive_attr_set_scratchpad_mode(*attr, ONEDNN_OWN_SCRATCH) != ONEDNN_SUCCESS) {
    return false;
  }
  return !adds || (library->post_ops_create(post_ops) == ONEDNN_SUCCESS &&
                   library->post_ops_append_sum(*post_ops, 1.0F, 0, 0) == ONEDNN_SUCCESS &&
                   library->primitive_attr_set_post_ops(*attr, *post_ops) == ONEDNN_SUCCESS);
}

static bool build_gemm(const struct onednn_library *library, struct onednn_plan *plan) {
  static const int queries[] = {ONEDNN_QUERY_SRC, ONEDNN_QUERY_WEIGHTS, ONEDNN_QUERY_DST, ONEDNN_QUERY_WEIGHTS};
  const int64_t *key = plan->key.values;
  const int dtype = (int)key[KEY_DTYPE];
  const int64_t dims[ONEDNN_DIMS] = {1, 1, key[KEY_N]}, steps[ONEDNN_DIMS] = {key[KEY_N], key[KEY_N], 1};
  void *a = NULL, *b = NULL, *out = NULL, *bias = NULL, *attr = NULL, *post_ops = NULL;
  bool done =
      make_desc(library, &a, key, KEY_M, KEY_K, KEY_A, dtype) &&
      make_desc(library, &b, key, KEY_K, KEY_N, KEY_B, dtype) &&
      make_desc(library, &out, key, KEY_M, KEY_N, KEY_OUT, dtype) &&
      (!key[KEY_BIAS] || library->memory_desc_create_with_strides(&bias, 3, dims, dtype, steps) == ONEDNN_SUCCESS);
  plan->operands[0] = (struct onednn_operand){.argument = ONEDNN_ARG_SRC, .desc = a};
  plan->operands[1] = (struct onednn_operand){.argument = ONEDNN_ARG_WEIGHTS, .desc = b};
  plan->operands[2] = (struct onednn_operand){.argument = ONEDNN_ARG_DST, .desc = out, .result = true};
  plan->operands[3] = (struct onednn_operand){.argument = ONEDNN_ARG_BIAS, .desc = bias};
  plan->count = bias ? 4 : 3;
  done = done && set_attributes(library, &attr, &post_ops, key[KEY_ADDS]) &&
         library->matmul_primitive_desc_create(&plan->desc, library->engine, a, b, bias, out, attr) == ONEDNN_SUCCESS &&
         onednn_plan_finish(library, plan, queries, false);
  if (post_ops) {
    library->post_ops_destroy(post_ops);
  }
  if (attr) {
    library->primitive_attr_destroy(attr);
  }
  return done;
}

// The pieces of a call

struct gemm_job {
  const struct onednn_gemm_call *call;
  int64_t batches, ranges, rows, row_tiles, columns, column_tiles;
  atomic_bool failed;
};

static int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static void cut_job(struct gemm_job *job) {
  const struct onednn_gemm_call *call = job->call;
  const double one = (double)call->m * (double)call->n * (double)call->k, all = one * (double)call->batch;
  int64_t wanted = all > TILES * TILE_WORK ? TILES : (int64_t)(all / TILE_WORK);
  wanted = wanted < 1 ? 1 : wanted;
  job->batches = divide_up(call->batch, min_of(wanted, call->batch));
  job->ranges = divide_up(call->batch, job->batches);
  // columns first: b is brought into the library's layout once for each tile of rows
  int64_t left = divide_up(wanted, job->ranges);
  job->columns = divide_up(divide_up(call->n, min_of(left, divide_up(call->n, TILE_COLUMNS))), 64) * 64;
  job->column_tiles = divide_up(call->n, job->columns);
  left = divide_up(left, job->column_tiles);
  job->rows = divide_up(divide_up(call->m, min_of(left, divide_up(call->m, TILE_ROWS))), 16) * 16;
  job->row_tiles = divide_up(call->m, job->rows);
}

static void set_key(struct onednn_key *key, const struct onednn_gemm_call *call) {
  memset(key, 0, sizeof(*key));
  key->values[KEY_KIND] = KIND_GEMM;
  key->values[KEY_DTYPE] = onednn_get_dtype(call->dtype);
  key->values[KEY_BIAS] = call->bias != NULL;
  key->values[KEY_ADDS] = call->adds;
  key->values[KEY_BATCH] = call->batch;
  key->values[KEY_M] = call->m;
  key->values[KEY_N] = call->n;
  key->values[KEY_K] = call->k;
  for (int i = 0; i < 3; i++) {
    key->values[KEY_A + i] = call->a_strides[i];
    key->values[KEY_B + i] = call->b_strides[i];
    key->values[KEY_OUT + i] = call->out_strides[i];
  }
}

static bool run_piece(const struct gemm_job *job, int64_t number) {
  struct onednn_gemm_call piece = *job->call;
  const int64_t size = (int64_t)dit_dtype_get_size(piece.dtype);
  const int64_t column = number % job->column_tiles * job->columns;
  const int64_t row = number / job->column_tiles % job->row_tiles * job->rows;
  const int64_t batch = number / job->column_tiles / job->row_tiles * job->batches;
  piece.batch = min_of(piece.batch - batch, job->batches);
  piece.m = min_of(piece.m - row, job->rows);
  piece.n = min_of(piece.n - column, job->columns);
  struct onednn_key key;
  set_key(&key, &piece);
  struct onednn_plan *plan = onednn_plan_get(&key, build_gemm);
  if (!plan) {
    return false;
  }
  void *const data[] = {
      piece.a + (batch * piece.a_strides[0] + row * piece.a_strides[1]) * size,
      piece.b + (batch * piece.b_strides[0] + column * piece.b_strides[2]) * size,
      piece.out + (batch * piece.out_strides[0] + row * piece.out_strides[1] + column * piece.out_strides[2]) * size,
      piece.bias ? (char *)piece.bias + column * size : NULL};
  const bool done = onednn_plan_run(plan, data);
  onednn_plan_put(plan);
  return done;
}

static void run_pieces(void *context, int64_t begin, int64_t end) {
  struct gemm_job *job = context;
  for (int64_t i = begin; i < end && !atomic_load_explicit(&job->failed, memory_order_relaxed); i++) {
    if (!run_piece(job, i)) {
      atomic_store(&job->failed, true);
    }
  }
}

/// One of the two strides is 1 and the other leaves room for the line.
static bool is_plain(const int64_t *strides, int64_t rows, int64_t columns) {
  return (strides[2] == 1 && (strides[1] >= columns || rows == 1)) ||
         (strides[1] == 1 && (strides[2] >= rows || columns == 1));
}

bool onednn_multiply(const struct onednn_gemm_call *call) {
  struct gemm_job job = {.call = call};
  if (!onednn_is_available() || !onednn_get_dtype(call->dtype) || !is_plain(call->a_strides, call->m, call->k) ||
      !is_plain(call->b_strides, call->k, call->n) || !is_plain(call->out_strides, call->m, call->n)) {
    return false;
  }
  const int64_t sizes[] = {call->batch,
                           call->m,
                           call->n,
                           call->k,
                           call->a_strides[1],
                           call->a_strides[2],
                           call->b_strides[1],
                           call->b_strides[2],
                           call->out_strides[1],
                           call->out_strides[2]};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    if (sizes[i] > INT32_MAX / 8) {  // the library's code counts in 32 bits here and there
      return false;
    }
  }
  cut_job(&job);
  dit_parallel_for(0, job.ranges * job.row_tiles * job.column_tiles, 1, run_pieces, &job);
  const bool done = !atomic_load(&job.failed);
  onednn_count(done);
  return done;
}
