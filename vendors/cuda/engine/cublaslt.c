/// Matrix products by cuBLASLt (see cublaslt.h).
///
/// cuBLASLt counts columns first. A result of rows, out (M x N), is in its eyes the transposed matrix (N x M), so that
/// out^T = b^T a^T is asked for: its A is our b, its B our a, and a matrix of rows is "not transposed". Strides become
/// leading dimensions and transpose flags; nothing is copied. What the library chose for a shape is kept (plans); one
/// lock covers the plans and the call, which only queues work.
#include "cublaslt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "cublaslt_library.h"
#include "dit/alloc.h"
#include "dit/dtype.h"
#include "dit/runtime.h"
#include "driver.h"
#include "launch.h"

#define BUCKETS 256
#define PLANS_MAX 4096
#define WORKSPACE ((size_t)32 << 20)

/// A matrix in the library's eyes: the flag says that it is to be transposed.
struct matrix {
  int64_t rows, columns, leading, batch_stride;
  int32_t is_transposed, alignment;
};

/// All that the library's choice depends on; compared as bytes.
struct plan_key {
  struct matrix a, b, c, d;
  int64_t batch;
  int32_t dtype, device, compute, has_bias, bias_alignment, reserved;
};

struct plan {
  struct plan *next;
  struct plan_key key;
  void *description, *layouts[4];
  struct cublaslt_choice choice;
  bool is_usable;
};

