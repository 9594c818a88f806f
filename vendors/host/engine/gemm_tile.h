/// The innermost tile of the built-in matrix product for one type and vector width; included once per combination.
///
/// The including file defines REAL, VECTOR_BYTES, TILE_NAME and TILE_TARGET. a is packed as depth x GEMM_ROWS, b as
/// depth x (2 vectors); the tile of GEMM_ROWS x 2 vectors stays in registers and is written to `tile` row by row.

TILE_TARGET static void TILE_NAME(int64_t depth, const void *packed_a, const void *packed_b, void *tile) {
  typedef REAL vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
  enum { LANES = VECTOR_BYTES / (int)sizeof(REAL) };
  const REAL *a = packed_a, *b = packed_b;
  vector c00 = {0}, c01 = {0}, c10 = {0}, c11 = {0}, c20 = {0}, c21 = {0};
  vector c30 = {0}, c31 = {0}, c40 = {0}, c41 = {0}, c50 = {0}, c51 = {0};
  for (int64_t k = 0; k < depth; k++, a += GEMM_ROWS, b += 2 * LANES) {
    const vector b0 = *(const vector *)b, b1 = *(const vector *)(b + LANES);
    c00 += a[0] * b0, c01 += a[0] * b1;
    c10 += a[1] * b0, c11 += a[1] * b1;
    c20 += a[2] * b0, c21 += a[2] * b1;
    c30 += a[3] * b0, c31 += a[3] * b1;
    c40 += a[4] * b0, c41 += a[4] * b1;
    c50 += a[5] * b0, c51 += a[5] * b1;
  }
  vector *t = tile;
  t[0] = c00, t[1] = c01, t[2] = c10, t[3] = c11, t[4] = c20, t[5] = c21;
  t[6] = c30, t[7] = c31, t[8] = c40, t[9] = c41, t[10] = c50, t[11] = c51;
}
#undef REAL
#undef VECTOR_BYTES
#undef TILE_NAME
#undef TILE_TARGET
