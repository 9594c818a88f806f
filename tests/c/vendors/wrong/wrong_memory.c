/// Defects of device memory and pinned memory.
#include <stdlib.h>
#include <time.h>

#include "wrong.h"

enum { SHIFT = 64 };

static enum dit_status shifted_alloc(int device, size_t size, void **ptr, struct dit_error *err) {
  void *base = NULL;
  if (size > SIZE_MAX - SHIFT) {
    return wrong_base->memory_alloc(device, size, ptr, err);
  }
  DIT_RETURN_IF_NOT_OK(wrong_base->memory_alloc(device, size + SHIFT, &base, err));
  *ptr = (char *)base + SHIFT;
  return DIT_OK;
}

static enum dit_status shifted_free(int device, void *ptr, struct dit_error *err) {
  return wrong_base->memory_free(device, ptr ? (char *)ptr - SHIFT : NULL, err);
}

static void alloc_misaligned(void) {
  REPLACE(memory_alloc, shifted_alloc);
  REPLACE(memory_free, shifted_free);
}

static enum dit_status half_alloc(int device, size_t size, void **ptr, struct dit_error *err) {
  return wrong_base->memory_alloc(device, size > 1 ? size / 2 : size, ptr, err);
}

static void alloc_overlaps(void) {
  REPLACE(memory_alloc, half_alloc);
}

static enum dit_status device_error(int device, size_t size, void **ptr, struct dit_error *err) {
  const enum dit_status status = wrong_base->memory_alloc(device, size, ptr, err);
  return status == DIT_ERR_NOMEM ? dit_error_set(err, DIT_ERR_DEVICE, "error 2") : status;
}

static void nomem_as_device(void) {
  REPLACE(memory_alloc, device_error);
}

static enum dit_status odd_status(int device, size_t size, void **ptr, struct dit_error *err) {
  const enum dit_status status = wrong_base->memory_alloc(device, size, ptr, err);
  return status == DIT_ERR_NOMEM ? (enum dit_status)77 : status;
}

static void nomem_as_number(void) {
  REPLACE(memory_alloc, odd_status);
}

static enum dit_status clear_output(int device, size_t size, void **ptr, struct dit_error *err) {
  *ptr = NULL;
  return wrong_base->memory_alloc(device, size, ptr, err);
}

static void nomem_touches(void) {
  REPLACE(memory_alloc, clear_output);
}

static enum dit_status without_text(int device, size_t size, void **ptr, struct dit_error *err) {
  (void)err;
  return wrong_base->memory_alloc(device, size, ptr, NULL);
}

static void nomem_silent(void) {
  REPLACE(memory_alloc, without_text);
}

static enum dit_status endless_text(int device, size_t size, void **ptr, struct dit_error *err) {
  const enum dit_status status = wrong_base->memory_alloc(device, size, ptr, err);
  if (status != DIT_OK && err) {
    memset(err->message, 'e', sizeof err->message);
  }
  return status;
}

static void nomem_endless(void) {
  REPLACE(memory_alloc, endless_text);
}

static enum dit_status needs_error(int device, size_t size, void **ptr, struct dit_error *err) {
  const enum dit_status status = wrong_base->memory_alloc(device, size, ptr, err);
  if (status != DIT_OK) {
    *(volatile char *)&err->message[0] = 'n';
  }
  return status;
}

static void needs_error_struct(void) {
  REPLACE(memory_alloc, needs_error);
}

static enum dit_status refuse_zero(int device, size_t size, void **ptr, struct dit_error *err) {
  return size == 0 ? dit_error_set(err, DIT_ERR_INVALID, "0 bytes") : wrong_base->memory_alloc(device, size, ptr, err);
}

static void zero_refused(void) {
  REPLACE(memory_alloc, refuse_zero);
}

static atomic_int inside;

/// Two threads at once: one of them is turned away.
static enum dit_status lonely_alloc(int device, size_t size, void **ptr, struct dit_error *err) {
  const struct timespec pause = {.tv_nsec = 20000};
  enum dit_status status = DIT_OK;
  if (atomic_fetch_add(&inside, 1) > 0) {
    status = dit_error_set(err, DIT_ERR_DEVICE, "the driver is busy");
  } else {
    nanosleep(&pause, NULL);
    status = wrong_base->memory_alloc(device, size, ptr, err);
  }
  atomic_fetch_sub(&inside, 1);
  return status;
}

