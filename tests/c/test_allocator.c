/// The caching allocator over a scripted device: the behaviour that users of torch.cuda rely on, case by case.
#include "test_allocator_device.h"

static struct fake_device device;
static struct dit_allocator *allocator;
static struct dit_error err;

static void start(uint64_t capacity, const char *config) {
  struct dit_allocator_config parsed;
  fake_device_init(&device, capacity, (uintptr_t)1 << 40);
  CHECK_OK(dit_allocator_create(3, &fake_vtable, &device, &allocator, &err));
  CHECK_OK(dit_allocator_config_parse(config, &parsed, &err));
  dit_allocator_set_config(allocator, &parsed);
}

static void configure(const char *config) {
  struct dit_allocator_config parsed;
  CHECK_OK(dit_allocator_config_parse(config, &parsed, &err));
  dit_allocator_set_config(allocator, &parsed);
}

static void check(void) {
  if (!dit_allocator_check(allocator, &err)) {
    fprintf(stderr, "check: %s\n", err.message);
    exit(1);
  }
  if (device.complaint[0]) {
    fprintf(stderr, "device: %s\n", device.complaint);
    exit(1);
  }
}

static void finish(void) {
  check();
  dit_allocator_destroy(allocator);
  CHECK(device.used == 0 && device.segment_count == 0 && device.events == 0);
  CHECK(!device.complaint[0]);
}

static void *take(int64_t stream, size_t size) {
  void *ptr = NULL;
  CHECK_OK(dit_allocator_alloc(allocator, stream, size, &ptr, &err));
  CHECK(ptr);
  check();
  return ptr;
}

static void give(void *ptr) {
  CHECK(dit_allocator_free(ptr));
  check();
}

static struct dit_memory_stats stats(void) {
  struct dit_memory_stats out;
  dit_allocator_get_stats(allocator, &out);
  return out;
}

static int64_t reserved(void) {
  return stats().reserved_bytes[DIT_POOL_ALL].current;
}

static int64_t allocated(void) {
  return stats().allocated_bytes[DIT_POOL_ALL].current;
}

static void test_sizes_as_in_torch_cuda(void) {
  start(1024 * MIB, "");
  take(0, 1);
  CHECK(allocated() == 512 && reserved() == 2 * MIB);
  CHECK(stats().requested_bytes[DIT_POOL_SMALL].current == 1);
  take(0, 11 * MIB);  // rounded to 2 MiB; the rest of 1 MiB is too small to split off
  CHECK(allocated() == 512 + 12 * MIB && reserved() == 14 * MIB);
  take(0, 3 * MIB);
  CHECK(allocated() == 512 + 15 * MIB && reserved() == 34 * MIB);
  take(0, MIB);  // from the small segment's rest
  CHECK(reserved() == 34 * MIB);
  take(0, MIB);
  CHECK(reserved() == 36 * MIB);
  take(0, MIB + 1);  // the first size of the large pool, from the rest of the 20 MiB segment
  CHECK(reserved() == 36 * MIB && stats().allocation[DIT_POOL_LARGE].current == 3);
  take(0, 10 * MIB);
  CHECK(reserved() == 36 * MIB);
  take(0, 10 * MIB);
  CHECK(reserved() == 46 * MIB);
  take(0, 513);
  CHECK(stats().allocated_bytes[DIT_POOL_SMALL].current == 512 + 2 * MIB + 1024);
  finish();
}

static void test_edges_of_size(void) {
  void *ptr = &device;
  start(64 * MIB, "");
  CHECK_OK(dit_allocator_alloc(allocator, 0, 0, &ptr, &err));
  CHECK(ptr == NULL && reserved() == 0);
  CHECK(dit_allocator_alloc(allocator, 0, SIZE_MAX, &ptr, &err) == DIT_ERR_NOMEM);
  CHECK_CONTAINS(err.message, "CUDA out of memory. Tried to allocate more than 1EB");
  CHECK(dit_allocator_alloc(allocator, 0, ((size_t)1 << 60) - 1, &ptr, &err) == DIT_ERR_NOMEM);
  CHECK_CONTAINS(err.message, "CUDA out of memory. Tried to allocate");
  finish();
}

