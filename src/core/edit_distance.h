/// The nearest of several names, for "did you mean". Not part of the public headers.
#ifndef DIT_CORE_EDIT_DISTANCE_H
#define DIT_CORE_EDIT_DISTANCE_H

#include <stddef.h>
#include <string.h>

enum { DIT_EDIT_LENGTH = 64 };

/// Insertions, deletions and replacements from `a` to `b`, ASCII case ignored; only the first DIT_EDIT_LENGTH bytes of
/// each count.
static inline int dit_edit_distance_get(const char *a, const char *b) {
  size_t a_length = strnlen(a, DIT_EDIT_LENGTH), b_length = strnlen(b, DIT_EDIT_LENGTH);
  int row[DIT_EDIT_LENGTH + 1];
  for (size_t j = 0; j <= b_length; j++) {
    row[j] = (int)j;
  }
  for (size_t i = 1; i <= a_length; i++) {
    int diagonal = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= b_length; j++) {
      unsigned char x = (unsigned char)a[i - 1], y = (unsigned char)b[j - 1];
      x = x >= 'A' && x <= 'Z' ? (unsigned char)(x + 32) : x;
      y = y >= 'A' && y <= 'Z' ? (unsigned char)(y + 32) : y;
      int best = diagonal + (x != y);
      best = row[j] + 1 < best ? row[j] + 1 : best;
      best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
      diagonal = row[j];
      row[j] = best;
    }
  }
  return row[b_length];
}

#endif
