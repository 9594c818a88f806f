/// Element types: sizes, names, classes and promotion, all from DIT_DTYPE_LIST.
///
/// Invariant: dit_dtype_promote(a, b) equals torch.promote_types for every pair, -1 where PyTorch raises; the relation
/// is symmetric. Depends on libc only.
#include "dit/dtype.h"

#include <string.h>

struct dtype_info {
  const char *name;
  uint8_t size;
  uint8_t klass;
};

static const struct dtype_info dtype_table[DIT_DTYPE_COUNT] = {
#define DTYPE_ROW(suffix, number, name, bits, klass) [number] = {name, (bits) / 8, DIT_DTYPE_CLASS_##klass},
    DIT_DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

/// Second names that PyTorch gives to some types.
static const struct {
  const char *name;
  int dtype;
} dtype_aliases[] = {
    {"float", DIT_DTYPE_F32},    {"half", DIT_DTYPE_F16},  {"long", DIT_DTYPE_I64},    {"double", DIT_DTYPE_F64},
    {"int", DIT_DTYPE_I32},      {"short", DIT_DTYPE_I16}, {"bfloat", DIT_DTYPE_BF16}, {"cfloat", DIT_DTYPE_C64},
    {"cdouble", DIT_DTYPE_C128}, {"chalf", DIT_DTYPE_C32},
};

bool dit_dtype_is_valid(int dtype) {
  return dtype >= 0 && dtype < DIT_DTYPE_COUNT;
}

size_t dit_dtype_get_size(int dtype) {
  return dit_dtype_is_valid(dtype) ? dtype_table[dtype].size : 0;
}

const char *dit_dtype_get_name(int dtype) {
  return dit_dtype_is_valid(dtype) ? dtype_table[dtype].name : "?";
}

enum dit_dtype_class dit_dtype_get_class(int dtype) {
  return dit_dtype_is_valid(dtype) ? (enum dit_dtype_class)dtype_table[dtype].klass : DIT_DTYPE_CLASS_BITS;
}

int dit_dtype_find(const char *name) {
  if (!name) {
    return -1;
  }
  if (strncmp(name, "torch.", 6) == 0) {
    name += 6;
  }
  for (int i = 0; i < DIT_DTYPE_COUNT; i++) {
    if (strcmp(name, dtype_table[i].name) == 0) {
      return i;
    }
  }
  for (size_t i = 0; i < sizeof(dtype_aliases) / sizeof(dtype_aliases[0]); i++) {
    if (strcmp(name, dtype_aliases[i].name) == 0) {
      return dtype_aliases[i].dtype;
    }
  }
  return -1;
}

/// uint16/32/64 and uint1..7: PyTorch promotes them with ordinary floats and float4, with nothing else.
static bool is_barebones(int dtype) {
  return dtype >= DIT_DTYPE_U16 && dtype <= DIT_DTYPE_U7;
}

/// Position in the promotion order of the types that promote freely: bool < uint8/int8 < int16 < ... < complex128;
/// -1 for the others.
static int get_rank(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_BOOL:
      return 0;
    case DIT_DTYPE_U8:
    case DIT_DTYPE_I8:
      return 1;
    case DIT_DTYPE_I16:
      return 2;
    case DIT_DTYPE_I32:
      return 3;
    case DIT_DTYPE_I64:
      return 4;
    case DIT_DTYPE_F16:
    case DIT_DTYPE_BF16:
      return 5;
    case DIT_DTYPE_F32:
      return 6;
    case DIT_DTYPE_F64:
      return 7;
    case DIT_DTYPE_C32:
      return 8;
    case DIT_DTYPE_C64:
      return 9;
    case DIT_DTYPE_C128:
      return 10;
    default:
      return -1;
  }
}

/// `low` and `high` promote freely, differ, and rank(low) <= rank(high).
static int promote_ranked(int low, int low_rank, int high, int high_rank) {
  if (low_rank == high_rank) {
    return low_rank == 1 ? DIT_DTYPE_I16 : DIT_DTYPE_F32;  // uint8 with int8; float16 with bfloat16
  }
  if (dtype_table[high].klass == DIT_DTYPE_CLASS_COMPLEX) {
    if (low == DIT_DTYPE_F64) {
      return DIT_DTYPE_C128;
    }
    if (high == DIT_DTYPE_C32 && (low == DIT_DTYPE_F32 || low == DIT_DTYPE_BF16)) {
      return DIT_DTYPE_C64;  // complex32 has float16 parts, which hold neither
    }
  }
  return high;
}

/// An ordinary float or float4 next to an unsigned type without arithmetic of its own.
static bool is_barebones_partner(int dtype) {
  return dtype == DIT_DTYPE_F4_E2M1FN_X2 || (dtype_table[dtype].klass == DIT_DTYPE_CLASS_FLOAT && get_rank(dtype) >= 0);
}

int dit_dtype_promote(int a, int b) {
  if (!dit_dtype_is_valid(a) || !dit_dtype_is_valid(b)) {
    return -1;
  }
  if (a == b) {
    return a;
  }
  if (is_barebones(a) || is_barebones(b)) {
    if (is_barebones_partner(a)) {
      return a;
    }
    return is_barebones_partner(b) ? b : -1;
  }
  int rank_a = get_rank(a), rank_b = get_rank(b);
  if (rank_a < 0 || rank_b < 0) {
    return -1;
  }
  return rank_a <= rank_b ? promote_ranked(a, rank_a, b, rank_b) : promote_ranked(b, rank_b, a, rank_a);
}

int dit_dtype_get_real(int dtype) {
  switch (dtype) {
    case DIT_DTYPE_C32:
      return DIT_DTYPE_F16;
    case DIT_DTYPE_C64:
      return DIT_DTYPE_F32;
    case DIT_DTYPE_C128:
      return DIT_DTYPE_F64;
    default:
      return dtype;
  }
}
