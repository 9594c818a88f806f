/// DLPack's C exchange API as far as the engine uses it (dlpack 1.x, field for field), and the numbers of its dtypes.
#ifndef DIT_EXT_ENGINE_EXCHANGE_H
#define DIT_EXT_ENGINE_EXCHANGE_H

#include <stdint.h>

struct engine_dl_tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
};

struct engine_exchange {
  uint32_t major, minor;
  void *previous;
  void *allocate, *managed_from_object, *managed_to_object;  ///< not used
  int (*tensor_from_object)(void *object, struct engine_dl_tensor *out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void **stream);
};

enum { ENGINE_DL_CPU = 1, ENGINE_DL_CUDA = 2, ENGINE_DL_CUDA_HOST = 3, ENGINE_DL_EXTENSION = 12 };

#endif
