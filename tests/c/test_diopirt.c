/// The runtime side of DIOPI: getters over dit tensors, contexts and their scratch tensors, generators, ranges; with
/// and without a device; NULL arguments and failing allocations.
#include "device_test.h"
#include "dit/diopi.h"
#include "dit/range.h"

#define MARK ((void *)0x5a5a)

// Tensors

static void test_dtypes(void) {
  static const int known[][2] = {
      {DIT_DTYPE_I8, diopi_dtype_int8},       {DIT_DTYPE_U8, diopi_dtype_uint8},
      {DIT_DTYPE_I16, diopi_dtype_int16},     {DIT_DTYPE_U16, diopi_dtype_uint16},
      {DIT_DTYPE_I32, diopi_dtype_int32},     {DIT_DTYPE_U32, diopi_dtype_uint32},
      {DIT_DTYPE_I64, diopi_dtype_int64},     {DIT_DTYPE_U64, diopi_dtype_uint64},
      {DIT_DTYPE_F16, diopi_dtype_float16},   {DIT_DTYPE_F32, diopi_dtype_float32},
      {DIT_DTYPE_F64, diopi_dtype_float64},   {DIT_DTYPE_BOOL, diopi_dtype_bool},
      {DIT_DTYPE_BF16, diopi_dtype_bfloat16}, {DIT_DTYPE_C32, diopi_dtype_complex32},
      {DIT_DTYPE_C64, diopi_dtype_complex64}, {DIT_DTYPE_C128, diopi_dtype_complex128},
  };
  int both = 0;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    CHECK(dit_diopi_get_dtype(known[i][0]) == (diopiDtype_t)known[i][1]);
    CHECK(dit_diopi_find_dtype((diopiDtype_t)known[i][1]) == known[i][0]);
  }
  for (int dtype = -3; dtype < DIT_DTYPE_COUNT + 3; dtype++) {
    both += dit_diopi_get_dtype(dtype) != diopi_dtype_unsupported;
  }
  CHECK(both == (int)(sizeof known / sizeof known[0]));
  CHECK(dit_diopi_get_dtype(DIT_DTYPE_F8_E5M2) == diopi_dtype_unsupported);
  CHECK(dit_diopi_find_dtype(diopi_dtype_tfloat32) == DIT_DTYPE_F32);
  CHECK(dit_diopi_find_dtype(diopi_dtype_unsupported) == -1);
  CHECK(dit_diopi_find_dtype((diopiDtype_t)77) == -1);
}

static void test_error_statuses(void) {
  struct dit_error err = {.message = ""};
  const diopiError_t refusals[] = {diopiNoImplement, diopiForceFallbackToCPU, diopiDtypeNotSupported,
                                   diopi5DNotSupported};
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    CHECK(dit_diopi_library_check(NULL, "diopiAbs", refusals[i], &err) == DIT_ERR_UNSUPPORTED);
    CHECK(err.message[0] == '\0');
  }
  CHECK(dit_diopi_library_check(NULL, "diopiAbs", diopiSuccess, &err) == DIT_OK);
  CHECK(dit_diopi_library_check(NULL, "diopiAbs", diopiNotInited, &err) == DIT_ERR_DEVICE);
  CHECK(strcmp(err.message, "diopiAbs failed: diopiNotInited") == 0);
}

static void test_error_names(void) {
  CHECK(strcmp(dit_diopi_get_error_name(diopiSuccess), "diopiSuccess") == 0);
  CHECK(strcmp(dit_diopi_get_error_name(diopiDtypeNotSupported), "diopiDtypeNotSupported") == 0);
  CHECK(strcmp(dit_diopi_get_error_name((diopiError_t)77), "?") == 0);
}

