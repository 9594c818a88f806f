// Which argument a function of torch.distributed writes to.
//
// Version counters do not tell: c10d writes behind autograd's back. The list is sorted (strcmp) and searched by halves.
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

// They write to their first argument: a tensor or a list of tensors.
static const char *const receivers[] = {
    "_all_gather_base",
    "_reduce_scatter_base",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "irecv",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
};

static int text_compare(const void *key, const void *entry) {
  return strcmp(key, *(const char *const *)entry);
}

int engine_collective_get_target(const char *name) {
  static const char prefix[] = "torch.distributed.";
  if (strncmp(name, prefix, sizeof prefix - 1) != 0) {
    return -1;
  }
  const char *last = strrchr(name, '.') + 1;
  if (strcmp(last, "gather") == 0) {
    return 1;
  }
  return bsearch(last, receivers, sizeof receivers / sizeof *receivers, sizeof *receivers, text_compare) ? 0 : -1;
}
