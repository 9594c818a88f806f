/// The elementwise engine (see pointwise.h).
///
/// A run whose operands all lie in memory as the loop wants them is one call per grain. Otherwise each run along the
/// innermost dimension goes in blocks: inputs that do not change along it are converted once and repeated, the others
/// are gathered and converted, results are converted and scattered. Where that dimension is short, blocks are tiles of
/// the two innermost dimensions, so that calls stay few.
#include "pointwise.h"

#include <string.h>

#include "cast.h"
#include "dit/parallel.h"
#include "host.h"
#include "nest.h"

/// Bytes of one operand's block: the widest element, and a shift that keeps blocks off each other's cache sets.
#define ROOM_SIZE (NEST_BLOCK * 16 + 192)
/// Runs of at most so many elements go in tiles.
#define TILE_SHORT 128
/// Least sides of a tile that is turned.
#define TURNED_LEAST 8

struct wide {
  uint64_t part[2];
};

enum operand_kind { OPERAND_DIRECT, OPERAND_REPEATED, OPERAND_STAGED };

struct operand {
  int dtype, work;
  int width, work_width;
  int slot;  ///< in the nest; -1: a number
  enum operand_kind kind;
  int64_t stride;  ///< bytes along the innermost dimension
};

struct pointwise_task {
  pointwise_loop *loop, *number_loop;
  int outputs, operands, rounded;
  bool is_direct, is_tiled, is_number;  ///< is_number: number_loop fits
  int64_t tile[2];                      ///< elements along dimension 0 (all) and 1
  int64_t bands;                        ///< steps of tile[1] in dimension 1
  _Alignas(16) char parameters[POINTWISE_PARAMETERS];
  struct operand operand[POINTWISE_OPERANDS];
  struct nest nest;
};

/// From the operand's dtype to its work type, through the rounded one where there is one.
static void load_block(const struct pointwise_task *task, const struct operand *operand, char *dst, const char *src,
                       int64_t count) {
  if (task->rounded && operand->dtype != task->rounded && operand->work == DIT_DTYPE_F32) {
    char middle[NEST_BLOCK * 2];
    cast_block(task->rounded, middle, operand->dtype, src, count);
    cast_block(operand->work, dst, task->rounded, middle, count);
    return;
  }
  cast_block(operand->work, dst, operand->dtype, src, count);
}

static void stage_input(const struct pointwise_task *task, const struct operand *operand, char *room, const char *data,
                        int64_t count) {
  if (operand->stride == operand->width) {
    load_block(task, operand, room, data, count);
  } else if (operand->dtype == operand->work) {
    cast_gather(room, data, operand->stride, operand->width, count);
  } else {
    _Alignas(16) char raw[NEST_BLOCK * 16];
    cast_gather(raw, data, operand->stride, operand->width, count);
    load_block(task, operand, room, raw, count);
  }
}

static void store_output(const struct pointwise_task *task, const struct operand *operand, char *data, const char *room,
                         int64_t count) {
  _Alignas(16) char middle[NEST_BLOCK * 2], raw[NEST_BLOCK * 16];
  int from = operand->work;
  if (task->rounded && operand->dtype != task->rounded && from == DIT_DTYPE_F32) {
    cast_block(task->rounded, middle, from, room, count);
    from = task->rounded;
    room = middle;
  }
  if (operand->stride == operand->width) {
    cast_block(operand->dtype, data, from, room, count);
    return;
  }
  if (operand->dtype != from) {
    cast_block(operand->dtype, raw, from, room, count);
    room = raw;
  }
  cast_scatter(data, operand->stride, room, operand->width, count);
}

/// One element, `count` times.
static void repeat_input(const struct pointwise_task *task, int index, char *room, const char *data, int64_t count) {
  const struct operand *operand = &task->operand[index];
  if (operand->slot < 0) {
    int before = 0;
    for (int i = task->outputs; i < index; i++) {
      before += task->operand[i].slot < 0;
    }
    memcpy(room, task->parameters + 16 * before, (size_t)operand->work_width);
  } else {
    load_block(task, operand, room, data, 1);
  }
  cast_move(room + operand->work_width, operand->work_width, room, 0, operand->work_width, count - 1);
}

