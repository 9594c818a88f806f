/// Advanced indexing: index(self, indices) and _index_put_impl_(self, indices, values, accumulate).
///
/// Each index is absent (the whole dimension), a tensor of integers, or a mask over as many dimensions as it has. The
/// integer indices broadcast to one shape B, which stands in the result where the indexed dimensions stood when these
/// are neighbours, else in front. The library makes the result of `index`, because masks decide its size; its strides
/// here are those of PyTorch's TensorIterator over the restrided self and the indices. index_put writes self; one
/// number under one mask is masked_fill.
#include "invoke.h"
#include "network.h"
#include "table.h"

enum { MAX_INDICES = OP_MAX_INPUTS - 1 };  // beyond these the order of strides is not inferred

struct indexing {
  const struct dit_tensor_view *self;
  int count;                              ///< of the list's elements
  int given;                              ///< of those that are there
  bool masked;                            ///< some are masks
  int dims[MAX_INDICES];                  ///< self's dimension that each given one begins at
  int position[MAX_INDICES];              ///< of each given one in the list
  int width[MAX_INDICES];                 ///< dimensions that it takes: those of a mask, else 1
  const struct dit_tensor_view *indices;  ///< the list
};

static bool read_indices(struct dit_call *call, struct indexing *indexing) {
  const struct dit_value *list = &call->args[1];
  int dim = 0;
  indexing->self = net_get_moved(call, 0);
  if (!indexing->self || list->tag != DIT_VALUE_TENSORS || list->v.tensors.size > DIT_MAX_DIMS) {
    return false;
  }
  indexing->indices = list->v.tensors.data;
  indexing->count = (int)list->v.tensors.size;
  indexing->given = 0;
  indexing->masked = false;
  for (int i = 0; i < indexing->count; i++) {
    const struct dit_tensor_view *index = &indexing->indices[i];
    int width = 1;
    if (index->handle) {
      const bool mask = index->dtype == DIT_DTYPE_BOOL;
      if (!op_is_device(index) || index->ndim > DIT_MAX_DIMS || (!mask && !net_is_index(index)) ||
          indexing->given == MAX_INDICES || (mask && index->ndim == 0)) {
        return false;
      }
      width = mask ? index->ndim : 1;
      indexing->masked = indexing->masked || mask;
      indexing->dims[indexing->given] = dim;
      indexing->position[indexing->given] = i;
      indexing->width[indexing->given++] = width;
    }
    dim += width;
    if (dim > indexing->self->ndim) {
      return false;
    }
  }
  return indexing->given > 0;
}

/// A mask has the sizes of the dimensions it stands for.
static bool check_masks(const struct indexing *indexing) {
  for (int k = 0; k < indexing->given; k++) {
    const struct dit_tensor_view *index = &indexing->indices[indexing->position[k]];
    if (index->dtype == DIT_DTYPE_BOOL &&
        !op_same_sizes(index, indexing->width[k], indexing->self->sizes + indexing->dims[k])) {
      return false;
    }
  }
  return true;
}

/// The result as an iteration: its sizes, and self and the indices restrided to them.
struct iteration {
  struct op_layout layout;
  int64_t strides[OP_MAX_INPUTS][DIT_MAX_DIMS], sizes[OP_MAX_INPUTS][DIT_MAX_DIMS];
  struct dit_tensor_view views[OP_MAX_INPUTS];
};

/// Broadcast the integer indices, a mask counting as one of `selected` elements.
static bool broadcast_indices(const struct indexing *indexing, int64_t selected, struct op_layout *shape) {
  shape->ndim = 0;
  for (int k = 0; k < indexing->given; k++) {
    const struct dit_tensor_view *index = &indexing->indices[indexing->position[k]];
    const bool mask = index->dtype == DIT_DTYPE_BOOL;
    if (dit_shape_broadcast(mask ? 1 : index->ndim, mask ? &selected : index->sizes, &shape->ndim, shape->sizes,
                            NULL) != DIT_OK) {
      return false;
    }
  }
  return true;
}

static bool is_indexed(const struct indexing *indexing, int dim) {
  for (int k = 0; k < indexing->given; k++) {
    if (dim >= indexing->dims[k] && dim < indexing->dims[k] + indexing->width[k]) {
      return true;
    }
  }
  return false;
}

static bool are_neighbours(const struct indexing *indexing) {
  for (int k = 1; k < indexing->given; k++) {
    if (indexing->dims[k] != indexing->dims[k - 1] + indexing->width[k - 1]) {
      return false;
    }
  }
  return true;
}

