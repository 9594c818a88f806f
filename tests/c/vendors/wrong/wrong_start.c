/// Defects of the table, of init and count, of properties, of memory between processes and of ends.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "wrong.h"

static void nothing(void) {}

// The table

static void null_required(void) {
  REPLACE(memory_free, NULL);
}

static void null_two(void) {
  REPLACE(copy_async, NULL);
  REPLACE(event_record, NULL);
}

static void old_abi(void) {
  wrong_table.abi_version = 0;
}

static void new_abi(void) {
  wrong_table.abi_version = DIT_DEVICE_ABI_VERSION + 1;
}

static void small_struct(void) {
  wrong_table.struct_size = 64;
}

static void odd_struct(void) {
  wrong_table.struct_size = sizeof wrong_table - 3;
}

static void bad_name(void) {
  wrong_table.name = "My Chip!";
}

static void null_name(void) {
  wrong_table.name = NULL;
}

static void null_version(void) {
  wrong_table.version = NULL;
}

static void half_share(void) {
  REPLACE(memory_import, NULL);
}

static void half_register(void) {
  REPLACE(host_unregister, NULL);
}

static void half_collectives(void) {
  static const struct dit_collective_vtable table = {.struct_size = sizeof table};
  wrong_table.collectives = &table;
}

// init and count

static atomic_bool started;

static enum dit_status note_init(struct dit_error *err) {
  atomic_store(&started, true);
  return wrong_base->init(err);
}

static enum dit_status count_needs_init(int *count, struct dit_error *err) {
  return atomic_load(&started) ? wrong_base->count(count, err) : dit_error_set(err, DIT_ERR_DEVICE, "not initialised");
}

static void count_early(void) {
  REPLACE(init, note_init);
  REPLACE(count, count_needs_init);
}

static enum dit_status count_one_less(int *count, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(wrong_base->count(count, err));
  *count -= atomic_load(&started) ? 0 : 1;
  return DIT_OK;
}

static void count_changes(void) {
  REPLACE(init, note_init);
  REPLACE(count, count_one_less);
}

static enum dit_status count_minus(int *count, struct dit_error *err) {
  (void)err;
  *count = -3;
  return DIT_OK;
}

static void count_negative(void) {
  REPLACE(count, count_minus);
}

static enum dit_status count_zero(int *count, struct dit_error *err) {
  (void)err;
  *count = 0;
  return DIT_OK;
}

static void no_devices(void) {
  REPLACE(count, count_zero);
}

static enum dit_status fail_init(struct dit_error *err) {
  return dit_error_set(err, DIT_ERR_DEVICE, "the driver is not loaded");
}

static void init_fails(void) {
  REPLACE(init, fail_init);
}

static enum dit_status hang_init(struct dit_error *err) {
  (void)err;
  for (;;) {
    sleep(1);
  }
  return DIT_OK;
}

static void init_hangs(void) {
  REPLACE(init, hang_init);
}

static enum dit_status crash_init(struct dit_error *err) {
  (void)err;
  abort();
}

static void init_crashes(void) {
  REPLACE(init, crash_init);
}

static enum dit_status exit_init(struct dit_error *err) {
  (void)err;
  exit(7);
}

static void init_exits(void) {
  REPLACE(init, exit_init);
}

static enum dit_status print_init(struct dit_error *err) {
  printf("My Chip runtime 1.2\n");
  return wrong_base->init(err);
}

static void init_prints(void) {
  REPLACE(init, print_init);
}

// What the device says about itself

static void describe_much(char *text, size_t size) {
  memset(text, 'x', size + 1);
}

static void describe_overrun(void) {
  REPLACE(describe, describe_much);
}

static enum dit_status keep_version(int *version, struct dit_error *err) {
  (void)version;
  (void)err;
  return DIT_OK;
}

static void version_unset(void) {
  REPLACE(get_driver_version, keep_version);
}