static void check_getters(diopiTensorHandle_t tensor, float *data) {
  void *pointer = MARK;
  const void *constant = MARK;
  diopiSize_t sizes, strides;
  diopiDtype_t dtype;
  diopiDevice_t device;
  diopiDeviceIndex_t index;
  int64_t numel, width, offset;
  size_t bytes;
  bool sparse = true;
  CHECK(diopiGetTensorData(tensor, &pointer) == diopiSuccess && pointer == data);
  CHECK(diopiGetTensorDataConst(tensor, &constant) == diopiSuccess && constant == data);
  CHECK(diopiGetTensorShape(tensor, &sizes) == diopiSuccess && sizes.len == 2);
  CHECK(sizes.data[0] == 3 && sizes.data[1] == 2);
  CHECK(diopiGetTensorStride(tensor, &strides) == diopiSuccess && strides.len == 2);
  CHECK(strides.data[0] == 1 && strides.data[1] == 4);
  CHECK(diopiGetTensorDtype(tensor, &dtype) == diopiSuccess && dtype == diopi_dtype_float32);
  CHECK(diopiGetTensorDevice(tensor, &device) == diopiSuccess && device == diopi_device);
  CHECK(diopiGetTensorDeviceIndex(tensor, &index) == diopiSuccess && index == 1);
  CHECK(diopiGetTensorNumel(tensor, &numel) == diopiSuccess && numel == 6);
  CHECK(diopiGetTensorElemSize(tensor, &width) == diopiSuccess && width == 4);
  CHECK(diopiGetTensorStoragePtr(tensor, &pointer) == diopiSuccess && pointer == data);
  CHECK(diopiGetTensorStorageOffset(tensor, &offset) == diopiSuccess && offset == 0);
  CHECK(diopiGetTensorStorageNbytes(tensor, &bytes) == diopiSuccess && bytes == 7 * sizeof(float));
  CHECK(diopiIsTensorSparse(tensor, &sparse) == diopiSuccess && !sparse);
}

static void test_getters(void) {
  static const int64_t sizes[] = {3, 2}, strides[] = {1, 4};
  float data[8];
  diopiTensorHandle_t tensor = dit_diopi_tensor_create(data, 2, sizes, strides, DIT_DTYPE_F32, 1);
  CHECK(tensor);
  check_getters(tensor, data);
  CHECK(dit_diopi_tensor_get_view(tensor)->ndim == 2);
  CHECK(!(dit_diopi_tensor_get_view(tensor)->flags & DIT_TENSOR_CONTIGUOUS));
  dit_diopi_tensor_destroy(tensor);
  struct diopiTensor room;
  const struct dit_tensor_view view = {.data = data,
                                       .sizes = sizes,
                                       .strides = strides,
                                       .numel = 6,
                                       .handle = data,
                                       .ndim = 2,
                                       .dtype = DIT_DTYPE_F32,
                                       .device_index = 1,
                                       .flags = DIT_TENSOR_ON_DEVICE};
  memset(&room, 0x5a, sizeof room);
  dit_diopi_tensor_init(&room, &view);  // the same on the caller's stack
  check_getters(&room, data);
}

static float storage[32];

static void get_storage(const struct diopiTensor *tensor, void **base, size_t *size) {
  CHECK(tensor->services == storage);
  *base = storage;
  *size = sizeof storage;
}

/// A framework that knows the storage says more than the view does.
static void test_storage(void) {
  static const int64_t size = 4;
  void *base;
  size_t bytes;
  int64_t offset;
  diopiTensorHandle_t tensor = dit_diopi_tensor_create(storage + 5, 1, &size, NULL, DIT_DTYPE_F32, 0);
  CHECK(tensor);
  tensor->get_storage = get_storage;
  tensor->services = storage;
  CHECK(diopiGetTensorStoragePtr(tensor, &base) == diopiSuccess && base == storage);
  CHECK(diopiGetTensorStorageOffset(tensor, &offset) == diopiSuccess && offset == 5);
  CHECK(diopiGetTensorStorageNbytes(tensor, &bytes) == diopiSuccess && bytes == sizeof storage);
  dit_diopi_tensor_destroy(tensor);
}

