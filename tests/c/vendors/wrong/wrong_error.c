/// The vendor "errors": any function can be told to fail, with any status, with or without a message.
#include "wrong.h"

static const char *failing;  ///< name of the slot
static int failure;          ///< its status
static bool silent;
static int hits;

/// From now on this slot answers so; NULL: none does. Returns how often the one before was called.
DIT_API int dit_wrong_fail(const char *slot, int status, bool without_text);
int dit_wrong_fail(const char *slot, int status, bool without_text) {
  const int before = hits;
  failing = slot;
  failure = status;
  silent = without_text;
  hits = 0;
  return before;
}

static bool strikes(const char *slot, struct dit_error *err) {
  if (!failing || strcmp(failing, slot) != 0) {
    return false;
  }
  hits++;
  if (!silent) {
    (void)dit_error_set(err, (enum dit_status)failure, "the driver refuses %s", slot);
  }
  return true;
}

#define ERR struct dit_error *err
#define SLOT(slot, parameters, arguments)                                               \
  static enum dit_status fail_##slot parameters {                                       \
    return strikes(#slot, err) ? (enum dit_status)failure : wrong_base->slot arguments; \
  }

SLOT(init, (ERR), (err))
SLOT(count, (int *count, ERR), (count, err))
SLOT(get_properties, (int d, struct dit_device_properties *out, ERR), (d, out, err))
SLOT(get_memory, (int d, struct dit_device_memory *out, ERR), (d, out, err))
SLOT(synchronize, (int d, ERR), (d, err))
SLOT(memory_alloc, (int d, size_t size, void **ptr, ERR), (d, size, ptr, err))
SLOT(memory_free, (int d, void *ptr, ERR), (d, ptr, err))
SLOT(memory_set, (int d, void *s, void *ptr, int value, size_t size, ERR), (d, s, ptr, value, size, err))
SLOT(host_alloc, (size_t size, void **ptr, ERR), (size, ptr, err))
SLOT(host_free, (void *ptr, ERR), (ptr, err))
SLOT(host_register, (void *ptr, size_t size, ERR), (ptr, size, err))
SLOT(host_unregister, (void *ptr, ERR), (ptr, err))
SLOT(copy, (const struct dit_copy *copy, ERR), (copy, err))
SLOT(copy_async, (const struct dit_copy *copy, int d, void *s, ERR), (copy, d, s, err))
SLOT(stream_create, (int d, int priority, void **s, ERR), (d, priority, s, err))
SLOT(stream_destroy, (int d, void *s, ERR), (d, s, err))
SLOT(stream_synchronize, (int d, void *s, ERR), (d, s, err))
SLOT(stream_query, (int d, void *s, bool *idle, ERR), (d, s, idle, err))
SLOT(stream_wait_event, (int d, void *s, void *e, ERR), (d, s, e, err))
SLOT(stream_launch_host, (int d, void *s, void (*f)(void *), void *a, ERR), (d, s, f, a, err))
SLOT(event_create, (int d, unsigned flags, void **e, ERR), (d, flags, e, err))
SLOT(event_record, (int d, void *e, void *s, ERR), (d, e, s, err))
SLOT(event_query, (int d, void *e, bool *done, ERR), (d, e, done, err))
SLOT(event_synchronize, (int d, void *e, ERR), (d, e, err))
SLOT(event_get_elapsed, (int d, void *a, void *b, double *ms, ERR), (d, a, b, ms, err))
SLOT(memory_export, (int d, const void *p, struct dit_memory_handle *h, void **base, ERR), (d, p, h, base, err))

#define TAKE(slot) REPLACE(slot, fail_##slot)

static void errors(void) {
  TAKE(init), TAKE(count), TAKE(get_properties), TAKE(get_memory), TAKE(synchronize), TAKE(memory_alloc);
  TAKE(memory_free), TAKE(memory_set), TAKE(host_alloc), TAKE(host_free), TAKE(host_register), TAKE(host_unregister);
  TAKE(copy), TAKE(copy_async), TAKE(stream_create), TAKE(stream_destroy), TAKE(stream_synchronize);
  TAKE(stream_query), TAKE(stream_wait_event), TAKE(stream_launch_host), TAKE(event_create), TAKE(event_record);
  TAKE(event_query), TAKE(event_synchronize), TAKE(event_get_elapsed), TAKE(memory_export);
}

const struct wrong_defect wrong_error_defects[] = {{"errors", errors}, {NULL, NULL}};
