/// Convolutions by oneDNN (see onednn.h).
///
/// The work is cut by shape alone: into ranges of images, and where those are few into blocks of the channels that no
/// sum runs over. The weight's gradient of several ranges of images is added up in float32, in order. Each piece is one
/// plan, which reads and writes the caller's tensors through their strides.
#include <stdatomic.h>
#include <string.h>

#include "cast.h"
#include "dit/alloc.h"
#include "dit/dtype.h"
#include "dit/parallel.h"
#include "onednn.h"
#include "onednn_plan.h"

enum { PIECES = 16, SUMS = 8, BLOCK = 64, POSITIONS = 512 };
#define PIECE_WORK 8388608.0  // multiplications below which a piece is not worth a thread

/// What a key holds, by position.
enum {
  KEY_KIND,
  KEY_DTYPE,
  KEY_RESULT,
  KEY_BIAS,
  KEY_BATCH,
  KEY_GROUPS,
  KEY_IN_CHANNELS,
  KEY_OUT_CHANNELS,
  KEY_IN,
  KEY_OUT = KEY_IN + 3,
  KEY_KERNEL = KEY_OUT + 3,
  KEY_STRIDE = KEY_KERNEL + 3,
  KEY_PADDING = KEY_STRIDE + 3,
  KEY_DILATION = KEY_PADDING + 3,
  KEY_IN_STRIDES = KEY_DILATION + 3,
  KEY_WEIGHT_STRIDES = KEY_IN_STRIDES + 5,
  KEY_OUT_STRIDES = KEY_WEIGHT_STRIDES + 5,
  KEY_END = KEY_OUT_STRIDES + 5
};
_Static_assert((int)KEY_END <= (int)ONEDNN_KEY, "the key of a convolution fits");

// One plan

/// Dimensions, and the first spatial one: 2 where the kernel has depth 1 and there is one plane.
static int get_first(const int64_t *key) {
  const bool flat = key[KEY_IN] == 1 && key[KEY_OUT] == 1 && key[KEY_KERNEL] == 1 && key[KEY_PADDING] == 0;
  return flat ? 1 : 0;
}

/// Two descriptors of a tensor: as it lies, and as the library likes it.
struct layouts {
  void *own, *any;
};

static bool make_layouts(const struct onednn_library *library, struct layouts *out, int ndim, const int64_t *dims,
                         const int64_t *strides, int dtype) {
  *out = (struct layouts){NULL, NULL};
  return library->memory_desc_create_with_strides(&out->own, ndim, dims, dtype, strides) == ONEDNN_SUCCESS &&
         library->memory_desc_create_with_tag(&out->any, ndim, dims, dtype, ONEDNN_ANY) == ONEDNN_SUCCESS;
}

static bool make_image(const struct onednn_library *library, struct layouts *out, const int64_t *key, int64_t channels,
                       int sizes, int strides, int dtype) {
  int64_t dims[ONEDNN_DIMS] = {key[KEY_BATCH], channels}, steps[ONEDNN_DIMS] = {key[strides], key[strides + 1]};
  int ndim = 2;
  for (int i = get_first(key); i < 3; i++, ndim++) {
    dims[ndim] = key[sizes + i];
    steps[ndim] = key[strides + 2 + i];
  }
  return make_layouts(library, out, ndim, dims, steps, dtype);
}

static bool make_weight(const struct onednn_library *library, struct layouts *out, const int64_t *key, int dtype) {
  const int64_t groups = key[KEY_GROUPS], *strides = key + KEY_WEIGHT_STRIDES;
  int64_t dims[ONEDNN_DIMS], steps[ONEDNN_DIMS];
  int ndim = 0;
  if (groups > 1) {
    dims[ndim] = groups;
    steps[ndim++] = key[KEY_OUT_CHANNELS] / groups * strides[0];
  }
  dims[ndim] = key[KEY_OUT_CHANNELS] / groups;
  steps[ndim++] = strides[0];
  dims[ndim] = key[KEY_IN_CHANNELS] / groups;
  steps[ndim++] = strides[1];
  for (int i = get_first(key); i < 3; i++, ndim++) {
    dims[ndim] = key[KEY_KERNEL + i];
    steps[ndim] = strides[2 + i];
  }
  return make_layouts(library, out, ndim, dims, steps, dtype);
}

