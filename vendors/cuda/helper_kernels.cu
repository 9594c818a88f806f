/// Kernels of the CUDA helper: non-finite flags, statistics, comparison, nearness, hash and checksum of strided tensors
/// (contract in include/dit/helper.h; the numbers are those of src/numerics).
///
/// Grid: x = blocks of a tensor, y = tensor. A block of HELPER_THREADS threads takes every blocks-th group of elements,
/// reduces in shared memory as a tree and leaves a partial result; the block that finishes last combines them in order
/// and writes the slot. The cut depends on shape and dtype alone, so results are the same bits on every run and device.
///
/// Written in the subset that C11 and CUDA C++ share and built with -fmad=false: tests/c/test_helper_kernels.c compiles
/// these files for the CPU and compares them with src/numerics. Depends on helper_kernels.h.
#include "helper_checksum.cuh"
#include "helper_compare.cuh"
#include "helper_hash.cuh"
#include "helper_near.cuh"
#include "helper_nonfinite.cuh"
#include "helper_stats.cuh"
