/// The standard as a binary interface: sizes, values and signatures are those that existing libraries were built with.
///
/// Every function's declared type is compared with the row of the table by the compiler: the pointers below have the
/// types of the table, the values are the declared functions.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "dit/diopi.h"

_Static_assert(sizeof(diopiSize_t) == 16 && offsetof(diopiSize_t, data) == 0 && offsetof(diopiSize_t, len) == 8, "");
_Static_assert(sizeof(diopiScalar_t) == 16 && offsetof(diopiScalar_t, stype) == 0, "");
_Static_assert(offsetof(diopiScalar_t, fval) == 8 && offsetof(diopiScalar_t, ival) == 8, "");
_Static_assert(sizeof(diopiError_t) == 4 && sizeof(diopiDtype_t) == 4 && sizeof(diopiDevice_t) == 4, "");
_Static_assert(sizeof(diopiStreamHandle_t) == sizeof(void *) && sizeof(diopiDeviceIndex_t) == 1, "");
_Static_assert(sizeof(diopiContextHandle_t) == sizeof(void *) && sizeof(diopiTensorHandle_t) == sizeof(void *), "");

#define SAME(name, value) _Static_assert(name == (value), #name)
SAME(diopi_host, 0);
SAME(diopi_device, 1);
SAME(diopiSuccess, 0);
SAME(diopiErrorOccurred, 1);
SAME(diopiNotInited, 2);
SAME(diopiNoRegisteredStreamCreateFunction, 3);
SAME(diopiNoRegisteredStreamDestoryFunction, 4);
SAME(diopiNoRegisteredStreamSyncFunction, 5);
SAME(diopiNoRegisteredDeviceMemoryMallocFunction, 6);
SAME(diopiNoRegisteredDeviceMemoryFreeFunction, 7);
SAME(diopiNoRegisteredDevice2DdeviceMemoryCopyFunction, 8);
SAME(diopiNoRegisteredDevice2HostMemoryCopyFunction, 9);
SAME(diopiNoRegisteredHost2DeviceMemoryCopyFunction, 10);
SAME(diopiNoRegisteredGetLastErrorFunction, 11);
SAME(diopi5DNotSupported, 12);
SAME(diopiNoImplement, 13);
SAME(diopiForceFallbackToCPU, 14);
SAME(diopiDtypeNotSupported, 1000);
SAME(diopi_dtype_int8, 0);
SAME(diopi_dtype_uint8, 1);
SAME(diopi_dtype_int16, 2);
SAME(diopi_dtype_uint16, 3);
SAME(diopi_dtype_int32, 4);
SAME(diopi_dtype_uint32, 5);
SAME(diopi_dtype_int64, 6);
SAME(diopi_dtype_uint64, 7);
SAME(diopi_dtype_float16, 8);
SAME(diopi_dtype_float32, 9);
SAME(diopi_dtype_float64, 10);
SAME(diopi_dtype_bool, 11);
SAME(diopi_dtype_bfloat16, 12);
SAME(diopi_dtype_tfloat32, 13);
SAME(diopi_dtype_complex32, 14);
SAME(diopi_dtype_complex64, 15);
SAME(diopi_dtype_complex128, 16);
SAME(diopi_dtype_unsupported, 255);
SAME(Contiguous, 0);
SAME(ChannelsLast, 1);
SAME(ChannelsLast3d, 2);
SAME(Preserve, 3);
SAME(ChannelsLast1d, 4);
SAME(ReductionNone, 0);
SAME(ReductionMean, 1);
SAME(ReductionSum, 2);
SAME(ReductionEND, 3);
SAME(RoundModeNone, 0);
SAME(RoundModeTrunc, 1);
SAME(RoundModeFloor, 2);
SAME(RoundModeEND, 3);
SAME(DIOPI_VERSION, 1000);

/// The declarations are weak and no library is linked, so all addresses are NULL; the types are what counts.
static void test_signatures(void) {
  int count = 0;
#define DIOPI_QUERY(name, header, family) count += _Generic(&(name), const char *(*)(void): 1, default: 0);
#define DIOPI_FUNCTION(name, header, family, parameters, values, packed, kinds, names) \
  count += _Generic(&(name), diopiError_t(*) parameters: 1, default: 0);
#include "diopi/functions.inc"
  CHECK(count == DIT_DIOPI_COUNT && count == 541);
}

