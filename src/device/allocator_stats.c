/// Counters and the out-of-memory message, with the meaning of torch.cuda.memory_stats. Depends on: allocator_impl.
#include <stdio.h>
#include <string.h>

#include "device/allocator_impl.h"

void dit_allocator_get_stats(struct dit_allocator *a, struct dit_memory_stats *out) {
  pthread_mutex_lock(&a->lock);
  *out = a->stats;
  out->max_split_size = a->config.max_split_size == SIZE_MAX ? -1 : (int64_t)a->config.max_split_size;
  pthread_mutex_unlock(&a->lock);
}

/// The per-pool counters are the leading arrays of the struct, followed by the two oversize counters.
static void visit_stats(struct dit_memory_stats *stats, void (*visit)(struct dit_memory_stat *)) {
  struct dit_memory_stat *pools[] = {
      stats->allocation,      stats->segment,        stats->active,       stats->inactive_split,
      stats->allocated_bytes, stats->reserved_bytes, stats->active_bytes, stats->inactive_split_bytes,
      stats->requested_bytes};
  for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++) {
    for (int pool = 0; pool < DIT_POOL_COUNT; pool++) {
      visit(&pools[i][pool]);
    }
  }
  visit(&stats->oversize_allocations);
  visit(&stats->oversize_segments);
}

static void reset_peak(struct dit_memory_stat *stat) {
  stat->peak = stat->current;
}

static void reset_accumulated(struct dit_memory_stat *stat) {
  stat->allocated = stat->freed = 0;
}

void dit_allocator_reset_peak(struct dit_allocator *a) {
  pthread_mutex_lock(&a->lock);
  visit_stats(&a->stats, reset_peak);
  pthread_mutex_unlock(&a->lock);
}

void dit_allocator_reset_accumulated(struct dit_allocator *a) {
  pthread_mutex_lock(&a->lock);
  visit_stats(&a->stats, reset_accumulated);
  a->stats.num_alloc_retries = a->stats.num_ooms = a->stats.num_sync_all_streams = 0;
  a->stats.num_device_alloc = a->stats.num_device_free = 0;
  pthread_mutex_unlock(&a->lock);
}

const char *dit_allocator_format_size(uint64_t size, char *buffer, size_t buffer_size) {
  if (size <= 1024) {
    snprintf(buffer, buffer_size, "%llu bytes", (unsigned long long)size);
  } else if (size <= 1048576) {
    snprintf(buffer, buffer_size, "%.2f KiB", (double)size / 1024);
  } else if (size <= 1073741824) {
    snprintf(buffer, buffer_size, "%.2f MiB", (double)size / 1048576);
  } else {
    snprintf(buffer, buffer_size, "%.2f GiB", (double)size / 1073741824);
  }
  return buffer;
}

enum dit_status dit_allocator_report_oom(struct dit_allocator *a, size_t size, struct dit_error *err) {
  uint64_t allocated = (uint64_t)a->stats.allocated_bytes[DIT_POOL_ALL].current;
  uint64_t reserved = (uint64_t)a->stats.reserved_bytes[DIT_POOL_ALL].current;
  uint64_t limit = a->limit;
  size_t tried = a->config.algorithm == DIT_ALGORITHM_TORCH ? a->algorithm->segment_size(a, size) : size;
  char text[6][32], allowed[64] = "";
  a->stats.num_ooms++;
  struct dit_device_memory memory = {.free = 0, .total = a->total_memory};
  dit_allocator_leave(a);
  enum dit_status ignored = a->vtable->get_memory(a->context, &memory, NULL);
  (void)ignored;  // the numbers are a help; the defaults are kept when they cannot be had
  dit_allocator_reenter(a);
  if (limit != UINT64_MAX) {
    snprintf(allowed, sizeof(allowed), "%s allowed; ", dit_allocator_format_size(limit, text[5], sizeof(text[5])));
  }
  return dit_error_set(
      err, DIT_ERR_NOMEM,
      "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. %s"
      "Of the allocated memory %s is allocated by PyTorch, and %s is reserved by PyTorch but unallocated. "
      "If reserved but unallocated memory is large try torch.cuda.empty_cache() or setting "
      "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 to avoid fragmentation.%s%s",
      dit_allocator_format_size(tried, text[0], sizeof(text[0])), a->device,
      dit_allocator_format_size(memory.total, text[1], sizeof(text[1])),
      dit_allocator_format_size(memory.free, text[2], sizeof(text[2])), allowed,
      dit_allocator_format_size(allocated, text[3], sizeof(text[3])),
      dit_allocator_format_size(reserved > allocated ? reserved - allocated : 0, text[4], sizeof(text[4])),
      a->vtable->capacity_hint[0] ? " " : "", a->vtable->capacity_hint);
}