struct windows {
  int64_t stride[ONEDNN_DIMS], dilation[ONEDNN_DIMS], left[ONEDNN_DIMS], right[ONEDNN_DIMS];
};

/// The padding behind is what makes the sizes fit exactly where equal padding does not.
static void set_windows(struct windows *out, const int64_t *key) {
  int at = 0;
  for (int i = get_first(key); i < 3; i++, at++) {
    const int64_t reach = key[KEY_DILATION + i] * (key[KEY_KERNEL + i] - 1) + 1, padding = key[KEY_PADDING + i];
    const int64_t stride = key[KEY_STRIDE + i], in = key[KEY_IN + i], sizes = key[KEY_OUT + i];
    out->stride[at] = stride;
    out->dilation[at] = key[KEY_DILATION + i] - 1;
    out->left[at] = padding;
    const bool fits = in + 2 * padding >= reach && (in + 2 * padding - reach) / stride + 1 == sizes;
    out->right[at] = fits ? padding : (sizes - 1) * stride + reach - in - padding;
  }
}

/// Descriptors of the operands in the roles of their kind. A gradient is described with the help of the forward
/// convolution, in which the result has the operands' dtype.
struct roles {
  struct layouts in, weight, out;
  void *bias, *attr, *forward, *hint;
};

static int describe_primitive(const struct onednn_library *library, struct onednn_plan *plan, struct roles *roles) {
  const int64_t *key = plan->key.values;
  const void *in = roles->in.any, *weight = roles->weight.any, *out = roles->out.any;
  struct windows w;
  set_windows(&w, key);
  const bool input = key[KEY_KIND] == ONEDNN_CONV_INPUT, gradient = key[KEY_KIND] != ONEDNN_CONV_FORWARD;
  const int status = library->convolution_forward_primitive_desc_create(
      gradient ? &roles->forward : &plan->desc, library->engine, ONEDNN_FORWARD_TRAINING, ONEDNN_DIRECT,
      input ? roles->hint : in, gradient && !input ? roles->hint : weight, roles->bias, out, w.stride, w.dilation,
      w.left, w.right, roles->attr);
  if (status != ONEDNN_SUCCESS || !gradient) {
    return status;
  }
  if (input) {
    return library->convolution_backward_data_primitive_desc_create(&plan->desc, library->engine, ONEDNN_DIRECT, in,
                                                                    weight, out, w.stride, w.dilation, w.left, w.right,
                                                                    roles->forward, roles->attr);
  }
  return library->convolution_backward_weights_primitive_desc_create(&plan->desc, library->engine, ONEDNN_DIRECT, in,
                                                                     weight, NULL, out, w.stride, w.dilation, w.left,
                                                                     w.right, roles->forward, roles->attr);
}

static void set_operands(struct onednn_plan *plan, struct roles *roles) {
  const int kind = (int)plan->key.values[KEY_KIND];
  const bool input = kind == ONEDNN_CONV_INPUT, weight = kind == ONEDNN_CONV_WEIGHT;
  plan->operands[0] = (struct onednn_operand){
      .argument = input ? ONEDNN_ARG_DIFF_SRC : ONEDNN_ARG_SRC, .desc = roles->in.own, .result = input};
  plan->operands[1] = (struct onednn_operand){
      .argument = weight ? ONEDNN_ARG_DIFF_WEIGHTS : ONEDNN_ARG_WEIGHTS, .desc = roles->weight.own, .result = weight};
  plan->operands[2] = (struct onednn_operand){.argument = input || weight ? ONEDNN_ARG_DIFF_DST : ONEDNN_ARG_DST,
                                              .desc = roles->out.own,
                                              .result = !input && !weight};
  plan->operands[3] = (struct onednn_operand){.argument = ONEDNN_ARG_BIAS, .desc = roles->bias};
  plan->count = roles->bias ? 4 : 3;
}

