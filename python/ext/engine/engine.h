/// The interception engine: one torch-function mode in C that shows every operator call to the tools that want it.
///
/// A call walks one way: mode.c (entry) -> names.c (which operator) -> mode.c (which tools) -> walk.c (arguments,
/// tensor metadata) -> the tools' `before` -> the operator -> the tools' `after` -> backward.c (autograd nodes of the
/// call). Everything about one call lives in `struct engine_call` on the stack of that call; what must outlive it (the
/// backward pass) is the tool's own data, owned by the window that backward.c keeps.
///
/// All functions need the GIL. While a tool works, the thread's guard is up: torch calls made by it are not
/// intercepted. Failure is -1 or NULL with a Python exception; a tool's exception reaches the user, so tools raise only
/// what the user asked for (a stop on overflow, the user's own condition function).
#ifndef DIT_EXT_ENGINE_H
#define DIT_EXT_ENGINE_H

#include <stdatomic.h>

#include "dit/tensor.h"
#include "torch_names.h"

#define ENGINE_MAX_TOOLS 16      ///< active at once in a process
#define ENGINE_INLINE_LEAVES 24  ///< of one call, before the heap is used
#define ENGINE_MAX_DEPTH 16      ///< of nested containers; deeper ones are one leaf

// Tensors

/// Kinds of memory behind a tensor, as the tools need to know them.
enum engine_place {
  ENGINE_PLACE_CPU,
  ENGINE_PLACE_HOST,   ///< the embedded device: host memory, may be read once its stream is synchronised
  ENGINE_PLACE_CUDA,   ///< a real CUDA device
  ENGINE_PLACE_OTHER,  ///< another accelerator: only torch's own operators can read it
  ENGINE_PLACE_NONE,   ///< no memory to read: meta, fake, functorch wrapper, sparse, nested ...
};

enum engine_tensor_flag {
  ENGINE_TENSOR_GRAD = 1 << 0,      ///< requires_grad
  ENGINE_TENSOR_CONJ = 1 << 1,      ///< the conjugate bit is set: memory holds the conjugate
  ENGINE_TENSOR_NEG = 1 << 2,       ///< the negative bit is set
  ENGINE_TENSOR_STRIDED = 1 << 3,   ///< sizes, strides and data are valid
  ENGINE_TENSOR_SUBCLASS = 1 << 4,  ///< neither Tensor, Parameter nor Buffer
  ENGINE_TENSOR_DEVICE = 1 << 5,    ///< belongs to a device, even if its memory cannot be read (place NONE)
};

/// What is known of one tensor at the moment it was read. `sizes` and `strides` are borrowed from the tensor: they hold
/// as long as it lives and is not resized.
struct engine_tensor {
  PyObject *py_tensor;  ///< borrowed
  void *data;           ///< address of the first element; NULL when unreadable or empty
  const int64_t *sizes;
  const int64_t *strides;  ///< in elements
  int64_t numel;
  int64_t version;  ///< -1 when not asked for
  int32_t ndim;
  int16_t dtype;  ///< enum dit_dtype; -1 unknown
  int16_t device_index;
  uint8_t place;   ///< enum engine_place
  uint8_t flags;   ///< enum engine_tensor_flag
  int64_t *owned;  ///< memory behind sizes and strides when torch cannot lend its own; see engine_tensor_reset
};

/// True for torch.Tensor and its subclasses.
bool engine_is_tensor(PyObject *object);
/// Read metadata without running Python code for ordinary tensors. Never raises: what cannot be read has place NONE.
/// The guard must be up.
void engine_tensor_read(PyObject *tensor, struct engine_tensor *out);
/// Give back what engine_tensor_read had to allocate (nothing, for ordinary tensors of a current torch).
void engine_tensor_reset(struct engine_tensor *tensor);
/// The version counter; -1 where there is none (inference tensors).
int64_t engine_tensor_get_version(PyObject *tensor);
/// A view for dit/numerics.h and dit/helper.h; false when memory cannot be read as it is (place OTHER and NONE, conj
/// and neg bits, more than DIT_MAX_DIMS dimensions, no data).
bool engine_tensor_get_view(const struct engine_tensor *tensor, struct dit_tensor_view *view);
/// Addresses of a tensor's bytes, half open; both 0 when it has none that are known.
struct engine_span {
  uintptr_t low, high;
};
struct engine_span engine_tensor_get_span(const struct engine_tensor *tensor);
static inline bool engine_spans_meet(const struct engine_span *a, const struct engine_span *b) {
  return a->low < b->high && b->low < a->high;
}
/// "cuda" / "cpu" ... as torch prints the device's type; interned for the record log.
uint32_t engine_tensor_get_device_key(const struct engine_tensor *tensor);
/// The current stream of the tensor's device as a raw handle (cudaStream_t for CUDA, dit's stream for HOST).
void *engine_stream_get_current(const struct engine_tensor *tensor);

