/// Fused regions on the host (dit/graph.h), interpreted in blocks: every operation runs over a block of elements that
/// stays in the first cache, so a chain of them reads and writes memory once; and by code that is written for the
/// region and compiled in the background (region_code.h). The operations are the host's own expressions (mathf.h,
/// mathd.h), so a fused value has the bits of the unfused one.
#ifndef DIT_HOST_ENGINE_REGION_H
#define DIT_HOST_ENGINE_REGION_H

#include "dit/graph.h"

struct region_program;

bool region_supports(const struct dit_region *region);
enum dit_status region_create(const struct dit_region *region, struct region_program **out, struct dit_error *err);
void region_destroy(struct region_program *program);
/// In the caller, on all threads of the pool. False: there was no memory to work in.
bool region_run(const struct region_program *program, void *const *data);
/// "c" or "vm": how the next run goes.
const char *region_describe(const struct region_program *program);
/// The C that was written for it; NULL: the block machine alone runs it.
const char *region_get_source(const struct region_program *program);
/// Until no code is being made in the background.
void region_code_settle(void);

#endif