#define SIGNATURE(name, returns, ...) _Generic(&(name), returns(*)(__VA_ARGS__): 1, default: 0)
static void test_runtime(void) {
  int count = 0;
  count += SIGNATURE(diopiGetVersion, const char *, void);
  count += SIGNATURE(diopiGetTensorData, diopiError_t, diopiTensorHandle_t, void **);
  count += SIGNATURE(diopiGetTensorDataConst, diopiError_t, diopiConstTensorHandle_t, const void **);
  count += SIGNATURE(diopiGetTensorShape, diopiError_t, diopiConstTensorHandle_t, diopiSize_t *);
  count += SIGNATURE(diopiGetTensorStride, diopiError_t, diopiConstTensorHandle_t, diopiSize_t *);
  count += SIGNATURE(diopiGetTensorDtype, diopiError_t, diopiConstTensorHandle_t, diopiDtype_t *);
  count += SIGNATURE(diopiGetTensorDevice, diopiError_t, diopiConstTensorHandle_t, diopiDevice_t *);
  count += SIGNATURE(diopiGetTensorNumel, diopiError_t, diopiConstTensorHandle_t, int64_t *);
  count += SIGNATURE(diopiGetTensorElemSize, diopiError_t, diopiConstTensorHandle_t, int64_t *);
  count += SIGNATURE(diopiGetTensorStoragePtr, diopiError_t, diopiConstTensorHandle_t, void **);
  count += SIGNATURE(diopiGetTensorStorageOffset, diopiError_t, diopiConstTensorHandle_t, int64_t *);
  count += SIGNATURE(diopiGetTensorStorageNbytes, diopiError_t, diopiConstTensorHandle_t, size_t *);
  count += SIGNATURE(diopiGetTensorDeviceIndex, diopiError_t, diopiConstTensorHandle_t, diopiDeviceIndex_t *);
  count += SIGNATURE(diopiGetTensorCrowIndices, diopiError_t, diopiConstTensorHandle_t, diopiConstTensorHandle_t *);
  count += SIGNATURE(diopiGetTensorColIndices, diopiError_t, diopiConstTensorHandle_t, diopiConstTensorHandle_t *);
  count += SIGNATURE(diopiGetTensorValues, diopiError_t, diopiConstTensorHandle_t, diopiConstTensorHandle_t *);
  count += SIGNATURE(diopiIsTensorSparse, diopiError_t, diopiConstTensorHandle_t, bool *);
  count += SIGNATURE(diopiGetCurrentDeviceIndex, diopiError_t, diopiDeviceIndex_t *);
  count += SIGNATURE(diopiGetStream, diopiError_t, diopiContextHandle_t, diopiStreamHandle_t *);
  count += SIGNATURE(diopiRequireTensor, diopiError_t, diopiContextHandle_t, diopiTensorHandle_t *, const diopiSize_t *,
                     const diopiSize_t *, const diopiDtype_t, const diopiDevice_t);
  count +=
      SIGNATURE(diopiRequireBuffer, diopiError_t, diopiContextHandle_t, diopiTensorHandle_t *, int64_t, diopiDevice_t);
  count += SIGNATURE(diopiGeneratorGetState, diopiError_t, diopiContextHandle_t, diopiConstGeneratorHandle_t,
                     diopiTensorHandle_t *);
  count += SIGNATURE(diopiGeneratorSetState, diopiError_t, diopiGeneratorHandle_t, diopiConstTensorHandle_t);
  count += SIGNATURE(diopiGeneratorGetSeedAndOffset, diopiError_t, diopiGeneratorHandle_t, uint64_t *, uint64_t *);
  count += SIGNATURE(diopiGeneratorSetSeedAndOffset, diopiError_t, diopiGeneratorHandle_t, uint64_t, uint64_t);
  count += SIGNATURE(diopiRecordStart, diopiError_t, const char *, void **);
  count += SIGNATURE(diopiRecordEnd, diopiError_t, void **);
  CHECK(count == 27);
}

/// Kinds and names have one entry per parameter, and the numbers are found by name.
static void test_table(void) {
  const struct dit_diopi_info *functions = dit_diopi_get_functions(NULL);
  for (int i = 0; i < DIT_DIOPI_COUNT; i++) {
    size_t names = functions[i].names[0] != '\0';
    for (const char *at = functions[i].names; (at = strchr(at, ',')) != NULL; at++) {
      names++;
    }
    CHECK(names == strlen(functions[i].kinds));
    CHECK(names == 0 || functions[i].kinds[0] == 'c');
    CHECK(dit_diopi_find_function(functions[i].name) == i);
  }
  CHECK(dit_diopi_find_function("diopiNothing") == -1 && dit_diopi_find_function(NULL) == -1);
  CHECK(dit_diopi_is_list(DIT_DIOPI_diopiSplitWithSizes, 1) && !dit_diopi_is_list(DIT_DIOPI_diopiNonzero, 1));
  CHECK(dit_diopi_count_results(DIT_DIOPI_diopiDynamicPointToVoxelMmcv, 1) == 4);
  CHECK(dit_diopi_count_results(DIT_DIOPI_diopiIndiceConvBackwardMmcv, 1) == 2);
  CHECK(dit_diopi_count_results(DIT_DIOPI_diopiIndiceConvBackwardMmcv, 2) == 1);
  CHECK(dit_diopi_count_results(DIT_DIOPI_diopiNonzero, 1) == 1 && dit_diopi_count_results(-1, 1) == 1);
  CHECK(!dit_diopi_is_list(DIT_DIOPI_diopiUnique, 7) && !dit_diopi_is_list(DIT_DIOPI_diopiUnique, 70));
}

int main(void) {
  RUN(test_signatures);
  RUN(test_runtime);
  RUN(test_table);
  return 0;
}