static void run_staged(const struct pointwise_task *task, char *const *data, int64_t count) {
  _Alignas(64) char rooms[POINTWISE_OPERANDS][ROOM_SIZE];
  void *addresses[POINTWISE_OPERANDS];
  for (int i = task->outputs; i < task->operands; i++) {
    const struct operand *operand = &task->operand[i];
    if (operand->kind == OPERAND_REPEATED) {
      repeat_input(task, i, rooms[i], operand->slot < 0 ? NULL : data[operand->slot],
                   count < NEST_BLOCK ? count : NEST_BLOCK);
    }
    addresses[i] = rooms[i];
  }
  for (int64_t begin = 0; begin < count; begin += NEST_BLOCK) {
    const int64_t n = count - begin < NEST_BLOCK ? count - begin : NEST_BLOCK;
    for (int i = 0; i < task->operands; i++) {
      const struct operand *operand = &task->operand[i];
      if (operand->kind == OPERAND_DIRECT) {
        addresses[i] = data[operand->slot] + begin * operand->stride;
      } else if (i < task->outputs) {
        addresses[i] = rooms[i];
      } else if (operand->kind == OPERAND_STAGED) {
        stage_input(task, operand, rooms[i], data[operand->slot] + begin * operand->stride, n);
      }
    }
    task->loop(task->parameters, addresses, (const void *const *)addresses + task->outputs, n);
    for (int i = 0; i < task->outputs; i++) {
      const struct operand *operand = &task->operand[i];
      if (operand->kind != OPERAND_DIRECT) {
        store_output(task, operand, data[operand->slot] + begin * operand->stride, rooms[i], n);
      }
    }
  }
}

/// Move a tile between memory and a packed block (dimension 0 fastest).
#define TILE_LOOP(type)                                                                   \
  for (int64_t j = 0; j < size[1]; j++) {                                                 \
    for (int64_t i = 0; i < size[0]; i++) {                                               \
      memcpy(dst + i * to[0] + j * to[1], src + i * from[0] + j * from[1], sizeof(type)); \
    }                                                                                     \
  }                                                                                       \
  break;
static void move_tile(char *dst, const int64_t *to, const char *src, const int64_t *from, const int64_t *size,
                      int width) {
  if (to[0] == width && from[0] == width && size[0] * width >= 16) {
    for (int64_t j = 0; j < size[1]; j++) {
      memcpy(dst + j * to[1], src + j * from[1], (size_t)(size[0] * width));
    }
    return;
  }
  if (to[0] == width && from[1] == width && width <= 8 && size[0] <= CAST_TURN_SIDE && size[1] <= CAST_TURN_SIDE) {
    cast_turn(dst, to[1], src, from[0], width, size[0], size[1]);
    return;
  }
  switch (width) {
    case 1:
      TILE_LOOP(uint8_t)
    case 2:
      TILE_LOOP(uint16_t)
    case 4:
      TILE_LOOP(uint32_t)
    case 8:
      TILE_LOOP(uint64_t)
    default:
      TILE_LOOP(struct wide)
  }
}

/// An operand's tile as a block in its work type: in place where it lies so, else in `room`.
static char *load_tile(const struct pointwise_task *task, const struct operand *operand, char *room, char *data,
                       const int64_t *size) {
  const int64_t *from = task->nest.strides[operand->slot], packed[2] = {operand->width, operand->width * size[0]};
  const bool contiguous = from[0] == operand->width && (from[1] == packed[1] || size[1] == 1);
  if (contiguous && operand->dtype == operand->work) {
    return data;
  }
  if (operand->dtype == operand->work) {
    move_tile(room, packed, data, from, size, operand->width);
    return room;
  }
  _Alignas(16) char raw[NEST_BLOCK * 16];
  if (!contiguous) {
    move_tile(raw, packed, data, from, size, operand->width);
  }
  load_block(task, operand, room, contiguous ? data : raw, size[0] * size[1]);
  return room;
}