/// An index over the result's dimensions: size 1 outside `place`..`place + shape->ndim`.
static void restride_index(const struct dit_tensor_view *index, const struct op_layout *shape, int place, int slot,
                           struct iteration *it) {
  const bool mask = index->dtype == DIT_DTYPE_BOOL;
  const int ndim = mask ? 1 : index->ndim, offset = shape->ndim - ndim;
  for (int i = 0; i < it->layout.ndim; i++) {
    const int at = i - place;
    const bool inside = at >= 0 && at < shape->ndim;
    const int64_t size = inside && at >= offset ? (mask ? shape->sizes[at] : index->sizes[at - offset]) : 1;
    const bool broadcast = !inside || at < offset || (size == 1 && shape->sizes[at] != 1);
    it->sizes[slot][i] = inside ? shape->sizes[at] : 1;
    it->strides[slot][i] = broadcast ? 0 : mask ? 1 : index->strides[at - offset];
  }
}

/// Fill the iteration for `selected` elements of the masks. False when indices do not broadcast or dims are too many.
static bool iterate(const struct indexing *indexing, int64_t selected, struct iteration *it) {
  const struct dit_tensor_view *self = indexing->self;
  struct op_layout shape;
  int place = are_neighbours(indexing) ? indexing->dims[0] : 0, ndim = 0;
  if (!broadcast_indices(indexing, selected, &shape) || shape.ndim + self->ndim > DIT_MAX_DIMS) {
    return false;
  }
  for (int dim = 0; dim <= self->ndim; dim++) {
    if (ndim == place && (place == 0 ? dim == 0 : dim == indexing->dims[0])) {
      for (int i = 0; i < shape.ndim; i++) {
        it->layout.sizes[ndim] = shape.sizes[i];
        it->strides[0][ndim++] = 0;
      }
    }
    if (dim < self->ndim && !is_indexed(indexing, dim)) {
      it->layout.sizes[ndim] = self->sizes[dim];
      it->strides[0][ndim++] = self->strides[dim];
    }
  }
  it->layout.ndim = ndim;
  op_copy_dims(it->sizes[0], it->layout.sizes, ndim);
  for (int k = 0; k < indexing->given; k++) {
    restride_index(&indexing->indices[indexing->position[k]], &shape, place, k + 1, it);
  }
  for (int slot = 0; slot <= indexing->given; slot++) {
    it->views[slot] = *self;
    it->views[slot].ndim = ndim;
    it->views[slot].sizes = it->sizes[slot];
    it->views[slot].strides = it->strides[slot];
    it->views[slot].flags = DIT_TENSOR_ON_DEVICE;
  }
  return true;
}

static void make_handles(struct dit_call *call, const struct indexing *indexing, struct diopiTensor *rooms,
                         diopiConstTensorHandle_t *handles) {
  for (int i = 0, k = 0; i < indexing->count; i++) {
    handles[i] = indexing->indices[i].handle ? op_handle(call, &rooms[k++], &indexing->indices[i]) : NULL;
  }
}

/// The library's row-major result in PyTorch's strides.
static enum dit_status restride(struct dit_call *call, const struct indexing *indexing,
                                const struct dit_tensor_view *made, struct dit_tensor_view *out) {
  const struct dit_tensor_view *inputs[OP_MAX_INPUTS];
  struct iteration it;
  int64_t selected = 1;
  if (indexing->masked) {
    // a mask's length: where B stands in the result, it is the last size of B
    const int place = are_neighbours(indexing) ? indexing->dims[0] : 0;
    int ndim = 1;
    for (int k = 0; k < indexing->given; k++) {
      const struct dit_tensor_view *index = &indexing->indices[indexing->position[k]];
      ndim = index->dtype != DIT_DTYPE_BOOL && index->ndim > ndim ? index->ndim : ndim;
    }
    selected = place + ndim <= made->ndim ? made->sizes[place + ndim - 1] : -1;
  }
  if (selected < 0 || !iterate(indexing, selected, &it) || !op_same_sizes(made, it.layout.ndim, it.layout.sizes)) {
    *out = *made;
    return DIT_OK;
  }
  bool same_shape = true;
  for (int slot = 0; slot <= indexing->given; slot++) {
    inputs[slot] = &it.views[slot];
    same_shape = same_shape && op_same_sizes(inputs[slot], it.layout.ndim, it.layout.sizes);
  }
  op_infer_strides(inputs, indexing->given + 1, indexing->self->dtype, same_shape, &it.layout);
  if (it.layout.contiguous) {
    *out = *made;
    return DIT_OK;
  }
  DIT_RETURN_IF_NOT_OK(
      call->services->new_tensor(call, it.layout.ndim, it.layout.sizes, it.layout.strides, made->dtype, out));
  return op_copy(call, out, made);
}