// leaves: the flat form of arguments and results

enum engine_leaf_kind {
  ENGINE_LEAF_TENSOR,
  ENGINE_LEAF_NONE,
  ENGINE_LEAF_BOOL,
  ENGINE_LEAF_INT,
  ENGINE_LEAF_FLOAT,
  ENGINE_LEAF_STRING,
  ENGINE_LEAF_INTS,   ///< a list or tuple of ints only (shapes): one leaf
  ENGINE_LEAF_OTHER,  ///< dtype, device, slice, generator ...: shown by str()
};

struct engine_leaf {
  PyObject *value;  ///< borrowed from the arguments or the result
  uint32_t key;     ///< interned path for the record log: "args.0", "args.1.0", "kwargs.dim", "out", "out.0"
  int32_t tensor;   ///< index into the tensors of the same list, -1 for others
  int32_t top;      ///< index of the top-level argument (kwargs count on after the positional ones)
  uint8_t kind;     ///< enum engine_leaf_kind
};

/// Flat lists of one walk.
struct engine_leaves {
  struct engine_leaf *leaf;
  struct engine_tensor *tensor;
  int leaf_count, tensor_count;
  int leaf_capacity, tensor_capacity;
  struct engine_leaf inline_leaf[ENGINE_INLINE_LEAVES];
  struct engine_tensor inline_tensor[ENGINE_INLINE_LEAVES];
};

/// Walk list, tuple, dict, set, named tuple, torch.return_types and dataclasses; nothing else is opened. 0 or -1.
DIT_NODISCARD int engine_leaves_add(struct engine_leaves *leaves, PyObject *object, const char *prefix);
void engine_leaves_init(struct engine_leaves *leaves);
void engine_leaves_reset(struct engine_leaves *leaves);

// Operators

enum engine_op_flag {
  ENGINE_OP_NEVER = 1 << 0,     ///< not an operator: getters, size, backward ... (reference lists)
  ENGINE_OP_INPLACE = 1 << 1,   ///< by name: torch.Tensor.add_, __setitem__, out= is seen per call
  ENGINE_OP_QUESTION = 1 << 8,  ///< without arguments it only asks: torch.Tensor.type
  ENGINE_OP_DEVICE = 1 << 2,    ///< moves to the device by itself: torch.Tensor.cuda
  // By the last part of the name (classes.c):
  ENGINE_OP_VIEW = 1 << 3,           ///< may return a view of an argument
  ENGINE_OP_TRANSFER = 1 << 4,       ///< moves or converts: to, cpu, cuda, numpy ...
  ENGINE_OP_RANDOM = 1 << 5,         ///< draws from a generator
  ENGINE_OP_UNINITIALISED = 1 << 6,  ///< hands out uninitialised memory
  ENGINE_OP_COLLECTIVE = 1 << 7,     ///< torch.distributed: counts as a device operator whatever its tensors
  ENGINE_OP_BEYOND = 1 << 9,         ///< reads memory outside of the tensor that it is given
  ENGINE_OP_OPTIMIZER = 1 << 10,     ///< a step of an optimizer in one operator
};

/// The last part of an operator's name: "mul_" of torch.Tensor.mul_ and of aten::mul_.
const char *engine_name_get_last(const char *name);

/// The object that a dotted name of torch means; new reference, NULL (no exception) when there is none.
PyObject *engine_name_find_object(const char *name);

/// One operator; lives as long as the process.
struct engine_op {
  PyObject *py_name;    ///< owned: "torch.nn.functional.linear", "aten::addmm"
  const char *name;     ///< its UTF-8
  uint32_t key;         ///< interned name
  unsigned flags;       ///< enum engine_op_flag
  uint64_t generation;  ///< of the engine, when `tools` was decided
  uint32_t tools;       ///< slots whose matcher accepts the name
  uint32_t told;        ///< kinds of tools that said their apply line, and (high half) their skip line
};

// One call

