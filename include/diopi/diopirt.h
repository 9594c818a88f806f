/// The DIOPI standard, runtime side: what a framework offers to an operator library.
///
/// The framework (src/diopirt, or a test runtime) defines these functions; a vendor's library calls them. Operators go
/// the other way: the library defines what functions.h and its siblings declare, the framework calls them. Names, order
/// of parameters, types and enum values are those of the published standard, so libraries built for it load unchanged.
/// What that standard left unsaid is said here:
///
/// Ownership. A context lives for one operator call or for as long as the framework likes; it owns every tensor that
/// diopiRequireTensor, diopiRequireBuffer and diopiGeneratorGetState made with it, and releases them when it is
/// destroyed, after the work that was queued on its stream. A library frees nothing that it got here and keeps no
/// handle beyond the call. Sizes that a getter gives are borrowed from the tensor and valid as long as its shape does
/// not change. Arguments (arrays behind diopiSize_t, lists of handles, scalars behind pointers) are borrowed for the
/// call.
///
/// Null. NULL stands for an optional tensor, scalar or list that is absent, where the operator's contract says so;
/// anywhere else it is an argument error. diopiSize_t with data NULL and len 0 is an empty list; where a list is
/// optional it is absent.
///
/// Streams. An operator queues its work on the stream of its context and need not wait for it; whoever reads a result
/// on the host synchronises that stream first. Scratch tensors may be dropped as soon as the call returns.
///
/// Threads. Operators may be called from several threads at once, each with a context of its own.
///
/// Aliasing. Outputs overlap neither each other nor an input, except that an in-place operator (name with Inp) reads
/// and writes its first tensor, and that a pointwise operator's output may be one of its inputs, element for element.
///
/// Shapes. Outputs are allocated by the caller with the right shape and dtype; results whose size depends on values go
/// through diopiTensorHandle_t *, which the library fills by diopiRequireTensor. Inputs of pointwise operators
/// broadcast as in PyTorch. Tensors have any strides (0 for expanded dimensions, never negative), any storage offset, 0
/// to 24 dimensions; a tensor with a size of 0 is valid and is not an error.
///
/// Devices. The tensors of a call are on the device; one in the host's memory is an argument error where the operator's
/// contract does not ask for it.
///
/// Dtypes. Operands of different dtypes are promoted as in PyTorch, with `out` telling the result's dtype.
///
/// Scalars. diopiScalar_t holds `fval` for floating types and `ival` for integers and bool. A library that is given a
/// bool reads `ival`, 0 or 1.
///
/// Errors. A code, and a text by diopiGetLastErrorString. On an argument error nothing was written. No exception leaves
/// an operator.
#ifndef DIOPI_DIOPIRT_H
#define DIOPI_DIOPIRT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
#define DIOPI_EXTERN_C_BEGIN extern "C" {
#define DIOPI_EXTERN_C_END }
#else
#define DIOPI_EXTERN_C_BEGIN
#define DIOPI_EXTERN_C_END
#endif

/// Operators are weak, so that a program linked with a library may ask whether one is there (its address is NULL when
/// not); define DIOPI_STRONG before including for strong declarations.
#define DIOPI_ATTR_WEAK __attribute__((weak))
#define DIOPI_ATTR_VISIBLE __attribute__((visibility("default")))
#if defined(DIOPI_STRONG)
#define DIOPI_API DIOPI_ATTR_VISIBLE
#else
#define DIOPI_API DIOPI_ATTR_VISIBLE DIOPI_ATTR_WEAK
#endif
#define DIOPI_RT_API DIOPI_ATTR_VISIBLE

#define DIOPI_VER_MAJOR 1
#define DIOPI_VER_MINOR 0
#define DIOPI_VER_PATCH 0
#define DIOPI_VERSION (DIOPI_VER_MAJOR * 1000 + DIOPI_VER_MINOR * 100 + DIOPI_VER_PATCH)

DIOPI_EXTERN_C_BEGIN

typedef struct diopiSize_ {
  const int64_t *data;
  int64_t len;
} diopiSize_t;

