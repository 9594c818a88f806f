/// diopiExtInferOutputs of the host library: wrong questions, results that nobody can know, and what is written. The
/// shapes and dtypes of every function are compared by the conformance suite.
#include "check.h"
#include "dit/diopi.h"

#define ROOM 4

static const struct dit_diopi_library *library;
static diopiExtOutput_t outputs[ROOM];

struct tensor {
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
  struct diopiTensor handle;
};

/// A tensor without memory: nobody may look at elements.
static diopiConstTensorHandle_t make(struct tensor *tensor, int dtype, int ndim, const int64_t *sizes) {
  struct dit_tensor_view view = {.sizes = tensor->sizes, .strides = tensor->strides, .ndim = ndim};
  uint64_t numel = 1;  // random sizes may wrap
  for (int i = ndim - 1; i >= 0; i--) {
    tensor->sizes[i] = sizes[i];
    tensor->strides[i] = (int64_t)numel;
    numel *= (uint64_t)sizes[i];
  }
  view.numel = (int64_t)numel;
  view.dtype = (int16_t)dtype;
  view.flags = DIT_TENSOR_ON_DEVICE;
  dit_diopi_tensor_init(&tensor->handle, &view);
  return &tensor->handle;
}

static diopiExtArgument_t take(diopiConstTensorHandle_t tensor) {
  return (diopiExtArgument_t){.tensor = tensor, .given = tensor != NULL};
}

static diopiExtArgument_t number(int64_t value) {
  return (diopiExtArgument_t){.ival = value, .given = 1};
}

static diopiExtArgument_t list(const int64_t *values, int64_t count) {
  return (diopiExtArgument_t){.size = {values, count}, .given = 1};
}

/// Ask, with `room` places; nothing but those may be written, and nothing at all when it fails.
static diopiError_t ask(const char *function, const diopiExtArgument_t *arguments, int64_t length, int64_t room,
                        int64_t *count) {
  memset(outputs, 0x55, sizeof outputs);
  *count = room;
  const diopiError_t code = library->ext_infer_outputs(function, arguments, length, outputs, count);
  for (int64_t i = code == diopiSuccess && *count < room ? *count : code == diopiSuccess ? room : 0; i < ROOM; i++) {
    CHECK(outputs[i].ndim == 0x5555555555555555);
  }
  CHECK(code == diopiSuccess || *count == room);
  return code;
}

static void expect_error(const char *function, const diopiExtArgument_t *arguments, int64_t length, const char *text) {
  int64_t count;
  CHECK(ask(function, arguments, length, ROOM, &count) == diopiErrorOccurred);
  CHECK_CONTAINS(dit_diopi_library_get_error(library), function);
  CHECK_CONTAINS(dit_diopi_library_get_error(library), text);
}

static void test_wrong_questions(void) {
  struct tensor tensor;
  const diopiExtArgument_t arguments[2] = {{.given = 0}, take(make(&tensor, DIT_DTYPE_F32, 1, (int64_t[]){3}))};
  int64_t count = ROOM, negative = -1;
  CHECK(library->ext_infer_outputs(NULL, arguments, 2, outputs, &count) == diopiErrorOccurred);
  CHECK(library->ext_infer_outputs("diopiAbs", arguments, 2, outputs, NULL) == diopiErrorOccurred);
  CHECK(library->ext_infer_outputs("diopiAbs", arguments, 2, NULL, &count) == diopiErrorOccurred);
  CHECK(library->ext_infer_outputs("diopiAbs", arguments, 2, outputs, &negative) == diopiErrorOccurred);
  expect_error("diopiAbs", arguments, 1, "'length' is 1; it has 2 arguments");
  expect_error("diopiAbs", arguments, 3, "'length' is 3");
  expect_error("diopiAbs", NULL, 2, "'length' is 2");
  CHECK(ask("diopiNoSuch", arguments, 2, ROOM, &count) == diopiNoImplement);
  CHECK(ask("diopiGetVendorName", NULL, 0, ROOM, &count) == diopiNoImplement);
  CHECK(ask("diopiNormal", NULL, 0, ROOM, &count) == diopiNoImplement);  // the caller alone knows
  CHECK(ask("diopiAbs", NULL, 0, 0, &count) == diopiSuccess);            // may one ask?
}

