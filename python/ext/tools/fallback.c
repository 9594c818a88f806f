#include "engine/engine.h"

const struct engine_tool_vtable engine_tool_fallback = {.name = "fallback", .hook = "OpFallbackHook", .order = 20};
