/// Packs of conformance cases: what is read, and that no damaged byte leads the reader outside its bytes.
///
/// The payloads are built here by hand, from the description in docs/conformance-pack.md alone. Random damage is drawn
/// from DIT_TEST_SEED (printed).
#include <stdint.h>
#include <unistd.h>

#include "call.h"
#include "check.h"
#include "dit/alloc.h"
#include "pack.h"

struct bytes {
  unsigned char data[4096];
  size_t size;
};

static void put(struct bytes *b, const void *data, size_t size) {
  CHECK(b->size + size <= sizeof b->data);
  memcpy(b->data + b->size, data, size);
  b->size += size;
}

static void put_number(struct bytes *b, uint64_t value, int width) {
  for (int i = 0; i < width; i++) {
    const unsigned char byte = (unsigned char)(value >> 8 * i);
    put(b, &byte, 1);
  }
}

static void put_double(struct bytes *b, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_number(b, bits, 8);
}

static void put_string(struct bytes *b, const char *text) {
  put_number(b, strlen(text), 2);
  put(b, text, strlen(text) + 1);
}

static void put_padding(struct bytes *b) {
  while (b->size % 8) {
    put_number(b, 0, 1);
  }
}

struct plan {
  enum pack_role role;
  enum pack_check check;
  int dtype;
  uint32_t storage;
  int source;
  int64_t sizes[2], strides[2];
  enum pack_wide wide;
  int expected, tolerance, bounds;
};

static void put_tensor(struct bytes *b, const struct plan *p) {
  put_padding(b);
  const int bytes[] = {(int)p->role, (int)p->check, p->dtype, 2, (int)p->wide, 0};
  for (int i = 0; i < 6; i++) {
    put_number(b, (uint64_t)bytes[i], 1);
  }
  put_number(b, (uint64_t)p->bounds, 2);
  put_number(b, p->storage, 4);
  put_number(b, (uint64_t)(int64_t)p->source, 4);
  put_number(b, p->storage == PACK_NONE ? 0 : 1, 8);  // offset
  put_number(b, (uint64_t)p->expected, 8);
  put_number(b, (uint64_t)p->tolerance, 8);
  for (int i = 0; i < 2; i++) {
    put_number(b, (uint64_t)p->sizes[i], 8);
  }
  for (int i = 0; i < 2; i++) {
    put_number(b, (uint64_t)p->strides[i], 8);
  }
  for (int i = 0; i < p->bounds; i++) {
    put_double(b, i % 2 ? 100 : -100);
  }
  for (int i = 0; i < p->expected; i++) {
    put_double(b, 0.25);
  }
  for (int i = 0; i < p->tolerance; i++) {
    put_double(b, 1e-6);
  }
}

static void put_argument(struct bytes *b, char kind, enum pack_form form, int count, const uint64_t *words,
                         int length) {
  put_padding(b);
  put_number(b, (uint64_t)kind, 1);
  put_number(b, (uint64_t)form, 1);
  put_number(b, 0, 2);
  put_number(b, (uint64_t)count, 4);
  for (int i = 0; i < length; i++) {
    put_number(b, words[i], 8);
  }
}

static void put_head(struct bytes *b, const char *id, const char *function, const char *kinds, int storages,
                     int tensors) {
  b->size = 0;
  put_number(b, 2, 4);  // deterministic
  put_number(b, 1, 2);  // tags
  put_number(b, (uint64_t)storages, 2);
  put_number(b, (uint64_t)tensors, 2);
  put_number(b, strlen(kinds), 2);
  put_string(b, id);
  put_string(b, function);
  put_string(b, kinds);
  put_string(b, "dtype");
  put_string(b, "float32");
}

static void put_storage(struct bytes *b, uint64_t size, bool has_bytes) {
  put_padding(b);
  put_number(b, size, 8);
  put_number(b, has_bytes, 4);
  put_number(b, 0, 4);
}

/// diopiSoftmax: out and input of shape (3, 4) with gaps between the rows.
static void build_softmax(struct bytes *b) {
  const struct plan out = {PACK_OUT, PACK_ELEMENTS, DIT_DTYPE_F32, 0, -1, {3, 4}, {5, 1}, PACK_WIDE_F64, 12, 12, 0};
  const struct plan in = {PACK_IN, PACK_ELEMENTS, DIT_DTYPE_F32, 1, -1, {3, 4}, {5, 1}, PACK_WIDE_NONE, 0, 0, 0};
  put_head(b, "diopiSoftmax/plain/float32/strided/0", "diopiSoftmax", "oti", 2, 2);
  put_storage(b, 64, false);
  put_storage(b, 64, true);
  put_tensor(b, &out);
  put_tensor(b, &in);
  put_argument(b, 'o', PACK_GIVEN, 1, (uint64_t[]){0}, 1);
  put_argument(b, 't', PACK_GIVEN, 1, (uint64_t[]){1}, 1);
  put_argument(b, 'i', PACK_GIVEN, 1, (uint64_t[]){1}, 1);
  put_padding(b);
  for (int i = 0; i < 16; i++) {
    const float value = (float)i;
    put(b, &value, sizeof value);
  }
  put_padding(b);
}

