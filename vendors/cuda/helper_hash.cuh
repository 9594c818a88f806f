/// The hash of src/numerics/hash.c, bit for bit: one block per slot, four threads per chunk. Part of helper_kernels.cu.
#ifndef DIT_CUDA_HELPER_HASH_CUH
#define DIT_CUDA_HELPER_HASH_CUH

#include "helper_block.cuh"

/// 16 bytes from byte `at` of chunk elements [begin, begin + count); zeros beyond the end.
DEVICE struct bits128 hash_gather(const struct kernel_tensor *tensor, const struct kernel_dim *dims, int64_t begin,
                                  int64_t count, int64_t at, int width) {
  struct bits128 result;
  result.low = result.high = 0;
  for (int i = 0; i < VECTOR / width; i++) {
    int64_t element = at / width + i;
    if (element >= count) {
      break;
    }
    int64_t offset = dims ? offset_get(dims, tensor->ndim, begin + element) : (begin + element) * width;
    struct bits128 bits = load_element(tensor->data + offset, width);
    if (width == 16) {
      return bits;
    }
    int shift = i * width % 8 * 8;
    if (i * width < 8) {
      result.low |= bits.low << shift;
    } else {
      result.high |= bits.low << shift;
    }
  }
  return result;
}

/// One of the four lanes of one chunk.
DEVICE struct hash_state hash_lane(const struct kernel_tensor *tensor, const struct kernel_dim *dims, int64_t number,
                                   int lane) {
  const uint64_t seeds[8] = {HASH_K0, HASH_K1, HASH_K2, HASH_K3, HASH_K4, HASH_K5, HASH_K6, HASH_K7};
  int width = dtype_get_width(tensor->dtype);
  int64_t begin = number * HELPER_CHUNK, left = tensor->numel - begin;
  int64_t count = left < HELPER_CHUNK ? left : HELPER_CHUNK, size = count * width;
  bool direct = !dims && (uintptr_t)tensor->data % VECTOR == 0;
  const char *bytes = tensor->data + begin * width;
  struct hash_state state;
  state.s = seeds[2 * lane] ^ (uint64_t)number * HASH_K8;
  state.t = seeds[2 * lane + 1] + (uint64_t)size;
  UNROLL_4
  for (int64_t at = lane * VECTOR; at - lane * VECTOR < size; at += 4 * VECTOR) {
    struct bits128 bits =
        direct && at + VECTOR <= size ? load_vector(bytes + at) : hash_gather(tensor, dims, begin, count, at, width);
    hash_take(&state, bits.low, bits.high);
  }
  return state;
}

/// One block per slot: chunks are hashed four threads each, then taken in order.
DEVICE void hash_run(const struct kernel_hash *task, int index, const struct kernel_dim *dims) {
  const struct kernel_tensor *tensor = &task->batch.tensor[index];
  __shared__ struct hash_state lanes[HELPER_THREADS];
  const int at_once = HELPER_THREADS / 4;
  int64_t slot_chunks = task->slot_size[index] / HELPER_CHUNK;
  int64_t chunks = (tensor->numel + HELPER_CHUNK - 1) / HELPER_CHUNK, first = blockIdx.x * slot_chunks;
  int64_t end = first + slot_chunks < chunks ? first + slot_chunks : chunks;
  struct hash_state slot;
  slot.s = HASH_K0;
  slot.t = HASH_K1 + blockIdx.x;
  for (; first < end; first += at_once) {
    int64_t number = first + threadIdx.x / 4;
    if (number < end) {
      lanes[threadIdx.x] = hash_lane(tensor, dims, number, (int)(threadIdx.x % 4));
    }
    __syncthreads();
    if (number < end && threadIdx.x % 4 == 0) {
      for (int lane = 1; lane < 4; lane++) {
        hash_take(&lanes[threadIdx.x], lanes[threadIdx.x + lane].s, lanes[threadIdx.x + lane].t);
      }
      hash_finish(&lanes[threadIdx.x]);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int chunk = 0; chunk < at_once && first + chunk < end; chunk++) {
        hash_take(&slot, lanes[4 * chunk].s, lanes[4 * chunk].t);
      }
    }
    __syncthreads();
  }
  struct hash_state *states = task->batch.scratch->states[index];
  if (threadIdx.x == 0) {
    states[blockIdx.x] = slot;
  }
  if (!block_is_last(task->batch.scratch, index, tensor->blocks) || threadIdx.x != 0) {
    return;
  }
  struct hash_state all = task->prefix[index];
  for (unsigned i = 0; i < tensor->blocks && tensor->numel > 0; i++) {
    struct hash_state other;
    fetch_words(&other, &states[i], 2);
    hash_take(&all, other.s, other.t);
  }
  hash_finish(&all);
  struct dit_hash *out = (struct dit_hash *)task->batch.out + tensor->slot;
  out->low = all.s;
  out->high = all.t;
}

KERNEL helper_hash(PARAMETER struct kernel_hash task) {
  if (blockIdx.x < task.batch.tensor[blockIdx.y].blocks) {
    hash_run(&task, (int)blockIdx.y, NULL);
  }
}

KERNEL helper_hash_strided(PARAMETER struct kernel_hash_strided task) {
  const struct kernel_tensor *tensor = &task.hash.batch.tensor[blockIdx.y];
  if (blockIdx.x < tensor->blocks) {
    hash_run(&task.hash, (int)blockIdx.y, tensor->ndim ? task.dims + tensor->first_dim : NULL);
  }
}

#endif
