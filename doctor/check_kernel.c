/// Checks of the kernel table's copy: conversions, layouts, the order of the stream.
#include <dlfcn.h>
#include <stddef.h>

#include "dit/kernel.h"
#include "doctor.h"
#include "element.h"

enum { SIZE = 4096, MARK = 0x5A, MOST_DIMS = 3 };

struct layout {
  const char *name;
  int ndim;
  int64_t sizes[MOST_DIMS], in[MOST_DIMS], out[MOST_DIMS];  ///< strides in elements
  int64_t in_offset, out_offset;
};

static const struct layout layouts[] = {
    {"37 elements side by side", 1, {37}, {1}, {1}, 0, 0},
    {"no dimension", 0, {0}, {0}, {0}, 0, 0},
    {"nothing, of (4, 0)", 2, {4, 0}, {1, 1}, {1, 1}, 0, 0},
    {"behind an offset", 1, {19}, {1}, {1}, 5, 3},
    {"(4, 3, 5), transposed", 3, {4, 3, 5}, {1, 20, 4}, {15, 5, 1}, 0, 0},
    {"(4, 3, 5) into a transposed tensor", 3, {4, 3, 5}, {15, 5, 1}, {1, 20, 4}, 0, 2},
    {"an expanded row", 2, {6, 7}, {0, 1}, {7, 1}, 0, 0},
    {"every third element into every second", 1, {20}, {3}, {2}, 1, 1},
};

static const int pairs[][2] = {
    {DIT_DTYPE_F32, DIT_DTYPE_F32},  {DIT_DTYPE_F32, DIT_DTYPE_F64},   {DIT_DTYPE_F64, DIT_DTYPE_F32},
    {DIT_DTYPE_F32, DIT_DTYPE_I64},  {DIT_DTYPE_I64, DIT_DTYPE_F32},   {DIT_DTYPE_F32, DIT_DTYPE_BF16},
    {DIT_DTYPE_BF16, DIT_DTYPE_F32}, {DIT_DTYPE_BF16, DIT_DTYPE_BF16}, {DIT_DTYPE_I32, DIT_DTYPE_I16},
    {DIT_DTYPE_U8, DIT_DTYPE_U8},    {DIT_DTYPE_F32, DIT_DTYPE_BOOL},  {DIT_DTYPE_BOOL, DIT_DTYPE_I64},
};

/// Halves, so that whole numbers show how they are cut.
static double get_value(int dtype, int i) {
  const double value = dtype == DIT_DTYPE_U8 ? i % 13 : dtype == DIT_DTYPE_BOOL ? i % 2 : (i % 13 - 6) * 0.5;
  return dtype == DIT_DTYPE_I64 || dtype == DIT_DTYPE_I32 ? (double)(int)value : value;
}

static double convert(double value, int dtype) {
  const bool is_whole = dtype == DIT_DTYPE_I64 || dtype == DIT_DTYPE_I16;
  return dtype == DIT_DTYPE_BOOL ? value != 0 : is_whole ? (double)(int64_t)value : value;
}

static struct dit_tensor_view make_view(const struct layout *l, const int64_t *strides, char *memory, int64_t offset,
                                        int dtype) {
  struct dit_tensor_view view = {.data = memory + offset * (int64_t)dit_dtype_get_size(dtype),
                                 .sizes = l->sizes,
                                 .strides = strides,
                                 .numel = 1,
                                 .storage = memory,
                                 .ndim = l->ndim,
                                 .dtype = (int16_t)dtype,
                                 .device_index = 0,
                                 .flags = DIT_TENSOR_ON_DEVICE};
  for (int i = 0; i < l->ndim; i++) {
    view.numel *= l->sizes[i];
  }
  view.flags |= dit_shape_is_contiguous(l->ndim, l->sizes, strides) ? DIT_TENSOR_CONTIGUOUS : 0;
  view.flags |= dit_shape_is_dense(l->ndim, l->sizes, strides) ? DIT_TENSOR_DENSE : 0;
  return view;
}

/// Where the n-th element lies, in elements.
static int64_t find_place(const struct layout *l, const int64_t *strides, int64_t offset, int64_t n) {
  for (int i = l->ndim - 1; i >= 0; i--) {
    offset += n % l->sizes[i] * strides[i];
    n /= l->sizes[i];
  }
  return offset;
}

static const struct dit_kernel_vtable *get_table(const struct bench *b) {
  const struct dit_kernel_vtable *(*get)(void);
  void *symbol = dlsym(b->handle, DIT_VENDOR_KERNELS_SYMBOL);
  memcpy(&get, &symbol, sizeof get);
  const struct dit_kernel_vtable *table = get ? get() : NULL;
  const size_t needed = offsetof(struct dit_kernel_vtable, copy) + sizeof table->copy;
  return table && table->struct_size >= needed && table->copy ? table : NULL;
}

struct place {
  char *in, *out;
  void *stream;
  char sent[SIZE], wanted[SIZE], got[SIZE];
};