static enum dit_status forget_warp(int device, struct dit_device_properties *out, struct dit_error *err) {
  const int32_t before = out->warp_size;
  DIT_RETURN_IF_NOT_OK(wrong_base->get_properties(device, out, err));
  out->warp_size = before;
  return DIT_OK;
}

static void properties_unset(void) {
  REPLACE(get_properties, forget_warp);
}

static enum dit_status name_without_end(int device, struct dit_device_properties *out, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(wrong_base->get_properties(device, out, err));
  memset(out->name, 'x', sizeof out->name);
  return DIT_OK;
}

static void properties_unterminated(void) {
  REPLACE(get_properties, name_without_end);
}

static enum dit_status one_uuid(int device, struct dit_device_properties *out, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(wrong_base->get_properties(device, out, err));
  snprintf(out->uuid, sizeof out->uuid, "00000000-0000-0000-0000-000000000001");
  return DIT_OK;
}

static void same_uuid(void) {
  REPLACE(get_properties, one_uuid);
}

static enum dit_status claim_access(int device, struct dit_device_properties *out, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(wrong_base->get_properties(device, out, err));
  out->host_accessible = true;
  return DIT_OK;
}

static void claims_access(void) {
  REPLACE(get_properties, claim_access);
}

static enum dit_status swap_memory(int device, struct dit_device_memory *out, struct dit_error *err) {
  struct dit_device_memory memory;
  DIT_RETURN_IF_NOT_OK(wrong_base->get_memory(device, &memory, err));
  *out = (struct dit_device_memory){.free = memory.total, .total = memory.free / 4};
  return DIT_OK;
}

static void memory_swapped(void) {
  REPLACE(get_memory, swap_memory);
}

static enum dit_status refuse_bind(int device, struct dit_error *err) {
  return device == 0 ? DIT_OK : dit_error_set(err, DIT_ERR_DEVICE, "one device per process");
}

static void bind_refuses(void) {
  REPLACE(bind_thread, refuse_bind);
}

static enum dit_status always_error(int device, struct dit_error *err) {
  return dit_error_set(err, DIT_ERR_DEVICE, "device %d: unspecified launch failure", device);
}

static void last_error_stays(void) {
  REPLACE(check_last_error, always_error);
}

// Memory between processes

static enum dit_status count_export(int device, const void *ptr, struct dit_memory_handle *handle, void **base,
                                    struct dit_error *err) {
  static atomic_int exports;
  DIT_RETURN_IF_NOT_OK(wrong_base->memory_export(device, ptr, handle, base, err));
  handle->bytes[DIT_MEMORY_HANDLE_SIZE - 1] = (uint8_t)atomic_fetch_add(&exports, 1);
  return DIT_OK;
}

static void export_counts(void) {
  REPLACE(memory_export, count_export);
}

static enum dit_status any_export(int device, const void *ptr, struct dit_memory_handle *handle, void **base,
                                  struct dit_error *err) {
  if (wrong_base->memory_export(device, ptr, handle, base, err) != DIT_OK) {
    memset(handle, 0, sizeof *handle);
  }
  return DIT_OK;
}

static void export_anything(void) {
  REPLACE(memory_export, any_export);
}

static void *copied;

/// A copy of the other process's memory instead of the memory.
static enum dit_status copy_import(int device, const struct dit_memory_handle *handle, void **base, size_t *size,
                                   struct dit_error *err) {
  void *mapped, *own;
  size_t length;
  DIT_RETURN_IF_NOT_OK(wrong_base->memory_import(device, handle, &mapped, &length, err));
  DIT_RETURN_IF_NOT_OK(wrong_base->memory_alloc(device, length, &own, err));
  const struct dit_copy copy = {own, mapped, length, DIT_COPY_DEVICE_TO_DEVICE, device, device};
  DIT_RETURN_IF_NOT_OK(wrong_base->copy(&copy, err));
  copied = mapped;
  *base = own;
  *size = length;
  return DIT_OK;
}

static enum dit_status copy_close(int device, void *base, size_t size, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(wrong_base->memory_free(device, base, err));
  return wrong_base->memory_close(device, copied, size, err);
}