typedef enum {
  diopi_host = 0,
  diopi_device = 1,
} diopiDevice_t;

typedef enum {
  diopiSuccess = 0,
  diopiErrorOccurred = 1,
  diopiNotInited = 2,
  diopiNoRegisteredStreamCreateFunction = 3,
  diopiNoRegisteredStreamDestoryFunction = 4,
  diopiNoRegisteredStreamSyncFunction = 5,
  diopiNoRegisteredDeviceMemoryMallocFunction = 6,
  diopiNoRegisteredDeviceMemoryFreeFunction = 7,
  diopiNoRegisteredDevice2DdeviceMemoryCopyFunction = 8,
  diopiNoRegisteredDevice2HostMemoryCopyFunction = 9,
  diopiNoRegisteredHost2DeviceMemoryCopyFunction = 10,
  diopiNoRegisteredGetLastErrorFunction = 11,
  diopi5DNotSupported = 12,      ///< here, but not for so many dimensions: likewise
  diopiNoImplement = 13,         ///< not here: the caller tries another way
  diopiForceFallbackToCPU = 14,  ///< here, but not for these arguments: the caller takes the CPU
  diopiDtypeNotSupported = 1000,
} diopiError_t;

typedef enum {
  diopi_dtype_int8 = 0,
  diopi_dtype_uint8 = 1,
  diopi_dtype_int16 = 2,
  diopi_dtype_uint16 = 3,
  diopi_dtype_int32 = 4,
  diopi_dtype_uint32 = 5,
  diopi_dtype_int64 = 6,
  diopi_dtype_uint64 = 7,
  diopi_dtype_float16 = 8,
  diopi_dtype_float32 = 9,
  diopi_dtype_float64 = 10,
  diopi_dtype_bool = 11,
  diopi_dtype_bfloat16 = 12,
  diopi_dtype_tfloat32 = 13,
  diopi_dtype_complex32 = 14,
  diopi_dtype_complex64 = 15,
  diopi_dtype_complex128 = 16,
  diopi_dtype_unsupported = 255,
} diopiDtype_t;

typedef struct diopiScalar_ {
  diopiDtype_t stype;
  union {
    double fval;
    int64_t ival;
  };
} diopiScalar_t;

typedef enum {
  Contiguous = 0,
  ChannelsLast = 1,
  ChannelsLast3d = 2,
  Preserve = 3,
  ChannelsLast1d = 4,
} diopiMemoryFormat_t;

typedef enum {
  ReductionNone = 0,
  ReductionMean = 1,
  ReductionSum = 2,
  ReductionEND = 3,
} diopiReduction_t;

typedef enum {
  RoundModeNone = 0,
  RoundModeTrunc = 1,
  RoundModeFloor = 2,
  RoundModeEND = 3,
} diopiRoundMode_t;

typedef void *diopiStreamHandle_t;
typedef int8_t diopiDeviceIndex_t;

struct diopiContext;
typedef struct diopiContext diopiContext;
typedef diopiContext *diopiContextHandle_t;

struct diopiTensor;
typedef struct diopiTensor *diopiTensorHandle_t;
typedef const struct diopiTensor *diopiConstTensorHandle_t;

struct diopiGenerator;
typedef struct diopiGenerator *diopiGeneratorHandle_t;
typedef const struct diopiGenerator *diopiConstGeneratorHandle_t;

// The framework: mandatory functions are strong, the others may be missing (weak)

/// The framework's own version, in words; static.
extern DIOPI_RT_API DIOPI_ATTR_WEAK const char *diopiGetVersion(void);