static void test_reuse_belongs_to_the_stream(void) {
  start(1024 * MIB, "");
  void *first = take(0, 4096);
  give(first);
  CHECK(take(0, 4096) == first);
  give(first);
  CHECK(take(1, 4096) != first);
  CHECK(reserved() == 4 * MIB);
  CHECK(take(0, 4096) == first);
  void *large = take(2, 30 * MIB);
  give(large);
  CHECK(take(2, 29 * MIB) == large);  // the rest is no more than 1 MiB: not split
  CHECK(stats().allocated_bytes[DIT_POOL_LARGE].current == 30 * MIB);
  CHECK(stats().requested_bytes[DIT_POOL_LARGE].current == 29 * MIB);
  finish();
}

static void test_split_and_coalesce(void) {
  start(1024 * MIB, "");
  void *blocks[4];
  for (int i = 0; i < 4; i++) {
    blocks[i] = take(0, 512 * 1024);
    CHECK((char *)blocks[i] == (char *)blocks[0] + i * 512 * 1024);
  }
  CHECK(stats().inactive_split[DIT_POOL_ALL].current == 0);
  give(blocks[0]);
  give(blocks[2]);
  CHECK(stats().inactive_split[DIT_POOL_SMALL].current == 2);
  CHECK(stats().inactive_split_bytes[DIT_POOL_SMALL].current == MIB);
  give(blocks[1]);
  CHECK(stats().inactive_split[DIT_POOL_SMALL].current == 1);
  CHECK(stats().inactive_split_bytes[DIT_POOL_SMALL].current == 3 * 512 * 1024);
  CHECK_OK(dit_allocator_empty_cache(allocator, &err));
  CHECK(reserved() == 2 * MIB);  // one block is live
  give(blocks[3]);
  CHECK(stats().inactive_split[DIT_POOL_ALL].current == 0 && stats().inactive_split_bytes[DIT_POOL_ALL].current == 0);
  CHECK(take(0, MIB) == blocks[0]);
  give(blocks[0]);
  CHECK_OK(dit_allocator_empty_cache(allocator, &err));
  CHECK(reserved() == 0 && device.used == 0);
  finish();
}

static void test_best_fit(void) {
  start(1024 * MIB, "");
  size_t sizes[] = {40, 24, 32, 26, 64};
  void *blocks[5];
  for (int i = 0; i < 5; i++) {
    blocks[i] = take(0, sizes[i] * MIB);
  }
  for (int i = 0; i < 5; i++) {
    give(blocks[i]);
  }
  CHECK(take(0, 25 * MIB) == blocks[3]);
  CHECK(take(0, 24 * MIB) == blocks[1]);
  CHECK(take(0, 33 * MIB) == blocks[0]);
  CHECK(take(0, 2 * MIB) == (char *)blocks[0] + 33 * MIB);  // the rest of the 40, smaller than 32
  CHECK(take(0, 65 * MIB) > blocks[4]);
  finish();
}

static void test_record_stream(void) {
  start(1024 * MIB, "");
  char *block = take(0, 4 * MIB);
  fake_queue_work(&device, block, 4 * MIB, 1);
  CHECK_OK(dit_allocator_record_stream(block + 12345, 1, &err));  // any address inside, twice the same
  CHECK_OK(dit_allocator_record_stream(block, 1, &err));
  CHECK_OK(dit_allocator_record_stream(block, 0, &err));  // its own stream changes nothing
  fake_queue_work(&device, block, 4 * MIB, 2);
  CHECK_OK(dit_allocator_record_stream(block, 2, &err));
  give(block);
  CHECK(allocated() == 0 && stats().active[DIT_POOL_ALL].current == 1);
  CHECK(stats().active_bytes[DIT_POOL_ALL].current == 4 * MIB &&
        stats().requested_bytes[DIT_POOL_ALL].current == 4 * MIB);
  CHECK(!dit_allocator_free(block));
  fake_queue_work(&device, NULL, 0, 1);  // work after the free must not delay the block
  fake_complete(&device, 1, 1);
  char *other = take(0, 4 * MIB);
  CHECK(other != block);
  fake_complete(&device, 2, 1);
  CHECK(take(0, 4 * MIB) == block);
  CHECK(stats().active[DIT_POOL_ALL].current == 2 && device.synchronizes == 0);
  finish();
}

