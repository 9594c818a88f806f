/// Random operators of the CUDA library, over the emulated driver, beside the host's: the same numbers for the same
/// seed and offset, and the generators left at the same place.
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "device_test.h"
#include "dit/diopi.h"
#include "dit/memory.h"

#define COUNT INT64_C(1031)
#define BYTES ((size_t)COUNT * 8)

static struct dit_diopi_library *library;

static void start(const char *vendor) {
  struct dit_error err = {0};
  dit_diopi_library_close(library);
  library = NULL;
  dit_runtime_shutdown();
  dit_options_reset();
  CHECK_OK(dit_runtime_init(vendor, &err));
  CHECK_OK(dit_diopi_library_open(vendor, &library, &err));
}

/// A tensor over `bytes` of host memory on the device.
static diopiTensorHandle_t make(const void *bytes, int ndim, const int64_t *sizes, int dtype) {
  struct dit_error err = {0};
  void *memory = NULL;
  CHECK_OK(dit_memory_alloc(0, 0, BYTES, &memory, &err));
  CHECK_OK(dit_memory_copy(memory, 0, bytes, -1, BYTES, 0, 0, false, &err));
  diopiTensorHandle_t made = dit_diopi_tensor_create(memory, ndim, sizes, NULL, dtype, 0);
  CHECK(made);
  return made;
}

/// Bring the elements back and drop the tensor.
static void take(diopiTensorHandle_t tensor, void *bytes) {
  struct dit_error err = {0};
  CHECK_OK(dit_memory_copy(bytes, -1, tensor->view.data, 0, BYTES, 0, 0, false, &err));
  dit_memory_free(tensor->view.data);
  dit_diopi_tensor_destroy(tensor);
}

enum draw { UNIFORM, NORMAL, BERNOULLI, INTEGER, WIDE, PERMUTATION, DROPOUT, FEATURES, WITH, WITHOUT, DRAWS };

/// What is in the tensors afterwards.
#define TENSORS 6
struct drawn {
  unsigned char values[TENSORS][BYTES];
  struct diopiGenerator generator;
};

/// The tensors of one draw; an operator takes those that it needs.
struct tensors {
  diopiTensorHandle_t line, table, mask, rows, numbers, places;
};

static diopiError_t call(enum draw kind, diopiContextHandle_t context, const struct tensors *t,
                         diopiGeneratorHandle_t generator) {
  const struct dit_diopi_vtable *f = &library->functions;
  const int64_t to = 1000;
  switch (kind) {
    case UNIFORM:
      return f->diopiUniformInp(context, t->line, -1.5, 2.25, generator);
    case NORMAL:
      return f->diopiNormalInp(context, t->line, 0.5, 2, generator);
    case BERNOULLI:
      return f->diopiBernoulliScalar(context, t->line, 0.3, generator);
    case INTEGER:
      return f->diopiRandomInp(context, t->line, -5, &to, generator);
    case WIDE:
      return f->diopiRandomInp(context, t->numbers, 0, NULL, generator);
    case PERMUTATION:
      return f->diopiRandperm(context, t->places, 7, generator);
    case DROPOUT:
      return f->diopiDropoutInp(context, t->table, t->mask, 0.25, true, generator);
    case FEATURES:
      return f->diopiDropoutInp(context, t->table, t->rows, 0.25, true, generator);
    case WITH:
      return f->diopiMultinomial(context, t->numbers, t->table, 30, true, generator);
    default:
      return f->diopiMultinomial(context, t->numbers, t->table, 30, false, generator);
  }
}

static void draw(enum draw kind, int dtype, struct drawn *out) {
  static const unsigned char zeros[BYTES];
  static float ones[2 * COUNT];
  const int64_t line = COUNT, few = 7, table[2] = {8, 100}, rows[2] = {8, 1}, all[2] = {8, 30};
  diopiContextHandle_t context = dit_diopi_context_create(0, NULL);
  for (int64_t i = 0; i < 2 * COUNT; i++) {
    ones[i] = 1;
  }
  out->generator = (struct diopiGenerator){123456789012345, 77};
  const struct tensors t = {make(zeros, 1, &line, dtype),          make(ones, 2, table, DIT_DTYPE_F32),
                            make(zeros, 2, table, DIT_DTYPE_BOOL), make(zeros, 2, rows, DIT_DTYPE_BOOL),
                            make(zeros, 2, all, DIT_DTYPE_I64),    make(zeros, 1, &few, DIT_DTYPE_I64)};
  CHECK(call(kind, context, &t, &out->generator) == diopiSuccess);
  const diopiTensorHandle_t all_of_them[TENSORS] = {t.line, t.table, t.mask, t.rows, t.numbers, t.places};
  for (int i = 0; i < TENSORS; i++) {
    take(all_of_them[i], out->values[i]);
  }
  dit_diopi_context_destroy(context);
}

/// Box-Muller goes through each side's own logarithm and sine: some units of the last digit.
static void compare_normal(const struct drawn *a, const struct drawn *b, int dtype) {
  for (int64_t i = 0; i < COUNT; i++) {
    double x, y;
    if (dtype == DIT_DTYPE_F64) {
      memcpy(&x, a->values[0] + 8 * i, 8);
      memcpy(&y, b->values[0] + 8 * i, 8);
      CHECK(fabs(x - y) <= 1e-14 * (1 + fabs(x)));
    } else {
      float u, v;
      memcpy(&u, a->values[0] + 4 * i, 4);
      memcpy(&v, b->values[0] + 4 * i, 4);
      CHECK(fabsf(u - v) <= 4e-6f * (1 + fabsf(u)));
    }
  }
}

static const int dtypes[] = {DIT_DTYPE_F32, DIT_DTYPE_F64, DIT_DTYPE_F16, DIT_DTYPE_BF16};

static void test_the_same_numbers(void) {
  static struct drawn host[DRAWS][4], cuda[DRAWS][4];
  for (int pass = 0; pass < 2; pass++) {
    start(pass ? "cuda" : "host");
    for (int kind = 0; kind < DRAWS; kind++) {
      for (int d = 0; d < (kind <= INTEGER ? 4 : 1); d++) {
        draw((enum draw)kind, dtypes[d], pass ? &cuda[kind][d] : &host[kind][d]);
      }
    }
  }
  for (int kind = 0; kind < DRAWS; kind++) {
    for (int d = 0; d < (kind <= INTEGER ? 4 : 1); d++) {
      const struct drawn *a = &host[kind][d], *b = &cuda[kind][d];
      CHECK(a->generator.seed == b->generator.seed && a->generator.offset == b->generator.offset);
      CHECK(a->generator.offset > 77);
      if (kind == NORMAL) {
        if (d < 2) {
          compare_normal(a, b, dtypes[d]);
        }
      } else {
        CHECK(memcmp(a->values, b->values, sizeof a->values) == 0);
      }
    }
  }
}

int main(void) {
  CHECK(dlopen(DIT_TEST_EMULATOR, RTLD_NOW | RTLD_GLOBAL));
  RUN(test_the_same_numbers);
  dit_diopi_library_close(library);
  dit_runtime_shutdown();
  return 0;
}
