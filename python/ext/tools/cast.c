#include "engine/engine.h"

const struct engine_tool_vtable engine_tool_cast = {.name = "cast", .hook = "OpDtypeCastHook", .order = 10};