static void test_wrong_arguments(void) {
  struct tensor a, b;
  diopiExtArgument_t arguments[8] = {{.given = 0}};
  expect_error("diopiAbs", arguments, 2, "'input' is NULL");
  arguments[1] = take(make(&a, DIT_DTYPE_F32, 2, (int64_t[]){2, 3}));
  arguments[2] = take(make(&b, DIT_DTYPE_F32, 2, (int64_t[]){2, 4}));
  expect_error("diopiMul", arguments, 3, "does not broadcast");
  expect_error("diopiMm", arguments, 3, "3 columns");
  arguments[2] = number(5);
  expect_error("diopiSoftmax", arguments, 2, "'length' is 2");
  expect_error("diopiSelect", (diopiExtArgument_t[]){arguments[0], arguments[1], number(2), number(0)}, 4,
               "'dim' is 2; valid for 2 dimensions: -2 to 1");
  a.sizes[1] = -3;
  expect_error("diopiAbs", arguments, 2, "size -3");
}

/// Sizes whose product does not fit, and dimensions that are too many.
static void test_overflow(void) {
  struct tensor tensor;
  const int64_t huge[] = {INT64_MAX / 2, 4}, twos[DIT_MAX_DIMS + 1] = {1};
  diopiExtArgument_t arguments[3] = {{.given = 0}, take(make(&tensor, DIT_DTYPE_F32, 1, (int64_t[]){3}))};
  arguments[2] = list(huge, 2);
  expect_error("diopiRepeat", arguments, 3, "more elements than");
  arguments[2] = list((int64_t[]){INT64_MAX}, 1);
  expect_error("diopiRepeat", arguments, 3, "size -1 in dimension 0; valid: 0 to 2^63 - 1");
  arguments[2] = list(twos, DIT_MAX_DIMS + 1);
  expect_error("diopiRepeat", arguments, 3, "more than 24 dimensions");
  expect_error("diopiZeros", (diopiExtArgument_t[]){{.given = 0}, list(huge, 2)}, 2, "more elements than");
  expect_error("diopiZeros", (diopiExtArgument_t[]){{.given = 0}, list((int64_t[]){2, -1}, 2)}, 2, "size -1");
}

static void test_what_nobody_knows(void) {
  struct tensor tensor;
  const diopiExtArgument_t input = take(make(&tensor, DIT_DTYPE_F32, 2, (int64_t[]){2, 3}));
  int64_t count;
  CHECK(ask("diopiNonzero", (diopiExtArgument_t[]){{.given = 0}, input}, 2, ROOM, &count) == diopiSuccess);
  CHECK(count == 1 && outputs[0].ndim == -1 && outputs[0].dtype == diopi_dtype_int64);
  CHECK(ask("diopiCastDtype", (diopiExtArgument_t[]){{.given = 0}, input}, 2, ROOM, &count) == diopiSuccess);
  CHECK(outputs[0].ndim == 2 && outputs[0].sizes[1] == 3 && outputs[0].dtype == diopi_dtype_unsupported);
  CHECK(ask("diopiEqual", (diopiExtArgument_t[]){{.given = 0}, input, input}, 3, ROOM, &count) == diopiSuccess);
  CHECK(count == 0);
  // an absent tensor that is changed in place: Adam's largest square
  diopiExtArgument_t adam[12] = {input, input, input, input};
  CHECK(ask("diopiAdam", adam, 12, ROOM, &count) == diopiSuccess);
  CHECK(count == 4 && outputs[2].ndim == 2 && outputs[3].ndim == -1);
}

/// More results than room: their number is told, and no more than that is written.
static void test_room(void) {
  struct tensor tensor;
  const diopiExtArgument_t sort[6] = {{.given = 0}, {.given = 0}, take(make(&tensor, DIT_DTYPE_F16, 0, NULL))};
  int64_t count;
  CHECK(ask("diopiSort", sort, 6, 1, &count) == diopiSuccess);
  CHECK(count == 2 && outputs[0].ndim == 0 && outputs[0].dtype == diopi_dtype_float16);
  count = 0;
  CHECK(library->ext_infer_outputs("diopiSort", sort, 6, NULL, &count) == diopiSuccess && count == 2);
}