static void import_copies(void) {
  REPLACE(memory_import, copy_import);
  REPLACE(memory_close, copy_close);
}

static enum dit_status trust_import(int device, const struct dit_memory_handle *handle, void **base, size_t *size,
                                    struct dit_error *err) {
  if (wrong_base->memory_import(device, handle, base, size, err) != DIT_OK) {
    *base = NULL;
    *size = 0;
  }
  return DIT_OK;
}

static void import_anything(void) {
  REPLACE(memory_import, trust_import);
}

static enum dit_status refuse_close(int device, void *base, size_t size, struct dit_error *err) {
  (void)device;
  return dit_error_set(err, DIT_ERR_INVALID, "%p of %zu bytes is not known", base, size);
}

static void close_refuses(void) {
  REPLACE(memory_close, refuse_close);
}

// Ends

static atomic_bool finalized;

static void note_finalize(void) {
  atomic_store(&finalized, true);
  wrong_base->finalize();
}

static enum dit_status init_once(struct dit_error *err) {
  return atomic_load(&finalized) ? dit_error_set(err, DIT_ERR_DEVICE, "the driver was shut down")
                                 : wrong_base->init(err);
}

static void finalize_for_ever(void) {
  REPLACE(finalize, note_finalize);
  REPLACE(init, init_once);
}

static atomic_bool was_reset;

static enum dit_status note_reset(int device, struct dit_error *err) {
  (void)device;
  (void)err;
  atomic_store(&was_reset, true);
  return DIT_OK;
}

static enum dit_status alloc_before_reset(int device, size_t size, void **ptr, struct dit_error *err) {
  return atomic_load(&was_reset) ? dit_error_set(err, DIT_ERR_DEVICE, "device %d has no context", device)
                                 : wrong_base->memory_alloc(device, size, ptr, err);
}

static void reset_for_ever(void) {
  REPLACE(reset, note_reset);
  REPLACE(memory_alloc, alloc_before_reset);
}

static void drain_at_exit(void) {
  struct dit_error err;
  (void)!wrong_base->synchronize(0, &err);
}

static enum dit_status init_with_exit(struct dit_error *err) {
  atexit(drain_at_exit);
  return wrong_base->init(err);
}

static void exit_waits(void) {
  REPLACE(init, init_with_exit);
}

const struct wrong_defect wrong_start_defects[] = {
    {"null_required", null_required},
    {"null_two", null_two},
    {"old_abi", old_abi},
    {"new_abi", new_abi},
    {"small_struct", small_struct},
    {"odd_struct", odd_struct},
    {"bad_name", bad_name},
    {"null_name", null_name},
    {"null_version", null_version},
    {"half_share", half_share},
    {"half_register", half_register},
    {"half_collectives", half_collectives},
    {"old_kernels", nothing},  // see dit_vendor_get_kernels
    {"count_early", count_early},
    {"count_changes", count_changes},
    {"count_negative", count_negative},
    {"no_devices", no_devices},
    {"init_fails", init_fails},
    {"init_hangs", init_hangs},
    {"init_crashes", init_crashes},
    {"init_exits", init_exits},
    {"init_prints", init_prints},
    {"describe_overrun", describe_overrun},
    {"version_unset", version_unset},
    {"properties_unset", properties_unset},
    {"properties_unterminated", properties_unterminated},
    {"same_uuid", same_uuid},
    {"claims_access", claims_access},
    {"memory_swapped", memory_swapped},
    {"bind_refuses", bind_refuses},
    {"last_error_stays", last_error_stays},
    {"export_counts", export_counts},
    {"export_anything", export_anything},
    {"import_copies", import_copies},
    {"import_anything", import_anything},
    {"close_refuses", close_refuses},
    {"finalize_for_ever", finalize_for_ever},
    {"reset_for_ever", reset_for_ever},
    {"exit_waits", exit_waits},
    {NULL, NULL},
};
