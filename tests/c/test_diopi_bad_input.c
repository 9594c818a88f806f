/// Every function of the host library with arguments that no function takes: no context, absent tensors, tensors on the
/// host, of a negative size, of more dimensions or other dtypes than there are, outputs in the memory of inputs. Each
/// is a code with a text that names the function, and writes nothing. Sizes that overflow never become a handle.
#include "check.h"
#include "dit/alloc.h"
#include "dit/diopi.h"

#define ARGUMENTS 40
#define DIMS 64

enum mistake {
  NO_CONTEXT,
  ABSENT,
  ON_HOST,
  NEGATIVE,
  TOO_MANY_DIMS,
  NO_DTYPE,
  TWICE,  ///< every tensor expanded by strides of 0, and all over the same memory
  MISTAKES
};
static const char *const names[MISTAKES] = {"no context",    "absent tensors", "tensors on the host", "negative sizes",
                                            "64 dimensions", "no dtype",       "overlapping outputs"};

static struct dit_diopi_library *library;
static float memory[64];
static int64_t sizes[DIMS], strides[DIMS];

/// One call's arguments; lists have two tensors, numbers are small.
struct call {
  struct diopiTensor tensor;
  diopiTensorHandle_t list[2], places[2];
  struct diopiGenerator generator;
  diopiGeneratorHandle_t generators[2];
  diopiScalar_t scalar;
  diopiSize_t size;
  int64_t ints[4];
  bool bools[4];
  double doubles[4];
  union dit_diopi_value values[ARGUMENTS];
};

static void make_tensor(struct call *call, enum mistake mistake) {
  const int ndim = mistake == TOO_MANY_DIMS ? DIMS : 2;
  for (int i = 0; i < DIMS; i++) {
    sizes[i] = i == 0 ? 4 : 1;
    strides[i] = 1;
  }
  sizes[1] = mistake == NEGATIVE ? -3 : 3;
  strides[0] = mistake == TWICE ? 0 : 3;
  strides[1] = mistake == TWICE ? 0 : 1;
  const struct dit_tensor_view view = {
      .data = memory,
      .sizes = sizes,
      .strides = strides,
      .numel = mistake == NEGATIVE ? -12 : 12,
      .ndim = ndim,
      .dtype = mistake == NO_DTYPE ? DIT_DTYPE_COUNT + 3 : DIT_DTYPE_F32,
      .device_index = mistake == ON_HOST ? -1 : 0,
      .flags = mistake == ON_HOST ? 0 : DIT_TENSOR_ON_DEVICE,
  };
  dit_diopi_tensor_init(&call->tensor, &view);
  call->list[0] = call->list[1] = mistake == ABSENT ? NULL : &call->tensor;
  call->places[0] = call->places[1] = NULL;
}

static union dit_diopi_value make_value(struct call *call, int function, int index, char kind) {
  switch (kind) {
    case 'o':
    case 't':
      return (union dit_diopi_value){.tensor = call->list[0]};
    case 'T':
      return (union dit_diopi_value){.tensors = call->list};
    case 'O':
      return (union dit_diopi_value){.tensors = dit_diopi_is_list(function, index) ? call->list : call->places};
    case 'i':
      return (union dit_diopi_value){.i = 2};
    case 'f':
    case 'd':
      return (union dit_diopi_value){.d = 0.5};
    case 'z':
      return (union dit_diopi_value){.size = call->size};
    case 'Z':
      return (union dit_diopi_value){.sizes = &call->size};
    case 's':
      return (union dit_diopi_value){.scalar = &call->scalar};
    case 'I':
      return (union dit_diopi_value){.ints = call->ints};
    case 'B':
      return (union dit_diopi_value){.bools = call->bools};
    case 'D':
      return (union dit_diopi_value){.doubles = call->doubles};
    case 'C':
      return (union dit_diopi_value){.string = "mean"};
    case 'g':
      return (union dit_diopi_value){.generator = &call->generator};
    case 'G':
      return (union dit_diopi_value){.generators = call->generators};
    default:
      return (union dit_diopi_value){.i = 1};
  }
}

