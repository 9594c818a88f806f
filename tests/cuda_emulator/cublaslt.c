/// An emulated cuBLASLt for tests: the functions that vendors/cuda/engine/cublaslt_library.h asks for, by plain loops.
///
/// It looks at layouts, transpose flags, batches, the epilogue and the alignment that was promised as the real library
/// does, refuses what that would refuse, and computes in the order of the stream. With EMULATED_CUBLASLT_ERROR in the
/// environment every element is wrong, so that a test can see who computed it.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "engine/cublaslt_library.h"

#define API __attribute__((visibility("default")))
#define INVALID 7
#define NOT_SUPPORTED 15

struct layout {
  int dtype;
  int64_t rows, columns, leading, stride;
  int32_t batch;
};
struct description {
  int compute, scale;
  int32_t transpose[2];
  uint32_t epilogue;
  const void *bias;
};
struct preference {
  uint64_t workspace;
  uint32_t alignment[4];
};
struct product {
  struct description description;
  struct layout layouts[4];
  const void *a, *b, *c;
  void *d, *workspace;
  double alpha, beta, error;
};

API int cuLaunchHostFunc(void *stream, void (*function)(void *), void *argument);

API int cublasLtCreate(void **handle) {
  static int one;
  *handle = &one;
  return CUBLASLT_SUCCESS;
}

static int create(void **out, const void *initial, size_t size) {
  *out = malloc(size);
  memcpy(*out, initial, size);
  return CUBLASLT_SUCCESS;
}

API int cublasLtMatmulDescCreate(void **description, int compute, int scale) {
  const struct description initial = {.compute = compute, .scale = scale, .epilogue = CUBLASLT_EPILOGUE_NONE};
  return create(description, &initial, sizeof initial);
}
API int cublasLtMatmulDescDestroy(void *description) {
  free(description);
  return CUBLASLT_SUCCESS;
}
API int cublasLtMatmulDescSetAttribute(void *description, int attribute, const void *value, size_t size) {
  struct description *d = description;
  void *place = attribute == CUBLASLT_DESC_TRANSPOSE_A   ? (void *)&d->transpose[0]
                : attribute == CUBLASLT_DESC_TRANSPOSE_B ? (void *)&d->transpose[1]
                : attribute == CUBLASLT_DESC_EPILOGUE    ? (void *)&d->epilogue
                : attribute == CUBLASLT_DESC_BIAS        ? (void *)&d->bias
                                                         : NULL;
  if (!place || size != (attribute == CUBLASLT_DESC_BIAS ? sizeof(void *) : 4)) {
    return INVALID;
  }
  memcpy(place, value, size);
  return CUBLASLT_SUCCESS;
}

API int cublasLtMatrixLayoutCreate(void **layout, int dtype, uint64_t rows, uint64_t columns, int64_t leading) {
  const struct layout initial = {dtype, (int64_t)rows, (int64_t)columns, leading, 0, 1};
  return leading < (int64_t)rows ? INVALID : create(layout, &initial, sizeof initial);
}
API int cublasLtMatrixLayoutDestroy(void *layout) {
  free(layout);
  return CUBLASLT_SUCCESS;
}
API int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value, size_t size) {
  struct layout *l = layout;
  if (attribute == CUBLASLT_LAYOUT_BATCH && size == 4) {
    memcpy(&l->batch, value, size);
  } else if (attribute == CUBLASLT_LAYOUT_BATCH_STRIDE && size == 8) {
    memcpy(&l->stride, value, size);
  } else {
    return INVALID;
  }
  return CUBLASLT_SUCCESS;
}

API int cublasLtMatmulPreferenceCreate(void **preference) {
  const struct preference initial = {0, {256, 256, 256, 256}};
  return create(preference, &initial, sizeof initial);
}
API int cublasLtMatmulPreferenceDestroy(void *preference) {
  free(preference);
  return CUBLASLT_SUCCESS;
}
API int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t size) {
  struct preference *p = preference;
  if (attribute == CUBLASLT_LIMIT_WORKSPACE && size == 8) {
    memcpy(&p->workspace, value, size);
  } else if (attribute >= CUBLASLT_LIMIT_ALIGNMENT && attribute < CUBLASLT_LIMIT_ALIGNMENT + 4 && size == 4) {
    memcpy(&p->alignment[attribute - CUBLASLT_LIMIT_ALIGNMENT], value, size);
  } else if (attribute != CUBLASLT_LIMIT_REDUCTION || size != 4) {
    return INVALID;
  }
  return CUBLASLT_SUCCESS;
}

/// Do the shapes of op(a) op(b) = c = d fit, and the types?
static bool is_valid(const struct description *d, const struct layout *a, const struct layout *b,
                     const struct layout *c, const struct layout *out) {
  const int64_t rows = d->transpose[0] ? a->columns : a->rows, depth = d->transpose[0] ? a->rows : a->columns;
  const int64_t inner = d->transpose[1] ? b->columns : b->rows, columns = d->transpose[1] ? b->rows : b->columns;
  const bool wide = out->dtype == CUBLASLT_R_64F;
  return depth == inner && out->rows == rows && out->columns == columns && c->rows == rows && c->columns == columns &&
         a->batch == out->batch && b->batch == out->batch && c->batch == out->batch && a->dtype == out->dtype &&
         b->dtype == out->dtype && c->dtype == out->dtype && wide == (d->compute == CUBLASLT_COMPUTE_64F) &&
         d->scale == (wide ? CUBLASLT_R_64F : CUBLASLT_R_32F) && (!wide || d->epilogue == CUBLASLT_EPILOGUE_NONE) &&
         (d->compute != CUBLASLT_COMPUTE_32F_TF32 || out->dtype == CUBLASLT_R_32F);
}

