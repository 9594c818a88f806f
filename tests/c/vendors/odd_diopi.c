/// A small DIOPI library with one defect, chosen by the environment, for the tests of the conformance program.
///
/// ODD_DEFECT names the defect (none: everything is right); ODD_NUMEL limits it to calls whose input has so many
/// elements. `shared` computes in memory that all threads have in common, `stale` keeps the first call's size, `stream`
/// is wrong on every stream but the default one, `narrow` keeps 31 bits of an element's place. Tensors are float32 or
/// int64 in host memory, with any strides.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "diopi/extension.h"
#include "diopi/functions.h"

static _Thread_local char error_text[256];

struct view {
  char *data;
  const int64_t *sizes, *strides;
  int64_t ndim, numel;
  diopiDtype_t dtype;
};

static struct view look(diopiConstTensorHandle_t tensor) {
  struct view view = {0};
  diopiSize_t sizes, strides;
  const void *data;
  diopiGetTensorDataConst(tensor, &data);
  diopiGetTensorShape(tensor, &sizes);
  diopiGetTensorStride(tensor, &strides);
  diopiGetTensorNumel(tensor, &view.numel);
  diopiGetTensorDtype(tensor, &view.dtype);
  view.data = (char *)data;
  view.sizes = sizes.data;
  view.strides = strides.data;
  view.ndim = sizes.len;
  return view;
}

static bool has_defect(const char *name, int64_t numel) {
  const char *defect = getenv("ODD_DEFECT"), *wanted = getenv("ODD_NUMEL");
  return defect && strcmp(defect, name) == 0 && (!wanted || atoll(wanted) == numel);
}

static void *at(const struct view *view, int64_t index) {
  int64_t offset = 0;
  for (int64_t d = view->ndim - 1; d >= 0; d--) {
    offset += index % view->sizes[d] * view->strides[d];
    index /= view->sizes[d];
  }
  offset = has_defect("narrow", -1) ? (int64_t)((uint64_t)offset & INT32_MAX) : offset;
  return view->data + offset * (view->dtype == diopi_dtype_bool ? 1 : view->dtype == diopi_dtype_float32 ? 4 : 8);
}

static diopiError_t fail(const char *function, const char *what) {
  snprintf(error_text, sizeof error_text, "%s: %s", function, what);
  return diopiErrorOccurred;
}

const char *diopiGetVendorName(void) {
  return has_defect("nameless", -1) ? "" : "odd";
}

const char *diopiGetImplVersion(void) {
  return "1";
}

const char *diopiGetLastErrorString(void) {
  return has_defect("silent", -1) ? "" : error_text;
}

/// Defects that need nothing but the input's size.
static void misbehave(diopiContextHandle_t ctx, int64_t numel) {
  if (has_defect("crash", numel)) {
    abort();
  }
  if (has_defect("exit", numel)) {
    _exit(0);
  }
  if (has_defect("hang", numel)) {
    sleep(600);
  }
  if (has_defect("scratch", numel)) {
    diopiTensorHandle_t scratch;
    void *data;
    if (diopiRequireBuffer(ctx, &scratch, 24, diopi_device) == diopiSuccess &&
        diopiGetTensorData(scratch, &data) == diopiSuccess) {
      ((char *)data)[24] = 1;
    }
  }
}

/// Wrong bytes around a right result.
static void damage(diopiContextHandle_t ctx, const struct view *out, const struct view *in) {
  static int calls;
  diopiStreamHandle_t stream = NULL;
  if (in->numel == 0) {
    return;
  }
  if (has_defect("value", in->numel)) {
    *(float *)at(out, in->numel - 1) += 1;
  }
  if (has_defect("nan", in->numel)) {
    *(float *)at(out, 0) = NAN;
  }
  if (has_defect("after", in->numel)) {
    *(float *)((char *)at(out, in->numel - 1) + 8) = 1;
  }
  if (has_defect("before", in->numel)) {
    *(float *)(out->data - 4) = 1;
  }
  if (has_defect("input", in->numel)) {
    *(float *)at(in, 1) = 1;
  }
  if (has_defect("third", in->numel) && in->numel == 12) {
    static int seen;
    *(float *)at(out, 0) += ++seen > 2;
  }
  if (has_defect("stream", in->numel) && diopiGetStream(ctx, &stream) == diopiSuccess && stream) {
    *(float *)at(out, 0) = -1;
  }
  if (has_defect("random", in->numel)) {
    *(float *)at(out, 0) *= calls++ % 2 ? 1.0000002f : 1;
  }
}

