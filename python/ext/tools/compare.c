#include "engine/engine.h"

const struct engine_tool_vtable engine_tool_compare = {.name = "compare", .hook = "OpAutoCompareHook", .order = 30};
