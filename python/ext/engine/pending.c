// Stand-ins until the real ones are linked (weak symbols).
#include "engine/internal.h"
const struct engine_tool_vtable engine_tool_time __attribute__((weak)) = {.name = "time"};
const struct engine_tool_vtable engine_tool_overflow __attribute__((weak)) = {.name = "overflow"};
const struct engine_tool_vtable engine_tool_capture __attribute__((weak)) = {.name = "capture"};
__attribute__((weak)) int engine_window_begin(struct engine_window_start *start, struct engine_call *call) { (void)start; (void)call; return 0; }
__attribute__((weak)) int engine_window_end(struct engine_window_start *start, struct engine_call *call, uint32_t tools) { (void)start; (void)call; (void)tools; return 0; }
__attribute__((weak)) void engine_window_drop(struct engine_window_start *start) { (void)start; }
