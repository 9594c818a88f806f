/// Sorting lines of numbers: every dtype becomes an unsigned key whose order is that of the numbers.
///
/// NaN is the largest number, -0 equals 0. Items carry the place they came from; equal keys keep their order.
#ifndef DIT_HOST_ENGINE_SORT_H
#define DIT_HOST_ENGINE_SORT_H

#include <stdbool.h>
#include <stdint.h>

struct sort_item {
  uint64_t key;
  uint64_t place;
};

/// Real dtypes and bool.
bool sort_is_supported(int dtype);
/// Does a key and a place fit into 64 bits (key << 32 | place)? True for dtypes of up to 32 bits, and
/// perhaps for int64, in lines that are not too long.
bool sort_is_packed(int dtype, int64_t count);
/// Keys of `count` neighbouring elements, in their order: packed words, or items. Words also hold int64 elements that
/// lie within 2^32 of each other; false when they do not.
bool sort_set_words(uint64_t *words, int dtype, const void *data, int64_t count, bool descending);
void sort_set_items(struct sort_item *items, int dtype, const void *data, int64_t count, bool descending);
/// Ascending by key, stable; `room` is as large as the line. The result is in the first argument.
void sort_words(uint64_t *words, uint64_t *room, int64_t count);
void sort_items(struct sort_item *items, struct sort_item *room, int64_t count);
/// The `keep` smallest words, sorted, at the beginning.
void sort_words_partly(uint64_t *words, uint64_t *room, int64_t count, int64_t keep);
/// The key of a NaN in ascending order, as in sort_set_items.
#define SORT_NAN_KEY UINT64_MAX

#endif