static void make_call(struct call *call, int function, enum mistake mistake, struct diopiContext *context) {
  memset(call, 0, sizeof *call);
  call->generators[0] = call->generators[1] = &call->generator;
  call->scalar = (diopiScalar_t){.stype = diopi_dtype_float64, .fval = 1};
  call->ints[0] = call->ints[1] = 1;
  call->size = (diopiSize_t){call->ints, 2};
  make_tensor(call, mistake);
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  CHECK(strlen(kinds) <= ARGUMENTS);
  call->values[0].context = mistake == NO_CONTEXT ? NULL : context;
  for (int i = 1; kinds[i]; i++) {
    call->values[i] = make_value(call, function, i, kinds[i]);
  }
}

static void check_call(int function, enum mistake mistake) {
  const char *name = dit_diopi_get_functions(NULL)[function].name;
  struct diopiContext context;
  struct call call;
  for (int i = 0; i < 64; i++) {
    memory[i] = (float)i;
  }
  dit_diopi_context_init(&context, 0, NULL);
  make_call(&call, function, mistake, &context);
  const diopiError_t code = dit_diopi_invoke(&library->functions, function, call.values);
  const char *text = dit_diopi_library_get_error(library);
  bool untouched = !call.places[0] && call.generator.offset == 0;
  for (int i = 0; i < 64; i++) {
    untouched = untouched && memory[i] == (float)i;
  }
  if (code == diopiSuccess || code == diopiNoImplement || !strstr(text, name) || !untouched) {
    fprintf(stderr, "%s with %s: code %d, \"%s\", %s\n", name, names[mistake], (int)code, text,
            untouched ? "nothing written" : "something was written");
    exit(1);
  }
  dit_diopi_context_reset(&context);
}

/// Does the function write a tensor that the caller gives?
static bool has_output(int function) {
  const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
  bool found = false;
  for (int i = 0; kinds[i]; i++) {
    found = found || kinds[i] == 'o' || (kinds[i] == 'O' && dit_diopi_is_list(function, i));
  }
  return found;
}

/// Has the function a tensor at all? (The hook that tells of freed storages has none.)
static bool has_tensor(int function) {
  return strpbrk(dit_diopi_get_functions(NULL)[function].kinds, "otOT") != NULL;
}

static void test_every_function(void) {
  int count = 0;
  for (int function = 0; function < DIT_DIOPI_COUNT; function++) {
    const char *kinds = dit_diopi_get_functions(NULL)[function].kinds;
    if (kinds[0] != 'c' || !dit_diopi_library_get(library, function)) {
      continue;
    }
    for (int mistake = 0; mistake < MISTAKES; mistake++) {
      if (mistake == NO_CONTEXT || (has_tensor(function) && (mistake != TWICE || has_output(function)))) {
        check_call(function, (enum mistake)mistake);
      }
    }
    count++;
  }
  CHECK(count > 390);
}

static void test_overflow(void) {
  static const int64_t shapes[][3] = {{INT64_MAX, 2, 1}, {INT64_MAX / 2, 3, 1}, {1 << 30, 1 << 30, 1 << 30}};
  struct diopiContext context;
  dit_diopi_context_init(&context, 0, NULL);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    diopiTensorHandle_t made = NULL;
    const diopiSize_t size = {shapes[i], 3};
    CHECK(dit_diopi_tensor_create(memory, 3, shapes[i], NULL, DIT_DTYPE_F32, 0) == NULL);
    CHECK(diopiRequireTensor(&context, &made, &size, NULL, diopi_dtype_float32, diopi_device) != diopiSuccess);
    CHECK(!made);
  }
  const int64_t bytes[] = {INT64_MAX / 2};  // as many elements as there can be, and more bytes
  const diopiSize_t size = {bytes, 1};
  diopiTensorHandle_t made = NULL;
  CHECK(diopiRequireTensor(&context, &made, &size, NULL, diopi_dtype_float64, diopi_device) != diopiSuccess && !made);
  dit_diopi_context_reset(&context);
}

int main(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_diopi_library_open("host", &library, &err));
  RUN(test_every_function);
  RUN(test_overflow);
  dit_diopi_library_close(library);
  return 0;
}