static void store_tile(const struct pointwise_task *task, const struct operand *operand, char *data, char *room,
                       const int64_t *size) {
  const int64_t to[2] = {task->nest.strides[operand->slot][0], task->nest.strides[operand->slot][1]};
  const int64_t packed[2] = {operand->width, operand->width * size[0]}, count = size[0] * size[1];
  struct operand flat = *operand;
  _Alignas(16) char raw[NEST_BLOCK * 16];
  flat.stride = operand->width;
  if (to[0] == operand->width && (to[1] == packed[1] || size[1] == 1)) {
    store_output(task, &flat, data, room, count);
    return;
  }
  if (operand->dtype != operand->work) {
    store_output(task, &flat, raw, room, count);
    room = raw;
  }
  move_tile(data, to, room, packed, size, operand->width);
}

static bool is_tile_direct(const struct pointwise_task *task, const struct operand *operand, const int64_t *size) {
  const int64_t *strides = task->nest.strides[operand->slot];
  return operand->dtype == operand->work && strides[0] == operand->width &&
         (strides[1] == operand->width * size[0] || size[1] == 1);
}

/// One tile at `data`. `kept[i]`: the i-th operand's room holds what this tile needs already.
static void run_tile(const struct pointwise_task *task, char (*rooms)[ROOM_SIZE], const bool *kept, char *const *data,
                     const int64_t *size) {
  void *addresses[POINTWISE_OPERANDS];
  for (int i = 0; i < task->operands; i++) {
    const struct operand *operand = &task->operand[i];
    if (kept[i]) {
      addresses[i] = rooms[i];
    } else if (i < task->outputs) {
      addresses[i] = is_tile_direct(task, operand, size) ? data[operand->slot] : rooms[i];
    } else {
      addresses[i] = load_tile(task, operand, rooms[i], data[operand->slot], size);
    }
  }
  task->loop(task->parameters, addresses, (const void *const *)addresses + task->outputs, size[0] * size[1]);
  for (int i = 0; i < task->outputs; i++) {
    if (addresses[i] == (void *)rooms[i]) {
      store_tile(task, &task->operand[i], data[task->operand[i].slot], rooms[i], size);
    }
  }
}

/// Inputs that are the same in every tile: numbers, and those that move along dimension 0 alone where a tile has all of
/// it. They are made once.
static void keep_rooms(const struct pointwise_task *task, char (*rooms)[ROOM_SIZE], bool *kept) {
  const struct nest *nest = &task->nest;
  for (int i = 0; i < task->operands; i++) {
    const struct operand *operand = &task->operand[i];
    kept[i] = i >= task->outputs;
    for (int dim = task->tile[0] < nest->sizes[0] ? 0 : 1; kept[i] && operand->slot >= 0 && dim < nest->ndim; dim++) {
      kept[i] = nest->strides[operand->slot][dim] == 0;
    }
    if (!kept[i]) {
      continue;
    }
    if (operand->slot < 0) {
      repeat_input(task, i, rooms[i], NULL, NEST_BLOCK);
    } else {
      char *from = load_tile(task, operand, rooms[i], nest->data[operand->slot], task->tile);
      if (from != rooms[i]) {
        memcpy(rooms[i], from, (size_t)(task->tile[0] * task->tile[1] * operand->work_width));
      }
    }
  }
}

