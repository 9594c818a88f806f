/// Arguments of a call from a case: places in memory, handles, values.
#include "call.h"

#include <string.h>

#include "dit/alloc.h"

static const int64_t no_sizes[1];

static size_t round_up(size_t size) {
  return (size + MACHINE_GUARD - 1) / MACHINE_GUARD * MACHINE_GUARD;
}

/// Storages one after the other, with a guard zone before the first, between them, and after the last.
static void place_storages(struct call *call) {
  size_t at = MACHINE_GUARD;
  for (int i = 0; i < call->item->storage_count; i++) {
    call->places[i] = at;
    at += round_up((size_t)call->item->storages[i].size) + MACHINE_GUARD;
  }
  call->size = at;
}

/// The storage behind a handle, for libraries that ask: its case's storage.
struct services {
  void *base;
  size_t size;
};

static void get_storage(const struct diopiTensor *tensor, void **base, size_t *size) {
  const struct services *services = tensor->services;
  *base = services->base;
  *size = services->size;
}

static void make_handle(struct diopiTensor *handle, const struct pack_tensor *tensor, struct services *services,
                        bool on_host) {
  struct dit_tensor_view *view = &handle->view;
  memset(handle, 0, sizeof *handle);
  view->data =
      tensor->numel ? (char *)services->base + (size_t)tensor->offset * dit_dtype_get_size(tensor->dtype) : NULL;
  view->sizes = tensor->ndim ? tensor->sizes : no_sizes;
  view->strides = tensor->ndim ? tensor->strides : no_sizes;
  view->numel = tensor->numel;
  view->storage = services->base;
  view->handle = handle;
  view->ndim = tensor->ndim;
  view->dtype = (int16_t)tensor->dtype;
  view->device_index = on_host ? -1 : 0;
  view->flags = on_host ? 0 : DIT_TENSOR_ON_DEVICE;
  view->flags |= dit_shape_is_contiguous(view->ndim, view->sizes, view->strides) ? DIT_TENSOR_CONTIGUOUS : 0;
  view->flags |= dit_shape_is_dense(view->ndim, view->sizes, view->strides) ? DIT_TENSOR_DENSE : 0;
  handle->get_storage = get_storage;
  handle->services = services;
}

static size_t count_memory(const struct pack_case *item) {
  size_t size = sizeof(struct services) * (size_t)(item->storage_count + 1);
  for (int i = 0; i < item->argument_count; i++) {
    size += 64 + 16 * (size_t)item->arguments[i].count + 8 * (size_t)item->arguments[i].count;
  }
  return size;
}

enum dit_status call_init(struct call *call, const struct pack_case *item, struct machine *machine,
                          struct dit_error *err) {
  memset(call, 0, sizeof *call);
  call->item = item;
  call->memory_size = count_memory(item);
  call->places = dit_calloc((size_t)item->storage_count + 1, sizeof *call->places);
  call->handles = dit_calloc((size_t)item->tensor_count + 1, sizeof *call->handles);
  call->values = dit_calloc((size_t)item->argument_count + 1, sizeof *call->values);
  call->memory = dit_calloc(1, call->memory_size);
  if (!call->places || !call->handles || !call->values || !call->memory) {
    call_reset(call);
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the arguments of %s", item->id);
  }
  place_storages(call);
  enum dit_status status = machine_reserve(machine, call->size, err);
  if (status != DIT_OK) {
    call_reset(call);
    return status;
  }
  struct services *services = (struct services *)call->memory;
  for (int i = 0; i < item->storage_count; i++) {
    services[i].base = machine_get_address(machine, item->storages[i].on_host, call->places[i]);
    services[i].size = (size_t)item->storages[i].size;
  }
  for (int i = 0; i < item->tensor_count; i++) {
    const struct pack_tensor *tensor = &item->tensors[i];
    if (tensor->storage != PACK_NONE) {
      make_handle(&call->handles[i], tensor, &services[tensor->storage], item->storages[tensor->storage].on_host);
    }
  }
  return DIT_OK;
}

void call_set_storage(struct call *call, uint32_t number, void *base, size_t size) {
  ((struct services *)call->memory)[number] = (struct services){base, size};
}

void call_reset(struct call *call) {
  dit_free(call->places);
  dit_free(call->handles);
  dit_free(call->values);
  dit_free(call->memory);
  memset(call, 0, sizeof *call);
}

enum dit_status call_fill(struct call *call, struct machine *machine, unsigned char pattern, struct dit_error *err) {
  memset(machine->before, pattern, call->size);
  for (int i = 0; i < call->item->storage_count; i++) {
    const struct pack_storage *storage = &call->item->storages[i];
    if (storage->bytes && storage->size) {
      memcpy(machine->before + call->places[i], storage->bytes, (size_t)storage->size);
    }
  }
  return machine_copy_in(machine, call->size, err);
}

// Values

static void *bump(struct call *call, size_t *at, size_t size) {
  void *found = call->memory + *at;
  *at += (size + 15) / 16 * 16;
  return found;
}

static diopiTensorHandle_t get_handle(struct call *call, uint64_t number) {
  const bool has_storage = number != PACK_NONE && call->item->tensors[number].storage != PACK_NONE;
  return has_storage ? &call->handles[number] : NULL;
}

