/// The one list of options: X(name, environment, type, default, choices, min, max, help).
///
/// Everything about options (parsing, documentation, Python keywords) is generated from it. Internal to core; others
/// read it through dit/options.h.
#ifndef DIT_CORE_OPTION_LIST_H
#define DIT_CORE_OPTION_LIST_H

#include <stdint.h>

#define DIT_OPTION_LIST(X)                                                                                            \
  X(backend, "DITORCH_BACKEND", CHOICE, "auto", "auto|cuda|host|none", 0, 0,                                          \
    "Device that answers to \"cuda\": auto takes a real CUDA device if there is one, else the embedded host device.") \
  X(alias, "DITORCH_ALIAS", CHOICE, "binary", "binary|python|off", 0, 0,                                              \
    "How \"cuda\" is made a name of the device: in PyTorch's device functions, by Python wrappers, or not at all.")   \
  X(disable_mock, "DITORCH_DISABLE_MOCK", INT, "0", NULL, 0, INT32_MAX, "1 or more leaves PyTorch untouched.")        \
  X(show_device_as_cuda, "DITORCH_SHOW_DEVICE_AS_CUDA", BOOL, "1", NULL, 0, 1,                                        \
    "Print the device as \"cuda\"; 0 prints its real name.")                                                          \
  X(autoload, "DITORCH_AUTOLOAD", BOOL, "0", NULL, 0, 1, "Load ditorch with torch itself, without an import.")        \
  X(host_devices, "DITORCH_HOST_DEVICES", INT, "1", NULL, 1, 64, "Number of embedded host devices.")                  \
  X(host_memory, "DITORCH_HOST_MEMORY", SIZE, "0", NULL, 0, INT64_MAX,                                                \
    "Memory of each host device, such as 2GiB; 0 is the size of the physical memory.")                                \
  X(vendor, "DITORCH_VENDOR", STRING, "host", NULL, 0, 0, "Vendor library: a name or the path of a file.")            \
  X(log_level, "DITORCH_LOG_LEVEL", CHOICE, "warning", "debug|info|warning|error|off", 0, 0,                          \
    "Least important message that is written.")                                                                       \
  X(num_threads, "DITORCH_NUM_THREADS", INT, "0", NULL, 0, 1024,                                                      \
    "Threads of the host device's kernels; 0 takes OMP_NUM_THREADS or the CPUs this process may use.")                \
  X(host_blas, "DITORCH_HOST_BLAS", STRING, "", NULL, 0, 0,                                                           \
    "BLAS library of the host device: a path, \"none\" for the built-in code, empty to look for one.")                \
  X(fault, "DITORCH_FAULT", STRING, "", NULL, 0, 0, "Faults to inject into chosen operators, for testing tools.")     \
  X(ledger, "DITORCH_LEDGER", BOOL, "0", NULL, 0, 1, "Print at exit which operators ran in C and which fell back.")   \
  X(banner, "DITORCH_BANNER", BOOL, "1", NULL, 0, 1, "Print one line at import that says what was chosen.")           \
  X(launch_blocking, "CUDA_LAUNCH_BLOCKING", BOOL, "0", NULL, 0, 1, "Wait for every operator to end.")                \
  X(visible_devices, "CUDA_VISIBLE_DEVICES", STRING, "", NULL, 0, 0, "Device indices to offer, such as 0,1.")         \
  X(alloc_conf, "PYTORCH_CUDA_ALLOC_CONF", STRING, "", NULL, 0, 0, "Settings of the caching allocator.")              \
  X(config, "DITORCH_CONFIG", STRING, "", NULL, 0, 0, "Path of a TOML file whose [ditorch] table sets options.")

#endif
