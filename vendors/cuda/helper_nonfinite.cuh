/// Non-finite flags: bits are compared as integers. Part of helper_kernels.cu.
#ifndef DIT_CUDA_HELPER_NONFINITE_CUH
#define DIT_CUDA_HELPER_NONFINITE_CUH

#include "helper_block.cuh"

/// ((bits ^ flip) & mask): equal to `inf` infinite, `nan` or more NaN. width 0: the type has neither.
struct special_rule {
  int width;  ///< bytes of one real number
  uint64_t flip, mask, inf, nan;
};

DEVICE struct special_rule rule_make(int width, uint64_t flip, uint64_t mask, uint64_t inf, uint64_t nan) {
  struct special_rule rule;
  rule.width = width;
  rule.flip = flip;
  rule.mask = mask;
  rule.inf = inf;
  rule.nan = nan;
  return rule;
}

DEVICE struct special_rule rule_get(int dtype) {
  const uint64_t none = UINT64_MAX;
  switch (dtype) {
    case DIT_DTYPE_F64:
    case DIT_DTYPE_C128:
      return rule_make(8, 0, INT64_MAX, UINT64_C(0x7FF0000000000000), UINT64_C(0x7FF0000000000001));
    case DIT_DTYPE_F32:
    case DIT_DTYPE_C64:
      return rule_make(4, 0, INT32_MAX, 0x7F800000, 0x7F800001);
    case DIT_DTYPE_F16:
    case DIT_DTYPE_C32:
      return rule_make(2, 0, 0x7FFF, 0x7C00, 0x7C01);
    case DIT_DTYPE_BF16:
      return rule_make(2, 0, 0x7FFF, 0x7F80, 0x7F81);
    case DIT_DTYPE_F8_E5M2:
      return rule_make(1, 0, 0x7F, 0x7C, 0x7D);
    case DIT_DTYPE_F8_E4M3FN:
      return rule_make(1, 0, 0x7F, none, 0x7F);
    case DIT_DTYPE_F8_E5M2FNUZ:
    case DIT_DTYPE_F8_E4M3FNUZ:
      return rule_make(1, 0x7F, 0xFF, none, 0xFF);
    case DIT_DTYPE_F8_E8M0FNU:
      return rule_make(1, 0, 0xFF, none, 0xFF);
    default:
      return rule_make(0, 0, 0, none, none);
  }
}

DEVICE uint32_t flags_get(uint64_t bits, const struct special_rule *rule) {
  uint64_t value = (bits ^ rule->flip) & rule->mask;
  return (value >= rule->nan ? DIT_NONFINITE_NAN : 0U) | (value == rule->inf ? DIT_NONFINITE_INF : 0U);
}

/// A number is not finite when the 16 or 32 highest bits of it but the sign are at least `limit`: adding what is
/// missing from there to the sign bit sets it. Four words of 32 bits are looked at together, each with its own mask.
struct word_rule {
  uint32_t mask[2], add[2], sign[2];  ///< of even and odd words
};

DEVICE struct word_rule word_rule_get(int dtype) {
  struct word_rule rule;
  uint32_t mask = 0x7FFFFFFF, add = 0x00800000, sign = 0x80000000;
  if (dtype == DIT_DTYPE_BF16 || dtype == DIT_DTYPE_F16 || dtype == DIT_DTYPE_C32) {
    mask = 0x7FFF7FFF;
    add = dtype == DIT_DTYPE_BF16 ? 0x00800080 : 0x04000400;
    sign = 0x80008000;
  } else if (dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_C128) {
    add = 0x00100000;
  }
  bool halves = dtype == DIT_DTYPE_F64 || dtype == DIT_DTYPE_C128;  // the low half of a double says nothing
  rule.mask[0] = halves ? 0 : mask;
  rule.add[0] = halves ? 0 : add;
  rule.sign[0] = halves ? 0 : sign;
  rule.mask[1] = mask;
  rule.add[1] = add;
  rule.sign[1] = sign;
  return rule;
}

DEVICE bool vector_is_bad(struct bits128 bits, const struct word_rule *rule) {
  uint32_t even = (((uint32_t)bits.low & rule->mask[0]) + rule->add[0]) |
                  (((uint32_t)bits.high & rule->mask[0]) + rule->add[0]);
  uint32_t odd = (((uint32_t)(bits.low >> 32) & rule->mask[1]) + rule->add[1]) |
                 (((uint32_t)(bits.high >> 32) & rule->mask[1]) + rule->add[1]);
  return ((even & rule->sign[0]) | (odd & rule->sign[1])) != 0;
}