static bool build_conv(const struct onednn_library *library, struct onednn_plan *plan) {
  const int64_t *key = plan->key.values;
  const int kind = (int)key[KEY_KIND], dtype = (int)key[KEY_DTYPE], result = (int)key[KEY_RESULT];
  const bool input = kind == ONEDNN_CONV_INPUT, weight = kind == ONEDNN_CONV_WEIGHT;
  const int queries[] = {input ? ONEDNN_QUERY_DIFF_SRC : ONEDNN_QUERY_SRC,
                         weight ? ONEDNN_QUERY_DIFF_WEIGHTS : ONEDNN_QUERY_WEIGHTS,
                         input || weight ? ONEDNN_QUERY_DIFF_DST : ONEDNN_QUERY_DST, ONEDNN_QUERY_WEIGHTS};
  const int64_t one = 1;
  struct roles roles = {.bias = NULL};
  struct layouts like = {NULL, NULL};  // of the hint
  bool done =
      make_image(library, &roles.in, key, key[KEY_IN_CHANNELS], KEY_IN, KEY_IN_STRIDES, input ? result : dtype) &&
      make_weight(library, &roles.weight, key, weight ? result : dtype) &&
      make_image(library, &roles.out, key, key[KEY_OUT_CHANNELS], KEY_OUT, KEY_OUT_STRIDES,
                 input || weight ? dtype : result) &&
      (!key[KEY_BIAS] ||
       library->memory_desc_create_with_strides(&roles.bias, 1, key + KEY_OUT_CHANNELS, dtype, &one) == ONEDNN_SUCCESS);
  if (done && input) {
    done = make_image(library, &like, key, key[KEY_IN_CHANNELS], KEY_IN, KEY_IN_STRIDES, dtype);
  } else if (done && weight) {
    done = make_weight(library, &like, key, dtype);
  }
  roles.hint = like.any;
  set_operands(plan, &roles);  // owns the descriptors from here on
  done = done && library->primitive_attr_create(&roles.attr) == ONEDNN_SUCCESS &&
         library->primitive_attr_set_scratchpad_mode(roles.attr, ONEDNN_OWN_SCRATCH) == ONEDNN_SUCCESS &&
         describe_primitive(library, plan, &roles) == ONEDNN_SUCCESS;
  done = done && onednn_plan_finish(library, plan, queries, true);
  void *const unused[] = {roles.in.any, roles.weight.any, roles.out.any, like.any, like.own};
  for (int i = 0; i < 5; i++) {
    if (unused[i]) {
      library->memory_desc_destroy(unused[i]);
    }
  }
  if (roles.attr) {
    library->primitive_attr_destroy(roles.attr);
  }
  if (roles.forward) {
    library->primitive_desc_destroy(roles.forward);
  }
  return done;
}

// The pieces of a call

struct conv_job {
  const struct onednn_conv_call *call;
  int64_t images, ranges;    ///< images of a piece, and how many ranges there are
  int64_t channels, blocks;  ///< result's channels of a piece (input channels for the input's gradient)
  int64_t weights;           ///< elements of the weight
  float *sums;               ///< gradients of the weight, one for each range of images
  atomic_bool failed;
};

