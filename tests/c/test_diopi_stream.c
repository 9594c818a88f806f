/// Operators of the host library on a side stream: work is queued and comes in order, handles and lists may go as soon
/// as the call returned, operators that read values (positions, masks) wait for what the stream holds, and every engine
/// gives what it gives on the default stream.
#include <unistd.h>

#include "device_test.h"
#include "diopi_check.h"

static int64_t stream;
static void *raw;
static struct diopiContext side;

static diopiTensorHandle_t make(void *data, int ndim, const int64_t *sizes, int dtype) {
  diopiTensorHandle_t tensor = dit_diopi_tensor_create(data, ndim, sizes, NULL, dtype, 0);
  CHECK(tensor);
  return tensor;
}

static void wait(void) {
  struct dit_error err = {0};
  CHECK_OK(dit_stream_synchronize(0, stream, &err));
}

/// Behind a closed gate nothing is written; the arguments are gone when it opens.
static void test_queued(void) {
  struct dit_error err = {0};
  struct gate gate = GATE_INITIALIZER;
  const int64_t sizes[] = {2, 3}, wide[] = {2, 6};
  float *a = take_memory(0, 6 * sizeof(float)), *b = take_memory(0, 12 * sizeof(float));
  float *c = take_memory(0, 12 * sizeof(float));
  for (int i = 0; i < 12; i++) {
    b[i] = c[i] = -1;
    a[i % 6] = (float)(i % 6);
  }
  CHECK_OK(dit_stream_launch_host(0, stream, gate_wait, &gate, &err));
  gate_await(&gate);
  diopiTensorHandle_t in = make(a, 2, sizes, DIT_DTYPE_F32), joined = make(b, 2, wide, DIT_DTYPE_F32);
  diopiTensorHandle_t turned = make(c, 2, wide, DIT_DTYPE_F32);
  diopiConstTensorHandle_t list[2] = {in, in};
  const int64_t shift = 1, last = 1;
  CHECK(functions->diopiCat(&side, joined, list, 2, 1) == diopiSuccess);
  CHECK(functions->diopiRoll(&side, turned, joined, (diopiSize_t){&shift, 1}, (diopiSize_t){&last, 1}) == diopiSuccess);
  CHECK(functions->diopiTriuInp(&side, joined, 1) == diopiSuccess);
  list[0] = list[1] = NULL;
  dit_diopi_tensor_destroy(in);
  dit_diopi_tensor_destroy(joined);
  dit_diopi_tensor_destroy(turned);
  CHECK(b[0] == -1 && b[11] == -1 && c[0] == -1);
  gate_open(&gate);
  wait();
  static const float upper[12] = {0, 1, 2, 0, 1, 2, 0, 0, 5, 3, 4, 5};
  static const float rolled[12] = {2, 0, 1, 2, 0, 1, 5, 3, 4, 5, 3, 4};
  for (int i = 0; i < 12; i++) {
    CHECK(b[i] == upper[i]);
    CHECK(c[i] == rolled[i]);
  }
  give_memory(0, a);
  give_memory(0, b);
  give_memory(0, c);
}

struct late {
  int64_t *index;
  int64_t value;
};

static void write_late(void *argument) {
  const struct late *late = argument;
  usleep(20000);
  late->index[0] = late->value;
}

/// The positions are written by work that is still queued when the operator is called.
static void test_waits(void) {
  struct dit_error err = {0};
  const int64_t table_sizes[] = {4, 2}, one = 1, out_sizes[] = {1, 2};
  float *table = take_memory(0, 8 * sizeof(float)), *out = take_memory(0, 2 * sizeof(float));
  int64_t *index = take_memory(0, sizeof *index);
  for (int i = 0; i < 8; i++) {
    table[i] = (float)i;
  }
  out[0] = out[1] = -1;
  diopiTensorHandle_t weight = make(table, 2, table_sizes, DIT_DTYPE_F32), rows = make(index, 1, &one, DIT_DTYPE_I64);
  diopiTensorHandle_t result = make(out, 2, out_sizes, DIT_DTYPE_F32);
  struct late late = {index, 9};
  index[0] = 0;
  CHECK_OK(dit_stream_launch_host(0, stream, write_late, &late, &err));
  CHECK(functions->diopiEmbedding(&side, result, weight, rows, -1, false, false) == diopiErrorOccurred);
  CHECK_CONTAINS(dit_diopi_library_get_error(dit_diopi_get_active()), "'indices' holds 9");
  CHECK(out[0] == -1);
  late.value = 3;
  CHECK_OK(dit_stream_launch_host(0, stream, write_late, &late, &err));
  CHECK(functions->diopiEmbedding(&side, result, weight, rows, -1, false, false) == diopiSuccess);
  wait();
  CHECK(out[0] == 6 && out[1] == 7);
  dit_diopi_tensor_destroy(weight);
  dit_diopi_tensor_destroy(rows);
  dit_diopi_tensor_destroy(result);
  give_memory(0, table);
  give_memory(0, out);
  give_memory(0, index);
}

