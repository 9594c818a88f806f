/// The graph engine: a program of tensors as flat data, verified, fused, planned and run without the framework's help.
///
/// A graph travels: the framework captures it and writes the words of docs/graph-engine.md -> dit_graph_load checks all
/// of them -> dit_graph_plan_create takes the values of the symbols (batch, sequence), fuses elementwise nodes and
/// reductions into regions, has the vendor's engine make each of them runnable, and lays intermediate values into one
/// arena -> dit_graph_plan_run runs the steps. What has no region is a call of the framework's operator: a row of the
/// device's table, or an island, which is counted with its reason.
///
/// Threads: a graph and a plan do not change after they were made; any number of threads may run one plan at once.
#ifndef DIT_GRAPH_H
#define DIT_GRAPH_H

#include "dit/tensor.h"

DIT_EXTERN_C_BEGIN

#define DIT_GRAPH_MAGIC INT64_C(0x3147544944)  ///< "DITG1", the first word
#define DIT_GRAPH_MAX_DIMS 8
#define DIT_REGION_MAX_OPS 96       ///< values of a region, loads and numbers among them
#define DIT_REGION_MAX_OPERANDS 24  ///< tensors that a region reads and writes
#define DIT_REGION_MAX_ROW 8192     ///< longest row after whose folds a region goes on; longer ones are folded alone

/// X(NAME, arguments): what an element of a region can be made of. Results have the dtype that the operation says;
/// comparisons and tests give bool. LOAD and NUMBER begin values; SUM, MAX and MIN fold rows or columns.
#define DIT_REGION_OP_LIST(X) \
  X(LOAD, 0)                  \
  X(NUMBER, 0)                \
  X(SUM, 1)                   \
  X(MAX, 1)                   \
  X(MIN, 1)                   \
  X(CAST, 1)                  \
  X(COPY, 1)                  \
  X(NEG, 1)                   \
  X(ABS, 1)                   \
  X(SIGN, 1)                  \
  X(NOT, 1)                   \
  X(ISNAN, 1)                 \
  X(SQRT, 1)                  \
  X(RSQRT, 1)                 \
  X(RECIPROCAL, 1)            \
  X(EXP, 1)                   \
  X(EXPM1, 1)                 \
  X(LOG, 1)                   \
  X(LOG2, 1)                  \
  X(LOG10, 1)                 \
  X(LOG1P, 1)                 \
  X(SIN, 1)                   \
  X(COS, 1)                   \
  X(TANH, 1)                  \
  X(ERF, 1)                   \
  X(FLOOR, 1)                 \
  X(CEIL, 1)                  \
  X(ROUND, 1)                 \
  X(TRUNC, 1)                 \
  X(RELU, 1)                  \
  X(SIGMOID, 1)               \
  X(SILU, 1)                  \
  X(GELU, 1)                  \
  X(GELU_TANH, 1)             \
  X(ADD, 2)                   \
  X(SUB, 2)                   \
  X(MUL, 2)                   \
  X(DIV, 2)                   \
  X(MAXIMUM, 2)               \
  X(MINIMUM, 2)               \
  X(POW, 2)                   \
  X(CLAMP_MIN, 2)             \
  X(CLAMP_MAX, 2)             \
  X(EQ, 2)                    \
  X(NE, 2)                    \
  X(LT, 2)                    \
  X(LE, 2)                    \
  X(GT, 2)                    \
  X(GE, 2)                    \
  X(AND, 2)                   \
  X(OR, 2)                    \
  X(XOR, 2)                   \
  X(TANH_GRAD, 2)             \
  X(SIGMOID_GRAD, 2)          \
  X(SILU_GRAD, 2)             \
  X(GELU_GRAD, 2)             \
  X(GELU_TANH_GRAD, 2)        \
  X(WHERE, 3)                 \
  X(ADD_SCALED, 3)            \
  X(LERP, 3)

enum dit_region_opcode {
#define DIT_REGION_ENUM(name, arguments) DIT_REGION_##name,
  DIT_REGION_OP_LIST(DIT_REGION_ENUM)
#undef DIT_REGION_ENUM
      DIT_REGION_OP_COUNT,
};