static bool run_copy(struct bench *b, const struct dit_kernel_vtable *table, struct place *p, const struct layout *l,
                     const int *dtypes, bool *done) {
  const int from = dtypes[0], to = dtypes[1];
  const struct dit_tensor_view in = make_view(l, l->in, p->in, l->in_offset, from);
  const struct dit_tensor_view out = make_view(l, l->out, p->out, l->out_offset, to);
  for (int i = 0; i < SIZE / 8; i++) {
    element_put(p->sent + (size_t)i * dit_dtype_get_size(from), from, get_value(from, i));
  }
  memset(p->wanted, MARK, SIZE);
  TRY(bench_put(b, 0, p->in, p->sent, SIZE));
  TRY(bench_put(b, 0, p->out, p->wanted, SIZE));
  struct dit_error err = bench_make_error();
  const enum dit_status status = table->copy(p->stream, &out, &in, &err);
  *done = status != DIT_ERR_UNSUPPORTED;
  for (int64_t n = 0; n < out.numel && *done; n++) {
    const double value = get_value(from, (int)find_place(l, l->in, l->in_offset, n));
    char *at = p->wanted + (size_t)find_place(l, l->out, l->out_offset, n) * dit_dtype_get_size(to);
    element_put(at, to, convert(value, to));
  }
  TRY(!*done || bench_is_ok(b, b->finding->slot, status, &err));
  CALL(b, stream_synchronize, 0, p->stream);
  TRY(bench_get(b, 0, p->got, p->out, SIZE));
  size_t same = 0;
  while (same < SIZE && p->got[same] == p->wanted[same]) {
    same++;
  }
  WANT(b, same == SIZE, *done ? "what PyTorch's copy_ gives" : "the answer DIT_ERR_UNSUPPORTED comes before writing",
       "strides are elements and may be 0; the dtype of either side; the data pointer has the offset already",
       "copy from %s to %s, %s: %s, and byte %zu of the output is 0x%02x instead of 0x%02x", dit_dtype_get_name(from),
       dit_dtype_get_name(to), l->name, *done ? "it answered DIT_OK" : "it answered DIT_ERR_UNSUPPORTED", same,
       (unsigned char)p->got[same], (unsigned char)p->wanted[same]);
  return true;
}

static bool prepare(struct bench *b, struct place *p) {
  void *memory = NULL;
  CALL(b, memory_alloc, 0, (size_t)2 * SIZE, &memory);
  p->in = memory;
  p->out = p->in + SIZE;
  CALL(b, stream_create, 0, 0, &p->stream);
  return true;
}

static bool finish(struct bench *b, const struct place *p) {
  CALL(b, stream_destroy, 0, p->stream);
  CALL(b, memory_free, 0, p->in);
  return true;
}

static bool check_copy(struct bench *b) {
  static struct place p;
  const struct dit_kernel_vtable *table = get_table(b);
  if (!table) {
    return true;
  }
  TRY(prepare(b, &p));
  void *const streams[] = {p.stream, NULL};
  bool done = false;
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    for (size_t k = 0; k < sizeof layouts / sizeof layouts[0]; k++) {
      p.stream = streams[k % 2];
      TRY(run_copy(b, table, &p, &layouts[k], pairs[i], &done));
    }
  }
  p.stream = streams[0];
  return finish(b, &p);
}

/// Behind a fill with 7, before one with 9.
static bool check_order(struct bench *b) {
  static struct place p;
  static struct slow slow;
  static const int bytes[2] = {DIT_DTYPE_U8, DIT_DTYPE_U8};
  const struct dit_kernel_vtable *table = get_table(b);
  bool done = false;
  if (!table) {
    return true;
  }
  TRY(prepare(b, &p));
  TRY(run_copy(b, table, &p, &layouts[0], bytes, &done));
  if (!done) {
    return finish(b, &p);
  }
  struct dit_error err = bench_make_error();
  int64_t size = 37, stride = 1;  // as a caller's, they are gone when the kernel runs
  struct layout l = {"", 1, {size}, {stride}, {stride}, 0, 0};
  struct dit_tensor_view in = make_view(&l, l.in, p.in, 0, DIT_DTYPE_U8);
  struct dit_tensor_view out = make_view(&l, l.out, p.out, 0, DIT_DTYPE_U8);
  CALL(b, stream_launch_host, 0, p.stream, slow_run, &slow);
  CALL(b, memory_set, 0, p.stream, p.in, 7, SIZE);
  TRY(bench_is_ok(b, b->finding->slot, table->copy(p.stream, &out, &in, &err), &err));
  memset(&l, 0, sizeof l);
  memset(&in, 0, sizeof in);
  memset(&out, 0, sizeof out);
  CALL(b, memory_set, 0, p.stream, p.in, 9, SIZE);
  CALL(b, stream_synchronize, 0, p.stream);
  TRY(bench_get(b, 0, p.got, p.out, SIZE));
  for (int i = 0; i < size; i++) {
    WANT(b, p.got[i] == 7, "kernels run in the order of their stream; views are copied, never kept",
         "the stream that is passed, and what of the views the work still holds",
         "a copy behind a fill with 7 and before one with 9: byte %d is %d", i, p.got[i]);
  }
  return finish(b, &p);
}

#define BASE \
  "memory_alloc memory_free memory_set copy stream_create stream_destroy stream_synchronize stream_launch_host"

static const struct check checks[] = {
    {DIT_VENDOR_KERNELS_SYMBOL, "copies between dtypes and layouts", BASE, check_copy, 0},
    {DIT_VENDOR_KERNELS_SYMBOL, "copies keep the order of the stream", BASE, check_order, 0},
};
const struct check_group kernel_group = {checks, sizeof checks / sizeof checks[0]};
