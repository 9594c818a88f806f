/// Cases with the tag "far": tensors whose elements lie more than 2^31 elements apart, so that an index in 32 bits
/// leads elsewhere.
///
/// Each tensor is moved to a mapping of its own that has addresses but no memory: the kernel gives a page where an
/// element lies. Its first dimension with two elements gets a stride that reaches beyond 2^31 elements. Before the call
/// elements go from the machine's piece to the mappings, after it back, so everything else is judged as usual; bytes
/// between the elements are not looked at. Needs memory of the host.
#include "far.h"

#include <string.h>
#include <sys/mman.h>

#include "dit/alloc.h"

#define REACH (INT64_C(1) << 31)

struct far_tensor {
  struct pack_tensor tensor;  ///< with the strides below, from the mapping's begin
  int64_t strides[DIT_MAX_DIMS];
  void *memory;
  size_t size;
  bool owner;  ///< of the mapping: the first tensor of its storage
};

/// The first dimension with more than one element; -1: there is none.
static int find_dim(const struct pack_tensor *tensor) {
  for (int d = 0; tensor->numel > 0 && d < tensor->ndim; d++) {
    if (tensor->sizes[d] > 1) {
      return d;
    }
  }
  return -1;
}

static bool is_same_place(const struct pack_tensor *a, const struct pack_tensor *b) {
  const size_t bytes = sizeof(int64_t) * (size_t)a->ndim;
  return a->dtype == b->dtype && a->ndim == b->ndim && a->offset == b->offset &&
         (bytes == 0 || (memcmp(a->sizes, b->sizes, bytes) == 0 && memcmp(a->strides, b->strides, bytes) == 0));
}

/// Is the storage one tensor's, perhaps under several names, on the device?
static bool is_alone(const struct pack_case *item, const struct pack_tensor *tensor) {
  for (int i = 0; i < item->tensor_count; i++) {
    const struct pack_tensor *other = &item->tensors[i];
    if (other->storage == tensor->storage && !is_same_place(other, tensor)) {
      return false;
    }
  }
  return !item->storages[tensor->storage].on_host;
}

static bool stretch(struct far_tensor *far, const struct pack_tensor *tensor) {
  const int dim = find_dim(tensor);
  int64_t step = 1;
  far->tensor = *tensor;
  far->tensor.strides = far->strides;
  far->tensor.offset = 0;
  if (dim < 0 || tensor->ndim > DIT_MAX_DIMS) {
    return false;
  }
  for (int d = tensor->ndim - 1; d >= 0; d--) {
    far->strides[d] = step;
    step *= d == dim ? 1 : tensor->sizes[d];
  }
  const int64_t apart = REACH / (tensor->sizes[dim] - 1) + 1;
  far->strides[dim] = apart > step ? apart : step;
  far->size = (size_t)((tensor->sizes[dim] - 1) * far->strides[dim] + step) * dit_dtype_get_size(tensor->dtype);
  return true;
}

static enum dit_status map_tensor(struct call *call, struct far_tensor *far, int number, struct dit_error *err) {
  const struct pack_tensor *tensor = &call->item->tensors[number];
  struct dit_tensor_view *view = &call->handles[number].view;
  if (tensor->storage == PACK_NONE || !is_alone(call->item, tensor) || !stretch(&far[number], tensor)) {
    return DIT_OK;
  }
  for (int i = 0; i < number && !far[number].memory; i++) {
    far[number].memory = call->item->tensors[i].storage == tensor->storage ? far[i].memory : NULL;
  }
  if (!far[number].memory) {
    void *memory =
        mmap(NULL, far[number].size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      return dit_error_set(err, DIT_ERR_NOMEM, "no addresses for a tensor that spans %zu bytes", far[number].size);
    }
    far[number].memory = memory;
    far[number].owner = true;
  }
  view->data = far[number].memory;
  view->storage = far[number].memory;
  view->strides = far[number].strides;
  view->flags &= ~(DIT_TENSOR_CONTIGUOUS | DIT_TENSOR_DENSE);
  call_set_storage(call, tensor->storage, far[number].memory, far[number].size);
  return DIT_OK;
}

enum dit_status far_open(struct call *call, struct dit_error *err) {
  call->far = dit_calloc((size_t)call->item->tensor_count + 1, sizeof *call->far);
  if (!call->far) {
    return dit_error_set(err, DIT_ERR_NOMEM, "no memory for the arguments of %s", call->item->id);
  }
  for (int i = 0; i < call->item->tensor_count; i++) {
    DIT_RETURN_IF_NOT_OK(map_tensor(call, call->far, i, err));
  }
  return DIT_OK;
}

void far_move(struct call *call, unsigned char *piece, unsigned char *rows, bool out) {
  for (int i = 0; call->far && i < call->item->tensor_count; i++) {
    const struct far_tensor *far = &call->far[i];
    const struct pack_tensor *tensor = &call->item->tensors[i];
    if (!far->memory || !far->owner) {
      continue;
    }
    unsigned char *place = piece + call->places[tensor->storage];
    call_gather(out ? tensor : &far->tensor, out ? place : far->memory, rows);
    call_scatter(out ? &far->tensor : tensor, rows, out ? far->memory : place);
  }
}

void far_close(struct call *call) {
  for (int i = 0; call->far && i < call->item->tensor_count; i++) {
    if (call->far[i].owner) {
      munmap(call->far[i].memory, call->far[i].size);
    }
  }
  dit_free(call->far);
  call->far = NULL;
}