static void test_record_stream_without_events(void) {
  start(1024 * MIB, "");
  for (int i = 0; i < 2; i++) {
    device.fail_event_create = i == 0;
    device.fail_event_record = i == 1;
    char *block = take(0, 4 * MIB);
    fake_queue_work(&device, block, 4 * MIB, 1);
    CHECK_OK(dit_allocator_record_stream(block, 1, &err));
    give(block);
    CHECK(take(0, 4 * MIB) != block);
    fake_complete(&device, 1, 1);
    CHECK(take(0, 4 * MIB) == block);
  }
  CHECK(dit_allocator_record_stream(&device, 1, &err) == DIT_ERR_INVALID);
  CHECK_CONTAINS(err.message, "not inside a live block");
  finish();
}

/// A stream that cannot be asked any more holds its blocks only until the device was synchronised.
static void test_record_stream_without_answers(void) {
  start(1024 * MIB, "");
  char *block = take(0, 4 * MIB);
  fake_queue_work(&device, block, 4 * MIB, 1);
  CHECK_OK(dit_allocator_record_stream(block, 1, &err));
  device.fail_query = true;
  give(block);
  fake_complete(&device, 1, 1);
  void *other = take(0, 4 * MIB);
  CHECK(other != block);
  give(other);
  CHECK_OK(dit_allocator_empty_cache(allocator, &err));
  CHECK(reserved() == 0);
  finish();
}

static void test_out_of_memory_chain(void) {
  start(100 * MIB, "");
  void *ptr, *kept = take(0, 30 * MIB), *cached = take(0, 30 * MIB), *other = take(1, 30 * MIB);
  give(cached);
  fake_queue_work(&device, other, 30 * MIB, 2);
  CHECK_OK(dit_allocator_record_stream(other, 2, &err));
  give(other);
  CHECK(reserved() == 90 * MIB);
  void *big = take(0, 60 * MIB);  // needs both: the cached one and the one that waits for stream 2
  CHECK(stats().num_alloc_retries == 1 && stats().num_ooms == 0 && stats().num_sync_all_streams == 1);
  CHECK(reserved() == 90 * MIB && stats().num_device_alloc == 4 && stats().num_device_free == 2);
  CHECK(dit_allocator_alloc(allocator, 0, 11 * MIB, &ptr, &err) == DIT_ERR_NOMEM);
  CHECK(stats().num_ooms == 1 && stats().num_alloc_retries == 2);
  CHECK(strcmp(err.message,
               "CUDA out of memory. Tried to allocate 12.00 MiB. GPU 3 has a total capacity of 100.00 MiB of which "
               "10.00 MiB is free. "
               "Of the allocated memory 90.00 MiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
               "unallocated. "
               "If reserved but unallocated memory is large try torch.cuda.empty_cache() or setting "
               "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 to avoid fragmentation. Buy more.") == 0);
  give(big);
  give(kept);
  take(0, 99 * MIB);
  finish();
}

static void test_vendor_error_is_reported(void) {
  void *ptr = NULL;
  start(100 * MIB, "");
  device.fail_alloc = true;
  CHECK(dit_allocator_alloc(allocator, 0, 1, &ptr, &err) == DIT_ERR_DEVICE);
  CHECK_CONTAINS(err.message, "the fake device is broken");
  CHECK(!ptr && stats().num_ooms == 0 && stats().num_alloc_retries == 0);
  device.fail_alloc = false;
  take(0, 1);
  finish();
}

static void test_fraction(void) {
  void *ptr;
  start(100 * MIB, "");
  CHECK(dit_allocator_get_fraction(allocator) == 1.0);
  dit_allocator_set_fraction(allocator, 0.5);
  void *cached = take(0, 30 * MIB);
  give(cached);
  take(1, 40 * MIB);  // the cached one has to go
  CHECK(reserved() == 40 * MIB);
  CHECK(dit_allocator_alloc(allocator, 0, 12 * MIB, &ptr, &err) == DIT_ERR_NOMEM);
  CHECK_CONTAINS(err.message, "60.00 MiB is free. 50.00 MiB allowed; Of the allocated memory 40.00 MiB");
  dit_allocator_set_fraction(allocator, 1.0);
  take(0, 12 * MIB);
  configure("per_process_memory_fraction:0.25");
  CHECK(dit_allocator_get_fraction(allocator) == 0.25);
  CHECK(dit_allocator_alloc(allocator, 0, 12 * MIB, &ptr, &err) == DIT_ERR_NOMEM);
  configure("");
  CHECK(dit_allocator_get_fraction(allocator) == 1.0);
  finish();
}

