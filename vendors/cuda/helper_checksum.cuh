/// Checksums: a sum of products of what is there and where, so that blocks need no order. Part of helper_kernels.cu.
///
/// Each 16 bytes are two factors, mixed with their place; the products of 128 bits are added up. A change of any bit
/// changes one product, unless the other factor happens to be 0 (once in 2^64).
#ifndef DIT_CUDA_HELPER_CHECKSUM_CUH
#define DIT_CUDA_HELPER_CHECKSUM_CUH

#include "helper_block.cuh"

DEVICE void sum_add(struct hash_state *sum, uint64_t low, uint64_t high) {
  sum->s += low;
  sum->t += high + (sum->s < low);
}

DEVICE void sum_take(struct hash_state *sum, struct bits128 bits, uint64_t place) {
  uint64_t p = bits.low ^ (place * HASH_K8 + HASH_K0), q = bits.high ^ (place * HASH_K9 + HASH_K1);
  sum_add(sum, p * q, hash_multiply_high(p, q));
}

DEVICE struct hash_state sum_of_flat(const struct kernel_tensor *tensor) {
  // Bytes, whatever the dtype.
  int64_t bytes = tensor->numel * dtype_get_width(tensor->dtype);
  int64_t vectors = (uintptr_t)tensor->data % VECTOR == 0 ? bytes / VECTOR : 0;
  int64_t step = (int64_t)tensor->blocks * HELPER_THREADS;
  int64_t thread = (int64_t)blockIdx.x * HELPER_THREADS + threadIdx.x;
  struct hash_state sum;
  sum.s = sum.t = 0;
  UNROLL_4 for (int64_t at = thread; at < vectors; at += step) {
    sum_take(&sum, load_vector(tensor->data + at * VECTOR), (uint64_t)at);
  }
  int width = dtype_get_width(tensor->dtype);
  for (int64_t at = vectors * VECTOR / width + thread; at < tensor->numel; at += step) {
    sum_take(&sum, load_element(tensor->data + at * width, width), (uint64_t)at + HASH_K2);
  }
  return sum;
}

DEVICE struct hash_state sum_of_strided(const struct kernel_tensor *tensor, const struct kernel_dim *dims) {
  int width = dtype_get_width(tensor->dtype);
  int64_t step = (int64_t)tensor->blocks * HELPER_THREADS;
  struct hash_state sum;
  sum.s = sum.t = 0;
  for (int64_t at = (int64_t)blockIdx.x * HELPER_THREADS + threadIdx.x; at < tensor->numel; at += step) {
    sum_take(&sum, load_element(tensor->data + offset_get(dims, tensor->ndim, at), width), (uint64_t)at + HASH_K2);
  }
  return sum;
}

/// room[0] becomes the sum over all threads.
DEVICE void sum_fold(struct hash_state *room, struct hash_state mine) {
  room[threadIdx.x] = mine;
  UNROLL_1 for (unsigned width = HELPER_THREADS / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      sum_add(&room[threadIdx.x], room[threadIdx.x + width].s, room[threadIdx.x + width].t);
    }
  }
  __syncthreads();
}

DEVICE void sum_finish(const struct kernel_batch *batch, int index, struct hash_state mine) {
  const struct kernel_tensor *tensor = &batch->tensor[index];
  struct hash_state *sums = batch->scratch->sums[index];
  __shared__ struct hash_state room[HELPER_THREADS];
  sum_fold(room, mine);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = room[0];
  }
  if (!block_is_last(batch->scratch, index, tensor->blocks)) {
    return;
  }
  struct hash_state all;
  all.s = all.t = 0;
  UNROLL_1 for (unsigned i = threadIdx.x; i < tensor->blocks; i += HELPER_THREADS) {
    struct hash_state other;
    fetch_words(&other, &sums[i], 2);
    sum_add(&all, other.s, other.t);
  }
  sum_fold(room, all);
  if (threadIdx.x == 0) {
    struct dit_hash *out = (struct dit_hash *)batch->out + tensor->slot;
    out->low = room[0].s;
    out->high = room[0].t;
  }
}

KERNEL helper_checksum(PARAMETER struct kernel_batch batch) {
  if (blockIdx.x < batch.tensor[blockIdx.y].blocks) {
    sum_finish(&batch, (int)blockIdx.y, sum_of_flat(&batch.tensor[blockIdx.y]));
  }
}

KERNEL helper_checksum_strided(PARAMETER struct kernel_batch_strided strided) {
  const struct kernel_tensor *tensor = &strided.batch.tensor[blockIdx.y];
  if (blockIdx.x < tensor->blocks) {
    sum_finish(&strided.batch, (int)blockIdx.y, sum_of_strided(tensor, strided.dims + tensor->first_dim));
  }
}

#endif