static void test_edge_tensors(void) {
  static const int64_t empty[] = {0, 4}, negative[] = {2, -1}, huge[] = {INT64_MAX, 4};
  double number = 3;
  diopiSize_t sizes;
  int64_t numel, offset;
  size_t bytes = 9;
  diopiDevice_t device;
  diopiDeviceIndex_t index;
  diopiTensorHandle_t tensor = dit_diopi_tensor_create(&number, 0, NULL, NULL, DIT_DTYPE_F64, -1);
  CHECK(tensor);
  CHECK(diopiGetTensorShape(tensor, &sizes) == diopiSuccess && sizes.len == 0);
  CHECK(diopiGetTensorNumel(tensor, &numel) == diopiSuccess && numel == 1);
  CHECK(diopiGetTensorDevice(tensor, &device) == diopiSuccess && device == diopi_host);
  CHECK(diopiGetTensorDeviceIndex(tensor, &index) == diopiSuccess && index == -1);
  CHECK(diopiGetTensorStorageNbytes(tensor, &bytes) == diopiSuccess && bytes == 8);
  dit_diopi_tensor_destroy(tensor);
  tensor = dit_diopi_tensor_create(NULL, 2, empty, NULL, DIT_DTYPE_I64, 0);
  CHECK(tensor);
  CHECK(diopiGetTensorNumel(tensor, &numel) == diopiSuccess && numel == 0);
  CHECK(diopiGetTensorStorageNbytes(tensor, &bytes) == diopiSuccess && bytes == 0);
  CHECK(diopiGetTensorStorageOffset(tensor, &offset) == diopiSuccess && offset == 0);
  dit_diopi_tensor_destroy(tensor);
  dit_diopi_tensor_destroy(NULL);
  CHECK(!dit_diopi_tensor_create(&number, 2, negative, NULL, DIT_DTYPE_F64, 0));
  CHECK(!dit_diopi_tensor_create(&number, 2, huge, NULL, DIT_DTYPE_F64, 0));
  CHECK(!dit_diopi_tensor_create(&number, DIT_MAX_DIMS + 1, huge, NULL, DIT_DTYPE_F64, 0));
  CHECK(!dit_diopi_tensor_create(&number, -1, huge, NULL, DIT_DTYPE_F64, 0));
  CHECK(!dit_diopi_tensor_create(&number, 0, NULL, NULL, 999, 0));
}

static void test_sparse_parts(void) {
  static const int64_t size = 2;
  int64_t crow[3] = {0, 1, 2}, columns[2] = {0, 1};
  float values[2] = {1, 2};
  diopiConstTensorHandle_t part = NULL;
  bool sparse = false;
  diopiTensorHandle_t whole = dit_diopi_tensor_create(values, 1, &size, NULL, DIT_DTYPE_F32, 0);
  diopiTensorHandle_t one = dit_diopi_tensor_create(crow, 1, &size, NULL, DIT_DTYPE_I64, 0);
  diopiTensorHandle_t two = dit_diopi_tensor_create(columns, 1, &size, NULL, DIT_DTYPE_I64, 0);
  CHECK(whole && one && two);
  CHECK(diopiGetTensorCrowIndices(whole, &part) == diopiErrorOccurred && !part);
  CHECK(diopiGetTensorColIndices(whole, &part) == diopiErrorOccurred && !part);
  CHECK(diopiGetTensorValues(whole, &part) == diopiErrorOccurred && !part);
  whole->crow_indices = one;
  whole->col_indices = two;
  whole->values = whole;
  CHECK(diopiGetTensorCrowIndices(whole, &part) == diopiSuccess && part == one);
  CHECK(diopiGetTensorColIndices(whole, &part) == diopiSuccess && part == two);
  CHECK(diopiGetTensorValues(whole, &part) == diopiSuccess && part == whole);
  CHECK(diopiIsTensorSparse(whole, &sparse) == diopiSuccess && sparse);
  dit_diopi_tensor_destroy(whole);
  dit_diopi_tensor_destroy(one);
  dit_diopi_tensor_destroy(two);
}

