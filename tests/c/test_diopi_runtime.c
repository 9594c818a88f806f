/// The host library under another runtime: this program's getters stand before libdit's, and its handles are other
/// structs, so the library must not read them by itself. The same calls as through libdit's runtime, errors included.
#include <dlfcn.h>
#include <stdint.h>

#include "check.h"
#include "diopi/functions.h"
#include "dit/dtype.h"

/// Laid out unlike libdit's handle; whoever reads it as one follows `poison`.
struct diopiTensor {
  void *poison[12];
  float *data;
  int64_t sizes[4], strides[4];
  int64_t ndim, numel;
  diopiDtype_t dtype;
  diopiDevice_t device;
};
struct diopiContext {
  void *poison[8];
};

static int asked;  ///< calls of the getters

#define GET(name, constant, type, value)                             \
  diopiError_t name(constant struct diopiTensor *th, type *answer) { \
    asked++;                                                         \
    *answer = value;                                                 \
    return diopiSuccess;                                             \
  }
GET(diopiGetTensorShape, const, diopiSize_t, ((diopiSize_t){th->sizes, th->ndim}))
GET(diopiGetTensorStride, const, diopiSize_t, ((diopiSize_t){th->strides, th->ndim}))
GET(diopiGetTensorDtype, const, diopiDtype_t, th->dtype)
GET(diopiGetTensorDevice, const, diopiDevice_t, th->device)
GET(diopiGetTensorNumel, const, int64_t, th->numel)
GET(diopiGetTensorDataConst, const, const void *, th->data)
GET(diopiGetTensorData, , void *, th->data)
diopiError_t diopiGetStream(diopiContextHandle_t ctx, diopiStreamHandle_t *stream) {
  (void)ctx;
  asked++;
  *stream = NULL;
  return diopiSuccess;
}

static struct diopiContext context;
static void *library;

static struct diopiTensor make(float *data, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  struct diopiTensor tensor = {.data = data, .sizes = {rows, columns}, .strides = {row_stride, column_stride}};
  memset(tensor.poison, 0xa5, sizeof tensor.poison);
  tensor.ndim = 2;
  tensor.numel = rows * columns;
  tensor.dtype = diopi_dtype_float32;
  tensor.device = diopi_device;
  return tensor;
}

static void find(const char *name, void *slot) {
  void *symbol = dlsym(library, name);
  CHECK(symbol);
  memcpy(slot, &symbol, sizeof symbol);
}

static void load_library(void) {
  Dl_info info;
  size_t (*function)(int) = dit_dtype_get_size;
  void *address;
  char path[4096];
  memcpy(&address, &function, sizeof address);
  CHECK(dladdr(address, &info));
  const char *end = strrchr(info.dli_fname, '/');
  snprintf(path, sizeof path, "%.*s/libdiopi_host.so", end ? (int)(end - info.dli_fname) : 1,
           end ? info.dli_fname : ".");
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library);
}

static diopiError_t (*add)(diopiContextHandle_t, diopiTensorHandle_t, diopiConstTensorHandle_t,
                           diopiConstTensorHandle_t, const diopiScalar_t *);
static const char *(*get_error)(void);
static const diopiScalar_t two = {.stype = diopi_dtype_int64, .ival = 2};

static void test_results(void) {
  diopiError_t (*softmax)(diopiContextHandle_t, diopiTensorHandle_t, diopiConstTensorHandle_t, int64_t);
  float a[12], b[12], c[12] = {0};
  find("diopiSoftmax", &softmax);
  for (int i = 0; i < 12; i++) {
    a[i] = (float)i;
    b[i] = (float)(100 * i);
  }
  struct diopiTensor out = make(c, 3, 4, 4, 1), x = make(a, 3, 4, 4, 1), y = make(b, 3, 4, 1, 3);
  CHECK(add(&context, &out, &x, &y, &two) == diopiSuccess);
  for (int i = 0; i < 3; i++) {
    for (int j = 0; j < 4; j++) {
      CHECK(c[4 * i + j] == a[4 * i + j] + 2 * b[i + 3 * j]);
    }
  }
  CHECK(asked >= 3 * 6 + 1);
  CHECK(softmax(&context, &out, &x, 0) == diopiSuccess);
  for (int j = 0; j < 4; j++) {
    const float sum = c[j] + c[4 + j] + c[8 + j];
    CHECK(sum > 0.999f && sum < 1.001f && c[8 + j] > 0.98f);
  }
}

static void expect(struct diopiTensor *out, struct diopiTensor *x, diopiError_t code, const char *text) {
  CHECK(add(&context, out, x, x, &two) == code);
  CHECK_CONTAINS(get_error(), text);
  CHECK(out->data[0] == 7.0f);
}

static void test_errors(void) {
  float a[12] = {0}, c[12] = {7.0f};
  struct diopiTensor out = make(c, 3, 4, 4, 1), x = make(a, 3, 4, 4, 1);
  x.device = diopi_host;
  expect(&out, &x, diopiErrorOccurred, "'input' is on the host");
  x = make(a, 3, -4, 4, 1);
  expect(&out, &x, diopiErrorOccurred, "'input' has size -4 and stride 1 in dimension 1");
  x = make(a, 3, 4, -4, 1);
  expect(&out, &x, diopiErrorOccurred, "'input' has size 3 and stride -4 in dimension 0");
  x = make(a, 3, 4, 4, 1);
  x.ndim = 1000;
  expect(&out, &x, diopiErrorOccurred, "'input' has 1000 dimensions");
  x = make(a, 3, 4, 4, 1);
  x.dtype = diopi_dtype_unsupported;
  expect(&out, &x, diopiDtypeNotSupported, "'input' has dtype");
  x = make(c + 1, 2, 4, 4, 1);
  struct diopiTensor part = make(c, 2, 4, 4, 1);
  expect(&part, &x, diopiErrorOccurred, "shares memory");
}

int main(void) {
  load_library();
  find("diopiAdd", &add);
  find("diopiExtGetLastErrorString", &get_error);
  RUN(test_results);
  RUN(test_errors);
  return 0;
}
