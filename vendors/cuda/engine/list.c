/// Collecting the launches of a list operator (see list.h).
#include "list.h"

#include <string.h>

#define MOST_RUNS 128
#define SLOTS 256

static _Thread_local struct {
  int depth, count;
  bool is_suspended;
  enum dit_status status;  ///< of a launch that nobody waited for
  struct kernel *kernel;
  void *stream;
  struct pointwise_flat flat;  ///< what all runs share
  struct pointwise_entry entries[MOST_RUNS];
  struct {
    char *data;
    uint64_t round;
  } written[SLOTS];  ///< a hash table of what this round's runs write
  uint64_t round;    ///< of collecting; the first one is 1
} list;

void list_begin(void) {
  if (list.depth++ == 0) {
    list.count = 0;
    list.is_suspended = false;
    list.status = DIT_OK;
  }
}

enum dit_status list_end(struct dit_error *err) {
  const enum dit_status status = list_flush(err);
  list.depth--;
  return status != DIT_OK ? status : list.status;
}

void list_suspend(void) {
  struct dit_error err = {.message = ""};
  if (list.depth > 0) {
    const enum dit_status status = list_flush(&err);
    list.status = list.status != DIT_OK ? list.status : status;
    list.is_suspended = true;
  }
}

/// With the sequence lock held.
static enum dit_status launch_runs(int count, struct kernel_grid grid, struct dit_error *err) {
  struct launch_scratch scratch;
  DIT_RETURN_IF_NOT_OK(launch_get_scratch(list.stream, &scratch, err));
  DIT_RETURN_IF_NOT_OK(
      launch_write(list.stream, scratch.memory, list.entries, (size_t)count * sizeof list.entries[0], err));
  list.flat.list = scratch.memory;
  list.flat.listed = count;
  return kernel_launch(list.kernel, list.stream, grid, &list.flat, err);
}

enum dit_status list_flush(struct dit_error *err) {
  const int count = list.count;
  if (count == 0) {
    return DIT_OK;
  }
  const struct pointwise_entry *last = &list.entries[count - 1];
  const struct kernel_grid grid = {.x = last->first + last->blocks, .threads = POINTWISE_KERNEL_THREADS};
  list.count = 0;  // the launches below are not to come back here
  if (count == 1) {
    list.flat.list = NULL;
    memcpy(list.flat.data, last->data, sizeof last->data);
    memcpy(list.flat.numbers, last->numbers, sizeof last->numbers);
    list.flat.numel = last->numel;
    return kernel_launch(list.kernel, list.stream, grid, &list.flat, err);
  }
  launch_begin_sequence();
  const enum dit_status status = launch_runs(count, grid, err);
  launch_end_sequence();
  return status;
}

static bool is_alike(const struct pointwise_flat *run) {
  return memcmp(run->mode, list.flat.mode, sizeof run->mode) == 0 &&
         memcmp(run->number, list.flat.number, sizeof run->number) == 0;
}

/// Is this the first run of the launch that writes here? Runs that write one tensor twice keep their order.
static bool is_first(char *data) {
  unsigned slot = (unsigned)((uintptr_t)data >> 4) * 2654435761u >> 24;
  while (list.written[slot].round == list.round) {
    if (list.written[slot].data == data) {
      return false;
    }
    slot = (slot + 1) % SLOTS;
  }
  list.written[slot].data = data;
  list.written[slot].round = list.round;
  return true;
}

bool list_take(struct kernel *kernel, void *stream, const struct pointwise_flat *run, unsigned blocks) {
  struct dit_error err = {.message = ""};
  if (list.depth == 0 || list.is_suspended || run->ndim > 0) {
    return false;
  }
  const struct pointwise_entry *last = list.count > 0 ? &list.entries[list.count - 1] : NULL;
  const bool fits =
      !last || (list.count < MOST_RUNS && kernel == list.kernel && stream == list.stream &&
                (int64_t)last->first + last->blocks + blocks <= INT32_MAX && is_alike(run) && is_first(run->data[0]));
  if (!fits) {
    const enum dit_status status = list_flush(&err);
    list.status = list.status != DIT_OK ? list.status : status;
  }
  if (list.count == 0) {
    list.kernel = kernel;
    list.stream = stream;
    list.flat = *run;
    list.round++;
    (void)is_first(run->data[0]);
  }
  struct pointwise_entry *entry = &list.entries[list.count];
  memcpy(entry->data, run->data, sizeof entry->data);
  memcpy(entry->numbers, run->numbers, sizeof entry->numbers);
  entry->numel = run->numel;
  entry->first = list.count > 0 ? entry[-1].first + entry[-1].blocks : 0;
  entry->blocks = blocks;
  list.count++;
  return true;
}