/// The choice remembers the alignment that it was made for, and wants some workspace.
API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *description, void *a, void *b, void *c, void *d,
                                       void *preference, int wanted, struct cublaslt_choice *choices, int *found) {
  const struct preference *limits = preference;
  *found = 0;
  if (!handle || wanted < 1 || !is_valid(description, a, b, c, d)) {
    return NOT_SUPPORTED;
  }
  memset(choices, 0, sizeof *choices);
  for (int i = 0; i < 4; i++) {
    choices->algorithm.data[i] = limits->alignment[i];
  }
  choices->workspace = limits->workspace < 1024 ? 0 : 1024;
  *found = 1;
  return CUBLASLT_SUCCESS;
}

static double read_element(const void *data, int dtype, int64_t index) {
  const uint16_t half = dtype == CUBLASLT_R_16F || dtype == CUBLASLT_R_16BF ? ((const uint16_t *)data)[index] : 0;
  uint32_t word = (uint32_t)half << 16;
  float value;
  switch (dtype) {
    case CUBLASLT_R_64F:
      return ((const double *)data)[index];
    case CUBLASLT_R_32F:
      return (double)((const float *)data)[index];
    case CUBLASLT_R_16F:
      return (double)((const _Float16 *)data)[index];
    default:
      memcpy(&value, &word, sizeof value);
      return (double)value;
  }
}

static void write_element(void *data, int dtype, int64_t index, double value) {
  const float narrow = (float)value;
  uint32_t word;
  switch (dtype) {
    case CUBLASLT_R_64F:
      ((double *)data)[index] = value;
      return;
    case CUBLASLT_R_32F:
      ((float *)data)[index] = narrow;
      return;
    case CUBLASLT_R_16F:
      ((_Float16 *)data)[index] = (_Float16)narrow;
      return;
    default:
      memcpy(&word, &narrow, sizeof word);
      word = narrow != narrow ? 0x7FC00000u : word + 0x7FFFu + (word >> 16 & 1);
      ((uint16_t *)data)[index] = (uint16_t)(word >> 16);
  }
}

/// What TF32 keeps of a factor.
static double get_factor(double value, int compute) {
  const float narrow = (float)value;
  uint32_t word;
  if (compute != CUBLASLT_COMPUTE_32F_TF32 || value != value) {
    return value;
  }
  memcpy(&word, &narrow, sizeof word);
  word = (word + 0xFFFu + (word >> 13 & 1)) & ~0x1FFFu;
  float kept;
  memcpy(&kept, &word, sizeof kept);
  return (double)kept;
}

static void run_product(void *argument) {
  struct product *p = argument;
  const struct layout *a = &p->layouts[0], *b = &p->layouts[1], *c = &p->layouts[2], *d = &p->layouts[3];
  const int32_t *transpose = p->description.transpose;
  const int64_t depth = transpose[0] ? a->rows : a->columns;
  for (int64_t batch = 0; batch < d->batch; batch++) {
    for (int64_t column = 0; column < d->columns; column++) {
      for (int64_t row = 0; row < d->rows; row++) {
        double sum = 0;
        for (int64_t k = 0; k < depth; k++) {
          const int64_t u = batch * a->stride + (transpose[0] ? k + row * a->leading : row + k * a->leading);
          const int64_t v = batch * b->stride + (transpose[1] ? column + k * b->leading : k + column * b->leading);
          sum += get_factor(read_element(p->a, a->dtype, u), p->description.compute) *
                 get_factor(read_element(p->b, b->dtype, v), p->description.compute);
        }
        sum *= p->alpha;
        if (p->beta != 0) {
          sum += p->beta * read_element(p->c, c->dtype, batch * c->stride + row + column * c->leading);
        }
        if (p->description.epilogue == CUBLASLT_EPILOGUE_ADD_BIAS) {
          sum += read_element(p->description.bias, d->dtype, row);
        }
        sum += p->error;
        write_element(p->d, d->dtype, batch * d->stride + row + column * d->leading, sum);
      }
    }
  }
  memset(p->workspace, 0xA5, 1024);  // it is ours until the stream goes on
  free(p);
}

API int cublasLtMatmul(void *handle, void *description, const void *alpha, const void *a, void *a_layout, const void *b,
                       void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                       const struct cublaslt_algorithm *algorithm, void *workspace, size_t workspace_size,
                       void *stream) {
  const void *const pointers[4] = {a, b, c, d};
  const bool wide = ((struct description *)description)->scale == CUBLASLT_R_64F;
  if (!handle || !workspace || workspace_size < 1024 ||
      !is_valid(description, a_layout, b_layout, c_layout, d_layout)) {
    return INVALID;
  }
  for (int i = 0; i < 4; i++) {
    if ((uintptr_t)pointers[i] % algorithm->data[i] != 0) {
      return INVALID;
    }
  }
  struct product *product = malloc(sizeof *product);
  *product = (struct product){
      *(struct description *)description,
      {*(struct layout *)a_layout, *(struct layout *)b_layout, *(struct layout *)c_layout, *(struct layout *)d_layout},
      a,
      b,
      c,
      d,
      workspace,
      wide ? *(const double *)alpha : (double)*(const float *)alpha,
      wide ? *(const double *)beta : (double)*(const float *)beta,
      getenv("EMULATED_CUBLASLT_ERROR") ? 1000 : 0};
  return cuLaunchHostFunc(stream, run_product, product) == 0 ? CUBLASLT_SUCCESS : INVALID;
}