/// Address of the first element (storage plus offset); NULL for a tensor without elements.
extern DIOPI_RT_API diopiError_t diopiGetTensorData(diopiTensorHandle_t th, void **ptr);
extern DIOPI_RT_API diopiError_t diopiGetTensorDataConst(diopiConstTensorHandle_t th, const void **ptr);
/// Borrowed from the tensor. Strides are in elements.
extern DIOPI_RT_API diopiError_t diopiGetTensorShape(diopiConstTensorHandle_t th, diopiSize_t *size);
extern DIOPI_RT_API diopiError_t diopiGetTensorStride(diopiConstTensorHandle_t th, diopiSize_t *stride);
extern DIOPI_RT_API diopiError_t diopiGetTensorDtype(diopiConstTensorHandle_t th, diopiDtype_t *dtype);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetTensorDevice(diopiConstTensorHandle_t th,
                                                                      diopiDevice_t *device);
extern DIOPI_RT_API diopiError_t diopiGetTensorNumel(diopiConstTensorHandle_t th, int64_t *numel);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetTensorElemSize(diopiConstTensorHandle_t th, int64_t *itemsize);
/// The storage as a whole: its first byte, its size in bytes, and where the tensor begins in it, in elements.
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetTensorStoragePtr(diopiConstTensorHandle_t th,
                                                                          void **pStoragePtr);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetTensorStorageOffset(diopiConstTensorHandle_t th,
                                                                             int64_t *pOffset);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetTensorStorageNbytes(diopiConstTensorHandle_t th,
                                                                             size_t *pNbytes);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetTensorDeviceIndex(diopiConstTensorHandle_t th,
                                                                           diopiDeviceIndex_t *pDevIndex);
/// Parts of a sparse tensor in CSR form; an error for a dense one. Borrowed from the tensor.
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetTensorCrowIndices(diopiConstTensorHandle_t th,
                                                                           diopiConstTensorHandle_t *crow_indices);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetTensorColIndices(diopiConstTensorHandle_t th,
                                                                          diopiConstTensorHandle_t *col_indices);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetTensorValues(diopiConstTensorHandle_t th,
                                                                      diopiConstTensorHandle_t *values);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiIsTensorSparse(diopiConstTensorHandle_t th, bool *is_sparse);

/// Of the calling thread.
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGetCurrentDeviceIndex(diopiDeviceIndex_t *pDevIndex);
/// The stream that an operator of this context queues its work on; NULL is the device's default stream. Borrowed.
extern DIOPI_RT_API diopiError_t diopiGetStream(diopiContextHandle_t ctx, diopiStreamHandle_t *stream);

/// An uninitialised tensor that the context owns. `stride` NULL: contiguous.
extern DIOPI_RT_API diopiError_t diopiRequireTensor(diopiContextHandle_t ctx, diopiTensorHandle_t *tensor,
                                                    const diopiSize_t *size, const diopiSize_t *stride,
                                                    const diopiDtype_t dtype, const diopiDevice_t device);
/// The same: a flat tensor of uint8.
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiRequireBuffer(diopiContextHandle_t ctx,
                                                                    diopiTensorHandle_t *tensor, int64_t num_bytes,
                                                                    diopiDevice_t device);

/// The state of a generator as a tensor on the host that the context owns; its bytes are the framework's affair.
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGeneratorGetState(diopiContextHandle_t ctx,
                                                                        diopiConstGeneratorHandle_t th,
                                                                        diopiTensorHandle_t *data);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGeneratorSetState(diopiGeneratorHandle_t th,
                                                                        diopiConstTensorHandle_t state);
/// Seed and offset of a counter-based generator. The offset is the next counter that nobody has used; one counter gives
/// four 32-bit numbers. Whoever draws n of them sets the offset forward by (n + 3) / 4.
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGeneratorGetSeedAndOffset(diopiGeneratorHandle_t th,
                                                                                uint64_t *ptrSeed, uint64_t *ptrOffset);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiGeneratorSetSeedAndOffset(diopiGeneratorHandle_t th,
                                                                                uint64_t seed, uint64_t offset);

/// A range for the profiler: begins, and ends with the same handle, which RecordEnd releases and sets to NULL.
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiRecordStart(const char *record_name, void **record);
extern DIOPI_RT_API DIOPI_ATTR_WEAK diopiError_t diopiRecordEnd(void **record);

DIOPI_EXTERN_C_END

#endif