enum dit_status op_index(struct dit_call *call) {
  struct indexing indexing;
  struct iteration it;
  struct dit_tensor_view made_view, out;
  struct diopiContext context;
  struct diopiTensor self_room, rooms[MAX_INDICES];
  diopiConstTensorHandle_t handles[DIT_MAX_DIMS];
  NET_NEED(OP_HAS(call, diopiIndex) && op_can_copy(call) && read_indices(call, &indexing) && check_masks(&indexing) &&
           (indexing.masked || iterate(&indexing, 1, &it)));
  make_handles(call, &indexing, rooms, handles);
  op_context_init(&context, call);
  if (DIT_UNLIKELY(call->observer)) {
    op_observe_before(call, DIT_DIOPI_diopiIndex);
  }
  diopiTensorHandle_t made = NULL;
  const diopiError_t code = call->diopi->functions.diopiIndex(
      &context, &made, op_handle(call, &self_room, indexing.self), handles, indexing.count);
  DIT_RETURN_IF_NOT_OK(
      net_check_range(call, net_finish_made(call, &context, DIT_DIOPI_diopiIndex, code, made, &made_view)));
  DIT_RETURN_IF_NOT_OK(restride(call, &indexing, &made_view, &out));
  return op_return(call, 0, &out);
}

/// values broadcast to the result's shape (leading ones may be missing).
static bool broadcasts(const struct dit_tensor_view *values, const struct op_layout *layout) {
  const int offset = layout->ndim - values->ndim;
  if (offset < 0) {
    return false;
  }
  for (int i = 0; i < values->ndim; i++) {
    if (values->sizes[i] != 1 && values->sizes[i] != layout->sizes[offset + i]) {
      return false;
    }
  }
  return true;
}

/// One number where one mask is true: no positions are needed.
static bool is_fill(const struct dit_call *call, const struct indexing *indexing,
                    const struct dit_tensor_view *values) {
  return OP_HAS(call, diopiMaskedFillInp) && indexing->masked && indexing->given == 1 && values->numel == 1 &&
         values->ndim <= 1 && call->args[3].v.i == 0;
}

static enum dit_status fill_masked(struct dit_call *call, const struct indexing *indexing,
                                   const struct dit_tensor_view *values) {
  const struct dit_tensor_view *self = indexing->self, *given = &indexing->indices[indexing->position[0]];
  struct dit_tensor_view mask = *given, value = *values;
  struct diopiContext context;
  struct diopiTensor rooms[3];
  int64_t sizes[DIT_MAX_DIMS], strides[DIT_MAX_DIMS];
  for (int dim = 0; dim < self->ndim; dim++) {
    const int at = dim - indexing->dims[0];
    const bool has = at >= 0 && at < given->ndim;
    sizes[dim] = has ? given->sizes[at] : 1;
    strides[dim] = has ? given->strides[at] : 0;
  }
  mask.ndim = self->ndim;
  mask.sizes = sizes;
  mask.strides = strides;
  value.ndim = 0;
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(OP_DIOPI(call, &context, diopiMaskedFillInp, op_handle(call, &rooms[0], self),
                                op_handle(call, &rooms[1], &mask), op_handle(call, &rooms[2], &value)));
  return op_return(call, 0, self);
}

enum dit_status op_index_put(struct dit_call *call) {
  struct indexing indexing;
  struct iteration it;
  struct dit_tensor_view *values = net_get_moved(call, 2);
  struct diopiContext context;
  struct diopiTensor self_room, values_room, rooms[MAX_INDICES];
  diopiConstTensorHandle_t handles[DIT_MAX_DIMS];
  NET_NEED(OP_HAS(call, diopiIndexPutInp) && values && read_indices(call, &indexing) && check_masks(&indexing) &&
           values->dtype == indexing.self->dtype && net_is_apart(indexing.self, values));
  NET_NEED(net_is_writable(indexing.self) && (call->args[3].v.i == 0 || op_is_element(indexing.self->dtype)));
  NET_NEED(indexing.masked || (iterate(&indexing, 1, &it) && broadcasts(values, &it.layout)));
  for (int k = 0; k < indexing.given; k++) {
    NET_NEED(net_is_apart(indexing.self, &indexing.indices[indexing.position[k]]));
  }
  if (is_fill(call, &indexing, values)) {
    return fill_masked(call, &indexing, values);
  }
  make_handles(call, &indexing, rooms, handles);
  op_context_init(&context, call);
  DIT_RETURN_IF_NOT_OK(net_check_range(
      call, OP_DIOPI(call, &context, diopiIndexPutInp, op_handle(call, &self_room, indexing.self),
                     op_handle(call, &values_room, values), handles, indexing.count, call->args[3].v.i != 0)));
  return op_return(call, 0, indexing.self);
}