diopiError_t diopiAbs(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  if (!ctx || !out || !input) {
    return fail("diopiAbs", "a handle is NULL");
  }
  struct view to = look(out), from = look(input);
  if (has_defect("nothing", from.numel)) {
    return diopiSuccess;
  }
  if (from.dtype != diopi_dtype_float32) {
    return fail("diopiAbs", "not for this dtype"), diopiDtypeNotSupported;
  }
  misbehave(ctx, from.numel);
  if (has_defect("early", from.numel) && to.numel > 0) {
    *(float *)to.data = 1;
  }
  if (has_defect("code", from.numel) || (to.numel != from.numel && !has_defect("accepts", from.numel))) {
    return fail("diopiAbs", "out has another number of elements than input");
  }
  static int64_t known;  // the size of the first call
  known = known ? known : from.numel;
  const bool shares = has_defect("shared", from.numel), keeps = has_defect("stale", from.numel);
  static float buffer[1 << 16];
  for (int64_t i = 0; shares && i < from.numel && i < 1 << 16; i++) {
    buffer[i] = fabsf(*(float *)at(&from, i));
  }
  if (shares) {
    usleep(200);
  }
  for (int64_t i = 0; i < from.numel && i < to.numel; i++) {
    if (shares || (keeps && i >= known)) {
      *(float *)at(&to, i) = shares ? buffer[i] : 0;
      continue;
    }
    if (!has_defect("unwritten", from.numel) || i != 1) {
      *(float *)at(&to, i) = fabsf(*(float *)at(&from, i));
    }
  }
  damage(ctx, &to, &from);
  return diopiSuccess;
}

/// Positions of what is not 0 in a 1-d tensor, as (count, 1).
diopiError_t diopiNonzero(diopiContextHandle_t ctx, diopiTensorHandle_t *out, diopiConstTensorHandle_t input) {
  struct view from = look(input);
  int64_t sizes[2] = {0, 1}, count = 0;
  for (int64_t i = 0; i < from.numel; i++) {
    sizes[0] += *(float *)at(&from, i) != 0;
  }
  sizes[0] += has_defect("shape", from.numel);
  const diopiSize_t size = {sizes, 2};
  const diopiDtype_t dtype = has_defect("dtype", from.numel) ? diopi_dtype_float64 : diopi_dtype_int64;
  if (has_defect("handle", from.numel)) {
    return diopiSuccess;
  }
  if (diopiRequireTensor(ctx, out, &size, NULL, dtype, diopi_device) != diopiSuccess) {
    return fail("diopiNonzero", "no memory");
  }
  struct view to = look(*out);
  for (int64_t i = 0; i < from.numel; i++) {
    if (*(float *)at(&from, i) != 0) {
      *(int64_t *)at(&to, count++) = i + has_defect("value", from.numel);
    }
  }
  return diopiSuccess;
}

diopiError_t diopiEqual(diopiContextHandle_t ctx, bool *out, diopiConstTensorHandle_t input,
                        diopiConstTensorHandle_t other) {
  struct view a = look(input), b = look(other);
  bool equal = ctx && a.numel == b.numel;
  for (int64_t i = 0; equal && i < a.numel; i++) {
    equal = *(float *)at(&a, i) == *(float *)at(&b, i);
  }
  if (!has_defect("unwritten", a.numel)) {
    *out = has_defect("value", a.numel) ? !equal : equal;
  }
  return diopiSuccess;
}

/// The last dimension of a 1-d tensor in ascending order.
diopiError_t diopiSort(diopiContextHandle_t ctx, diopiTensorHandle_t values, diopiTensorHandle_t indices,
                       diopiConstTensorHandle_t input, int64_t dim, bool descending, const bool *stable) {
  struct view from = look(input), v = look(values), places = look(indices);
  (void)ctx, (void)dim, (void)descending, (void)stable;
  for (int64_t i = 0; i < from.numel; i++) {
    int64_t k = i;
    const float value = *(float *)at(&from, i);
    for (; k > 0 && *(float *)at(&v, k - 1) > value; k--) {
      *(float *)at(&v, k) = *(float *)at(&v, k - 1);
      *(int64_t *)at(&places, k) = *(int64_t *)at(&places, k - 1);
    }
    *(float *)at(&v, k) = value;
    *(int64_t *)at(&places, k) = i;
  }
  if (has_defect("value", from.numel)) {
    *(int64_t *)at(&places, 0) = *(int64_t *)at(&places, 1);
  }
  if (has_defect("before", from.numel)) {
    *(int64_t *)(places.data - 8) = 1;
  }
  if (has_defect("index", from.numel)) {
    *(int64_t *)at(&places, 0) = from.numel;
  }
  return diopiSuccess;
}

