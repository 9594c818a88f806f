/// Passes of the radix sort (see order.h).
#include "order.h"

#include "kernels/order.h"
#include "launch.h"

KERNEL_REFERENCE(order_count_u32, order);
KERNEL_REFERENCE(order_count_u64, order);
KERNEL_REFERENCE(order_scan, order);
KERNEL_REFERENCE(order_scan_few, order);
KERNEL_REFERENCE(order_move_u32, order);
KERNEL_REFERENCE(order_move_u64, order);

#define FEW_TILES 32

int order_get_bits(uint64_t limit) {
  int bits = 0;
  while (bits < 64 && limit > 1 && (limit - 1) >> bits) {
    bits++;
  }
  return bits;
}

static int64_t get_tiles(int64_t count) {
  return (count + ORDER_KERNEL_TILE - 1) / ORDER_KERNEL_TILE;
}

enum dit_status order_init(struct order *order, struct diopiContext *context, int64_t count, bool is_wide,
                           struct dit_error *err) {
  const size_t keys = ((size_t)count * (is_wide ? 8 : 4) + 255) / 256 * 256;
  const size_t places = ((size_t)count * 4 + 255) / 256 * 256;
  const size_t counts = (size_t)(get_tiles(count) + 1) * ORDER_KERNEL_DIGITS * 4;
  if (count >= (int64_t)UINT32_MAX) {
    return DIT_ERR_UNSUPPORTED;
  }
  char *memory = scratch_take(context, 2 * keys + 2 * places + counts);
  if (!memory) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no device memory to sort %lld items", (long long)count);
  }
  *order = (struct order){.keys = memory,
                          .key_room = memory + keys,
                          .places = (uint32_t *)(void *)(memory + 2 * keys),
                          .place_room = (uint32_t *)(void *)(memory + 2 * keys + places),
                          .counts = (uint32_t *)(void *)(memory + 2 * keys + 2 * places),
                          .count = count,
                          .is_wide = is_wide};
  return DIT_OK;
}

static enum dit_status run_pass(struct order *order, void *stream, int shift, int64_t length, struct dit_error *err) {
  const struct order_kernel task = {.keys = order->keys,
                                    .places = order->places,
                                    .keys_out = order->key_room,
                                    .places_out = order->place_room,
                                    .counts = order->counts,
                                    .count = order->count,
                                    .length = length,
                                    .shift = shift,
                                    .tiles = (int32_t)get_tiles(order->count)};
  const struct kernel_grid tiles = {.x = (unsigned)task.tiles, .threads = ORDER_KERNEL_THREADS};
  const struct kernel_grid one = {.x = 1, .threads = ORDER_KERNEL_THREADS};
  const struct kernel_grid digits = {.x = ORDER_KERNEL_DIGITS, .threads = ORDER_KERNEL_THREADS};
  DIT_RETURN_IF_NOT_OK(kernel_launch(order->is_wide ? &order_count_u64 : &order_count_u32, stream, tiles, &task, err));
  DIT_RETURN_IF_NOT_OK(task.tiles <= FEW_TILES ? kernel_launch(&order_scan_few, stream, one, &task, err)
                                               : kernel_launch(&order_scan, stream, digits, &task, err));
  DIT_RETURN_IF_NOT_OK(kernel_launch(order->is_wide ? &order_move_u64 : &order_move_u32, stream, tiles, &task, err));
  order->keys = task.keys_out;
  order->places = task.places_out;
  order->key_room = (void *)task.keys;
  order->place_room = (uint32_t *)task.places;
  return DIT_OK;
}

enum dit_status order_sort(struct order *order, void *stream, int bits, struct dit_error *err) {
  for (int shift = 0; shift < bits && order->count > 1; shift += 8) {
    DIT_RETURN_IF_NOT_OK(run_pass(order, stream, shift, 0, err));
  }
  return DIT_OK;
}

enum dit_status order_sort_lines(struct order *order, void *stream, int64_t length, int64_t lines,
                                 struct dit_error *err) {
  const int bits = order_get_bits((uint64_t)lines);
  for (int shift = 0; shift < bits && order->count > 1; shift += 8) {
    DIT_RETURN_IF_NOT_OK(run_pass(order, stream, shift, length, err));
  }
  return DIT_OK;
}