/// Every getter: no tensor, and no place for the answer.
static void test_null_arguments(void) {
  union {
    void *pointer;
    const void *constant;
    diopiSize_t size;
    diopiDtype_t dtype;
    diopiDevice_t device;
    int64_t i;
    size_t bytes;
    diopiDeviceIndex_t index;
    diopiConstTensorHandle_t tensor;
    bool flag;
    unsigned char raw[16];
  } answer, before;
  float data;
  diopiTensorHandle_t tensor = dit_diopi_tensor_create(&data, 0, NULL, NULL, DIT_DTYPE_F32, 0);
  CHECK(tensor);
  memset(&answer, 0x5a, sizeof answer);
  before = answer;
#define CHECK_GETTER(name, member)                         \
  CHECK(name(NULL, &answer.member) == diopiErrorOccurred); \
  CHECK(memcmp(&answer, &before, sizeof answer) == 0);     \
  CHECK(name(tensor, NULL) == diopiErrorOccurred)
  CHECK_GETTER(diopiGetTensorData, pointer);
  CHECK_GETTER(diopiGetTensorDataConst, constant);
  CHECK_GETTER(diopiGetTensorShape, size);
  CHECK_GETTER(diopiGetTensorStride, size);
  CHECK_GETTER(diopiGetTensorDtype, dtype);
  CHECK_GETTER(diopiGetTensorDevice, device);
  CHECK_GETTER(diopiGetTensorNumel, i);
  CHECK_GETTER(diopiGetTensorElemSize, i);
  CHECK_GETTER(diopiGetTensorStoragePtr, pointer);
  CHECK_GETTER(diopiGetTensorStorageOffset, i);
  CHECK_GETTER(diopiGetTensorStorageNbytes, bytes);
  CHECK_GETTER(diopiGetTensorDeviceIndex, index);
  CHECK_GETTER(diopiGetTensorCrowIndices, tensor);
  CHECK_GETTER(diopiGetTensorColIndices, tensor);
  CHECK_GETTER(diopiGetTensorValues, tensor);
  CHECK_GETTER(diopiIsTensorSparse, flag);
#undef CHECK_GETTER
  CHECK(diopiGetCurrentDeviceIndex(NULL) == diopiErrorOccurred);
  CHECK(diopiGetStream(NULL, &answer.pointer) == diopiErrorOccurred);
  dit_diopi_tensor_destroy(tensor);
}

// Contexts and scratch

static void check_scratch(diopiContextHandle_t context, diopiDevice_t device) {
  static const int64_t sizes[] = {2, 0, 3}, few[] = {3, 4}, strides[] = {1, 5};
  const diopiSize_t empty = {sizes, 3}, two = {few, 2}, apart = {strides, 2}, none = {NULL, 0};
  diopiTensorHandle_t tensor = NULL, other = NULL;
  diopiDevice_t where;
  diopiSize_t got;
  void *data;
  size_t bytes;
  int64_t numel;
  CHECK(diopiRequireTensor(context, &tensor, &two, NULL, diopi_dtype_float32, device) == diopiSuccess);
  CHECK(diopiGetTensorDevice(tensor, &where) == diopiSuccess && where == device);
  CHECK(diopiGetTensorStride(tensor, &got) == diopiSuccess && got.data[0] == 4 && got.data[1] == 1);
  CHECK(diopiGetTensorData(tensor, &data) == diopiSuccess && data);
  memset(data, 1, 12 * sizeof(float));
  CHECK(diopiRequireTensor(context, &other, &two, &apart, diopi_dtype_bool, device) == diopiSuccess);
  CHECK(diopiGetTensorStride(other, &got) == diopiSuccess && got.data[1] == 5);
  CHECK(diopiGetTensorStorageNbytes(other, &bytes) == diopiSuccess && bytes == 2 + 3 * 5 + 1);
  CHECK(diopiGetTensorData(other, &data) == diopiSuccess && data);
  memset(data, 1, bytes);
  CHECK(dit_diopi_context_owns(context, tensor) && dit_diopi_context_owns(context, other));
  CHECK(diopiRequireTensor(context, &other, &empty, NULL, diopi_dtype_int64, device) == diopiSuccess);
  CHECK(diopiGetTensorNumel(other, &numel) == diopiSuccess && numel == 0);
  CHECK(diopiRequireTensor(context, &other, &none, NULL, diopi_dtype_int64, device) == diopiSuccess);
  CHECK(diopiGetTensorNumel(other, &numel) == diopiSuccess && numel == 1);
  CHECK(diopiRequireBuffer(context, &other, 100, device) == diopiSuccess);
  CHECK(diopiGetTensorNumel(other, &numel) == diopiSuccess && numel == 100);
  CHECK(diopiGetTensorData(other, &data) == diopiSuccess && data);
  memset(data, 1, 100);
  dit_diopi_context_reset(context);
  CHECK(!dit_diopi_context_owns(context, tensor));
}