static void test_max_split_size(void) {
  start(150 * MIB, "max_split_size_mb:32");
  void *big = take(0, 64 * MIB);
  CHECK(stats().oversize_allocations.current == 1 && stats().oversize_segments.current == 1);
  CHECK(stats().max_split_size == 32 * MIB);
  give(big);
  CHECK(stats().oversize_allocations.current == 0 && stats().oversize_segments.current == 1);
  CHECK(take(0, 11 * MIB) != big);  // a smaller request never splits it
  CHECK(reserved() == 76 * MIB);
  void *fit = take(0, 45 * MIB);  // within 20 MiB of rounding: handed out whole
  CHECK(fit == big && stats().allocated_bytes[DIT_POOL_ALL].current == 76 * MIB);
  give(fit);
  CHECK(take(0, 44 * MIB) != big);  // 20 MiB too large
  CHECK(reserved() == 120 * MIB);
  void *more = take(0, 42 * MIB);  // only the oversize segment goes, no full release
  CHECK(more && reserved() == 98 * MIB && stats().num_alloc_retries == 0 && stats().num_sync_all_streams == 0);
  CHECK(stats().oversize_segments.current == 2 && stats().oversize_segments.freed == 1);
  configure("");
  CHECK(stats().max_split_size == -1);
  give(more);
  CHECK(stats().oversize_allocations.current == 1);  // counted when it was taken, whatever the configuration is now
  CHECK(take(0, 20 * MIB) == more && stats().allocated_bytes[DIT_POOL_ALL].current == 76 * MIB);
  finish();
}

static void test_several_oversize_segments_are_released(void) {
  start(200 * MIB, "max_split_size_mb:20");
  void *blocks[4];
  for (int i = 0; i < 4; i++) {
    blocks[i] = take(i == 3, 40 * MIB);
  }
  for (int i = 0; i < 4; i++) {
    give(blocks[i]);
  }
  take(0, 110 * MIB);  // 40 MiB are free: three of stream 0 go, that of stream 1 stays
  CHECK(stats().num_alloc_retries == 0 && reserved() == 150 * MIB && device.frees == 3);
  finish();
}

static void test_garbage_collection(void) {
  start(100 * MIB, "garbage_collection_threshold:0.5");
  void *old = take(0, 20 * MIB), *young = take(0, 24 * MIB);
  give(old);
  for (int i = 0; i < 10; i++) {
    void *ptr = take(1, 2 * MIB);
    give(ptr);
  }
  give(young);
  CHECK(reserved() == 64 * MIB);
  take(2, 12 * MIB);  // 64 > 50: the oldest goes, the young one and the used one of stream 1 stay
  CHECK(reserved() == 64 * MIB - 20 * MIB + 12 * MIB && stats().num_alloc_retries == 0);
  CHECK(take(0, 24 * MIB) == young);
  finish();
}

static void test_garbage_collection_synchronizes(void) {
  start(100 * MIB, "garbage_collection_threshold:0.1");
  void *block = take(0, 20 * MIB);
  fake_queue_work(&device, block, 20 * MIB, 0);
  give(block);
  take(0, 30 * MIB);
  CHECK(reserved() == 30 * MIB && device.synchronizes == 1);
  finish();
}

static void test_raw_mode(void) {
  start(100 * MIB, "backend:raw");
  char *block = take(0, 1000);
  CHECK(reserved() == 1024 && allocated() == 1024 && device.used == 1024);
  fake_queue_work(&device, block, 1000, 0);
  give(block);
  CHECK(device.used == 1024 && stats().active[DIT_POOL_ALL].current == 1 && allocated() == 0);
  fake_complete(&device, 0, 1);
  char *other = take(0, 5 * MIB);
  CHECK(reserved() == 5 * MIB && device.used == 5 * MIB && other != block);
  configure("");
  give(other);  // taken raw, given back raw
  CHECK(reserved() == 0 && device.used == 0);
  void *cached = take(0, 5 * MIB);
  configure("backend:raw");
  give(cached);
  CHECK(reserved() == 20 * MIB);
  CHECK(take(0, 5 * MIB) != cached);
  CHECK_OK(dit_allocator_empty_cache(allocator, &err));
  CHECK(reserved() == 5 * MIB);
  finish();
}