/// diopiSort: a permutation, a selection, and an absent pointer.
static void build_sort(struct bytes *b) {
  const struct plan values = {PACK_OUT, PACK_PERMUTATION, DIT_DTYPE_F32, 0, -1, {3, 4}, {4, 1}, PACK_WIDE_F64, 12, 1,
                              0};
  const struct plan indices = {PACK_OUT, PACK_SELECTION, DIT_DTYPE_I64, 1, 2, {3, 4}, {4, 1}, PACK_WIDE_F64, 12, 0, 1};
  const struct plan in = {PACK_IN, PACK_ELEMENTS, DIT_DTYPE_F32, 2, -1, {3, 4}, {4, 1}, PACK_WIDE_NONE, 0, 0, 0};
  put_head(b, "diopiSort/0", "diopiSort", "ootibB", 3, 3);
  put_storage(b, 56, false);
  put_storage(b, 112, false);
  put_storage(b, 56, true);
  put_tensor(b, &values);
  put_tensor(b, &indices);
  put_tensor(b, &in);
  put_argument(b, 'o', PACK_GIVEN, 1, (uint64_t[]){0}, 1);
  put_argument(b, 'o', PACK_GIVEN, 1, (uint64_t[]){1}, 1);
  put_argument(b, 't', PACK_GIVEN, 1, (uint64_t[]){2}, 1);
  put_argument(b, 'i', PACK_GIVEN, 1, (uint64_t[]){1}, 1);
  put_argument(b, 'b', PACK_GIVEN, 1, (uint64_t[]){0}, 1);
  put_argument(b, 'B', PACK_ABSENT, 0, NULL, 0);
  put_padding(b);
  for (int i = 0; i < 14; i++) {
    const float value = 0.25f;
    put(b, &value, sizeof value);
  }
  put_padding(b);
}

/// diopiIndex: a result that the library makes, and a list with an absent tensor.
static void build_index(struct bytes *b) {
  const struct plan out = {PACK_OUT, PACK_ELEMENTS, DIT_DTYPE_F32, PACK_NONE, -1, {1, 2}, {2, 1}, PACK_WIDE_F64, 2, 1,
                           0};
  const struct plan in = {PACK_IN, PACK_ELEMENTS, DIT_DTYPE_F32, 0, -1, {1, 4}, {4, 1}, PACK_WIDE_NONE, 0, 0, 0};
  put_head(b, "diopiIndex/0", "diopiIndex", "OtTi", 1, 2);
  put_storage(b, 24, true);
  put_tensor(b, &out);
  put_tensor(b, &in);
  put_argument(b, 'O', PACK_GIVEN, 1, (uint64_t[]){0}, 1);
  put_argument(b, 't', PACK_GIVEN, 1, (uint64_t[]){1}, 1);
  put_argument(b, 'T', PACK_GIVEN, 2, (uint64_t[]){1, PACK_NONE}, 2);
  put_argument(b, 'i', PACK_GIVEN, 1, (uint64_t[]){2}, 1);
  put_padding(b);
  put_number(b, 0, 8);
  put_number(b, 0, 8);
  put_number(b, 0, 8);
}

static void (*const builders[])(struct bytes *b) = {build_softmax, build_sort, build_index};
enum { BUILDERS = sizeof builders / sizeof builders[0] };

static enum dit_status decode(const struct bytes *b, struct pack_case *out, struct dit_error *err) {
  unsigned char *copy = dit_malloc(b->size + 1);
  CHECK(copy);
  memcpy(copy, b->data, b->size);
  return pack_decode(copy, b->size, out, err);
}

static void test_decode(void) {
  struct bytes b;
  struct pack_case item;
  struct dit_error err = {.message = ""};
  build_softmax(&b);
  CHECK_OK(decode(&b, &item, &err));
  CHECK(strcmp(item.id, "diopiSoftmax/plain/float32/strided/0") == 0 && strcmp(item.name, "diopiSoftmax") == 0);
  CHECK(item.tag_count == 1 && strcmp(item.tags[0].value, "float32") == 0);
  CHECK(!item.expect_error && item.deterministic && item.has_context);
  CHECK(item.storage_count == 2 && !item.storages[0].bytes && item.storages[1].bytes && item.storages[1].size == 64);
  const struct pack_tensor *out = &item.tensors[0];
  CHECK(out->numel == 12 && out->offset == 1 && out->strides[0] == 5 && out->argument == 0 && out->item == -1);
  CHECK(((const double *)out->expected)[11] == 0.25 && out->tolerance_count == 12 && out->tolerance[11] == 1e-6);
  CHECK(((const float *)(const void *)item.storages[1].bytes)[15] == 15);
  char name[32];
  pack_get_parameter(&item, 1, name, sizeof name);
  CHECK(strcmp(name, "input") == 0);
  pack_case_reset(&item);
  build_index(&b);
  CHECK_OK(decode(&b, &item, &err));
  CHECK(item.tensors[0].storage == PACK_NONE && item.tensors[0].item == 0);
  CHECK(item.arguments[2].count == 2 && item.arguments[2].words[1] == PACK_NONE);
  pack_case_reset(&item);
}