/// "ADD"; NULL for a number that is none. The number of its arguments.
DIT_API const char *dit_region_op_get_name(int op);
DIT_API int dit_region_op_get_arity(int op);

// What an engine is given

/// Rows: elements of the last dimension(s) that reductions fold. A value of level ROW has one element per row.
enum dit_region_level { DIT_LEVEL_ELEMENT, DIT_LEVEL_ROW };
enum dit_region_kind {
  DIT_REGION_POINTWISE,
  DIT_REGION_ROWS,     ///< reductions over the last dimension; what follows them may be elementwise again (see MAX_ROW)
  DIT_REGION_COLUMNS,  ///< reductions over all dimensions but the last; nothing follows them
};

struct dit_region_op {
  uint8_t op;       ///< enum dit_region_opcode
  uint8_t level;    ///< of the result
  int16_t dtype;    ///< of the result: computed in float (double, int64) and rounded to it
  int16_t args[3];  ///< earlier values
  int16_t operand;  ///< LOAD: which
  double number;    ///< NUMBER of a floating dtype
  int64_t integer;  ///< NUMBER of any other
};

struct dit_region_operand {
  int16_t dtype;
  int16_t stored;                       ///< the value that is written to it; -1: it is read
  int64_t strides[DIT_GRAPH_MAX_DIMS];  ///< in elements, over the region's dimensions; 0: broadcast, or folded
};

/// The last dimension is the row (the columns); the others lie outside of it.
struct dit_region {
  enum dit_region_kind kind;
  int ndim;
  int64_t sizes[DIT_GRAPH_MAX_DIMS];
  int nops, noperands;
  struct dit_region_op *ops;
  struct dit_region_operand *operands;
};

#define DIT_GRAPH_ENGINE_ABI_VERSION 1
#define DIT_VENDOR_GRAPH_SYMBOL "dit_vendor_get_graph_engine"

/// Takes bytes of a program that is kept.
typedef enum dit_status dit_graph_write(void *context, const void *bytes, size_t size, struct dit_error *err);

struct dit_graph;

/// A vendor's engine, exported as dit_vendor_get_graph_engine. It only grows at the end. It makes regions (compile, run
/// and release are there), takes whole subgraphs (the slots from supports_node to run_graph are there), or does both.
struct dit_graph_engine {
  uint32_t abi_version, struct_size;
  const char *name, *version;

  // Regions

  /// Can the region be made? Cheap; asked for each operation alone while the graph is written (with sizes of 2: only
  /// operations, dtypes and ranks count), and for each region before it is compiled. NULL: every region can.
  bool (*supports)(const struct dit_region *region);
  /// Thread safe, no work on the device; keeps nothing of `region`.
  enum dit_status (*compile)(const struct dit_region *region, int device, void **executable, struct dit_error *err);
  void (*release)(void *executable);  ///< NULL allowed; after its last run has finished
  /// Enqueue on the stream (NULL: the default one). Re-entrant; `data` has a pointer per operand, offsets included. An
  /// operand that is written may lie where one of the same strides is read.
  enum dit_status (*run)(void *executable, int device, void *stream, void *const *data, struct dit_error *err);
  /// One line about how it runs ("vm", "c 3f2a..."), into the buffer. (optional)
  void (*describe)(void *executable, char *text, size_t size);
  /// Until nothing is being made in the background; for measurements and tests. (optional)
  void (*settle)(void);

  // Subgraphs: nodes between which nothing else has to run, as one step

  /// Would the engine take this node? Cheap; asked for each operation alone while the graph is written, and for every
  /// node before a graph is divided. A size may be a symbol: the answer is for all its values. Nodes that draw random
  /// numbers, and those with a tensor that is not the device's, are not asked about.
  bool (*supports_node)(const struct dit_graph *graph, int32_t node, int device);
  /// Make a program of the words of a subgraph (dit_graph_load reads them). Every size is a number; nodes are rows,
  /// operations and folds, and results are as if they ran in their order. Each input begins where its memory does, and
  /// an operation may write to one; each output is made by a node. Thread safe, no work on the device, keeps nothing
  /// of `words`. Any failure is a refusal: the graph runs by regions and rows instead, and its text is told.
  enum dit_status (*compile_graph)(const int64_t *words, size_t count, int device, void **program,
                                   struct dit_error *err);
  void (*release_graph)(void *program);  ///< NULL allowed; runs that are still queued keep what they need
  /// Bytes of device memory that a run needs beside its inputs and outputs.
  enum dit_status (*measure)(void *program, int64_t *workspace, struct dit_error *err);
  /// Enqueue on the stream (NULL: the default one). Re-entrant; takes no memory of the device. `data` has the memory of
  /// each input, then of each output, in the order of the words; `workspace` is aligned to 64 bytes.
  enum dit_status (*run_graph)(void *program, int device, void *stream, void *const *data, void *workspace,
                               struct dit_error *err);
  /// One line about a program, into the buffer. (optional)
  void (*describe_graph)(void *program, char *text, size_t size);