enum engine_call_flag {
  ENGINE_CALL_FAILED = 1 << 0,     ///< the operator raised; `result` is NULL, see `error`
  ENGINE_CALL_RECOMPUTE = 1 << 1,  ///< inside the backward pass: activation checkpointing, custom backward
  ENGINE_CALL_ATEN = 1 << 2,       ///< level "aten"
  ENGINE_CALL_HOOKED = 1 << 3,     ///< through a function that apply_feature replaced
  /// `func` runs the operator when it is called first; called again, with CPU copies, it computes what should have come
  /// out (collectives: others take part, running it twice is not possible).
  ENGINE_CALL_REFERENCE = 1 << 4,
};

struct engine_call {
  struct engine_op *op;
  PyObject *func, *args, *kwargs;  ///< borrowed; kwargs may be NULL
  PyObject *result;                ///< borrowed; NULL before the call and after a failure
  PyObject *error;                 ///< borrowed: the exception after a failure
  uint64_t id;                     ///< forward_id: process-wide, from 1
  int64_t step;                    ///< of the engine: number of step() calls
  int64_t begin_ns, end_ns;        ///< host clock (dit_record_get_time) right around the operator
  unsigned flags;
  uint32_t location;  ///< interned "<file>:<line> <function>: <source>", 0 when no tool needs it
  uint32_t module;    ///< interned path of the nn.Module, 0 for none
  struct engine_leaves in, out;
  /// Tensors of `in` that the call changed (version counter), bit by index for the first 64; filled before `after`.
  uint64_t changed;
  /// Tensors of `out` that are (the very object of) an input: index into in.tensor, else -1. First 64.
  int8_t same[64];
  void *data[ENGINE_MAX_TOOLS];  ///< per tool slot, free for the tool between before and after
};

/// The first tensor on a device decides; -1: only CPU.
int engine_call_get_device(const struct engine_call *call);
/// An optimizer in one kernel (torch._fused_adamw_): it writes to all its lists of tensors and raises no version
/// counter.
bool engine_op_is_fused_optimizer(const struct engine_op *op);
/// The weight of this call gets a sparse gradient (embedding with sparse=True): autograd cannot lead it through a copy
/// of the weight on another device or of another dtype.
bool engine_call_has_sparse_gradient(const struct engine_call *call);
/// Paths of nn.Modules by their interned number; zero-initialise.
struct engine_modules {
  PyObject **py_paths;  ///< owned; NULL where not met
  size_t count;
};
/// Remember the path of the module that is being called; `module` is engine_call.module. Nothing for 0.
void engine_modules_note(struct engine_modules *modules, uint32_t module);
/// Borrowed; NULL when it is not known.
PyObject *engine_modules_get(const struct engine_modules *modules, uint32_t module);
void engine_modules_reset(struct engine_modules *modules);
/// A text such as "cuda" or "npu:1".
bool engine_text_is_device(PyObject *text);
/// "<file>:<line> <function>: <source line>" of `call->location`; new reference.
PyObject *engine_call_get_location(const struct engine_call *call);

// One backward event of one call

/// Delivered by backward.c. Gradients are borrowed; entries may be NULL (undefined or not wanted).
struct engine_backward {
  struct engine_op *op;
  uint64_t id;    ///< of the forward call
  int64_t step;   ///< when the backward ran
  int32_t round;  ///< 0, then 1 ... for retain_graph
  uint32_t location, module;
  unsigned flags;
  /// Host clock: first node entered, last node left. The first node's end stands for its entry when no tool that keeps
  /// the call has a backward_begin.
  int64_t begin_ns, end_ns;
  PyObject *const *grad_outputs;
  /// Tensors of the result in order, then inputs changed in place that are not among them, then bases of changed views.
  /// backward_begin knows those of the node that comes first; a gradient is what autograd accumulated for that tensor.
  int grad_output_count;
  PyObject *const *grad_inputs;
  /// Tensors of the arguments in order of engine_call.in.tensor, then bases of changed views. What this call alone
  /// contributes; a tensor passed several times has the same sum at each place. Not valid in backward_begin.
  int grad_input_count;
  bool complete;  ///< false: the graph task ended before all inputs had their gradient
  void *data;     ///< what the tool returned from keep()
};

// Tools

enum engine_need {
  ENGINE_NEED_BACKWARD = 1 << 0,
  ENGINE_NEED_LOCATION = 1 << 1,
  ENGINE_NEED_MODULE = 1 << 2,
  ENGINE_NEED_VERSION = 1 << 3,  ///< engine_tensor.version and engine_call.changed
  /// Gradients: shapes are enough. An input that the call used several times gets the sum of the contributions, which
  /// costs an addition; when all tools have this flag it gets the first one as it is.
  ENGINE_NEED_SHAPES_ONLY = 1 << 4,
};