static void test_scratch_without_device(void) {
  const int64_t live = dit_alloc_get_live();
  diopiStreamHandle_t stream = NULL;
  dit_runtime_shutdown();
  diopiContextHandle_t context = dit_diopi_context_create(0, MARK);
  CHECK(context && diopiGetStream(context, &stream) == diopiSuccess && stream == MARK);
  CHECK(diopiGetStream(context, NULL) == diopiErrorOccurred);
  check_scratch(context, diopi_device);
  check_scratch(context, diopi_host);
  dit_diopi_context_destroy(context);
  dit_diopi_context_destroy(NULL);
  CHECK(dit_alloc_get_live() == live);
}

static void test_scratch_on_device(void) {
  diopiDeviceIndex_t index = 9;
  start_host(NULL);
  CHECK(diopiGetCurrentDeviceIndex(&index) == diopiSuccess && index == 0);
  struct diopiContext context;  // on the caller's stack
  dit_diopi_context_init(&context, 0, NULL);
  check_scratch(&context, diopi_device);
  check_scratch(&context, diopi_host);
  struct dit_memory_stats stats;
  struct dit_error err = {0};
  CHECK_OK(dit_memory_get_stats(0, &stats, &err));
  CHECK(stats.allocation[DIT_POOL_ALL].allocated >= 3);
  CHECK(stats.allocation[DIT_POOL_ALL].current == 0);
  dit_runtime_shutdown();
}

static int served;

static enum dit_status allocate(struct diopiContext *context, int ndim, const int64_t *sizes, const int64_t *strides,
                                int dtype, struct dit_tensor_view *out, struct dit_error *err) {
  (void)err;
  if (context->host != storage) {
    return DIT_ERR_NOMEM;
  }
  CHECK(ndim == 1 && sizes[0] == 4 && strides[0] == 1 && dtype == DIT_DTYPE_F32);
  *out = (struct dit_tensor_view){.data = storage,
                                  .sizes = sizes,
                                  .strides = strides,
                                  .numel = 4,
                                  .handle = storage,
                                  .ndim = 1,
                                  .dtype = DIT_DTYPE_F32,
                                  .flags = DIT_TENSOR_ON_DEVICE | DIT_TENSOR_CONTIGUOUS};
  served++;
  return DIT_OK;
}

/// A framework hands out its own memory for the device; host scratch stays ours.
static void test_framework_allocates(void) {
  static const int64_t four = 4;
  const diopiSize_t size = {&four, 1};
  struct diopiContext context;
  diopiTensorHandle_t tensor = MARK;
  void *data;
  const int64_t live = dit_alloc_get_live();
  dit_diopi_context_init(&context, 0, NULL);
  context.allocate = allocate;
  CHECK(diopiRequireTensor(&context, &tensor, &size, NULL, diopi_dtype_float32, diopi_device) == diopiErrorOccurred);
  CHECK(tensor == MARK && !context.scratch && dit_alloc_get_live() == live);
  context.host = storage;
  CHECK(diopiRequireTensor(&context, &tensor, &size, NULL, diopi_dtype_float32, diopi_device) == diopiSuccess);
  CHECK(served == 1 && diopiGetTensorData(tensor, &data) == diopiSuccess && data == storage);
  CHECK(diopiRequireTensor(&context, &tensor, &size, NULL, diopi_dtype_float32, diopi_host) == diopiSuccess);
  CHECK(served == 1 && diopiGetTensorData(tensor, &data) == diopiSuccess && data != storage);
  dit_diopi_context_reset(&context);
  CHECK(dit_alloc_get_live() == live);
}