  // Programs on disk: all three, or none

  /// All that changes what a program's bytes mean, and what is refused: chip, toolchain, options. A refusal with
  /// DIT_ERR_UNSUPPORTED is kept as programs are.
  enum dit_status (*fingerprint)(int device, uint8_t out[32], struct dit_error *err);
  /// Hand the program's bytes to `write`, in any number of pieces; its failure is handed back.
  enum dit_status (*save)(void *program, dit_graph_write *write, void *context, struct dit_error *err);
  /// A program from its bytes, which are checked: any failure is a miss, and the subgraph is compiled.
  enum dit_status (*load)(const void *bytes, size_t size, int device, void **program, struct dit_error *err);

  // To be read by people

  /// Hand the source of the code that a region is run by to `write`, in any number of pieces; its failure is handed
  /// back. DIT_ERR_UNSUPPORTED where no code was written for the region. (optional)
  enum dit_status (*describe_source)(void *executable, dit_graph_write *write, void *context, struct dit_error *err);
};

/// Of the active vendor; NULL when it has none.
DIT_API const struct dit_graph_engine *dit_runtime_get_graph_engine(void);

/// Does the engine run this operation, by a region or in a subgraph? `folded` as in struct dit_graph_node; `dtypes` of
/// the arguments and of the result, all of rank `ndim`. NULL engine: no.
DIT_API bool dit_graph_engine_supports(const struct dit_graph_engine *engine, int device, int op, int folded, int ndim,
                                       const int *dtypes);

// The graph

enum dit_graph_dim_kind { DIT_DIM_CONST, DIT_DIM_SYMBOL, DIT_DIM_EXPR };
struct dit_graph_dim {
  uint8_t kind;
  int64_t value;  ///< the number, or which symbol or expression
};
enum dit_graph_expr_op {
  DIT_EXPR_ADD,
  DIT_EXPR_SUB,
  DIT_EXPR_MUL,
  DIT_EXPR_FLOORDIV,
  DIT_EXPR_MOD,
  DIT_EXPR_MIN,
  DIT_EXPR_MAX,
  DIT_EXPR_COUNT,
};
struct dit_graph_expr {
  uint8_t op;
  struct dit_graph_dim a, b;  ///< earlier expressions alone
};

enum dit_graph_tensor_flag {
  DIT_GRAPH_INPUT = 1 << 0,
  DIT_GRAPH_OUTPUT = 1 << 1,
  DIT_GRAPH_OWN = 1 << 2,   ///< its memory may be seen by the framework: never in the arena
  DIT_GRAPH_HOST = 1 << 3,  ///< of the CPU
};
struct dit_graph_tensor {
  int16_t dtype;
  int16_t ndim;
  int32_t storage;  ///< equal: they share memory
  uint32_t flags;
  struct dit_graph_dim offset;
  const struct dit_graph_dim *sizes, *strides;
};

enum dit_graph_node_kind {
  DIT_NODE_ROW,     ///< an operator of the device's table, by name
  DIT_NODE_REGION,  ///< made by fusion
  DIT_NODE_OPAQUE,  ///< a subgraph that the engine takes whole; made by fusion
  DIT_NODE_ISLAND,  ///< an operator that the framework runs
  DIT_NODE_POINT,   ///< one elementwise operation, to be fused
  DIT_NODE_REDUCE,  ///< one reduction over the last or the first dimensions, to be fused
  DIT_NODE_KINDS,
};

