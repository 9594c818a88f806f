/// Regions of the graph engine as CUDA kernels, written at run time and compiled by NVRTC.
///
/// A region travels: region_supports -> region_plan lays it over threads -> region_write_source writes its kernels ->
/// region_kernel_get compiles them, or finds them in memory or on disk -> graph_engine.c launches them.
#ifndef DIT_CUDA_REGION_H
#define DIT_CUDA_REGION_H

#include "dit/graph.h"
#include "driver.h"

#define REGION_WARP 32
#define REGION_POINT_THREADS 256
#define REGION_ROW_WARPS 8      // rows of a block that have a warp each
#define REGION_COLUMN_LINES 16  // warps that share 32 columns
#define REGION_SCRATCH ((size_t)2 << 20)
#define REGION_TURNS 8  // times that the threads of a row go over it, when its elements are kept in registers

struct region_text {
  char *data;
  size_t size, capacity;
  bool failed;
};

/// How a region is laid over threads. The source is the same for regions that are alike in this.
struct region_plan {
  const struct dit_region *region;
  bool is_long;                             ///< rows too long to be kept in registers
  bool is_narrow;                           ///< places fit into 31 bits
  int lanes;                                ///< neighbours that a thread takes at once
  int threads;                              ///< of a row; of a block elsewhere
  int block;                                ///< threads of a block
  int parts;                                ///< that long rows or columns are folded in, and joined by a second kernel
  int each;                                 ///< elements of a row for each thread; 0: any number
  bool is_vector[DIT_REGION_MAX_OPERANDS];  ///< moved as vectors, if its address is a multiple of their size
  int64_t outer, length;                    ///< rows, and elements of a row
  int numbers[DIT_REGION_MAX_OPS], nnumbers;  ///< the values that are numbers
};

/// float32, float16 and bfloat16 are computed in float, all integers in int64.
enum region_class { CLASS_F32, CLASS_F64, CLASS_I64, CLASS_BOOL };
int region_get_class(int dtype);  ///< -1: a dtype that has none
bool region_supports(const struct dit_region *region);
static inline bool region_is_fold(int op) {
  return op == DIT_REGION_SUM || op == DIT_REGION_MAX || op == DIT_REGION_MIN;
}
void region_plan_init(struct region_plan *plan, const struct dit_region *region);

/// The kernels: "region", "region_scalar" for addresses that no vectors begin at (plan->lanes > 1), and "region_join"
/// for folds in parts. Their parameter is a row of 8-byte words: addresses and that of scratch memory, sizes, strides
/// by operand, numbers.
void region_write_source(const struct region_plan *plan, struct region_text *out);

/// One source's kernels, shared by all regions that have it and never freed.
struct region_kernel;
DIT_NODISCARD enum dit_status region_kernel_get(const struct region_text *source, int device,
                                                struct region_kernel **out, struct dit_error *err);
enum region_variant { REGION_MAIN, REGION_SCALAR, REGION_JOIN, REGION_VARIANTS };
/// On this device; NULL: the source has none. Loaded by region_kernel_get.
void *region_kernel_get_function(const struct region_kernel *kernel, int device, enum region_variant variant);
const char *region_kernel_get_name(const struct region_kernel *kernel);
/// Without what stands in front of it.
const char *region_kernel_get_source(const struct region_kernel *kernel);

#endif