/// Bands of tile[1] steps of dimension 1; the dimensions above select the plane.
static void run_bands(void *context, int64_t begin, int64_t end) {
  const struct pointwise_task *task = context;
  const struct nest *nest = &task->nest;
  _Alignas(64) char rooms[POINTWISE_OPERANDS][ROOM_SIZE];
  bool kept[POINTWISE_OPERANDS];
  keep_rooms(task, rooms, kept);
  for (int64_t band = begin; band < end; band++) {
    int64_t rest = band / task->bands, index[DIT_MAX_DIMS];
    index[1] = band % task->bands * task->tile[1];
    for (int dim = 2; dim < nest->ndim; dim++) {
      index[dim] = rest % nest->sizes[dim];
      rest /= nest->sizes[dim];
    }
    char *data[NEST_OPERANDS];
    for (int slot = 0; slot < nest->operands; slot++) {
      data[slot] = nest->data[slot];
      for (int dim = 1; dim < nest->ndim; dim++) {
        data[slot] += index[dim] * nest->strides[slot][dim];
      }
    }
    const int64_t left = nest->sizes[1] - index[1];
    int64_t size[2] = {task->tile[0], left < task->tile[1] ? left : task->tile[1]};
    for (int64_t at = 0; at < nest->sizes[0]; at += size[0]) {
      size[0] = nest->sizes[0] - at < task->tile[0] ? nest->sizes[0] - at : task->tile[0];
      run_tile(task, rooms, kept, data, size);
      for (int slot = 0; slot < nest->operands; slot++) {
        data[slot] += size[0] * nest->strides[slot][0];
      }
    }
  }
}

static void run_run(void *context, char *const *data, int64_t count) {
  const struct pointwise_task *task = context;
  if (task->is_direct) {
    task->loop(task->parameters, (void *const *)data, (const void *const *)data + task->outputs, count);
  } else if (task->is_number) {
    _Alignas(16) char parameters[POINTWISE_PARAMETERS];
    const int last = task->operands - 1;
    memcpy(parameters, task->parameters, sizeof(parameters));
    load_block(task, &task->operand[last], parameters, data[last], 1);
    task->number_loop(parameters, (void *const *)data, (const void *const *)data + task->outputs, count);
  } else {
    run_staged(task, data, count);
  }
}

static void run_task(void *argument) {
  struct pointwise_task *task = argument;
  if (!task->is_tiled) {
    nest_run(&task->nest, run_run, task);
    return;
  }
  int64_t count = task->bands;
  for (int dim = 2; dim < task->nest.ndim; dim++) {
    count *= task->nest.sizes[dim];
  }
  dit_parallel_for(0, count, NEST_GRAIN / (task->tile[1] * task->nest.sizes[0]), run_bands, task);
}

/// Does an input lie along dimension 1? Gathered along dimension 0, it would touch a cache line per element.
static bool has_turned(const struct nest *nest, const struct pointwise_task *task) {
  for (int i = task->outputs; i < task->operands; i++) {
    const struct operand *operand = &task->operand[i];
    if (operand->slot >= 0 && operand->width <= 8 && nest->strides[operand->slot][1] == operand->width &&
        nest->strides[operand->slot][0] > operand->width) {
      return nest->sizes[0] >= TURNED_LEAST && nest->sizes[1] >= TURNED_LEAST;
    }
  }
  return false;
}

/// Short runs go in tiles, and runs across an input's own direction.
static void choose_tile(struct pointwise_task *task) {
  const struct nest *nest = &task->nest;
  const bool is_turned = nest->ndim > 1 && has_turned(nest, task);
  task->is_tiled = nest->ndim > 1 && (is_turned || nest->sizes[0] <= TILE_SHORT);
  if (task->is_tiled) {
    task->tile[0] = is_turned && nest->sizes[0] > CAST_TURN_SIDE ? CAST_TURN_SIDE : nest->sizes[0];
    task->tile[1] = is_turned ? NEST_BLOCK / CAST_TURN_SIDE : NEST_BLOCK / task->tile[0];
    task->tile[1] = task->tile[1] > nest->sizes[1] ? nest->sizes[1] : task->tile[1];
    task->bands = (nest->sizes[1] + task->tile[1] - 1) / task->tile[1];
  }
}