static int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static int64_t min_of(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t get_volume(const int64_t *sizes) {
  return sizes[0] * sizes[1] * sizes[2];
}

static void cut_job(struct conv_job *job) {
  const struct conv_shape *s = job->call->shape;
  const bool weight = job->call->kind == ONEDNN_CONV_WEIGHT;
  const int64_t all = job->call->kind == ONEDNN_CONV_INPUT ? s->in_channels : s->out_channels;
  const int64_t positions = get_volume(s->out);
  job->weights = s->out_channels * (s->in_channels / s->groups) * get_volume(s->kernel);
  const double work = (double)s->batch * (double)positions * (double)job->weights;
  int64_t wanted = (int64_t)(work / PIECE_WORK);
  wanted = wanted < 1 ? 1 : min_of(wanted, weight ? SUMS : PIECES);
  // every piece brings the weights into the library's layout: it has enough positions to be worth that
  const int64_t least = divide_up(POSITIONS, positions);
  int64_t ranges = min_of(wanted, divide_up(s->batch, least));
  int64_t blocks = s->groups == 1 ? min_of(divide_up(wanted, ranges), all / BLOCK) : 1;
  if (weight && s->groups == 1 && job->weights > 65536) {  // sums cost memory: channels first
    blocks = min_of(wanted, all / BLOCK);
    blocks = blocks < 1 ? 1 : blocks;
    ranges = min_of(ranges, divide_up(wanted, blocks));
  }
  job->images = divide_up(s->batch, ranges);
  job->ranges = divide_up(s->batch, job->images);
  job->channels = blocks < 1 ? all : divide_up(divide_up(all, blocks), 16) * 16;
  job->blocks = divide_up(all, job->channels);
}

static void set_key(struct onednn_key *key, const struct onednn_conv_call *call) {
  const struct conv_shape *s = call->shape;
  int64_t *values = key->values;
  memset(key, 0, sizeof(*key));
  values[KEY_KIND] = call->kind;
  values[KEY_DTYPE] = onednn_get_dtype(call->dtype);
  values[KEY_RESULT] = onednn_get_dtype(call->result);
  values[KEY_BIAS] = call->bias != NULL;
  values[KEY_BATCH] = s->batch;
  values[KEY_GROUPS] = s->groups;
  values[KEY_IN_CHANNELS] = s->in_channels;
  values[KEY_OUT_CHANNELS] = s->out_channels;
  for (int i = 0; i < 3; i++) {
    values[KEY_IN + i] = s->in[i];
    values[KEY_OUT + i] = s->out[i];
    values[KEY_KERNEL + i] = s->kernel[i];
    values[KEY_STRIDE + i] = s->stride[i];
    values[KEY_PADDING + i] = s->padding[i];
    values[KEY_DILATION + i] = s->dilation[i];
  }
  for (int i = 0; i < 5; i++) {
    values[KEY_IN_STRIDES + i] = call->in.strides[i];
    values[KEY_WEIGHT_STRIDES + i] = call->weight.strides[i];
    values[KEY_OUT_STRIDES + i] = call->out.strides[i];
  }
}

/// Row-major strides for a weight's gradient that is added up.
static void set_dense(const struct conv_shape *s, int64_t *strides) {
  strides[4] = 1;
  strides[3] = s->kernel[2];
  strides[2] = s->kernel[1] * strides[3];
  strides[1] = s->kernel[0] * strides[2];
  strides[0] = s->in_channels / s->groups * strides[1];
}

static char *move(const struct onednn_tensor *tensor, int dtype, int64_t first, int64_t second) {
  return tensor->data + (first * tensor->strides[0] + second * tensor->strides[1]) * (int64_t)dit_dtype_get_size(dtype);
}

static bool run_piece(const struct conv_job *job, int64_t number) {
  struct onednn_conv_call piece = *job->call;
  struct conv_shape shape = *piece.shape;
  const int64_t range = number / job->blocks, image = range * job->images;
  const int64_t channel = number % job->blocks * job->channels;
  const bool input = piece.kind == ONEDNN_CONV_INPUT, weight = piece.kind == ONEDNN_CONV_WEIGHT;
  if (job->sums) {
    piece.result = DIT_DTYPE_F32;
    piece.weight.data = (char *)(job->sums + range * job->weights);
    set_dense(&shape, piece.weight.strides);
  }
  shape.batch = min_of(shape.batch - image, job->images);
  int64_t *channels = input ? &shape.in_channels : &shape.out_channels;
  *channels = min_of(*channels - channel, job->channels);
  piece.shape = &shape;
  struct onednn_key key;
  set_key(&key, &piece);
  struct onednn_plan *plan = onednn_plan_get(&key, build_conv);
  if (!plan) {
    return false;
  }
  void *const data[] = {
      move(&piece.in, input ? piece.result : piece.dtype, image, input ? channel : 0),
      move(&piece.weight, weight ? piece.result : piece.dtype, input ? 0 : channel, input ? channel : 0),
      move(&piece.out, input || weight ? piece.dtype : piece.result, image, input ? 0 : channel),
      piece.bias ? (char *)piece.bias + channel * (int64_t)dit_dtype_get_size(piece.dtype) : NULL};
  const bool done = onednn_plan_run(plan, data);
  onednn_plan_put(plan);
  return done;
}

static void run_pieces(void *context, int64_t begin, int64_t end) {
  struct conv_job *job = context;
  for (int64_t i = begin; i < end && !atomic_load_explicit(&job->failed, memory_order_relaxed); i++) {
    if (!run_piece(job, i)) {
      atomic_store(&job->failed, true);
    }
  }
}

// Sums of the weight's gradient

/// Elements [begin, end) of the first gradient += those of the others.
static void add_sums(void *context, int64_t begin, int64_t end) {
  const struct conv_job *job = context;
  for (int64_t range = 1; range < job->ranges; range++) {
    const float *from = job->sums + range * job->weights;
    for (int64_t i = begin; i < end; i++) {
      job->sums[i] += from[i];
    }
  }
}

/// The gradient to its tensor, one row of the kernel at a time.
static void store_sums(const struct conv_job *job) {
  const struct onednn_conv_call *call = job->call;
  const struct conv_shape *s = call->shape;
  const int64_t *strides = call->weight.strides, width = s->kernel[2];
  const int64_t size = (int64_t)dit_dtype_get_size(call->result), channels = s->in_channels / s->groups;
  int64_t dense[5];
  set_dense(s, dense);
  if (memcmp(dense, strides, sizeof(dense)) == 0) {
    cast_block(call->result, call->weight.data, DIT_DTYPE_F32, job->sums, job->weights);
    return;
  }
  for (int64_t i = 0; i < job->weights; i++) {
    const int64_t x = i % width, y = i / width % s->kernel[1], z = i / dense[2] % s->kernel[0];
    const int64_t at = i / dense[0] * strides[0] + i / dense[1] % channels * strides[1] + z * strides[2] +
                       y * strides[3] + x * strides[4];
    cast_block(call->result, call->weight.data + at * size, DIT_DTYPE_F32, job->sums + i, 1);
  }
}

bool onednn_convolve(const struct onednn_conv_call *call) {
  const struct conv_shape *s = call->shape;
  struct conv_job job = {.call = call};
  if (!onednn_is_available()) {
    return false;
  }
  if (!onednn_get_dtype(call->dtype) || !onednn_get_dtype(call->result) || s->batch < 1 || s->in_channels < 1 ||
      s->out_channels < 1 || get_volume(s->in) < 1 || get_volume(s->out) < 1) {
    return false;
  }
  // the library's code counts in 32 bits here and there
  const double most = (double)INT32_MAX / 8;
  if ((double)s->in_channels * (double)get_volume(s->in) > most ||
      (double)s->out_channels * (double)get_volume(s->out) > most) {
    return false;
  }
  cut_job(&job);
  if (call->kind == ONEDNN_CONV_WEIGHT && job.ranges > 1) {
    job.sums = dit_malloc((size_t)(job.ranges * job.weights) * sizeof(float));
    if (!job.sums) {
      return false;
    }
  }
  dit_parallel_for(0, job.ranges * job.blocks, 1, run_pieces, &job);
  const bool done = !atomic_load(&job.failed);
  if (done && job.sums) {
    dit_parallel_for(0, job.weights, 16384, add_sums, &job);
    store_sums(&job);
  }
  dit_free(job.sums);
  onednn_count(done);
  return done;
}