// Random questions: any answer, no crash

static uint64_t state;

static uint32_t draw(uint32_t limit) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % limit;
}

static int64_t draw_number(void) {
  static const int64_t odd[] = {INT64_MAX, INT64_MIN, INT64_MAX / 3, INT32_MAX, -1, 1 << 20};
  return draw(8) ? (int64_t)draw(7) - 1 : odd[draw(6)];
}

struct room {
  struct tensor tensors[4];
  diopiConstTensorHandle_t handles[4];
  int64_t numbers[6];
  diopiScalar_t scalar;
};

static diopiConstTensorHandle_t draw_tensor(struct tensor *tensor) {
  int64_t shape[6];
  const int ndim = (int)draw(6);
  for (int i = 0; i < ndim; i++) {
    shape[i] = draw(12) ? draw(5) : draw(2) ? INT32_MAX : 1 << 20;
  }
  return draw(12) ? make(tensor, (int)draw(DIT_DTYPE_COUNT), ndim, shape) : NULL;
}

static diopiExtArgument_t draw_argument(struct room *room) {
  static const diopiDtype_t kinds[] = {diopi_dtype_float64, diopi_dtype_int64, diopi_dtype_bool, diopi_dtype_complex64};
  for (int i = 0; i < 4; i++) {
    room->handles[i] = draw_tensor(&room->tensors[i]);
  }
  for (int i = 0; i < 6; i++) {
    room->numbers[i] = draw_number();
  }
  room->scalar = (diopiScalar_t){.stype = kinds[draw(4)], .ival = draw_number()};
  return (diopiExtArgument_t){.tensor = room->handles[0],
                              .tensors = draw(8) ? room->handles : NULL,
                              .size = {draw(8) ? room->numbers : NULL, draw(7)},
                              .scalar = draw(8) ? &room->scalar : NULL,
                              .string = draw(8) ? "mean" : NULL,
                              .fval = (double)draw_number(),
                              .ival = draw_number(),
                              .count = draw(5),
                              .given = draw(10) != 0};
}

static void test_random_questions(void) {
  static struct room rooms[40];
  diopiExtArgument_t arguments[40];
  const char *text = getenv("DIT_TEST_SEED");
  int answered = 0;
  state = text ? strtoull(text, NULL, 10) : 20261116;
  printf("DIT_TEST_SEED=%llu\n", (unsigned long long)state);
  for (int round = 0; round < 60000; round++) {
    const struct dit_diopi_info *info = &dit_diopi_get_functions(NULL)[draw(DIT_DIOPI_COUNT)];
    const int64_t length = info->kinds[0] ? (int64_t)strlen(info->kinds) - 1 : 0;
    int64_t count;
    CHECK(length <= 40);
    for (int64_t i = 0; i < length; i++) {
      arguments[i] = draw_argument(&rooms[i]);
    }
    const diopiError_t code = ask(info->name, arguments, length, draw(ROOM + 1), &count);
    answered += code == diopiSuccess;
    for (int64_t i = 0; code == diopiSuccess && i < count && i < ROOM; i++) {
      CHECK(outputs[i].ndim == 0x5555555555555555 || (outputs[i].ndim >= -1 && outputs[i].ndim <= DIT_MAX_DIMS));
    }
  }
  CHECK(answered > 1000);
}

int main(void) {
  struct dit_error err = {0};
  struct dit_diopi_library *opened;
  CHECK_OK(dit_diopi_library_open("host", &opened, &err));
  library = opened;
  CHECK(library->ext_infer_outputs);
  RUN(test_wrong_questions);
  RUN(test_wrong_arguments);
  RUN(test_overflow);
  RUN(test_what_nobody_knows);
  RUN(test_room);
  RUN(test_random_questions);
  dit_diopi_library_close(opened);
  return 0;
}