struct engine_tool;

/// What is left to run of a call: the tools with a `call` slot that have not run yet, then the operator.
struct engine_chain;
/// For the `call` slot: go on with these arguments. New reference, or NULL with an exception; may be called again (a
/// retry), or not at all. The guard is up before and after; the operator itself runs without it.
PyObject *engine_chain_run(struct engine_chain *chain, PyObject *args, PyObject *kwargs);
/// The same with another function in place of the operator, past the other tools.
PyObject *engine_chain_run_function(struct engine_chain *chain, PyObject *func, PyObject *args, PyObject *kwargs);

/// What a tool does. Every slot but `name` may be NULL. Slots run with the guard up.
struct engine_tool_vtable {
  const char *name;  ///< "observe"
  const char *hook;  ///< the name in apply/skip lines: "OpObserveHook"
  unsigned needs;
  int order;  ///< tools run `before` in ascending order and `after` in descending order: time is the innermost
  /// Read the dictionary of options that Python passed; called at creation. 0 or -1.
  int (*configure)(struct engine_tool *tool, PyObject *options);
  int (*start)(struct engine_tool *tool);
  int (*before)(struct engine_tool *tool, struct engine_call *call);
  int (*after)(struct engine_tool *tool, struct engine_call *call);
  /// Runs in place of the operator, between all `before` and all `after`: tools that act (fallback, dtype cast).
  /// Several nest in ascending order. New reference, or NULL with an exception, which the program gets. Calls without a
  /// tensor argument whose device is not known beforehand do not come here.
  PyObject *(*call)(struct engine_tool *tool, struct engine_call *call, struct engine_chain *chain);
  /// After `after`, when the call has a backward and the tool needs it: data to be handed to the backward slots; NULL:
  /// no interest in this call. Released by `release` when the autograd graph dies.
  void *(*keep)(struct engine_tool *tool, struct engine_call *call);
  void (*release)(struct engine_tool *tool, void *data);
  /// On the autograd thread. `backward_begin`: gradients of the outputs are known; `backward_end`: of the inputs too.
  int (*backward_begin)(struct engine_tool *tool, struct engine_backward *backward);
  int (*backward_end)(struct engine_tool *tool, struct engine_backward *backward);
  int (*step)(struct engine_tool *tool, int64_t step);
  /// Finish what is pending; the tool may be started again.
  int (*stop)(struct engine_tool *tool);
  void (*destroy)(struct engine_tool *tool);
  /// New dictionary of numbers and results for Python (summary tables).
  PyObject *(*describe)(struct engine_tool *tool);
  /// Extra facts of one call / one backward for the full console's callback (new reference, dict); NULL: none.
  PyObject *(*extra)(struct engine_tool *tool, struct engine_call *call);
  PyObject *(*extra_backward)(struct engine_tool *tool, struct engine_backward *backward);
};

/// Why calls did not reach a tool. The order is the order of the tests.
enum engine_reason {
  ENGINE_APPLIED,
  ENGINE_SKIP_NOT_OPERATOR,
  ENGINE_SKIP_STEP,       ///< step, rank or every n-th step
  ENGINE_SKIP_CONDITION,  ///< the user's function said no
  ENGINE_SKIP_CPU,
  ENGINE_SKIP_NAME,  ///< lists
  ENGINE_SKIP_NUMEL,
  ENGINE_SKIP_MODULE,
  ENGINE_SKIP_FIRST,  ///< more than the first n calls of this operator and signature
  ENGINE_SKIP_CAP,    ///< the tool's own caps
  ENGINE_REASONS,
};

/// A Python object: ditorch._C.Tool. Created by Tool(kind, options); the type is in tool.c.
struct engine_tool {
  PyObject ob_base;
  const struct engine_tool_vtable *vtable;
  int kind;                      ///< number of the vtable
  uint32_t key;                  ///< interned name for the record log
  int slot;                      ///< while active; -1 otherwise
  bool due;                      ///< this step and rank are selected (set by Python at start and at each step)
  bool aten;                     ///< level "aten"
  bool cpu;                      ///< also calls that touch no device
  bool hooked;                   ///< reached by replaced functions alone (hook.c), not by the modes
  PyObject *py_matcher;          ///< name -> bool, asked once per operator and generation
  PyObject *py_condition;        ///< the user's function(*args, **kwargs) or NULL
  PyObject *py_modules;          ///< module path -> bool, or NULL
  PyObject *py_console;          ///< full console: called with each event, or NULL
  int64_t numel_min, numel_max;  ///< of the largest tensor of a call; 0 and INT64_MAX: no limit
  int64_t first;                 ///< calls per (operator, signature); INT64_MAX: no limit
  struct engine_signatures *signatures;
  _Atomic uint64_t counts[ENGINE_REASONS];
  uint64_t seen;  ///< operator calls: the engine's number at the start; after stop, how many
  void *state;    ///< the tool's own, allocated in configure, freed in destroy
};

