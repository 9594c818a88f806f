/// Calls of generated code (region_code.h): what a unit of work is for each kind of region, and how many go to a
/// thread.
#include "dit/parallel.h"
#include "region_code.h"
#include "scratch.h"

struct code_work {
  const struct region_program *program;
  region_function *function;
  struct region_call call;
  struct work *work;
};

static void run_units(void *context, int64_t begin, int64_t end) {
  const struct code_work *job = context;
  struct region_call call = job->call;
  char *scratch = NULL;
  if (job->program->nscratch > 0) {
    scratch = scratch_take((size_t)job->program->nscratch * (size_t)job->program->length * 8);
    if (!scratch) {
      job->work->failed = 1;
      return;
    }
    call.scratch = scratch;
  }
  job->function(&call, begin, end);
  scratch_give(scratch);
}

static bool run_long(struct code_work *job) {
  const struct region_program *program = job->program;
  const int64_t units = program->outer * ((program->length + REGION_CHUNK - 1) / REGION_CHUNK);
  struct work *work = job->work;
  work->partials = scratch_take((size_t)(units * program->nfolds + 1) * sizeof *work->partials);
  if (!work->partials) {
    return false;
  }
  job->call.scratch = (char *)work->partials;
  dit_parallel_for(0, units, 1, run_units, job);
  region_store_rows(work);
  scratch_give(work->partials);
  return true;
}

bool region_code_run(struct work *work) {
  const struct region_program *program = work->program;
  region_function *function = region_code_find(program->code);
  const bool reads_again = program->has_trig || program->nphases > 1;
  if (!function || program->outer == 0 || program->length == 0 || (reads_again && !work->direct)) {
    return false;
  }
  struct code_work job = {
      program, function, {work->data, program->sizes, program->strides, program->numbers, NULL, 0}, work};
  if (program->is_long) {
    return run_long(&job);
  }
  int64_t units = program->outer, each = program->length;
  if (program->kind == DIT_REGION_POINTWISE) {
    const int64_t pieces = (program->length + REGION_PIECE - 1) / REGION_PIECE;
    units *= pieces;
    each = program->length < REGION_PIECE ? program->length : REGION_PIECE;
  } else if (program->kind == DIT_REGION_COLUMNS) {
    units = (program->length + REGION_TILE - 1) / REGION_TILE;
    each = program->outer * (program->length < REGION_TILE ? program->length : REGION_TILE);
  }
  dit_parallel_for(0, units, each >= REGION_GRAIN ? 1 : REGION_GRAIN / each, run_units, &job);
  return true;
}
