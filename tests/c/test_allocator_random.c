/// Random programs for the allocator, checked against a simple model after every step; also with the n-th host
/// allocation failing, for all n.
///
/// A program is a list of steps whose operands are taken modulo what exists, so that any part of a program is a
/// program: a failing one is shrunk by leaving steps out, and the smallest is printed. Usage: test_allocator_random
/// [seed [programs [steps]]].
#include "dit/alloc.h"
#include "test_allocator_device.h"

enum step_kind {
  STEP_ALLOC,
  STEP_FREE,
  STEP_USE,
  STEP_COMPLETE,
  STEP_EMPTY,
  STEP_CONFIGURE,
  STEP_RESET_PEAK,
  STEP_FRACTION,
  STEP_KINDS
};
static const char *step_names[] = {"alloc",       "free",      "use",        "complete",
                                   "empty_cache", "configure", "reset_peak", "fraction"};
static const char *configs[] = {"",  // generate_raw knows the place of "backend:raw"
                                "max_split_size_mb:20",
                                "max_split_size_mb:32,garbage_collection_threshold:0.6",
                                "garbage_collection_threshold:0.3",
                                "roundup_power2_divisions:4",
                                "roundup_power2_divisions:[2:1,16:8,>:2],max_split_size_mb:40",
                                "backend:raw",
                                "large_segment_size_mb:30",
                                "backend:bf",
                                "backend:bs",
                                "backend:bf,garbage_collection_threshold:0.5",
                                "backend:bs,max_split_size_mb:20"};
static const char *only_config;  ///< not NULL: the program keeps to this one

struct step {
  enum step_kind kind;
  uint64_t a, b;
};

#define MAX_STEPS 4000
#define MAX_LIVE 512
#define STREAMS 4

struct live {
  char *ptr;
  size_t requested, size;
  int64_t stream;
};

struct model {
  struct fake_device device;
  struct dit_allocator *allocator;
  struct live live[MAX_LIVE];
  int live_count;
  int64_t allocated, allocated_peak, allocated_total, allocations_total;
  bool injecting;
  int ooms;
  char failure[512];
};

