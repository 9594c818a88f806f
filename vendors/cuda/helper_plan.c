/// Tensor views to launch parameters: what src/numerics does for its own loops, for the kernels. No CUDA in it.
#include <string.h>

#include "helper_cuda.h"
#include "numerics/pair_terms.h"

/// What the launch side needs of a dtype, without a call into another library.
static const uint8_t widths[DIT_DTYPE_COUNT] = {
#define PLAN_WIDTH(suffix, number, name, bits, klass) [number] = (bits) / 8,
    DIT_DTYPE_LIST(PLAN_WIDTH)
#undef PLAN_WIDTH
};

static bool has_numbers(int dtype) {
  enum dit_dtype_class klass = dit_dtype_get_class(dtype);
  bool sub_byte = (dtype >= DIT_DTYPE_U1 && dtype <= DIT_DTYPE_I7) || dtype == DIT_DTYPE_F4_E2M1FN_X2;
  return klass != DIT_DTYPE_CLASS_QUANT && klass != DIT_DTYPE_CLASS_BITS && !sub_byte;
}

/// The long way, with words.
static enum dit_status check_slowly(const struct dit_tensor_view *view, const char *what, bool numbers,
                                    struct dit_error *err) {
  int64_t numel = 0;
  if (!dit_dtype_is_valid(view->dtype)) {
    return dit_error_set(err, DIT_ERR_INVALID, "%s has dtype number %d; valid: 0 to %d", what, view->dtype,
                         DIT_DTYPE_COUNT - 1);
  }
  if (view->ndim < 0 || view->ndim > DIT_MAX_DIMS) {
    return dit_error_set(err, view->ndim < 0 ? DIT_ERR_INVALID : DIT_ERR_UNSUPPORTED,
                         "%s has %d dimensions; the numeric passes take 0 to %d: reshape it", what, view->ndim,
                         DIT_MAX_DIMS);
  }
  DIT_RETURN_IF_NOT_OK(dit_shape_get_numel(view->ndim, view->sizes, &numel, err));
  if (numel != view->numel || (numel > 0 && !view->data)) {
    return dit_error_set(err, DIT_ERR_INVALID, "%s says it has %lld elements%s but its sizes make %lld", what,
                         (long long)view->numel, view->data ? "" : " and no data (NULL)", (long long)numel);
  }
  if (numbers && !has_numbers(view->dtype)) {
    return dit_error_set(err, DIT_ERR_UNSUPPORTED,
                         "%s has dtype %s, which has no numbers to compute with; valid: bool, integers of 8 to 64 "
                         "bits, float8/16/32/64, bfloat16, complex: convert it first",
                         what, dit_dtype_get_name(view->dtype));
  }
  return DIT_OK;
}

enum dit_status plan_check(const struct dit_tensor_view *view, const char *what, bool numbers, struct dit_error *err) {
  // Types that every pass takes and shapes that need no care.
  static const uint8_t common[DIT_DTYPE_COUNT] = {[DIT_DTYPE_F32] = 1, [DIT_DTYPE_BF16] = 1, [DIT_DTYPE_F16] = 1,
                                                  [DIT_DTYPE_F64] = 1, [DIT_DTYPE_I64] = 1,  [DIT_DTYPE_BOOL] = 1};
  bool fine = (unsigned)view->dtype < DIT_DTYPE_COUNT && common[view->dtype] && (unsigned)view->ndim <= DIT_MAX_DIMS &&
              view->data;
  int64_t numel = 1;
  for (int dim = 0; fine && dim < view->ndim; dim++) {
    fine = view->sizes[dim] > 0 && !__builtin_mul_overflow(numel, view->sizes[dim], &numel);
  }
  return DIT_LIKELY(fine && numel == view->numel) ? DIT_OK : check_slowly(view, what, numbers, err);
}

enum dit_status plan_check_pair(const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                                const struct dit_compare_options *options, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(plan_check(a, "tensor a", true, err));
  DIT_RETURN_IF_NOT_OK(plan_check(b, "tensor b", true, err));
  return pair_check_terms(a, b, options, err);
}

/// Should dimension `i` lie inside dimension `j`?
static bool is_inner(const struct plan *plan, int i, int j) {
  for (int operand = 0; operand < plan->operands; operand++) {
    int64_t x = plan->strides[operand][i], y = plan->strides[operand][j];
    if (x != y && x != 0 && y != 0) {
      return x < y;
    }
  }
  return false;
}

static void swap(int64_t *values, int i, int j) {
  int64_t kept = values[i];
  values[i] = values[j];
  values[j] = kept;
}

static void sort_dims(struct plan *plan) {
  for (int i = 1; i < plan->ndim; i++) {
    for (int j = i; j > 0 && is_inner(plan, j, j - 1); j--) {
      swap(plan->sizes, j, j - 1);
      swap(plan->strides[0], j, j - 1);
      swap(plan->strides[1], j, j - 1);
    }
  }
}

static void fuse_dims(struct plan *plan) {
  int last = 0;
  for (int dim = 1; dim < plan->ndim; dim++) {
    bool fits = true;
    for (int operand = 0; operand < plan->operands; operand++) {
      fits = fits && plan->strides[operand][dim] == plan->strides[operand][last] * plan->sizes[last];
    }
    if (fits) {
      plan->sizes[last] *= plan->sizes[dim];
      continue;
    }
    last++;
    plan->sizes[last] = plan->sizes[dim];
    plan->strides[0][last] = plan->strides[0][dim];
    plan->strides[1][last] = plan->strides[1][dim];
  }
  plan->ndim = plan->ndim > 0 ? last + 1 : 0;
}