static void alloc_one_thread(void) {
  REPLACE(memory_alloc, lonely_alloc);
}

static enum dit_status keep(int device, void *ptr, struct dit_error *err) {
  (void)device;
  (void)ptr;
  (void)err;
  return DIT_OK;
}

static void free_leaks(void) {
  REPLACE(memory_free, keep);
}

static enum dit_status abort_free(int device, void *ptr, struct dit_error *err) {
  const enum dit_status status = wrong_base->memory_free(device, ptr, err);
  if (status != DIT_OK) {
    abort();
  }
  return status;
}

static void free_aborts(void) {
  REPLACE(memory_free, abort_free);
}

static enum dit_status free_something(int device, void *ptr, struct dit_error *err) {
  return ptr ? wrong_base->memory_free(device, ptr, err) : dit_error_set(err, DIT_ERR_INVALID, "NULL");
}

static void free_refuses_null(void) {
  REPLACE(memory_free, free_something);
}

// Pinned memory

static enum dit_status shifted_host(size_t size, void **ptr, struct dit_error *err) {
  void *base = NULL;
  if (size > SIZE_MAX - SHIFT) {
    return wrong_base->host_alloc(size, ptr, err);
  }
  DIT_RETURN_IF_NOT_OK(wrong_base->host_alloc(size + SHIFT, &base, err));
  *ptr = (char *)base + 16;
  return DIT_OK;
}

static enum dit_status shifted_host_free(void *ptr, struct dit_error *err) {
  return wrong_base->host_free(ptr ? (char *)ptr - 16 : NULL, err);
}

static void host_misaligned(void) {
  REPLACE(host_alloc, shifted_host);
  REPLACE(host_free, shifted_host_free);
}

static enum dit_status hopeful_host(size_t size, void **ptr, struct dit_error *err) {
  if (wrong_base->host_alloc(size, ptr, err) != DIT_OK) {
    *ptr = NULL;
  }
  return DIT_OK;
}

static void host_never_fails(void) {
  REPLACE(host_alloc, hopeful_host);
}

static enum dit_status abort_host_free(void *ptr, struct dit_error *err) {
  const enum dit_status status = wrong_base->host_free(ptr, err);
  if (status != DIT_OK) {
    abort();
  }
  return status;
}

static void host_free_aborts(void) {
  REPLACE(host_free, abort_host_free);
}

static enum dit_status register_once(void *ptr, size_t size, struct dit_error *err) {
  static atomic_int calls;
  return atomic_fetch_add(&calls, 1) > 0 ? dit_error_set(err, DIT_ERR_DEVICE, "already registered")
                                         : wrong_base->host_register(ptr, size, err);
}

static void register_only_once(void) {
  REPLACE(host_register, register_once);
}

static enum dit_status refuse_unregister(void *ptr, struct dit_error *err) {
  return dit_error_set(err, DIT_ERR_INVALID, "%p is in use", ptr);
}

static void unregister_refuses(void) {
  REPLACE(host_unregister, refuse_unregister);
}

const struct wrong_defect wrong_memory_defects[] = {
    {"alloc_misaligned", alloc_misaligned},
    {"alloc_overlaps", alloc_overlaps},
    {"nomem_as_device", nomem_as_device},
    {"nomem_as_number", nomem_as_number},
    {"nomem_touches", nomem_touches},
    {"nomem_silent", nomem_silent},
    {"nomem_endless", nomem_endless},
    {"needs_error_struct", needs_error_struct},
    {"zero_refused", zero_refused},
    {"alloc_one_thread", alloc_one_thread},
    {"free_leaks", free_leaks},
    {"free_aborts", free_aborts},
    {"free_refuses_null", free_refuses_null},
    {"host_misaligned", host_misaligned},
    {"host_never_fails", host_never_fails},
    {"host_free_aborts", host_free_aborts},
    {"register_only_once", register_only_once},
    {"unregister_refuses", unregister_refuses},
    {NULL, NULL},
};