diopiError_t diopiRandperm(diopiContextHandle_t ctx, diopiTensorHandle_t out, int64_t n,
                           diopiGeneratorHandle_t generator) {
  struct view to = look(out);
  uint64_t seed, offset;
  if (!ctx || diopiGeneratorGetSeedAndOffset(generator, &seed, &offset) != diopiSuccess) {
    return fail("diopiRandperm", "no generator");
  }
  for (int64_t i = 0; i < n; i++) {
    *(int64_t *)at(&to, i) = (int64_t)(((uint64_t)i + seed) % (uint64_t)n);
  }
  if (has_defect("value", n)) {
    *(int64_t *)at(&to, 0) = *(int64_t *)at(&to, 1);
  }
  return diopiGeneratorSetSeedAndOffset(generator, seed, offset + 1);
}

diopiError_t diopiUniformInp(diopiContextHandle_t ctx, diopiTensorHandle_t inout, double from, double to,
                             diopiGeneratorHandle_t generator) {
  struct view out = look(inout);
  uint64_t seed, offset;
  if (!ctx || diopiGeneratorGetSeedAndOffset(generator, &seed, &offset) != diopiSuccess) {
    return fail("diopiUniformInp", "no generator");
  }
  for (int64_t i = 0; i < out.numel; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const double unit = (double)(seed >> 33) / 2147483648.0;
    *(float *)at(&out, i) = (float)(from + (to - from) * (has_defect("value", out.numel) ? unit * unit : unit));
  }
  diopiGeneratorGetSeedAndOffset(generator, &seed, &offset);
  return diopiGeneratorSetSeedAndOffset(generator, seed, offset + !has_defect("offset", out.numel));
}

/// Each second element is kept. Wrong: one that the mask drops.
diopiError_t diopiDropout(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiTensorHandle_t mask,
                          diopiConstTensorHandle_t input, double p, bool train, diopiGeneratorHandle_t generator) {
  struct view to = look(out), kept = look(mask), from = look(input);
  uint64_t seed, offset;
  (void)ctx, (void)train;
  for (int64_t i = 0; i < from.numel; i++) {
    const bool keep = i % 2 == 0, wrong = has_defect("value", from.numel) && i == 3;
    *(bool *)at(&kept, i) = keep;
    *(float *)at(&to, i) = keep || wrong ? *(float *)at(&from, i) / (float)(1 - p) : 0;
  }
  diopiGeneratorGetSeedAndOffset(generator, &seed, &offset);
  return diopiGeneratorSetSeedAndOffset(generator, seed, offset + 1);
}

#ifdef ODD_EXTENSION
uint32_t diopiExtGetVersion(void) {
  return DIOPI_EXT_VERSION;
}

/// Results of diopiAbs and diopiNonzero; of nothing else.
diopiError_t diopiExtInferOutputs(const char *function, const diopiExtArgument_t *arguments, int64_t length,
                                  diopiExtOutput_t *outputs, int64_t *count) {
  const bool known = strcmp(function, "diopiAbs") == 0 || strcmp(function, "diopiNonzero") == 0;
  if (!known || length != 2) {
    return diopiNoImplement;
  }
  if (!arguments[1].given || !arguments[1].tensor || has_defect("infer code", -1)) {
    return fail(function, "nothing can be inferred");
  }
  struct view input = look(arguments[1].tensor);
  outputs[0].ndim = strcmp(function, "diopiNonzero") == 0 ? -1 : input.ndim + has_defect("infer rank", input.numel);
  outputs[0].dtype = outputs[0].ndim == -1 || has_defect("infer dtype", input.numel) ? diopi_dtype_int64 : input.dtype;
  for (int64_t i = 0; i < input.ndim; i++) {
    outputs[0].sizes[i] = input.sizes[i] + has_defect("infer shape", input.numel);
  }
  *count = 1 + has_defect("infer count", input.numel);
  return diopiSuccess;
}
#endif