/// A word of the payload that is wrong in a way that no checksum would tell.
static void expect_refusal(const struct bytes *b, const char *part) {
  struct pack_case item;
  struct dit_error err = {.message = ""};
  CHECK(decode(b, &item, &err) == DIT_ERR_CORRUPT);
  CHECK_CONTAINS(err.message, part);
}

static size_t find(const struct bytes *b, const char *text) {
  for (size_t i = 0; i + strlen(text) <= b->size; i++) {
    if (memcmp(b->data + i, text, strlen(text)) == 0) {
      return i;
    }
  }
  CHECK(false);
  return 0;
}

static void test_refusals(void) {
  struct bytes b;
  build_softmax(&b);
  memcpy(b.data + find(&b, "/strided/0") + 13, "diopiSoftmix", 12);
  expect_refusal(&b, "no such function");
  build_softmax(&b);
  b.data[find(&b, "oti")] = 't';
  expect_refusal(&b, "not those of the function");
  build_softmax(&b);
  b.size -= 8;
  expect_refusal(&b, "ends too early");
  build_softmax(&b);
  put_number(&b, 0, 8);
  expect_refusal(&b, "left over");
  struct plan out = {PACK_OUT, PACK_ELEMENTS, DIT_DTYPE_F32, 0, -1, {3, 4}, {6, 1}, PACK_WIDE_F64, 12, 12, 0};
  const struct {
    int64_t sizes[2], strides[2];
    int expected, tolerance;
    const char *part;
  } rows[] = {
      {{3, 4}, {6, 1}, 12, 12, "outside its storage"},
      {{3, 4}, {-5, 1}, 12, 12, "outside its storage"},
      {{-3, 4}, {5, 1}, 12, 12, "negative size"},
      {{3, 4}, {INT64_MAX, 1}, 12, 12, "outside its storage"},
      {{3, 4}, {5, 1}, 11, 12, "one expected value"},
      {{3, 4}, {5, 1}, 12, 5, "neither one tolerance"},
      {{INT64_MAX, 2}, {0, 0}, 12, 12, "too many elements"},
      {{1 << 20, 1 << 20}, {0, 0}, 12, 1, "outside its storage"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    put_head(&b, "a", "diopiSoftmax", "oti", 1, 1);
    put_storage(&b, 64, false);
    memcpy(out.sizes, rows[i].sizes, sizeof out.sizes);
    memcpy(out.strides, rows[i].strides, sizeof out.strides);
    out.expected = rows[i].expected;
    out.tolerance = rows[i].tolerance;
    put_tensor(&b, &out);
    expect_refusal(&b, rows[i].part);
  }
}

// Damage

/// A library with functions that say success and do nothing.
static diopiError_t do_softmax(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input,
                               int64_t dim) {
  (void)ctx, (void)out, (void)input, (void)dim;
  return diopiSuccess;
}

static diopiError_t do_sort(diopiContextHandle_t ctx, diopiTensorHandle_t values, diopiTensorHandle_t indices,
                            diopiConstTensorHandle_t input, int64_t dim, bool descending, const bool *stable) {
  (void)ctx, (void)values, (void)input, (void)dim, (void)descending, (void)stable;
  void *data = NULL;
  int64_t numel = 0;
  if (indices && diopiGetTensorData(indices, &data) == diopiSuccess) {
    (void)diopiGetTensorNumel(indices, &numel);
    memset(data, 0, numel > 0 ? 1 : 0);
  }
  return diopiSuccess;
}

static struct dit_diopi_library library;
static struct machine machine;
static int decoded, ran;

static uint64_t count_bytes(const struct pack_case *item) {
  uint64_t total = 0;
  for (int i = 0; i < item->storage_count; i++) {
    total += item->storages[i].size;
  }
  for (int i = 0; i < item->tensor_count; i++) {
    total += (uint64_t)item->tensors[i].numel * 16;
  }
  return total;
}

/// Whatever still decodes must also run and be judged without leaving its bytes.
static void use(const struct bytes *b) {
  struct pack_case item;
  struct dit_error err = {.message = ""};
  struct outcome outcome;
  const struct run_options options = {.repeat = 2, .tolerance = 1};
  if (decode(b, &item, &err) != DIT_OK) {
    CHECK(err.message[0]);
    return;
  }
  decoded++;
  if (count_bytes(&item) < 1 << 20) {
    CHECK_OK(run_case(&machine, &library, &item, &options, &outcome, &err));
    ran++;
  }
  pack_case_reset(&item);
}

static uint64_t state;

static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((state >> 33) % below);
}