struct workspace {
  struct workspace *next;
  int device;
  void *stream, *memory;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct plan *plans[BUCKETS];
static int plan_count;
static struct workspace *workspaces;
static void *handles[DRIVER_MAX_DEVICES];
static atomic_bool is_refused;  ///< the library does not start here

// Strides to matrices

static int32_t get_alignment(const void *data) {
  int32_t alignment = 256;
  while ((uintptr_t)data % (uintptr_t)alignment != 0) {
    alignment /= 2;
  }
  return alignment;
}

/// rows x columns with the strides of its first and second dimension; false where no dimension lies packed.
static bool set_matrix(struct matrix *out, const void *data, int64_t rows, int64_t columns, const int64_t *strides) {
  const int64_t row = strides[1], column = strides[2];
  *out = (struct matrix){.batch_stride = strides[0], .alignment = get_alignment(data)};
  if ((column == 1 || columns == 1) && (rows == 1 || row >= columns)) {
    out->rows = columns;
    out->columns = rows;
    out->leading = rows == 1 ? columns : row;
    return true;
  }
  if ((row == 1 || rows == 1) && (columns == 1 || column >= rows)) {
    out->rows = rows;
    out->columns = columns;
    out->leading = columns == 1 ? rows : column;
    out->is_transposed = 1;
    return true;
  }
  return false;
}

/// out^T = b^T a^T: for a result that lies in columns.
static struct gemm_kernel get_transposed(const struct gemm_kernel *task) {
  struct gemm_kernel turned = *task;
  turned.a = task->b;
  turned.b = task->a;
  turned.rows = task->columns;
  turned.columns = task->rows;
  for (int i = 0; i < 3; i++) {
    const int from = i == 0 ? 0 : 3 - i;
    turned.a_strides[i] = task->b_strides[from];
    turned.b_strides[i] = task->a_strides[from];
    turned.out_strides[i] = task->out_strides[from];
    turned.bias_strides[i] = task->bias_strides[from];
  }
  return turned;
}

static bool is_turned(const struct gemm_kernel *task) {
  return task->out_strides[2] != 1 && task->columns > 1 && task->out_strides[1] == 1;
}

/// Half types whose rows do not begin at whole vectors: the library's kernels for those round the product before they
/// add the bias.
static bool rounds_twice(int dtype, const struct gemm_kernel *task) {
  const bool is_half = dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_BF16;
  return is_half && ((task->columns | task->depth | task->out_strides[1]) % 8 != 0 || (uintptr_t)task->out % 16 != 0);
}

/// One row for all: added behind the product.
static bool is_row_bias(int dtype, const struct gemm_kernel *task) {
  return task->bias && task->beta == 1 && dtype != DIT_DTYPE_F64 && !rounds_twice(dtype, task) &&
         (task->bias_strides[2] == 1 || task->columns == 1) && (task->bias_strides[1] == 0 || task->rows == 1) &&
         (task->bias_strides[0] == 0 || task->batch == 1);
}

static bool set_addend(struct matrix *out, const struct gemm_kernel *task) {
  return set_matrix(out, task->bias, task->rows, task->columns, task->bias_strides) && !out->is_transposed;
}

static int get_compute(int dtype) {
  if (dtype == DIT_DTYPE_F64) {
    return CUBLASLT_COMPUTE_64F;
  }
  return dtype == DIT_DTYPE_F32 && launch_allows_tf32() ? CUBLASLT_COMPUTE_32F_TF32 : CUBLASLT_COMPUTE_32F;
}

static int get_type(int dtype) {
  return dtype == DIT_DTYPE_F64   ? CUBLASLT_R_64F
         : dtype == DIT_DTYPE_F16 ? CUBLASLT_R_16F
         : dtype == DIT_DTYPE_F32 ? CUBLASLT_R_32F
                                  : CUBLASLT_R_16BF;
}

/// False where the strides are not the library's.
static bool set_key(struct plan_key *key, int device, int dtype, const struct gemm_kernel *task) {
  memset(key, 0, sizeof *key);
  key->batch = task->batch;
  key->dtype = dtype;
  key->device = device;
  key->compute = get_compute(dtype);
  key->has_bias = is_row_bias(dtype, task);
  key->bias_alignment = key->has_bias ? get_alignment(task->bias) : 0;
  if (!set_matrix(&key->a, task->b, task->depth, task->columns, task->b_strides) ||
      !set_matrix(&key->b, task->a, task->rows, task->depth, task->a_strides) ||
      !set_matrix(&key->d, task->out, task->rows, task->columns, task->out_strides) || key->d.is_transposed) {
    return false;
  }
  key->c = key->d;
  return !task->bias || key->has_bias || set_addend(&key->c, task);
}

// Plans

static void destroy_plan(const struct cublaslt_library *library, struct plan *plan) {
  for (int i = 0; i < 4; i++) {
    if (plan->layouts[i]) {
      (void)library->MatrixLayoutDestroy(plan->layouts[i]);
    }
  }
  if (plan->description) {
    (void)library->MatmulDescDestroy(plan->description);
  }
  dit_free(plan);
}

static bool describe_matrix(const struct cublaslt_library *library, void **layout, const struct matrix *matrix,
                            int64_t batch, int type) {
  const int32_t count = (int32_t)batch;
  bool done = library->MatrixLayoutCreate(layout, type, (uint64_t)matrix->rows, (uint64_t)matrix->columns,
                                          matrix->leading) == CUBLASLT_SUCCESS;
  if (done && batch > 1) {
    done =
        library->MatrixLayoutSetAttribute(*layout, CUBLASLT_LAYOUT_BATCH, &count, sizeof count) == CUBLASLT_SUCCESS &&
        library->MatrixLayoutSetAttribute(*layout, CUBLASLT_LAYOUT_BATCH_STRIDE, &matrix->batch_stride,
                                          sizeof matrix->batch_stride) == CUBLASLT_SUCCESS;
  }
  return done;
}

static bool describe_product(const struct cublaslt_library *library, struct plan *plan, const void *bias) {
  const struct plan_key *key = &plan->key;
  const uint32_t epilogue = CUBLASLT_EPILOGUE_ADD_BIAS;
  const int scale = key->dtype == DIT_DTYPE_F64 ? CUBLASLT_R_64F : CUBLASLT_R_32F;
  bool done = library->MatmulDescCreate(&plan->description, key->compute, scale) == CUBLASLT_SUCCESS &&
              library->MatmulDescSetAttribute(plan->description, CUBLASLT_DESC_TRANSPOSE_A, &key->a.is_transposed,
                                              sizeof key->a.is_transposed) == CUBLASLT_SUCCESS &&
              library->MatmulDescSetAttribute(plan->description, CUBLASLT_DESC_TRANSPOSE_B, &key->b.is_transposed,
                                              sizeof key->b.is_transposed) == CUBLASLT_SUCCESS;
  if (done && key->has_bias) {
    done =
        library->MatmulDescSetAttribute(plan->description, CUBLASLT_DESC_EPILOGUE, &epilogue, sizeof epilogue) ==
            CUBLASLT_SUCCESS &&
        library->MatmulDescSetAttribute(plan->description, CUBLASLT_DESC_BIAS, &bias, sizeof bias) == CUBLASLT_SUCCESS;
  }
  return done;
}

/// The library's first choice within our workspace and the alignment of the pointers.
static bool choose_algorithm(const struct cublaslt_library *library, struct plan *plan) {
  const struct plan_key *key = &plan->key;
  const struct matrix *const matrices[4] = {&key->a, &key->b, &key->c, &key->d};
  const uint64_t most = WORKSPACE;
  const uint32_t reduction = CUBLASLT_REDUCTION_COMPUTE;
  void *limits = NULL;
  int found = 0;
  if (library->MatmulPreferenceCreate(&limits) != CUBLASLT_SUCCESS) {
    return false;
  }
  bool done =
      library->MatmulPreferenceSetAttribute(limits, CUBLASLT_LIMIT_WORKSPACE, &most, sizeof most) == CUBLASLT_SUCCESS;
  if (done && (key->dtype == DIT_DTYPE_F16 || key->dtype == DIT_DTYPE_BF16)) {
    done = library->MatmulPreferenceSetAttribute(limits, CUBLASLT_LIMIT_REDUCTION, &reduction, sizeof reduction) ==
           CUBLASLT_SUCCESS;
  }
  for (int i = 0; i < 4 && done; i++) {
    const uint32_t alignment = (uint32_t)matrices[i]->alignment;
    done = library->MatmulPreferenceSetAttribute(limits, CUBLASLT_LIMIT_ALIGNMENT + i, &alignment, sizeof alignment) ==
           CUBLASLT_SUCCESS;
  }
  done = done && library->MatmulAlgoGetHeuristic(handles[key->device], plan->description, plan->layouts[0],
                                                 plan->layouts[1], plan->layouts[2], plan->layouts[3], limits, 1,
                                                 &plan->choice, &found) == CUBLASLT_SUCCESS;
  (void)library->MatmulPreferenceDestroy(limits);
  return done && found > 0 && plan->choice.status == CUBLASLT_SUCCESS;
}

static struct plan *create_plan(const struct cublaslt_library *library, const struct plan_key *key, const void *bias) {
  struct plan *plan = dit_calloc(1, sizeof *plan);
  const struct matrix *const matrices[4] = {&key->a, &key->b, &key->c, &key->d};
  if (!plan) {
    return NULL;
  }
  plan->key = *key;
  plan->is_usable = describe_product(library, plan, bias);
  for (int i = 0; i < 4 && plan->is_usable; i++) {
    plan->is_usable = describe_matrix(library, &plan->layouts[i], matrices[i], key->batch, get_type(key->dtype));
  }
  plan->is_usable = plan->is_usable && choose_algorithm(library, plan);
  return plan;
}

static unsigned hash_key(const struct plan_key *key) {
  const unsigned char *bytes = (const unsigned char *)key;
  uint64_t hash = UINT64_C(0xCBF29CE484222325);
  for (size_t i = 0; i < sizeof *key; i++) {
    hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
  }
  return (unsigned)(hash >> 32) % BUCKETS;
}

static void forget_plans(const struct cublaslt_library *library) {
  for (int i = 0; i < BUCKETS; i++) {
    while (plans[i]) {
      struct plan *next = plans[i]->next;
      destroy_plan(library, plans[i]);
      plans[i] = next;
    }
  }
  plan_count = 0;
}

/// With the lock held; NULL without memory. A shape that the library refuses has a plan too, which is not usable.
static struct plan *find_plan(const struct cublaslt_library *library, const struct plan_key *key, const void *bias) {
  const unsigned bucket = hash_key(key);
  for (struct plan *plan = plans[bucket]; plan; plan = plan->next) {
    if (memcmp(&plan->key, key, sizeof *key) == 0) {
      return plan;
    }
  }
  if (plan_count >= PLANS_MAX) {
    forget_plans(library);
  }
  struct plan *plan = create_plan(library, key, bias);
  if (plan) {
    plan->next = plans[bucket];
    plans[bucket] = plan;
    plan_count++;
  }
  return plan;
}

/// With the lock held. One per stream, never given back: what a stream runs is in order.
static void *find_workspace(int device, void *stream) {
  driver_pointer memory = 0;
  for (struct workspace *found = workspaces; found; found = found->next) {
    if (found->device == device && found->stream == stream) {
      return found->memory;
    }
  }
  struct workspace *fresh = dit_calloc(1, sizeof *fresh);
  if (!fresh || driver.memory_allocate(&memory, WORKSPACE) != DRIVER_SUCCESS) {
    dit_free(fresh);
    return NULL;
  }
  *fresh = (struct workspace){workspaces, device, stream, (void *)(uintptr_t)memory};
  workspaces = fresh;
  return fresh->memory;
}

// The call

/// In the device's context, with the lock held.
static enum dit_status multiply(const struct cublaslt_library *library, void *stream, const struct plan_key *key,
                                const struct gemm_kernel *task, struct dit_error *err) {
  void **handle = &handles[key->device];
  if (!*handle && library->Create(handle) != CUBLASLT_SUCCESS) {
    *handle = NULL;
    is_refused = true;
    return DIT_ERR_UNSUPPORTED;
  }
  struct plan *plan = find_plan(library, key, task->bias);
  void *workspace = plan && plan->is_usable && plan->choice.workspace ? find_workspace(key->device, stream) : NULL;
  if (!plan || !plan->is_usable || (plan->choice.workspace && !workspace)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (key->has_bias && library->MatmulDescSetAttribute(plan->description, CUBLASLT_DESC_BIAS, &task->bias,
                                                       sizeof task->bias) != CUBLASLT_SUCCESS) {
    return DIT_ERR_UNSUPPORTED;
  }
  const bool adds = task->bias && !key->has_bias;
  const double wide[2] = {task->alpha, adds ? task->beta : 0};
  const float narrow[2] = {(float)wide[0], (float)wide[1]};
  const bool is_wide = key->dtype == DIT_DTYPE_F64;
  const int status = library->Matmul(
      *handle, plan->description, is_wide ? (const void *)&wide[0] : &narrow[0], task->b, plan->layouts[0], task->a,
      plan->layouts[1], is_wide ? (const void *)&wide[1] : &narrow[1], adds ? task->bias : task->out, plan->layouts[2],
      task->out, plan->layouts[3], &plan->choice.algorithm, workspace, workspace ? WORKSPACE : 0, stream);
  return status == CUBLASLT_SUCCESS
             ? DIT_OK
             : dit_error_set(err, DIT_ERR_DEVICE, "cublasLtMatmul: status %d for a product of %lld x %lld x %lld",
                             status, (long long)task->rows, (long long)task->depth, (long long)task->columns);
}

/// The task as the library sees it; false where it does not take it.
static bool prepare(int dtype, const struct gemm_kernel *task, struct gemm_kernel *turned, struct plan_key *key) {
  const int device = dit_device_get_current();
  *turned = is_turned(task) ? get_transposed(task) : *task;
  return !is_refused && cublaslt_library_get() && device >= 0 && device < DRIVER_MAX_DEVICES && task->depth > 0 &&
         task->batch <= INT32_MAX && set_key(key, device, dtype, turned);
}

bool cublaslt_takes(int dtype, const struct gemm_kernel *task) {
  struct gemm_kernel turned;
  struct plan_key key;
  return prepare(dtype, task, &turned, &key);
}

enum dit_status cublaslt_multiply(void *stream, int dtype, const struct gemm_kernel *task, struct dit_error *err) {
  struct context_guard guard;
  struct gemm_kernel turned;
  struct plan_key key;
  if (!prepare(dtype, task, &turned, &key)) {
    return DIT_ERR_UNSUPPORTED;
  }
  DIT_RETURN_IF_NOT_OK(launch_check(err));
  DIT_RETURN_IF_NOT_OK(context_enter(&guard, key.device, err));
  pthread_mutex_lock(&lock);
  const enum dit_status status = multiply(cublaslt_library_get(), stream, &key, &turned, err);
  pthread_mutex_unlock(&lock);
  context_leave(&guard);
  return status;
}