static void test_roundup_divisions(void) {
  start(4096u * (uint64_t)MIB, "roundup_power2_divisions:4");
  take(0, 1200);  // PyTorch's own example is 1200 -> 1280 before blocks are multiples of 512
  CHECK(allocated() == 1536);
  take(0, 5 * MIB + 1);
  CHECK(stats().allocated_bytes[DIT_POOL_LARGE].current == 6 * MIB);
  configure("roundup_power2_divisions:[16:2,32:1,>:8]");
  int64_t before = stats().allocated_bytes[DIT_POOL_LARGE].current;
  take(0, 17 * MIB);  // [16, 32): 2 parts of 8 MiB
  CHECK(stats().allocated_bytes[DIT_POOL_LARGE].current == before + 24 * MIB);
  take(0, 3 * MIB + 100);  // below the first interval: its divisions too
  CHECK(stats().allocated_bytes[DIT_POOL_LARGE].current == before + 28 * MIB);
  take(0, 65 * MIB);  // above: 8 parts of 8 MiB
  CHECK(stats().allocated_bytes[DIT_POOL_LARGE].current == before + 100 * MIB);
  finish();
}

static void test_find(void) {
  void *base;
  size_t size;
  int number;
  start(1024 * MIB, "");
  char *small = take(0, 700), *large = take(0, 100 * MIB);
  CHECK(dit_allocator_find(small + 699, &base, &size, &number) && base == small && size == 1024 && number == 3);
  CHECK(dit_allocator_find(large + 57 * MIB + 3, &base, &size, &number) && base == large && size == 100 * MIB);
  CHECK(!dit_allocator_find(small + 1024, &base, &size, &number));
  CHECK(!dit_allocator_find(&base, &base, &size, &number));
  CHECK(!dit_allocator_free(small + 512));
  CHECK(!dit_allocator_free(&base));
  give(small);
  CHECK(!dit_allocator_free(small));
  CHECK(!dit_allocator_find(small, &base, &size, &number));
  finish();
}

static void test_stats_reset(void) {
  start(1024 * MIB, "");
  give(take(0, 5 * MIB));
  take(0, 1);
  struct dit_memory_stats before = stats();
  CHECK(before.allocated_bytes[DIT_POOL_ALL].peak == 5 * MIB && before.allocation[DIT_POOL_ALL].peak == 1);
  CHECK(before.allocated_bytes[DIT_POOL_ALL].allocated == 5 * MIB + 512);
  CHECK(before.allocated_bytes[DIT_POOL_ALL].freed == 5 * MIB);
  dit_allocator_reset_peak(allocator);
  CHECK(stats().allocated_bytes[DIT_POOL_ALL].peak == 512 && stats().reserved_bytes[DIT_POOL_ALL].peak == 22 * MIB);
  CHECK(stats().allocated_bytes[DIT_POOL_LARGE].peak == 0);
  dit_allocator_reset_accumulated(allocator);
  CHECK(stats().allocated_bytes[DIT_POOL_ALL].allocated == 0 && stats().allocated_bytes[DIT_POOL_ALL].freed == 0);
  CHECK(stats().num_device_alloc == 0 && stats().allocated_bytes[DIT_POOL_ALL].current == 512);
  finish();
}

struct seen {
  int segments, blocks, limit;
  uintptr_t last;
  size_t pending, inactive;
};

static bool visit(void *context, const struct dit_memory_segment *segment) {
  struct seen *seen = context;
  const char *next = segment->address;
  CHECK((uintptr_t)segment->address > seen->last && segment->device == 3);
  seen->last = (uintptr_t)segment->address;
  for (int i = 0; i < segment->block_count; i++) {
    CHECK(segment->blocks[i].address == next);
    next += segment->blocks[i].size;
    seen->pending += segment->blocks[i].state == DIT_BLOCK_PENDING_FREE ? segment->blocks[i].size : 0;
    seen->inactive += segment->blocks[i].state == DIT_BLOCK_INACTIVE ? segment->blocks[i].size : 0;
  }
  CHECK(next == (const char *)segment->address + segment->total_size);
  seen->blocks += segment->block_count;
  return ++seen->segments < seen->limit;
}