void plan_init(struct plan *plan, const struct dit_tensor_view *a, const struct dit_tensor_view *b,
               enum plan_order order) {
  const struct dit_tensor_view *views[2] = {a, b ? b : a};
  int64_t width[2] = {widths[a->dtype], widths[views[1]->dtype]};
  plan->operands = b ? 2 : 1;
  plan->ndim = 0;
  if ((views[0]->flags & views[1]->flags & DIT_TENSOR_CONTIGUOUS) != 0) {
    return;
  }
  for (int dim = a->numel == 0 ? -1 : a->ndim - 1; dim >= 0; dim--) {
    if (a->sizes[dim] == 1) {
      continue;
    }
    plan->sizes[plan->ndim] = a->sizes[dim];
    plan->strides[0][plan->ndim] = a->strides[dim] * width[0];
    plan->strides[1][plan->ndim] = views[1]->strides[dim] * width[1];
    plan->ndim++;
  }
  if (order == PLAN_ANY) {
    sort_dims(plan);
  }
  fuse_dims(plan);
  if (plan->ndim == 1 && plan->strides[0][0] == width[0] && plan->strides[1][0] == width[1]) {
    plan->ndim = 0;
  }
}

uint32_t plan_get_blocks(int64_t numel, int dtype) {
  int64_t per = HELPER_BLOCK_BYTES / widths[dtype], blocks = numel / per + (numel % per != 0);
  return blocks < 1 ? 1 : blocks > HELPER_BLOCKS ? HELPER_BLOCKS : (uint32_t)blocks;
}

int64_t plan_get_hash_slot(int64_t numel) {
  int64_t slot = (numel / HELPER_HASH_SLOTS / HELPER_CHUNK + 1) * HELPER_CHUNK;
  return slot > HELPER_HASH_SLOT_MIN ? slot : HELPER_HASH_SLOT_MIN;
}

struct hash_state plan_get_hash_prefix(const struct dit_tensor_view *view) {
  struct hash_state state = {HASH_K4, HASH_K7};
  hash_take(&state, (uint64_t)view->dtype, (uint64_t)view->ndim);
  for (int dim = 0; dim < view->ndim; dim++) {
    hash_take(&state, (uint64_t)view->sizes[dim], (uint64_t)dim);
  }
  return state;
}

bool plan_add(struct kernel_tensor *tensor, const struct dit_tensor_view *view, const struct plan *plan,
              struct kernel_dim *pool, int capacity, int *used) {
  if (plan->ndim > capacity - *used) {
    return false;
  }
  *tensor = (struct kernel_tensor){
      .data = view->data,
      .numel = view->numel,
      .blocks = plan_get_blocks(view->numel, view->dtype),
      .dtype = view->dtype,
      .ndim = (uint16_t)plan->ndim,
      .first_dim = (uint16_t)*used,
  };
  for (int dim = 0; dim < plan->ndim; dim++) {
    pool[(*used)++] = (struct kernel_dim){plan->sizes[dim], plan->strides[0][dim]};
  }
  return true;
}

bool plan_add_pair(struct kernel_near *task, int index, const struct dit_near_pair *pair, int *used) {
  const struct dit_tensor_view *a = &pair->a, *b = &pair->b;
  struct plan plan;
  plan_init(&plan, a, b, PLAN_ANY);
  if (plan.ndim > HELPER_PAIR_DIMS - *used) {
    return false;
  }
  task->pair[index] = (struct kernel_near_pair){
      .a = a->data,
      .b = b->data,
      .numel = a->numel,
      .relative = pair->relative,
      .blocks = plan_get_blocks(a->numel, b->dtype),
      .ndim = (uint16_t)plan.ndim,
      .first_dim = (uint16_t)*used,
      .dtype_a = a->dtype,
      .dtype_b = b->dtype,
  };
  for (int dim = 0; dim < plan.ndim; dim++) {
    task->dims[(*used)++] = (struct kernel_pair_dim){plan.sizes[dim], {plan.strides[0][dim], plan.strides[1][dim]}};
  }
  return true;
}

void plan_compare(struct kernel_compare *task, const struct dit_tensor_view *a, const struct dit_tensor_view *b,
                  const struct dit_compare_options *options) {
  const struct dit_tensor_view *views[2] = {a, b};
  struct plan plan;
  plan_init(&plan, a, b, PLAN_ANY);
  memset(task, 0, sizeof *task);
  task->is_flat = plan.ndim == 0 && a->dtype == b->dtype;
  task->rtol = options->rtol;
  task->atol = options->atol;
  task->equal_nan = options->equal_nan;
  if (plan.ndim == 0 && !task->is_flat) {  // packed, but of two dtypes: one dimension
    plan.ndim = 1;
    plan.sizes[0] = a->numel;
    plan.strides[0][0] = widths[a->dtype];
    plan.strides[1][0] = widths[b->dtype];
  }
  for (int dim = 0; dim < plan.ndim; dim++) {
    task->dims[dim] = (struct kernel_pair_dim){plan.sizes[dim], {plan.strides[0][dim], plan.strides[1][dim]}};
  }
  for (int side = 0; side < 2; side++) {
    task->tensor[side] = (struct kernel_tensor){
        .data = views[side]->data,
        .numel = a->numel,
        .blocks = plan_get_blocks(a->numel, a->dtype),
        .dtype = views[side]->dtype,
        .ndim = (uint16_t)plan.ndim,
    };
  }
}
