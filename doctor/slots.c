/// The slots of struct dit_device_vtable, in the order of the header.
#include <stddef.h>

#include "doctor.h"

#define REQUIRED(name) {#name, offsetof(struct dit_device_vtable, name), true}
#define OPTIONAL(name) {#name, offsetof(struct dit_device_vtable, name), false}

const struct slot_info slot_infos[] = {
    REQUIRED(init),
    OPTIONAL(finalize),
    OPTIONAL(get_driver_version),
    OPTIONAL(get_runtime_version),
    REQUIRED(count),
    REQUIRED(get_properties),
    REQUIRED(get_memory),
    OPTIONAL(bind_thread),
    OPTIONAL(reset),
    REQUIRED(synchronize),
    OPTIONAL(check_last_error),
    OPTIONAL(can_access_peer),
    REQUIRED(memory_alloc),
    REQUIRED(memory_free),
    REQUIRED(memory_set),
    REQUIRED(host_alloc),
    REQUIRED(host_free),
    OPTIONAL(host_register),
    OPTIONAL(host_unregister),
    REQUIRED(copy),
    REQUIRED(copy_async),
    REQUIRED(stream_create),
    REQUIRED(stream_destroy),
    REQUIRED(stream_synchronize),
    REQUIRED(stream_query),
    REQUIRED(stream_wait_event),
    REQUIRED(stream_launch_host),
    OPTIONAL(stream_get_priority_range),
    REQUIRED(event_create),
    REQUIRED(event_destroy),
    REQUIRED(event_record),
    REQUIRED(event_query),
    REQUIRED(event_synchronize),
    REQUIRED(event_get_elapsed),
    OPTIONAL(profiler_start),
    OPTIONAL(profiler_stop),
    OPTIONAL(collectives),
    OPTIONAL(describe),
    OPTIONAL(memory_export),
    OPTIONAL(memory_import),
    OPTIONAL(memory_close),
};
const size_t slot_count = sizeof slot_infos / sizeof slot_infos[0];

// Four words stand in front of the slots (versions, name, text), one behind them that is no function. A slot that the
// header gained and this list did not is an error here.
_Static_assert(sizeof slot_infos / sizeof slot_infos[0] ==
                   (offsetof(struct dit_device_vtable, counts_by_option) - offsetof(struct dit_device_vtable, init)) /
                       sizeof(void *),
               "every slot of the device table is listed");

bool slot_is_empty(const struct dit_device_vtable *table, size_t offset) {
  void (*function)(void);
  memcpy(&function, (const char *)table + offset, sizeof function);
  return function == NULL;
}

const struct slot_info *slot_find(const char *name) {
  for (size_t i = 0; i < slot_count; i++) {
    if (strcmp(slot_infos[i].name, name) == 0) {
      return &slot_infos[i];
    }
  }
  return NULL;
}