/// A result that the library makes, and scratch of its own, on the device's memory.
static void test_made(void) {
  const int64_t sizes[] = {2, 3};
  uint8_t *mask = take_memory(0, 6);
  diopiTensorHandle_t made = NULL, in = make(mask, 2, sizes, DIT_DTYPE_BOOL);
  void *data;
  int64_t numel;
  for (int i = 0; i < 6; i++) {
    mask[i] = i % 2;
  }
  CHECK(functions->diopiNonzero(&side, &made, in) == diopiSuccess);
  wait();
  CHECK(dit_diopi_context_owns(&side, made));
  CHECK(diopiGetTensorNumel(made, &numel) == diopiSuccess && numel == 6);
  CHECK(diopiGetTensorData(made, &data) == diopiSuccess);
  static const int64_t expected[6] = {0, 1, 1, 0, 1, 2};
  CHECK(memcmp(data, expected, sizeof expected) == 0);
  dit_diopi_context_reset(&side);
  dit_diopi_tensor_destroy(in);
  give_memory(0, mask);
}

/// Product, softmax, sum, dropout and gelu, once on each stream.
static void test_same(void) {
  struct sample a, b, out[2], sum[2], mask[2];
  const int64_t sizes[3] = {2, 30, 30}, kept[3] = {2, 1, 30}, rows = 1;
  sample_init(&a, DIT_DTYPE_F32, 3, sizes, LAYOUT_GAPS);
  sample_init(&b, DIT_DTYPE_F32, 3, sizes, LAYOUT_PERMUTED);
  sample_fill(&a, false);
  sample_fill(&b, false);
  for (int i = 0; i < 2; i++) {
    sample_init(&out[i], DIT_DTYPE_F32, 3, sizes, LAYOUT_CONTIGUOUS);
    sample_init(&sum[i], DIT_DTYPE_F32, 3, kept, LAYOUT_CONTIGUOUS);
    sample_init(&mask[i], DIT_DTYPE_BOOL, 3, sizes, LAYOUT_CONTIGUOUS);
  }
  for (int family = 0; family < 5; family++) {
    for (int i = 0; i < 2; i++) {
      void *on = i ? raw : NULL;
      struct diopiGenerator generator = {11, 5};
      diopiTensorHandle_t o = wrap(&out[i].view), x = wrap(&a.view), y = wrap(&b.view);
      switch (family) {
        case 0:
          CALL_ON(on, diopiBaddbmm, o, y, x, y, 1, 1);
          break;
        case 1:
          CALL_ON(on, diopiSoftmax, o, x, 1);
          break;
        case 2:
          CALL_ON(on, diopiSum, wrap(&sum[i].view), x, (diopiSize_t){&rows, 1});
          break;
        case 3:
          CALL_ON(on, diopiDropout, o, wrap(&mask[i].view), x, 0.5, true, &generator);
          break;
        default:
          CALL_ON(on, diopiGelu, o, x, "none");
      }
    }
    wait();
    CHECK(memcmp(out[0].view.data, out[1].view.data, (size_t)out[0].view.numel * 4) == 0);
    CHECK(memcmp(sum[0].view.data, sum[1].view.data, (size_t)sum[0].view.numel * 4) == 0);
    CHECK(memcmp(mask[0].view.data, mask[1].view.data, (size_t)mask[0].view.numel) == 0);
  }
  for (int i = 0; i < 2; i++) {
    sample_destroy(&out[i]);
    sample_destroy(&sum[i]);
    sample_destroy(&mask[i]);
  }
  sample_destroy(&a);
  sample_destroy(&b);
}

int main(void) {
  load_operators();
  random_init();
  raw = acquire_stream(&stream);
  dit_diopi_context_init(&side, 0, raw);
  RUN(test_queued);
  RUN(test_waits);
  RUN(test_made);
  RUN(test_same);
  dit_runtime_shutdown();
  return 0;
}
