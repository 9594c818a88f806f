/// libdit_cuda: the helper table "cuda" (contract in include/dit/helper.h).
///
/// Plain C that finds the CUDA driver at run time, so one binary loads on machines with and without it. Kernels are in
/// it when nvcc was there at build time; otherwise the slots for numbers are NULL and PyTorch's operators stand in.
#include <pthread.h>

#include "helper_cuda.h"

static struct dit_helper_vtable table = {
    .struct_size = sizeof(struct dit_helper_vtable),
    .version = DIT_HELPER_VERSION,
    .name = "cuda",
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .event_wait = cuda_event_wait,
    .event_get_elapsed = cuda_event_get_elapsed,
    .slots_create = cuda_slots_create,
    .slots_destroy = cuda_slots_destroy,
    .slots_read = cuda_slots_read,
    .staging_allocate = cuda_staging_allocate,
    .staging_free = cuda_staging_free,
    .copy_to_host = cuda_copy_to_host,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum dit_status loaded;
static struct dit_error failure;

static void load(void) {
  loaded = driver_load(&failure);
  if (loaded == DIT_OK && cuda_module_is_built()) {
    table.nonfinite = cuda_nonfinite;
    table.stats = cuda_stats;
    table.compare = cuda_compare;
    table.hash = cuda_hash;
    table.watch = cuda_watch;
    table.stats_if = cuda_stats_if;
    table.near = cuda_near;
    table.checksum = cuda_checksum;
  }
}

enum dit_status dit_cuda_get_helper(const struct dit_helper_vtable **helper, struct dit_error *err) {
  pthread_once(&once, load);
  if (loaded != DIT_OK) {
    return dit_error_set(err, loaded, "%s", failure.message);
  }
  *helper = &table;
  return DIT_OK;
}