enum dit_graph_arg_tag {
  DIT_ARG_NONE,
  DIT_ARG_TENSOR,
  DIT_ARG_INT,  ///< a dimension: constant or symbolic
  DIT_ARG_DOUBLE,
  DIT_ARG_BOOL,
  DIT_ARG_STRING,
  DIT_ARG_LIST,
  DIT_ARG_DTYPE,
  DIT_ARG_DEVICE,  ///< the graph's device
  DIT_ARG_TAGS,
};
struct dit_graph_arg {
  uint8_t tag;
  int32_t count, first;      ///< LIST: arguments first to first + count of the pool
  struct dit_graph_dim dim;  ///< INT; TENSOR, BOOL, DTYPE: value is the number
  double number;
  const char *text;
};

struct dit_graph_node {
  uint8_t kind;
  int32_t op;      ///< POINT, REDUCE: enum dit_region_opcode
  int32_t folded;  ///< REDUCE: dimensions that are folded: > 0 the last ones, < 0 the first ones
  const char *name, *overload, *reason;
  int32_t nargs, first_arg;
  int32_t nouts;
  const int32_t *outs;  ///< tensors; -1: a result that is none
  bool is_given;        ///< its results are written to memory of the plan (dit_graph_give_memory)
};

struct dit_graph_output {
  int32_t tensor;  ///< -1: not a tensor
  bool is_int;
  struct dit_graph_dim dim;
};
struct dit_graph_input {
  int32_t tensor;  ///< -1: an integer
  int32_t symbol;  ///< that the integer is; -1: none
};
struct dit_graph_symbol {
  int32_t input, dim;  ///< where its value stands: an integer (dim -1), or a size of a tensor
};

struct dit_graph {
  int32_t nsymbols, nexprs, ntensors, nstorages, nnodes, ninputs, noutputs, nargs;
  const struct dit_graph_symbol *symbols;
  const struct dit_graph_expr *exprs;
  const struct dit_graph_tensor *tensors;
  const struct dit_graph_node *nodes;
  const struct dit_graph_arg *args;
  const struct dit_graph_input *inputs;
  const struct dit_graph_output *outputs;
  void *memory;               ///< the graph's own
  struct graph_known *known;  ///< what its plans share; NULL: nothing
};

/// Reads and checks `count` words. DIT_ERR_CORRUPT names what is wrong and where; nothing of `words` is kept.
DIT_API DIT_NODISCARD enum dit_status dit_graph_load(const int64_t *words, size_t count, struct dit_graph **out,
                                                     struct dit_error *err);
DIT_API void dit_graph_destroy(struct dit_graph *graph);  ///< NULL allowed
/// The framework has this row write its results to memory that it is given: those that nobody outside of the graph sees
/// lie in the arena of plans that are made from now on. Not while a plan is being made.
DIT_API void dit_graph_give_memory(struct dit_graph *graph, int32_t node, bool is_given);

// The plan

struct dit_graph_layout {
  int64_t sizes[DIT_GRAPH_MAX_DIMS], strides[DIT_GRAPH_MAX_DIMS], offset, numel;
};
enum dit_graph_place { DIT_PLACE_NONE, DIT_PLACE_INPUT, DIT_PLACE_ARENA, DIT_PLACE_OWN, DIT_PLACE_CALL };
struct dit_graph_storage {
  uint8_t place;
  int32_t tensor;       ///< the one that defines it
  int32_t first, last;  ///< steps that write and use it; last = number of steps: it leaves the graph
  int64_t bytes, at;    ///< ARENA: where
};
struct dit_graph_step {
  uint8_t kind;   ///< enum dit_graph_node_kind: ROW, ISLAND, REGION or OPAQUE
  int32_t node;   ///< ROW, ISLAND: which; REGION, OPAQUE: its first one
  int32_t nodes;  ///< how many nodes of the graph it stands for
  void *executable;
  int32_t noperands;
  int32_t *tensors;  ///< REGION: a tensor per operand; OPAQUE: the one that defines the memory of each
  const struct dit_region *region;
  int32_t nreads;                   ///< OPAQUE: operands that it reads; they come first
  bool is_kept;                     ///< OPAQUE: its program came from disk
  int64_t workspace, workspace_at;  ///< OPAQUE: bytes, and where in the arena
};
struct dit_graph_plan {
  const struct dit_graph *graph;
  const struct dit_graph_engine *engine;
  struct dit_graph_layout *layouts;    ///< per tensor
  struct dit_graph_storage *storages;  ///< per storage
  struct dit_graph_step *steps;
  int32_t *releases, *released;  ///< storages used for the last time by step i: releases[i] to releases[i + 1]
  int64_t *dims;                 ///< values of the expressions
  int64_t *symbols;
  int32_t nsteps, nregions, nrows, nislands, nopaques;
  int64_t arena, unplanned;  ///< bytes with reuse, and without
  int device;
  int32_t *step_of;                    ///< per node: the step that runs it
  struct dit_graph_refusal *refusals;  ///< subgraphs that the engine supports and did not make; NULL: none
  int64_t *step_ns;                    ///< per step: what its runs took while they were timed (dit_graph_set_timing)
  int64_t *step_runs;                  ///< and how many they were
  bool is_repeated;                    ///< its nodes run together as an earlier plan of the graph found out
};
struct dit_graph_refusal {
  struct dit_graph_refusal *next;
  int32_t nodes;
  char reason[160];
};

