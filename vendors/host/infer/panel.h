/// The products that attention, experts and quantised weights are made of: few rows against rows that lie anywhere and
/// are widened on the way, and many rows side by side in the lanes of vectors. Written with vector types (core/simd.h);
/// everything in float, in an order that depends on the shapes alone.
#ifndef DIT_HOST_INFER_PANEL_H
#define DIT_HOST_INFER_PANEL_H

#include <stdbool.h>
#include <stdint.h>

#define PANEL_LANES 16  ///< widths of padded rows are multiples of it
#define PANEL_AHEAD 8   ///< rows between the one that is read and the one that is asked for
#define PANEL_FEW 8     ///< up to so many rows panel_dot and panel_add are the faster way

static inline int64_t panel_round(int64_t count) {
  return (count + PANEL_LANES - 1) / PANEL_LANES * PANEL_LANES;
}

/// Some rows of floats for each head against rows of `dtype` (float32, float16, bfloat16, int8 as whole numbers) that
/// hold all heads. Both are read in the order of memory: four or eight rows with all heads, then the next.
struct panel_few {
  int dtype;
  int64_t few, heads;       ///< rows of x for each head
  const char *const *rows;  ///< `count` of them, and `ahead` more to be asked for
  int64_t count, ahead;
  int64_t width;         ///< elements of a head
  int64_t offset, head;  ///< bytes: where the first head begins, and from head to head
  const float *x;        ///< row r of head h at h * x_head + r * x_row
  float *out;            ///< the same
  int64_t x_row, x_head, out_row, out_head;
};

/// out[head][r][j] = x[head][r] . row j. Rows of x are padded with zeros to panel_round(width).
void panel_dot(const struct panel_few *few);

/// out[head][r] += sum of x[head][r][j] * row j. Rows of out are padded to panel_round(width); the padding stays.
void panel_add(const struct panel_few *few);

/// c (m rows of `lanes`) = or += a @ b. a by its strides of row and column; rows of b and c lie b_row and c_row apart;
/// `lanes` is a multiple of PANEL_LANES.
struct panel_product {
  float *c;
  const float *a, *b;
  int64_t c_row, a_row, a_column, b_row;
  int64_t m, lanes, k;
  bool adds;
};
void panel_multiply(const struct panel_product *product);

#endif
