/// Packing by a mask on the host (see masked_select.c).
#include <string.h>

#include "dit/parallel.h"
#include "engine/index.h"
#include "masked.h"

struct pack_block {
  const struct pack_task *task;
  char *packed;
};

struct wide {
  uint64_t part[2];
};
/// `block` gets the chosen ones of `count` elements, without a branch per element; it has room for one more.
#define PACK(type)                                                             \
  for (int64_t i = 0; i < count; i++) {                                        \
    memcpy(block + n * (int64_t)sizeof(type), whole + i * step, sizeof(type)); \
    n += flags[i];                                                             \
  }                                                                            \
  break;
static int64_t pack_elements(int width, char *block, const char *whole, int64_t step, const uint8_t *flags,
                             int64_t count) {
  int64_t n = 0;
  switch (width) {
    case 1:
      PACK(uint8_t)
    case 2:
      PACK(uint16_t)
    case 4:
      PACK(uint32_t)
    case 8:
      PACK(uint64_t)
    default:
      PACK(struct wide)
  }
  return n;
}

static void pack_run(void *context, char *const *data, int64_t count) {
  struct pack_block *block = context;
  const struct pack_task *task = block->task;
  const int64_t mask_step = task->nest.strides[0][0], step = task->nest.strides[1][0];
  const int64_t packed_step = task->unpack ? task->packed.strides[0] * task->width : task->width;
  uint8_t flags[NEST_BLOCK];
  _Alignas(16) char room[(NEST_BLOCK + 1) * 16];
  for (int64_t i = 0; i < count; i += NEST_BLOCK) {
    const int64_t n = count - i < NEST_BLOCK ? count - i : NEST_BLOCK;
    index_test_nonzero(DIT_DTYPE_BOOL, data[0] + i * mask_step, mask_step, n, flags);
    if (!task->unpack) {
      const int64_t kept = pack_elements(task->width, room, data[1] + i * step, step, flags, n);
      memcpy(block->packed, room, (size_t)(kept * task->width));
      block->packed += kept * task->width;
      continue;
    }
    for (int64_t j = 0; j < n; j++) {
      if (flags[j]) {
        memcpy(data[1] + (i + j) * step, block->packed, (size_t)task->width);
        block->packed += packed_step;
      }
    }
  }
}

static void pack_blocks(void *context, int64_t begin, int64_t end) {
  const struct pack_task *task = context;
  const int64_t step = (task->unpack ? task->packed.strides[0] : 1) * task->width;
  const int64_t last = end * NEST_GRAIN < task->nest.numel ? end * NEST_GRAIN : task->nest.numel;
  struct pack_block block = {task, (char *)task->packed.data + task->starts[begin] * step};
  nest_walk(&task->nest, begin * NEST_GRAIN, last, pack_run, &block);
}

diopiError_t masked_pack(struct pack_task *task) {
  task->width = (int)dit_dtype_get_size(task->whole.dtype);
  nest_init_ordered(&task->nest, 2, (const struct dit_tensor_view *const[]){&task->mask, &task->whole});
  dit_parallel_for(0, (task->mask.numel + NEST_GRAIN - 1) / NEST_GRAIN, 1, pack_blocks, task);
  return diopiSuccess;
}