static void task_init(struct pointwise_task *task, const struct pointwise *run) {
  const struct dit_tensor_view *views[POINTWISE_OPERANDS];
  int slots = 0;
  task->loop = run->loop;
  task->number_loop = run->number_loop;
  task->outputs = run->outputs;
  task->operands = run->outputs + run->inputs;
  task->rounded = run->rounded;
  task->is_direct = true;
  memcpy(task->parameters, run->parameters, sizeof(task->parameters));
  for (int i = 0; i < task->operands; i++) {
    struct operand *operand = &task->operand[i];
    operand->work = run->work[i];
    operand->work_width = (int)dit_dtype_get_size(operand->work);
    operand->slot = run->views[i] ? slots : -1;
    if (run->views[i]) {
      operand->dtype = run->views[i]->dtype;
      operand->width = (int)dit_dtype_get_size(operand->dtype);
      views[slots++] = run->views[i];
    }
  }
  nest_init(&task->nest, slots, views);
  for (int i = 0; i < task->operands; i++) {
    struct operand *operand = &task->operand[i];
    operand->stride = operand->slot < 0 ? 0 : task->nest.strides[operand->slot][0];
    if (operand->slot < 0 || (i >= task->outputs && operand->stride == 0)) {
      operand->kind = OPERAND_REPEATED;
    } else if (operand->dtype == operand->work && operand->stride == operand->width) {
      operand->kind = OPERAND_DIRECT;
    } else {
      operand->kind = OPERAND_STAGED;
    }
    const bool is_last = i == task->operands - 1;
    const bool is_number = is_last && operand->slot >= 0 && operand->kind == OPERAND_REPEATED;
    task->is_number = task->number_loop && task->is_direct && is_number;
    task->is_direct = task->is_direct && operand->kind == OPERAND_DIRECT;
  }
  choose_tile(task);
}

bool pointwise_is_supported(const struct pointwise *run) {
  for (int i = 0; i < run->outputs + run->inputs; i++) {
    const struct dit_tensor_view *view = run->views[i];
    if (view && view->dtype != run->work[i] &&
        !(i < run->outputs ? cast_is_supported(view->dtype, run->work[i])
                           : cast_is_supported(run->work[i], view->dtype))) {
      return false;
    }
  }
  return run->loop != NULL;
}

/// Every operand as the loop wants it, and little of it: no nest is needed.
static bool is_simple(const struct pointwise *run) {
  if (run->views[0]->numel > NEST_GRAIN || !run->loop) {
    return false;
  }
  for (int i = 0; i < run->outputs + run->inputs; i++) {
    const struct dit_tensor_view *view = run->views[i];
    if (!view || view->dtype != run->work[i] || !(view->flags & DIT_TENSOR_CONTIGUOUS)) {
      return false;
    }
  }
  return true;
}

static void run_simple(const struct pointwise *run) {
  void *addresses[POINTWISE_OPERANDS];
  for (int i = 0; i < run->outputs + run->inputs; i++) {
    addresses[i] = run->views[i]->data;
  }
  run->loop(run->parameters, addresses, (const void *const *)addresses + run->outputs, run->views[0]->numel);
}

enum dit_status pointwise_run(const struct pointwise *run, struct dit_error *err) {
  (void)err;
  if (DIT_LIKELY(is_simple(run))) {
    run_simple(run);
    return DIT_OK;
  }
  if (!pointwise_is_supported(run)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (run->views[0]->numel == 0) {
    return DIT_OK;
  }
  struct pointwise_task task;
  task_init(&task, run);
  run_task(&task);
  return DIT_OK;
}

enum dit_status pointwise_launch(void *stream, const struct pointwise *run, struct dit_error *err) {
  if (!stream) {
    dit_memory_access_begin();
    enum dit_status status = pointwise_run(run, err);
    dit_memory_access_end();
    return status;
  }
  if (!pointwise_is_supported(run)) {
    return DIT_ERR_UNSUPPORTED;
  }
  if (run->views[0]->numel == 0) {
    return DIT_OK;
  }
  struct pointwise_task task;
  task_init(&task, run);
  return dit_host_stream_enqueue(stream, run_task, &task, sizeof(task), err);
}