static void test_scratch_errors(void) {
  static const int64_t negative[] = {2, -1}, huge[] = {INT64_MAX / 2, 4}, large[] = {1, 1, INT64_MAX / 4},
                       two[] = {2, 3};
  static const int64_t backwards[] = {-1, 1}, far[] = {INT64_MAX / 2, INT64_MAX / 2};
  const diopiSize_t good = {two, 2}, bad = {negative, 2}, much = {huge, 2}, bytes = {large, 3},
                    many = {two, DIT_MAX_DIMS + 1};
  const diopiSize_t few = {two, -1}, one = {two, 1}, back = {backwards, 2}, wide = {far, 2};
  const diopiDtype_t dtype = diopi_dtype_float64;
  const int64_t live = dit_alloc_get_live();
  diopiTensorHandle_t tensor = MARK;
  struct diopiContext context;
  dit_diopi_context_init(&context, 0, NULL);
  CHECK(diopiRequireTensor(NULL, &tensor, &good, NULL, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, NULL, &good, NULL, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, NULL, NULL, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, &bad, NULL, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, &much, NULL, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, &bytes, NULL, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, &many, NULL, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, &few, NULL, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, &good, &one, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, &good, &back, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, &good, &wide, dtype, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireTensor(&context, &tensor, &good, NULL, diopi_dtype_unsupported, diopi_device) ==
        diopiErrorOccurred);
  CHECK(diopiRequireBuffer(&context, &tensor, -1, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireBuffer(NULL, &tensor, 1, diopi_device) == diopiErrorOccurred);
  CHECK(diopiRequireBuffer(&context, NULL, 1, diopi_device) == diopiErrorOccurred);
  CHECK(tensor == MARK && !context.scratch);
  CHECK(dit_alloc_get_live() == live);
}

static void test_allocation_failure(void) {
  static const int64_t two = 2;
  const diopiSize_t size = {&two, 1};
  struct diopiContext context;
  struct diopiGenerator generator = {1, 2};
  float data[2];
  const int64_t live = dit_alloc_get_live();
  dit_diopi_context_init(&context, 0, NULL);
  for (int after = 0; after < 2; after++) {  // the record, then the memory
    diopiTensorHandle_t tensor = MARK;
    dit_alloc_set_failure(after);
    const diopiError_t code = diopiRequireTensor(&context, &tensor, &size, NULL, diopi_dtype_float32, diopi_device);
    dit_alloc_set_failure(after);
    const diopiError_t state = diopiGeneratorGetState(&context, &generator, &tensor);
    dit_alloc_set_failure(-1);
    CHECK(code == diopiErrorOccurred && state == diopiErrorOccurred);
    CHECK(tensor == MARK && !context.scratch && dit_alloc_get_live() == live);
  }
  dit_alloc_set_failure(0);
  diopiContextHandle_t made = dit_diopi_context_create(0, NULL);
  diopiTensorHandle_t handle = dit_diopi_tensor_create(data, 1, &two, NULL, DIT_DTYPE_F32, 0);
  dit_alloc_set_failure(-1);
  CHECK(!made && !handle && dit_alloc_get_live() == live);
}

// Generators and ranges

static void test_generator(void) {
  struct diopiGenerator generator = {7, 9}, copy = {0, 0};
  struct diopiContext context;
  diopiTensorHandle_t state = NULL;
  diopiDevice_t device;
  uint64_t seed = 1, offset = 1;
  float few[2] = {0};
  static const int64_t two = 2;
  dit_diopi_context_init(&context, 0, NULL);
  CHECK(diopiGeneratorGetSeedAndOffset(&generator, &seed, &offset) == diopiSuccess && seed == 7 && offset == 9);
  CHECK(diopiGeneratorSetSeedAndOffset(&generator, 11, UINT64_MAX) == diopiSuccess);
  CHECK(generator.seed == 11 && generator.offset == UINT64_MAX);
  CHECK(diopiGeneratorGetState(&context, &generator, &state) == diopiSuccess);
  CHECK(diopiGetTensorDevice(state, &device) == diopiSuccess && device == diopi_host);
  CHECK(diopiGeneratorSetState(&copy, state) == diopiSuccess);
  CHECK(copy.seed == 11 && copy.offset == UINT64_MAX);
  diopiTensorHandle_t wrong = dit_diopi_tensor_create(few, 1, &two, NULL, DIT_DTYPE_F32, -1);
  CHECK(wrong && diopiGeneratorSetState(&copy, wrong) == diopiErrorOccurred);
  CHECK(diopiGeneratorSetState(&copy, NULL) == diopiErrorOccurred);
  CHECK(diopiGeneratorSetState(NULL, state) == diopiErrorOccurred);
  state->view.flags |= DIT_TENSOR_ON_DEVICE;
  CHECK(diopiGeneratorSetState(&copy, state) == diopiErrorOccurred);
  CHECK(copy.seed == 11);
  CHECK(diopiGeneratorGetState(NULL, &generator, &state) == diopiErrorOccurred);
  CHECK(diopiGeneratorGetState(&context, NULL, &state) == diopiErrorOccurred);
  CHECK(diopiGeneratorGetState(&context, &generator, NULL) == diopiErrorOccurred);
  CHECK(diopiGeneratorGetSeedAndOffset(NULL, &seed, &offset) == diopiErrorOccurred);
  CHECK(diopiGeneratorGetSeedAndOffset(&generator, NULL, &offset) == diopiErrorOccurred);
  CHECK(diopiGeneratorGetSeedAndOffset(&generator, &seed, NULL) == diopiErrorOccurred);
  CHECK(diopiGeneratorSetSeedAndOffset(NULL, 1, 1) == diopiErrorOccurred);
  CHECK(seed == 7 && offset == 9);
  dit_diopi_tensor_destroy(wrong);
  dit_diopi_context_reset(&context);
}

static void test_ranges_and_version(void) {
  void *record = NULL;
  CHECK(diopiRecordStart("range", &record) == diopiSuccess && record);
  CHECK(diopiRecordEnd(&record) == diopiSuccess && !record);
  CHECK(diopiRecordEnd(&record) == diopiErrorOccurred);
  CHECK(diopiRecordStart(NULL, &record) == diopiErrorOccurred && !record);
  CHECK(diopiRecordStart("range", NULL) == diopiErrorOccurred);
  CHECK(diopiRecordEnd(NULL) == diopiErrorOccurred);
  int foreign = 0;
  record = &foreign;
  CHECK(diopiRecordEnd(&record) == diopiErrorOccurred && record == &foreign);
  CHECK_CONTAINS(diopiGetVersion(), "DIOPI 1.0.0");
}

static char range_log[128];
static bool range_on;

static void *begin_range(const char *name) {
  if (!range_on) {
    return NULL;
  }
  strcat(strcat(range_log, name), "(");
  return strdup(name);
}

static void end_range(void *range) {
  strcat(strcat(range_log, range), ")");
  free(range);
}

static void test_ranges_with_a_recorder(void) {
  static const struct dit_range_recorder table = {begin_range, end_range}, other = {begin_range, end_range};
  const struct dit_range_recorder half = {begin_range, NULL};
  struct dit_error err = {0};
  void *a = NULL, *b = NULL, *c = NULL;
  CHECK(dit_range_set_recorder(NULL, &err) == DIT_ERR_INVALID);
  CHECK(dit_range_set_recorder(&half, &err) == DIT_ERR_INVALID);
  CHECK(diopiRecordStart("before", &c) == diopiSuccess);
  CHECK_OK(dit_range_set_recorder(&table, &err));
  CHECK_OK(dit_range_set_recorder(&table, &err));
  CHECK(dit_range_set_recorder(&other, &err) == DIT_ERR_INVALID);
  CHECK(diopiRecordStart("off", &a) == diopiSuccess && a == c);  // it does not want to know
  CHECK(diopiRecordEnd(&a) == diopiSuccess && !a);
  range_on = true;
  CHECK(diopiRecordStart("a", &a) == diopiSuccess && diopiRecordStart("b", &b) == diopiSuccess);
  CHECK(diopiRecordEnd(&c) == diopiSuccess);
  CHECK(diopiRecordEnd(&a) == diopiSuccess && diopiRecordEnd(&b) == diopiSuccess && !a && !b);
  CHECK(strcmp(range_log, "a(b(a)b)") == 0);
  CHECK(diopiRecordEnd(&a) == diopiErrorOccurred);
}

int main(void) {
  RUN(test_dtypes);
  RUN(test_error_names);
  RUN(test_error_statuses);
  RUN(test_getters);
  RUN(test_storage);
  RUN(test_edge_tensors);
  RUN(test_sparse_parts);
  RUN(test_null_arguments);
  RUN(test_scratch_without_device);
  RUN(test_framework_allocates);
  RUN(test_scratch_errors);
  RUN(test_allocation_failure);
  RUN(test_generator);
  RUN(test_ranges_and_version);
  RUN(test_ranges_with_a_recorder);
  RUN(test_scratch_on_device);
  return 0;
}