extern const struct engine_tool_vtable engine_tool_observe;
extern const struct engine_tool_vtable engine_tool_time;
extern const struct engine_tool_vtable engine_tool_overflow;
extern const struct engine_tool_vtable engine_tool_capture;
extern const struct engine_tool_vtable engine_tool_compare;
extern const struct engine_tool_vtable engine_tool_fallback;
extern const struct engine_tool_vtable engine_tool_cast;

// backward.c

#define ENGINE_INLINE_EDGES 8

/// Where one input's gradient goes: the autograd node that made it, and which of that node's outputs it is.
struct engine_edge {
  PyObject *py_node;  ///< owned; NULL for a leaf, which is known by the tensor itself
  uint32_t output_nr;
  int32_t input;  ///< index into engine_call.in.tensor
  int32_t first;  ///< the first input with the same edge; set by engine_window_end
};

/// What must be taken before the operator runs: the sequence number of autograd nodes, the edges of the inputs.
struct engine_window_start {
  uint64_t sequence;
  bool wanted;  ///< some input requires grad; nothing else is valid when false
  int edge_count;
  struct engine_edge *edges;  ///< inline_edges or the heap
  struct engine_edge inline_edges[ENGINE_INLINE_EDGES];
};

/// Only when a tool that applies needs the backward; the guard must be up. 0 or -1.
DIT_NODISCARD int engine_window_begin(struct engine_window_start *start, struct engine_call *call);
/// After the tools' `after`: find the nodes of the call, ask each tool of `tools` (slots, bit mask) for keep(), hook
/// the nodes. Leaves nothing behind when no tool keeps anything.
DIT_NODISCARD int engine_window_end(struct engine_window_start *start, struct engine_call *call, uint32_t tools);
/// Instead of engine_window_end, when the operator failed. Both may be called on a struct that is zero.
void engine_window_drop(struct engine_window_start *start);
/// True inside a graph task of the autograd engine, on whatever thread.
bool engine_backward_is_running(void);

// Thread guard

/// True while a tool works on this thread.
bool engine_guard_is_up(void);
/// Raise the guard (and switch torch-function dispatch off where other modes could see our work); returns a token for
/// engine_guard_lower.
int engine_guard_raise(void);
void engine_guard_lower(int token);
/// While the guard is up: a mode that builds a graph of the calls that it sees (make_fx, linearize, export) watches the
/// program. It does not see what a tool computes, so a tool must not put that in an operator's place.
bool engine_guard_has_tracer(void);

// Process-wide

struct engine_tool *engine_get_tool(int slot);  ///< borrowed; NULL when the slot is free
uint64_t engine_id_next(void);
int64_t engine_step_get(void);
/// Of torch.Tensor, looked up once; the objects are in torch_names.h.
struct engine_torch {
  // Getters, called without a lookup through engine_tensor_get(); NULL on a torch that lacks one.
  PyGetSetDef *requires_grad, *version, *grad_fn, *layout, *is_meta, *is_quantized, *is_nested, *base, *output_nr,
      *shape, *dtype, *device;
  const struct engine_exchange *exchange;  ///< DLPack's C exchange API (torch 2.10 and later), or NULL
  bool loaded;
};
extern struct engine_torch engine_torch;
/// Look up the getters, and the groups of torch_names.h that the engine and all tools use; once. 0 or -1.
DIT_NODISCARD int engine_torch_load(void);
/// Call a getter of the table above: new reference, or NULL with an exception. The guard must be up.
static inline PyObject *engine_tensor_get(PyObject *tensor, const PyGetSetDef *getter) {
  return getter->get(tensor, getter->closure);
}
/// Leaves no exception.
static inline bool engine_tensor_requires_grad(PyObject *tensor) {
  PyObject *py_answer = engine_tensor_get(tensor, engine_torch.requires_grad);
  bool yes = py_answer == Py_True;
  Py_XDECREF(py_answer);
  py_error_drop();
  return yes;
}

#endif
