/// Packs of conformance cases: the calls of DIOPI functions, and what must come out of them.
///
/// A pack is one file (docs/conformance-pack.md): a header, one payload per case, an index. The reader trusts nothing:
/// every size is checked against the bytes that are there before it is used, and each payload carries a checksum. A
/// damaged file is DIT_ERR_CORRUPT with the place that is wrong. Depends on libdit.
#ifndef DIT_CONFORM_PACK_H
#define DIT_CONFORM_PACK_H

#include "dit/diopi.h"

#define PACK_VERSION 1
#define PACK_NONE UINT32_MAX                   ///< no storage, no tensor
#define PACK_SPARSE 4                          ///< tensors of a sparse argument: itself, rows, columns, values
#define PACK_STORAGE_LIMIT (INT64_C(1) << 33)  ///< bytes of one storage
#define PACK_NUMEL_LIMIT (INT64_C(1) << 31)    ///< elements of one tensor

enum pack_role { PACK_IN, PACK_OUT, PACK_INOUT, PACK_ROLE_COUNT };
enum pack_check {
  PACK_ELEMENTS,     ///< every element, within its tolerance
  PACK_UNTOUCHED,    ///< not a byte may change
  PACK_MOMENTS,      ///< mean, variance, least and largest value within bounds; a seventh: repetitions are told
  PACK_PERMUTATION,  ///< the expected elements in any order along the last dimension
  PACK_SELECTION,    ///< indices into another argument that lead to the expected values
  PACK_ANYTHING,     ///< not judged
  PACK_KEPT,         ///< the expected elements where another result, a mask, is true; 0 elsewhere
  PACK_CHECK_COUNT
};
/// In what type expected values are stored: 8 bytes each, but complex (16) and bool (1).
enum pack_wide {
  PACK_WIDE_NONE,
  PACK_WIDE_I64,
  PACK_WIDE_U64,
  PACK_WIDE_F64,
  PACK_WIDE_C128,
  PACK_WIDE_U8,
  PACK_WIDE_COUNT
};
enum pack_form { PACK_ABSENT, PACK_GIVEN, PACK_RESULT, PACK_FORM_COUNT };

/// Memory of one or several tensors.
struct pack_storage {
  uint64_t size;
  const unsigned char *bytes;  ///< NULL: filled with a pattern before each run
  bool on_host;                ///< lies in the host's memory, not on the device
};

/// A tensor of the call, or a result that the library makes itself (storage == PACK_NONE).
struct pack_tensor {
  enum pack_role role;
  enum pack_check check;
  int dtype;  ///< enum dit_dtype
  int ndim;
  uint32_t storage;
  int64_t offset;  ///< in elements
  int64_t numel;
  const int64_t *sizes, *strides;
  enum pack_wide wide;
  const void *expected;  ///< numel values; NULL when wide is NONE
  int64_t tolerance_count;
  const double *tolerance;  ///< none: equal; one, or one per element
  int bound_count;
  const double *bounds;
  int source;    ///< selection, kept: number of the argument, from 0 after the context; -1
  int argument;  ///< the first argument that has it, from 0 after the context; -1 when none has
  int item;      ///< place in that argument's list; -1 for a tensor by itself
};

struct pack_argument {
  char kind;  ///< letter of struct dit_diopi_info
  enum pack_form form;
  int64_t count;
  const uint64_t *words;    ///< tensor numbers, integers, bits of doubles, ... : what `kind` says
  const double *tolerance;  ///< of a result: one per value
};

struct pack_tag {
  const char *key, *value;
};

struct pack_case {
  const char *id, *name, *kinds;
  const struct dit_diopi_info *info;
  int function;
  bool expect_error, deterministic, has_context;
  int tag_count, storage_count, tensor_count, argument_count;
  struct pack_tag *tags;
  struct pack_storage *storages;
  struct pack_tensor *tensors;
  struct pack_argument *arguments;
  unsigned char *payload;  ///< owned; what the pointers above point into
};

struct pack_entry {
  uint64_t offset, size;
  uint32_t checksum;
};

struct pack {
  int file;
  int64_t count;
  uint32_t identity;  ///< checksum of the index: equal for equal packs
  struct pack_entry *entries;
};

/// Open a file and read its index. The caller closes it.
DIT_NODISCARD enum dit_status pack_open(struct pack *pack, const char *path, struct dit_error *err);
void pack_close(struct pack *pack);
/// Read case `number`. The caller resets it.
DIT_NODISCARD enum dit_status pack_read(const struct pack *pack, int64_t number, struct pack_case *out,
                                        struct dit_error *err);
/// The same from a payload in memory, which the case takes over, on errors too.
DIT_NODISCARD enum dit_status pack_decode(unsigned char *payload, size_t size, struct pack_case *out,
                                          struct dit_error *err);
void pack_case_reset(struct pack_case *item);

/// Bytes of one expected value.
size_t pack_wide_get_size(enum pack_wide wide);
/// Values of an argument in 8-byte words: 2 for scalars and generators, else 1.
int pack_kind_get_words(char kind);
/// Value of a tag; NULL when the case does not have it.
const char *pack_get_tag(const struct pack_case *item, const char *key);
/// Name of the parameter behind an argument ("other"), cut to fit.
void pack_get_parameter(const struct pack_case *item, int argument, char *name, size_t size);

#endif
