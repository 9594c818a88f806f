/// Queues of the opaque device: each piece of work runs later, on the stream's own thread; its failure is remembered.
///
/// Invariant: after a device's first failure none of its work runs any more, events still complete, and every call that
/// looks at the device reports that failure until the device is reset. The loops of vendors/host, which operators queue
/// by themselves, are held back by the queue's owner. Depends on vendors/host's stream.c, mishap.c.
#include <pthread.h>
#include <string.h>

#include "dit/alloc.h"
#include "opaque.h"

static struct device {
  void *queue;  ///< the default stream
  pthread_mutex_t lock;
  bool failed;
  struct dit_error error;
  struct dit_host_stream_owner owner;
} devices[DIT_MAX_DEVICES];
static int device_count;

struct piece {
  int device;
  const char *name;
  opaque_work *run;
  _Alignas(max_align_t) unsigned char arguments[];
};

static enum dit_status check(struct device *device, struct dit_error *err) {
  pthread_mutex_lock(&device->lock);
  enum dit_status status = DIT_OK;
  if (device->failed) {
    status = dit_error_set(err, DIT_ERR_DEVICE, "%s", device->error.message);
  }
  pthread_mutex_unlock(&device->lock);
  return status;
}

/// `name` NULL: the text says what failed.
static void fail(struct device *device, const char *name, const char *text) {
  pthread_mutex_lock(&device->lock);
  if (!device->failed) {
    device->failed = true;
    (void)dit_error_set(&device->error, DIT_ERR_DEVICE, "opaque device %d: %s%s%s", (int)(device - devices),
                        name ? name : "", name ? " failed: " : "", text);
  }
  pthread_mutex_unlock(&device->lock);
}

static enum dit_status check_owner(void *context, struct dit_error *err) {
  return check(context, err);
}

static void fail_owner(void *context, const char *text) {
  fail(context, NULL, text);
}

enum dit_status opaque_queue_create(int device, int priority, void **queue, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_host_get_device()->stream_create(device, priority, queue, err));
  dit_host_stream_set_owner(*queue, &devices[device].owner);
  return DIT_OK;
}

enum dit_status opaque_work_init(int count, struct dit_error *err) {
  for (; device_count < count; device_count++) {
    struct device *device = &devices[device_count];
    pthread_mutex_init(&device->lock, NULL);
    device->failed = false;
    device->owner = (struct dit_host_stream_owner){check_owner, fail_owner, device};
    DIT_RETURN_IF_NOT_OK(opaque_queue_create(device_count, 0, &device->queue, err));
  }
  return DIT_OK;
}

void opaque_work_finalize(void) {
  dit_host_stream_finalize();
  device_count = 0;
}

void *dit_opaque_get_queue(int device, void *stream) {
  return stream ? stream : devices[device].queue;
}

/// The queue has asked whether the device is well.
static void run_piece(void *arguments) {
  struct piece *piece = arguments;
  struct dit_error err = {0};
  if (!opaque_mishap_strike(&err) || !piece->run(piece->arguments, &err)) {
    fail(&devices[piece->device], piece->name, err.message);
  }
}

enum dit_status opaque_launch(int device, void *stream, const char *name, opaque_work *run, const void *arguments,
                              size_t size, struct dit_error *err) {
  DIT_RETURN_IF_NOT_OK(dit_opaque_check(device, err));
  struct piece *piece = dit_malloc(sizeof *piece + size);
  if (!piece) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no host memory to queue %s", name);
  }
  *piece = (struct piece){.device = device, .name = name, .run = run};
  if (size > 0) {
    memcpy(piece->arguments, arguments, size);
  }
  enum dit_status status =
      dit_host_stream_enqueue(dit_opaque_get_queue(device, stream), run_piece, piece, sizeof *piece + size, err);
  dit_free(piece);
  return status;
}

static bool run_nothing(void *arguments, struct dit_error *err) {
  (void)arguments;
  (void)err;
  return true;
}

enum dit_status dit_opaque_strike(int device, void *stream, const char *name, struct dit_error *err) {
  return opaque_mishap_is_asked() ? opaque_launch(device, stream, name, run_nothing, NULL, 0, err)
                                  : dit_opaque_check(device, err);
}

enum dit_status dit_opaque_check(int device, struct dit_error *err) {
  return check(&devices[device], err);
}

enum dit_status opaque_reset(int device, struct dit_error *err) {
  struct dit_error ignored = {0};
  enum dit_status status = dit_host_get_device()->synchronize(device, &ignored);
  (void)status;  // a device that failed says so, and is done all the same
  (void)err;
  pthread_mutex_lock(&devices[device].lock);
  devices[device].failed = false;
  pthread_mutex_unlock(&devices[device].lock);
  return DIT_OK;
}