static void test_snapshot(void) {
  start(1024 * MIB, "");
  take(0, 100);
  char *waits = take(5, 3 * MIB);
  take(5, 30 * MIB);
  fake_queue_work(&device, waits, 3 * MIB, 1);
  CHECK_OK(dit_allocator_record_stream(waits, 1, &err));
  give(waits);
  struct dit_allocator_snapshot snapshot = {0};
  struct seen seen = {.limit = 100};
  CHECK_OK(dit_allocator_snapshot_append(&snapshot, allocator, &err));
  dit_allocator_snapshot_visit(&snapshot, visit, &seen);
  CHECK(seen.segments == 3 && seen.blocks == 5 && seen.pending == 3 * MIB);
  CHECK(seen.inactive == 2 * MIB - 512 + 17 * MIB);
  CHECK(snapshot.segments[1].stream == 5 && snapshot.segments[1].large && snapshot.segments[1].active_size == 3 * MIB);
  CHECK(snapshot.segments[1].allocated_size == 0 && snapshot.segments[0].requested_size == 100);
  seen = (struct seen){.limit = 2};
  dit_allocator_snapshot_visit(&snapshot, visit, &seen);
  CHECK(seen.segments == 2);
  dit_allocator_snapshot_reset(&snapshot);
  finish();
}

static void test_destroy_with_live_blocks(void) {
  void *base;
  size_t size;
  int number;
  start(1024 * MIB, "");
  char *live = take(0, 100), *waits = take(0, 4 * MIB);
  CHECK_OK(dit_allocator_record_stream(live, 1, &err));
  fake_queue_work(&device, waits, 4 * MIB, 1);
  CHECK_OK(dit_allocator_record_stream(waits, 1, &err));
  give(waits);
  finish();
  CHECK(!dit_allocator_free(live));
  CHECK(!dit_allocator_find(live, &base, &size, &number));
}

static void test_two_devices(void) {
  void *base;
  size_t size;
  int number;
  static struct fake_device second;
  struct dit_allocator *other;
  start(1024 * MIB, "");
  fake_device_init(&second, 1024 * MIB, ((uintptr_t)1 << 40) + 1000 * (uintptr_t)MIB);
  CHECK_OK(dit_allocator_create(1, &fake_vtable, &second, &other, &err));
  void *ptr = NULL, *here = take(0, 100);
  CHECK_OK(dit_allocator_alloc(other, 0, 100, &ptr, &err));
  CHECK(dit_allocator_find(ptr, &base, &size, &number) && number == 1);
  CHECK(dit_allocator_find(here, &base, &size, &number) && number == 3);
  CHECK(dit_allocator_free(ptr));
  CHECK(allocated() == 512);
  dit_allocator_destroy(other);
  finish();
}

static void test_many_segments(void) {
  start((uint64_t)1 << 40, "");
  enum { COUNT = 3000 };
  static void *blocks[COUNT];
  for (int i = 0; i < COUNT; i++) {
    CHECK_OK(dit_allocator_alloc(allocator, 0, 12 * MIB, &blocks[i], &err));
  }
  check();
  for (int i = 0; i < COUNT; i++) {
    CHECK(dit_allocator_free(blocks[(i * 1237) % COUNT]));
  }
  check();
  CHECK_OK(dit_allocator_empty_cache(allocator, &err));
  CHECK(reserved() == 0);
  finish();
}

static void test_format_size(void) {
  char text[32];
  CHECK(strcmp(dit_allocator_format_size(512, text, sizeof(text)), "512 bytes") == 0);
  CHECK(strcmp(dit_allocator_format_size(1536, text, sizeof(text)), "1.50 KiB") == 0);
  CHECK(strcmp(dit_allocator_format_size(512 * MIB, text, sizeof(text)), "512.00 MiB") == 0);
  CHECK(strcmp(dit_allocator_format_size(2048u * (uint64_t)MIB, text, sizeof(text)), "2.00 GiB") == 0);
}

int main(void) {
  RUN(test_sizes_as_in_torch_cuda);
  RUN(test_edges_of_size);
  RUN(test_reuse_belongs_to_the_stream);
  RUN(test_split_and_coalesce);
  RUN(test_best_fit);
  RUN(test_record_stream);
  RUN(test_record_stream_without_events);
  RUN(test_record_stream_without_answers);
  RUN(test_out_of_memory_chain);
  RUN(test_vendor_error_is_reported);
  RUN(test_fraction);
  RUN(test_max_split_size);
  RUN(test_several_oversize_segments_are_released);
  RUN(test_garbage_collection);
  RUN(test_garbage_collection_synchronizes);
  RUN(test_raw_mode);
  RUN(test_roundup_divisions);
  RUN(test_find);
  RUN(test_stats_reset);
  RUN(test_snapshot);
  RUN(test_destroy_with_live_blocks);
  RUN(test_two_devices);
  RUN(test_many_segments);
  RUN(test_format_size);
  return 0;
}