#define EXPECT(condition)                                                                             \
  do {                                                                                                \
    if (!(condition)) {                                                                               \
      snprintf(model->failure, sizeof(model->failure), "line %d: expected %s", __LINE__, #condition); \
      return false;                                                                                   \
    }                                                                                                 \
  } while (0)

static uint64_t next_random(uint64_t *state) {
  *state += UINT64_C(0x9E3779B97F4A7C15);
  uint64_t z = *state;
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

static size_t choose_size(uint64_t a) {
  switch (a % 8) {
    case 0:
    case 1:
    case 2:
      return 1 + a / 8 % 5000;
    case 3:
      return 1 + a / 8 % MIB;
    case 4:
      return MIB - 512 + a / 8 % 1024;
    case 5:
      return 1 + a / 8 % (12 * MIB);
    case 6:
      return 10 * MIB - 5 + a / 8 % 10;
    default:
      return 1 + a / 8 % (64 * MIB);
  }
}

static void generate(uint64_t seed, struct step *steps, int count) {
  uint64_t state = seed;
  for (int i = 0; i < count; i++) {
    uint64_t dice = next_random(&state) % 100;
    steps[i].kind = dice < 42   ? STEP_ALLOC
                    : dice < 72 ? STEP_FREE
                    : dice < 84 ? STEP_USE
                    : dice < 93 ? STEP_COMPLETE
                    : dice < 95 ? STEP_EMPTY
                    : dice < 97 ? STEP_CONFIGURE
                    : dice < 98 ? STEP_RESET_PEAK
                                : STEP_FRACTION;
    steps[i].a = next_random(&state);
    steps[i].b = next_random(&state);
  }
}

/// Live blocks do not overlap and lie inside one segment each.
static bool check_new_block(struct model *model, const struct live *block) {
  struct fake_range range = {(uintptr_t)block->ptr, block->size};
  bool inside = false;
  for (int i = 0; i < model->device.segment_count; i++) {
    struct fake_range segment = model->device.segments[i];
    inside =
        inside || (range.address >= segment.address && range.address + range.size <= segment.address + segment.size);
  }
  EXPECT(inside);
  for (int i = 0; i < model->live_count; i++) {
    struct fake_range other = {(uintptr_t)model->live[i].ptr, model->live[i].size};
    EXPECT(!fake_overlaps(range, other));
  }
  EXPECT(!fake_is_in_use(&model->device, range, block->stream));
  EXPECT(block->size >= block->requested && block->size % 512 == 0 && range.address % 512 == 0);
  return true;
}

struct snapshot_sums {
  int64_t total, allocated, blocks;
  bool all_used;
};

static bool add_segment(void *context, const struct dit_memory_segment *segment) {
  struct snapshot_sums *sums = context;
  sums->total += (int64_t)segment->total_size;
  sums->allocated += (int64_t)segment->allocated_size;
  sums->all_used = sums->all_used && segment->active_size > 0;
  for (int i = 0; i < segment->block_count; i++) {
    sums->blocks += segment->blocks[i].state == DIT_BLOCK_ALLOCATED;
  }
  return true;
}

static bool check_snapshot(struct model *model, bool all_used) {
  struct dit_allocator_snapshot snapshot = {0};
  struct snapshot_sums sums = {.all_used = true};
  EXPECT(dit_allocator_snapshot_append(&snapshot, model->allocator, NULL) == DIT_OK);
  dit_allocator_snapshot_visit(&snapshot, add_segment, &sums);
  dit_allocator_snapshot_reset(&snapshot);
  EXPECT(sums.total == (int64_t)model->device.used);
  EXPECT(sums.allocated == model->allocated && sums.blocks == model->live_count);
  EXPECT(!all_used || sums.all_used);
  return true;
}

static bool check_model(struct model *model) {
  struct dit_error err = {0};
  struct dit_memory_stats stats;
  if (!dit_allocator_check(model->allocator, &err)) {
    snprintf(model->failure, sizeof(model->failure), "self-check: %.400s", err.message);
    return false;
  }
  if (model->device.complaint[0]) {
    snprintf(model->failure, sizeof(model->failure), "device: %s", model->device.complaint);
    return false;
  }
  dit_allocator_get_stats(model->allocator, &stats);
  const struct dit_memory_stat *bytes = &stats.allocated_bytes[DIT_POOL_ALL];
  EXPECT(stats.allocation[DIT_POOL_ALL].current == model->live_count);
  EXPECT(stats.allocation[DIT_POOL_ALL].allocated == model->allocations_total);
  EXPECT(bytes->current == model->allocated && bytes->peak == model->allocated_peak);
  EXPECT(bytes->allocated == model->allocated_total && bytes->allocated - bytes->freed == bytes->current);
  EXPECT(stats.reserved_bytes[DIT_POOL_ALL].current == (int64_t)model->device.used);
  EXPECT(stats.segment[DIT_POOL_ALL].current == model->device.segment_count);
  EXPECT(stats.num_device_alloc == model->device.allocs && stats.num_device_free == model->device.frees);
  EXPECT(stats.num_ooms == model->ooms);
  return true;
}

static bool run_alloc(struct model *model, const struct step *step) {
  struct dit_error err = {0};
  struct live block = {.requested = choose_size(step->a), .stream = (int64_t)(step->b % STREAMS)};
  void *ptr = NULL, *base;
  int number;
  if (model->live_count == MAX_LIVE) {
    return true;
  }
  enum dit_status status = dit_allocator_alloc(model->allocator, block.stream, block.requested, &ptr, &err);
  if (status != DIT_OK) {
    EXPECT(status == DIT_ERR_NOMEM && !ptr);
    if (strncmp(err.message, "host memory", 11) == 0) {
      EXPECT(model->injecting);
      return true;
    }
    EXPECT(strncmp(err.message, "CUDA out of memory. Tried to allocate ", 38) == 0);
    model->ooms++;
    return model->injecting || check_snapshot(model, true);
  }
  block.ptr = ptr;
  EXPECT(dit_allocator_find(block.ptr + block.requested - 1, &base, &block.size, &number) && base == ptr &&
         number == 0);
  if (!check_new_block(model, &block)) {
    return false;
  }
  model->live[model->live_count++] = block;
  model->allocated += (int64_t)block.size;
  model->allocated_total += (int64_t)block.size;
  model->allocations_total++;
  model->allocated_peak = model->allocated > model->allocated_peak ? model->allocated : model->allocated_peak;
  fake_queue_work(&model->device, block.ptr, block.requested, block.stream);
  return true;
}

static bool run_free(struct model *model, uint64_t choice) {
  if (model->live_count > 0) {
    int index = (int)(choice % (uint64_t)model->live_count);
    struct live block = model->live[index];
    model->live[index] = model->live[--model->live_count];
    model->allocated -= (int64_t)block.size;
    EXPECT(dit_allocator_free(block.ptr));
    EXPECT(!dit_allocator_free(block.ptr));
  }
  return true;
}

static bool run_use(struct model *model, const struct step *step) {
  if (model->live_count > 0) {
    struct live *block = &model->live[step->a % (uint64_t)model->live_count];
    int64_t stream = (int64_t)(step->b % STREAMS);
    enum dit_status status = dit_allocator_record_stream(block->ptr + step->b / 8 % block->size, stream, NULL);
    EXPECT(status == DIT_OK || (model->injecting && status == DIT_ERR_NOMEM));
    if (status == DIT_OK) {
      fake_queue_work(&model->device, block->ptr, block->size, stream);
    }
  }
  return true;
}

static bool run_configure(struct model *model, uint64_t choice) {
  struct dit_allocator_config config;
  const char *text = only_config ? only_config : configs[choice % (sizeof(configs) / sizeof(configs[0]))];
  EXPECT(dit_allocator_config_parse(text, &config, NULL) == DIT_OK);
  config.max_extend = 32 * MIB;
  config.max_pending = 8;
  config.adaptable = only_config && choice % 2 == 1;
  dit_allocator_set_config(model->allocator, &config);
  return true;
}

static bool run_step(struct model *model, const struct step *step) {
  switch (step->kind) {
    case STEP_ALLOC:
      return run_alloc(model, step);
    case STEP_FREE:
      return run_free(model, step->a);
    case STEP_USE:
      return run_use(model, step);
    case STEP_COMPLETE:
      fake_complete(&model->device, (int64_t)(step->a % STREAMS), 1 + step->b % 20);
      return true;
    case STEP_EMPTY:
      EXPECT(dit_allocator_empty_cache(model->allocator, NULL) == DIT_OK);
      return model->injecting || check_snapshot(model, true);
    case STEP_CONFIGURE:
      return run_configure(model, step->a);
    case STEP_RESET_PEAK:
      dit_allocator_reset_peak(model->allocator);
      model->allocated_peak = model->allocated;
      return true;
    default:
      dit_allocator_set_fraction(model->allocator, step->a % 2 ? 1.0 : 0.4);
      return true;
  }
}

static bool finish_program(struct model *model) {
  while (model->live_count > 0) {
    if (!run_free(model, 0)) {
      return false;
    }
  }
  EXPECT(dit_allocator_empty_cache(model->allocator, NULL) == DIT_OK);
  EXPECT(model->device.used == 0);
  return check_model(model);
}

/// Runs the program; when `fail_at` >= 0 host allocations fail from that one on: until the steps are done, or only in
/// the step that meets the first failure (recover).
static bool recover;
static bool run_program(const struct step *steps, int count, int64_t fail_at, struct model *model) {
  struct dit_error err = {0};
  memset(model, 0, sizeof(*model));
  fake_device_init(&model->device, 192 * MIB, (uintptr_t)1 << 40);
  CHECK_OK(dit_allocator_create(0, &fake_vtable, &model->device, &model->allocator, &err));
  CHECK(!only_config || run_configure(model, 0));
  model->injecting = fail_at >= 0;
  int64_t first_failure = dit_alloc_get_count() + fail_at;
  dit_alloc_set_failure(fail_at);
  bool passed = true;
  int at = 0;
  for (; passed && at < count; at++) {
    passed = run_step(model, &steps[at]) && check_model(model);
    if (recover && model->injecting && dit_alloc_get_count() > first_failure) {
      dit_alloc_set_failure(-1);
      model->injecting = false;
    }
  }
  dit_alloc_set_failure(-1);
  model->injecting = false;
  passed = passed && check_snapshot(model, false) && finish_program(model);
  dit_allocator_destroy(model->allocator);
  if (passed && (model->device.events != 0 || model->device.complaint[0])) {
    snprintf(model->failure, sizeof(model->failure), "after destroy: %d events, %s", model->device.events,
             model->device.complaint);
    passed = false;
  }
  return passed;
}

/// Leave out ever smaller runs of steps as long as the program still fails.
static int shrink(struct step *steps, int count, int64_t fail_at, struct model *model) {
  static struct step trial[MAX_STEPS];
  for (int chunk = count / 2; chunk > 0; chunk = chunk > 1 && chunk / 2 == 0 ? 1 : chunk / 2) {
    for (int from = 0; from < count;) {
      int length = from + chunk > count ? count - from : chunk;
      memcpy(trial, steps, sizeof(*trial) * (size_t)from);
      memcpy(trial + from, steps + from + length, sizeof(*trial) * (size_t)(count - from - length));
      if (!run_program(trial, count - length, fail_at, model)) {
        count -= length;
        memcpy(steps, trial, sizeof(*trial) * (size_t)count);
      } else {
        from += length;
      }
    }
  }
  run_program(steps, count, fail_at, model);
  return count;
}

static void report(uint64_t seed, struct step *steps, int count, int64_t fail_at, struct model *model) {
  fprintf(stderr, "seed %llu, %d steps, failing host allocation %lld: %s\n", (unsigned long long)seed, count,
          (long long)fail_at, model->failure);
  count = shrink(steps, count, fail_at, model);
  fprintf(stderr, "smallest failing program, %d steps: %s\n", count, model->failure);
  for (int i = 0; i < count; i++) {
    const struct step *step = &steps[i];
    switch (step->kind) {
      case STEP_ALLOC:
        fprintf(stderr, "  alloc %zu on stream %d\n", choose_size(step->a), (int)(step->b % STREAMS));
        break;
      case STEP_CONFIGURE:
        fprintf(stderr, "  configure \"%s\"\n", configs[step->a % (sizeof(configs) / sizeof(configs[0]))]);
        break;
      default:
        fprintf(stderr, "  %s %llu %llu\n", step_names[step->kind], (unsigned long long)step->a,
                (unsigned long long)step->b);
    }
  }
  exit(1);
}

/// Small raw allocations without a free: every one takes metadata, so that each kind runs out at each place.
static void generate_raw(uint64_t seed, struct step *steps, int count) {
  uint64_t state = seed;
  steps[0] = (struct step){.kind = STEP_CONFIGURE, .a = 6};
  for (int i = 1; i < count; i++) {
    steps[i] = (struct step){.kind = STEP_ALLOC, .a = next_random(&state) / 8 * 8, .b = next_random(&state)};
  }
}

static void run_failures(uint64_t seed, struct step *steps, bool raw, bool once, struct model *model) {
  int64_t live = dit_alloc_get_live(), failing = 0, allocations = 1;
  int count = raw ? 100 : 200;
  recover = once;
  for (; failing < allocations; failing++) {
    if (raw) {
      generate_raw(seed, steps, count);
    } else {
      generate(seed, steps, count);
    }
    int64_t before = dit_alloc_get_count();
    if (!run_program(steps, count, failing, model)) {
      report(seed, steps, count, failing, model);
    }
    allocations = dit_alloc_get_count() - before;
    CHECK(dit_alloc_get_live() == live);
  }
  printf("ok   %s program with each of %lld host allocations failing %s\n", raw ? "raw" : "random", (long long)failing,
         once ? "once" : "for good");
}

int main(int argc, char **argv) {
  static struct step steps[MAX_STEPS];
  static struct model model;
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20240607;
  int programs = argc > 2 ? atoi(argv[2]) : 12, length = argc > 3 ? atoi(argv[3]) : 1000;
  CHECK(length <= MAX_STEPS);
  printf("seed %llu, %d programs of %d steps\n", (unsigned long long)seed, programs, length);
  for (int i = 0; i < programs; i++) {
    generate(seed + (uint64_t)i, steps, length);
    if (!run_program(steps, length, -1, &model)) {
      report(seed + (uint64_t)i, steps, length, -1, &model);
    }
  }
  printf("ok   random programs\n");
  static const char *const fixed[] = {"backend:native", "backend:bf", "backend:bs", "backend:raw"};
  for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
    only_config = fixed[i];
    for (int j = 0; j < (programs + 3) / 4; j++) {
      generate(seed + 1000 + (uint64_t)j, steps, length);
      if (!run_program(steps, length, -1, &model)) {
        report(seed + 1000 + (uint64_t)j, steps, length, -1, &model);
      }
    }
    printf("ok   random programs with %s alone\n", only_config);
  }
  only_config = NULL;
  for (int pass = 0; pass < 4; pass++) {
    run_failures(seed, steps, pass / 2 == 1, pass % 2 == 1, &model);
  }
  return 0;
}