DEVICE uint32_t flags_of_flat(const struct kernel_tensor *tensor, const struct special_rule *rule, int width) {
  // A complex element is two real numbers.
  struct cursor cursor = cursor_make(tensor, width, is_aligned(tensor));
  struct word_rule words = word_rule_get(tensor->dtype);
  uint32_t flags = 0;
  FOR_STEPS(cursor, tensor, {
    if (count > 1 || VECTOR / width == 1) {
      if (width == 1 || vector_is_bad(loaded, &words)) {
        UNROLL for (int i = 0; i < VECTOR / width; i++) {
          flags |= flags_get(take_element(loaded, i, width).low, rule);
        }
      }
    } else {
      flags |= flags_get(loaded.low, rule);
    }
  });
  return flags;
}

DEVICE uint32_t flags_of_strided(const struct kernel_tensor *tensor, const struct kernel_dim *dims,
                                 const struct special_rule *rule) {
  int width = dtype_get_width(tensor->dtype), parts = rule->width ? width / rule->width : 0;
  uint32_t flags = 0;
  struct cursor cursor = cursor_make(tensor, width, false);
  for (; cursor.at < cursor.end; cursor.at += cursor.step) {
    const char *address = tensor->data + offset_get(dims, tensor->ndim, cursor.at);
    for (int part = 0; part < parts; part++) {
      flags |= flags_get(load_element(address + part * rule->width, rule->width).low, rule);
    }
  }
  return flags;
}

DEVICE void flags_write(const struct kernel_batch *batch, const struct kernel_tensor *tensor, unsigned flags) {
  if (flags && batch->mark && tensor->slot >= batch->marking) {
    batch->scratch->marks[batch->mark % DIT_HELPER_MARKS] = batch->mark;
  }
  if (!batch->has_stats) {
    *((uint8_t *)batch->out + tensor->slot) = (uint8_t)flags;
    return;
  }
  struct dit_tensor_stats result;
  memset(&result, 0, sizeof(result));
  result.numel = tensor->numel;
  result.nan = (flags & DIT_NONFINITE_NAN) != 0;
  result.pos_inf = (flags & DIT_NONFINITE_INF) != 0;
  ((struct dit_tensor_stats *)batch->out)[tensor->slot] = result;
}

/// Combine the flags of all threads of all blocks of a tensor and write the slot.
DEVICE void flags_finish(const struct kernel_batch *batch, int index, uint32_t mine) {
  const struct kernel_tensor *tensor = &batch->tensor[index];
  __shared__ unsigned any;
  if (threadIdx.x == 0) {
    any = 0;
  }
  __syncthreads();
  if (mine) {
    atomicOr(&any, mine);
  }
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  if (tensor->blocks == 1) {
    flags_write(batch, tensor, any);
    return;
  }
  if (any) {
    atomicOr(&batch->scratch->flags[index], any);
  }
  __threadfence();
  if (atomicAdd(&batch->scratch->ticket[index], 1U) == tensor->blocks - 1) {
    __threadfence();
    flags_write(batch, tensor, atomicExch(&batch->scratch->flags[index], 0U));
    batch->scratch->ticket[index] = 0;
  }
}

KERNEL helper_nonfinite(PARAMETER struct kernel_batch batch) {
  int index = (int)blockIdx.y;
  const struct kernel_tensor *tensor = &batch.tensor[index];
  if (blockIdx.x >= tensor->blocks) {
    return;
  }
  struct special_rule rule = rule_get(tensor->dtype);
  uint32_t flags = 0;
  if (rule.width == 2) {
    flags = flags_of_flat(tensor, &rule, 2);
  } else if (rule.width == 4) {
    flags = flags_of_flat(tensor, &rule, 4);
  } else if (rule.width == 1) {
    flags = flags_of_flat(tensor, &rule, 1);
  } else if (rule.width == 8) {
    flags = flags_of_flat(tensor, &rule, 8);
  }
  flags_finish(&batch, index, flags);
}

KERNEL helper_nonfinite_strided(PARAMETER struct kernel_batch_strided strided) {
  int index = (int)blockIdx.y;
  const struct kernel_tensor *tensor = &strided.batch.tensor[index];
  if (blockIdx.x >= tensor->blocks) {
    return;
  }
  struct special_rule rule = rule_get(tensor->dtype);
  uint32_t flags = rule.width ? flags_of_strided(tensor, strided.dims + tensor->first_dim, &rule) : 0;
  flags_finish(&strided.batch, index, flags);
}

#endif