/// The value of a dimension in this plan.
DIT_API int64_t dit_graph_plan_get_dim(const struct dit_graph_plan *plan, struct dit_graph_dim dim);
/// DIT_ERR_INVALID where the symbols' values make a shape that is none; DIT_ERR_UNSUPPORTED where the engine has
/// refused an operation that no row can run instead. `graph` must outlive the plan. Threads may make plans at once.
DIT_API DIT_NODISCARD enum dit_status dit_graph_plan_create(const struct dit_graph *graph, const int64_t *symbols,
                                                            const struct dit_graph_engine *engine, int device,
                                                            struct dit_graph_plan **out, struct dit_error *err);
DIT_API void dit_graph_plan_destroy(struct dit_graph_plan *plan);  ///< NULL allowed

/// What the framework does for a run. `data` has a pointer per storage.
struct dit_graph_host {
  void *self;
  /// Memory for a storage that leaves the graph, or that the framework may see.
  enum dit_status (*allocate)(void *self, int32_t storage, void **data, struct dit_error *err);
  /// Run node `node`; set `data` of the storages of its results, but for those that lie where it points already.
  enum dit_status (*call)(void *self, int32_t node, void **data, struct dit_error *err);
  /// The storage is not used any more.
  void (*release)(void *self, int32_t storage);
  /// Look at what a step reads (before it) or has written (`is_after`). (optional)
  enum dit_status (*observe)(void *self, int32_t step, bool is_after, struct dit_error *err);
};
/// Run the steps on the stream. `data`: a pointer per storage, those of the inputs filled in. `arena`: plan->arena
/// bytes.
DIT_API DIT_NODISCARD enum dit_status dit_graph_plan_run(const struct dit_graph_plan *plan, void *stream, void *arena,
                                                         void **data, const struct dit_graph_host *host,
                                                         struct dit_error *err);

/// From now on the steps of all runs are timed, each to its end: the stream is waited for between them. Read the sums
/// when nothing runs.
DIT_API void dit_graph_set_timing(bool on);
/// Bytes that a step reads and writes at least: each element of each of its tensors once.
DIT_API int64_t dit_graph_plan_get_step_bytes(const struct dit_graph_plan *plan, int32_t step);

// Mistakes on purpose, for the tests of the tools that find them

enum dit_graph_mistake {
  DIT_MISTAKE_NONE,
  DIT_MISTAKE_INDEX,  ///< a region reads one operand as if a dimension were broadcast
  DIT_MISTAKE_TAIL,   ///< a region leaves out the last part of its first dimension
  DIT_MISTAKE_REUSE,  ///< a result lies where a value lies that is still needed
  DIT_MISTAKE_ALIAS,  ///< a view shows other elements of its memory
};
/// Plans that are made from now on have the mistake at their place number `which`, where there is one.
DIT_API void dit_graph_set_mistake(enum dit_graph_mistake mistake, int32_t which);
/// Where the last plan has it: a step (INDEX, TAIL), a storage (REUSE) or a tensor (ALIAS); -1: nowhere.
DIT_API int32_t dit_graph_get_mistake(void);

DIT_EXTERN_C_END

#endif
