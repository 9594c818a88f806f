/// What the files of src/helper share.
#ifndef DIT_HELPER_INTERNAL_H
#define DIT_HELPER_INTERNAL_H

#include "dit/helper.h"

extern const struct dit_helper_vtable helper_host;

// host_event.c

enum dit_status helper_event_create(int device, void **event, struct dit_error *err);
void helper_event_destroy(void *event);
enum dit_status helper_event_record(void *event, void *stream, struct dit_error *err);
enum dit_status helper_event_query(void *event, bool *passed, struct dit_error *err);
enum dit_status helper_event_wait(void *event, struct dit_error *err);
enum dit_status helper_event_get_elapsed(void *start, void *end, double *milliseconds, struct dit_error *err);

#endif
