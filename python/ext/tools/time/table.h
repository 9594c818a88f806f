/// Times per operator and signature: counts, sums, extremes and percentiles in bounded memory.
///
/// A sketch is a histogram with 64 buckets per factor of two: exact below 128 ns, and within 0.8 % of the true value
/// above. It stores only the range of buckets that was met. Plain C, no Python but for memory; not thread safe (the GIL
/// is).
#ifndef DIT_EXT_TOOLS_TIME_TABLE_H
#define DIT_EXT_TOOLS_TIME_TABLE_H

#include "engine/engine.h"

/// Nanoseconds seen so far. Zero-initialise.
struct time_sketch {
  int64_t count, sum, min, max;
  uint32_t *bucket;
  int32_t first, length;  ///< bucket[0] is number `first`
};

/// Counts, sum and extremes are always right; without memory for the histogram the percentiles lack this value.
void time_sketch_add(struct time_sketch *sketch, int64_t nanoseconds);
/// The smallest value that at least `quantile` (0 to 1) of the values do not exceed; 0 when empty.
int64_t time_sketch_get_quantile(const struct time_sketch *sketch, double quantile);
void time_sketch_reset(struct time_sketch *sketch);

enum time_direction { TIME_FORWARD, TIME_BACKWARD, TIME_DIRECTIONS };

/// One operator with one signature. Rows never move and live as long as their table.
struct time_row {
  struct time_row *next;
  struct engine_op *op;
  char *signature;         ///< "float32[2,3];float32[3]"
  uint32_t signature_key;  ///< interned; 0 when the table of strings is full
  struct {
    struct time_sketch host, device;
  } time[TIME_DIRECTIONS];
  uint64_t hash;
  size_t key_size;
  int64_t key[];  ///< one number per tensor (dtype, dimensions) followed by its sizes
};

/// Zero-initialise, and set `row_max`.
struct time_table {
  struct time_row **bucket;
  size_t bucket_count, row_count, row_max;
  struct time_row *rest;  ///< one row per operator for signatures beyond row_max
};

/// The row of an operator with these tensors, made when it is new. Beyond row_max signatures an operator's other ones
/// share one row with the signature "...". NULL only without memory.
struct time_row *time_table_find(struct time_table *table, struct engine_op *op, const struct engine_leaves *leaves);
/// The next row after `row` (NULL: the first) in no particular order; NULL at the end.
struct time_row *time_table_next(const struct time_table *table, const struct time_row *row);
/// Forget the times, keep the rows.
void time_table_clear(struct time_table *table);
void time_table_reset(struct time_table *table);

#endif