/// One tensor; a sparse one brings its parts.
static diopiTensorHandle_t make_tensor(struct call *call, const struct pack_argument *argument) {
  diopiTensorHandle_t handle = get_handle(call, argument->words[0]);
  if (handle && argument->count == PACK_SPARSE) {
    handle->crow_indices = get_handle(call, argument->words[1]);
    handle->col_indices = get_handle(call, argument->words[2]);
    handle->values = get_handle(call, argument->words[3]);
  }
  return handle;
}

static diopiTensorHandle_t *make_list(struct call *call, size_t *at, const struct pack_argument *argument) {
  diopiTensorHandle_t *list = bump(call, at, (size_t)argument->count * sizeof *list);
  for (int64_t i = 0; i < argument->count; i++) {
    list[i] = get_handle(call, argument->words[i]);
  }
  return list;
}

static diopiGeneratorHandle_t *make_generators(struct call *call, size_t *at, const struct pack_argument *argument) {
  diopiGeneratorHandle_t *list = bump(call, at, (size_t)argument->count * sizeof *list);
  for (int64_t i = 0; i < argument->count; i++) {
    list[i] = bump(call, at, sizeof **list);
    *list[i] = (struct diopiGenerator){argument->words[2 * i], argument->words[2 * i + 1]};
  }
  return list;
}

static diopiScalar_t *make_scalar(struct call *call, size_t *at, const struct pack_argument *argument) {
  diopiScalar_t *scalar = bump(call, at, sizeof *scalar);
  scalar->stype = (diopiDtype_t)argument->words[0];
  scalar->ival = (int64_t)argument->words[1];
  return scalar;
}

/// Numbers behind a pointer; a result's place is filled with the pattern.
static void *make_numbers(struct call *call, size_t *at, const struct pack_argument *argument, unsigned char pattern) {
  const size_t width = argument->kind == 'B' ? 1 : 8;
  unsigned char *numbers = bump(call, at, (size_t)argument->count * width);
  for (int64_t i = 0; i < argument->count; i++) {
    if (argument->form == PACK_RESULT) {
      memset(numbers + (size_t)i * width, pattern, width);
    } else if (width == 1) {
      numbers[i] = argument->words[i] != 0;
    } else {
      memcpy(numbers + 8 * i, &argument->words[i], 8);
    }
  }
  return numbers;
}

static void make_value(struct call *call, size_t *at, const struct pack_argument *argument, unsigned char pattern,
                       union dit_diopi_value *value) {
  static const uint64_t none[1];
  const diopiSize_t size = {(const int64_t *)(argument->words ? argument->words : none), argument->count};
  if (argument->form == PACK_ABSENT) {
    return;
  }
  switch (argument->kind) {
    case 'o':
    case 't':
      value->tensor = make_tensor(call, argument);
      break;
    case 'O':
    case 'T':
      value->tensors = make_list(call, at, argument);
      break;
    case 'f':
    case 'd':
      memcpy(&value->d, argument->words, sizeof value->d);
      break;
    case 'z':
      value->size = size;
      break;
    case 'Z':
      value->sizes = bump(call, at, sizeof size);
      *value->sizes = size;
      break;
    case 's':
      value->scalar = make_scalar(call, at, argument);
      break;
    case 'I':
    case 'B':
    case 'D':
      value->pointer = make_numbers(call, at, argument, pattern);
      break;
    case 'C':
      value->string = (const char *)argument->words;
      break;
    case 'g':
      value->generator = make_generators(call, at, argument)[0];
      break;
    case 'G':
      value->generators = make_generators(call, at, argument);
      break;
    default:
      value->i = (int64_t)argument->words[0];
  }
}

void call_make_values(struct call *call, struct diopiContext *context, unsigned char pattern) {
  size_t at = sizeof(struct services) * (size_t)(call->item->storage_count + 1);
  memset(call->values, 0, sizeof *call->values * (size_t)(call->item->argument_count + 1));
  call->values[0].context = call->item->has_context ? context : NULL;
  for (int i = 0; i < call->item->argument_count; i++) {
    make_value(call, &at, &call->item->arguments[i], pattern, &call->values[i + 1]);
  }
}

// Elements

static struct dit_tensor_view make_view(const struct pack_tensor *tensor, const unsigned char *base) {
  return (struct dit_tensor_view){
      .data = (unsigned char *)base + (size_t)tensor->offset * dit_dtype_get_size(tensor->dtype),
      .sizes = tensor->sizes,
      .strides = tensor->strides,
      .numel = tensor->numel,
      .ndim = tensor->ndim,
      .dtype = (int16_t)tensor->dtype};
}

void call_gather(const struct pack_tensor *tensor, const unsigned char *base, unsigned char *out) {
  const struct dit_tensor_view view = make_view(tensor, base);
  dit_tensor_gather(&view, out);
}

void call_scatter(const struct pack_tensor *tensor, const unsigned char *in, unsigned char *base) {
  const struct dit_tensor_view view = make_view(tensor, base);
  dit_tensor_scatter(&view, in);
}
