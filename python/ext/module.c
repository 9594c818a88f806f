// ditorch._C: the module itself. Multi-phase initialisation; the functions come from one method table per file.
//
// The module does not link libtorch: it talks to PyTorch through Python objects and, for the alias, through the dynamic
// loader's tables.
#include "module.h"

#include "dit/version.h"
#include "engine/internal.h"

static int module_exec(PyObject *module) {
  PyMethodDef *const tables[] = {
      py_memory_check_methods, py_metrics_methods,       py_runtime_methods,     py_stream_methods,
      py_memory_methods,       py_host_methods,          py_options_methods,     py_record_methods,
      py_alias_methods,        py_is_cuda_methods,       py_redirect_methods,    py_device_show_methods,
      py_engine_methods,       py_stack_methods,         py_backward_methods,    py_backward_probe_methods,
      py_log_methods,          py_environ_methods,       py_log_read_methods,    py_capture_methods,
      py_helper_methods,       py_helper_device_methods, py_twin_methods,        py_exempt_methods,
      py_judge_methods,        py_operator_methods,      py_torch_names_methods, py_type_attribute_methods,
      py_log_columns_methods};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    if (PyModule_AddFunctions(module, tables[i]) < 0) {
      return -1;
    }
  }
  if (engine_tool_add_types(module) < 0 || engine_mode_add_types(module) < 0 || engine_hook_add_types(module) < 0 ||
      py_log_read_add_types(module) < 0 || py_align_add_types(module) < 0 || py_exempt_add_types(module) < 0) {
    return -1;
  }
  return PyModule_AddStringConstant(module, "__version__", dit_version_get());
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
  struct module_state *state = PyModule_GetState(module);
  if (state) {
    Py_VISIT(state->py_out_of_memory);
    Py_VISIT(state->py_answer);
  }
  return 0;
}

static int module_clear(PyObject *module) {
  struct module_state *state = PyModule_GetState(module);
  if (state) {
    Py_CLEAR(state->py_out_of_memory);
    Py_CLEAR(state->py_answer);
  }
  return 0;
}

static void module_free(void *module) {
  (void)module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    // The current device, the alias and the vendor belong to the process, not to an interpreter.
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

struct PyModuleDef py_module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ditorch._C",
    .m_doc = "C side of ditorch: the device runtime of libdit and the device alias.",
    .m_size = sizeof(struct module_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__C(void) {
  return PyModuleDef_Init(&py_module_definition);
}