static void test_damage(void) {
  const char *text = getenv("DIT_TEST_SEED");
  state = text ? strtoull(text, NULL, 10) : 20240917;
  printf("DIT_TEST_SEED=%llu\n", (unsigned long long)state);
  struct bytes whole, b;
  for (int k = 0; k < BUILDERS; k++) {
    builders[k](&whole);
    use(&whole);
    CHECK(decoded == 1 + k);
  }
  for (int k = 0; k < BUILDERS; k++) {
    builders[k](&whole);
    for (size_t size = 0; size < whole.size; size++) {
      b = whole;
      b.size = size;
      use(&b);
    }
    for (size_t at = 0; at < whole.size; at++) {
      static const unsigned char values[] = {0, 1, 0x7F, 0x80, 0xFF};
      for (size_t v = 0; v < sizeof values; v++) {
        b = whole;
        b.data[at] = values[v];
        use(&b);
      }
    }
    for (int round = 0; round < 3000; round++) {
      b = whole;
      for (uint32_t n = 1 + draw(4); n > 0; n--) {
        b.data[draw((uint32_t)b.size)] = draw(3) ? (unsigned char)draw(16) : (unsigned char)draw(256);
      }
      use(&b);
    }
  }
  printf("%d damaged cases were still readable, %d of them ran\n", decoded, ran);
}

// Files

static const char *path = "test_conform_pack.pack";

static void write_file(const unsigned char *data, size_t size) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
}

static uint32_t crc(const void *data, size_t size) {
  uint32_t value = 0xFFFFFFFF;
  for (size_t i = 0; i < size; i++) {
    value ^= ((const unsigned char *)data)[i];
    for (int bit = 0; bit < 8; bit++) {
      value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
    }
  }
  return ~value;
}

static void build_file(struct bytes *file) {
  struct bytes item, index = {.size = 0}, head = {.size = 0};
  file->size = 64;
  for (int k = 0; k < BUILDERS; k++) {
    builders[k](&item);
    put_number(&index, file->size, 8);
    put_number(&index, item.size, 8);
    put_number(&index, crc(item.data, item.size), 4);
    put_number(&index, 0, 4);
    put(file, item.data, item.size);
  }
  put(&head, "DITCONF\n", 8);
  put_number(&head, PACK_VERSION, 4);
  put_number(&head, 64, 4);
  put_number(&head, BUILDERS, 8);
  put_number(&head, file->size, 8);
  put_number(&head, file->size + index.size, 8);
  put_number(&head, crc(index.data, index.size), 4);
  put_number(&head, crc(head.data, head.size), 4);
  memset(file->data, 0, 64);
  memcpy(file->data, head.data, head.size);
  put(file, index.data, index.size);
}

/// Open the file and read every case; the first error.
static enum dit_status read_all(struct dit_error *err) {
  struct pack pack;
  struct pack_case item;
  enum dit_status status = pack_open(&pack, path, err);
  for (int64_t i = 0; status == DIT_OK && i < pack.count; i++) {
    status = pack_read(&pack, i, &item, err);
    if (status == DIT_OK) {
      pack_case_reset(&item);
    }
  }
  pack_close(&pack);
  return status;
}

static void test_files(void) {
  struct bytes file;
  struct dit_error err = {.message = ""};
  build_file(&file);
  write_file(file.data, file.size);
  CHECK_OK(read_all(&err));
  for (size_t at = 0; at < file.size; at += at < 64 ? 1 : 7) {
    file.data[at] ^= 0x40;
    write_file(file.data, file.size);
    err.message[0] = 0;
    CHECK(read_all(&err) == DIT_ERR_CORRUPT && err.message[0]);
    file.data[at] ^= 0x40;
  }
  for (size_t size = 0; size < file.size; size += 61) {
    write_file(file.data, size);
    CHECK(read_all(&err) == DIT_ERR_CORRUPT);
  }
  unlink(path);
  CHECK(read_all(&err) == DIT_ERR_IO);
  CHECK_CONTAINS(err.message, path);
}

int main(void) {
  struct dit_error err = {.message = ""};
  CHECK_OK(machine_init(&machine, NULL, &err));
  library.functions.diopiSoftmax = do_softmax;
  library.functions.diopiSort = do_sort;
  RUN(test_decode);
  RUN(test_refusals);
  RUN(test_damage);
  RUN(test_files);
  machine_reset(&machine);
  return 0;
}
