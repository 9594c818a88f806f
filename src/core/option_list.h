/// The lists of options: those of ditorch itself, X(name, environment, type, default, choices, min, max, help), and
/// those of the operator tools (below).
///
/// Everything about options (parsing, documentation, Python keywords) is generated from them. Internal to core; others
/// read them through dit/options.h.
#ifndef DIT_CORE_OPTION_LIST_H
#define DIT_CORE_OPTION_LIST_H

#include <stdint.h>

#define DIT_OPTION_LIST(X)                                                                                             \
  X(backend, "DITORCH_BACKEND", CHOICE, "auto", "auto|cuda|nvidia|npu|mlu|biren|dipu|musa|host|none", 0, 0,            \
    "Device that answers to \"cuda\": auto takes a real CUDA device if there is one, else that of the first vendor "   \
    "package that works, else the embedded host device; nvidia is a CUDA device by ditorch's own vendor library.")     \
  X(use_vendor_shim, "DITORCH_USE_VENDOR_SHIM", BOOL, "0", NULL, 0, 1,                                                 \
    "With a vendor package: use its own transfer shim instead of the alias and the torch.cuda surface of ditorch.")    \
  X(exempt, "DITORCH_EXEMPT", STRING, "", NULL, 0, 0,                                                                  \
    "Packages, separated by commas, whose own code sees devices by their real names and torch.cuda as it was.")        \
  X(audit, "DITORCH_AUDIT", BOOL, "0", NULL, 0, 1, "Count who uses what was redirected, and print it at exit.")        \
  X(alias, "DITORCH_ALIAS", CHOICE, "binary", "binary|python|off", 0, 0,                                               \
    "How \"cuda\" is made a name of the device: in PyTorch's device functions, by Python wrappers, or not at all.")    \
  X(disable_mock, "DITORCH_DISABLE_MOCK", INT, "0", NULL, 0, INT32_MAX, "1 or more leaves PyTorch untouched.")         \
  X(show_device_as_cuda, "DITORCH_SHOW_DEVICE_AS_CUDA", BOOL, "1", NULL, 0, 1,                                         \
    "Print the device as \"cuda\"; 0 prints its real name.")                                                           \
  X(autoload, "DITORCH_AUTOLOAD", BOOL, "0", NULL, 0, 1, "Load ditorch with torch itself, without an import.")         \
  X(host_devices, "DITORCH_HOST_DEVICES", INT, "1", NULL, 1, 64, "Number of embedded host devices.")                   \
  X(host_memory, "DITORCH_HOST_MEMORY", SIZE, "0", NULL, 0, INT64_MAX,                                                 \
    "Memory of each host device, such as 2GiB; 0 is the size of the physical memory.")                                 \
  X(dipu_names, "DITORCH_DIPU_NAMES", BOOL, "1", NULL, 0, 1,                                                           \
    "Answer to import torch_dipu, where no such package is installed, with DIPU's names for the host device.")         \
  X(vendor, "DITORCH_VENDOR", STRING, "host", NULL, 0, 0, "Vendor library: a name or the path of a file.")             \
  X(vendor_timeout, "DITORCH_VENDOR_TIMEOUT", INT, "120", NULL, 0, 86400,                                              \
    "Seconds that a vendor library may take to start; 0 waits for ever.")                                              \
  X(diopi_lib, "DITORCH_DIOPI_LIB", STRING, "", NULL, 0, 0,                                                            \
    "Operator library (DIOPI) of the device: a name or the path of a file; empty takes the vendor's own, where it "    \
    "has one.")                                                                                                        \
  X(faulty_lib, "DITORCH_FAULTY_LIB", STRING, "host", NULL, 0, 0,                                                      \
    "Operator library that the library \"faulty\" (diopi_lib=faulty) wraps and breaks.")                               \
  X(faulty, "DITORCH_FAULTY", STRING, "", NULL, 0, 0,                                                                  \
    "What the library \"faulty\" breaks, such as value:diopiAdd,dtype=float16; read from the environment alone.")      \
  X(adapt_lib, "DITORCH_ADAPT_LIB", STRING, "host", NULL, 0, 0,                                                        \
    "Operator library that the library \"adapt\" (diopi_lib=adapt) wraps and completes.")                              \
  X(adapt_rules, "DITORCH_ADAPT_RULES", STRING, "", NULL, 0, 0,                                                        \
    "Rules file of the library \"adapt\" (convert_config.yaml); read from the environment alone.")                     \
  X(opaque, "DITORCH_OPAQUE", STRING, "", NULL, 0, 0,                                                                  \
    "Mishaps of the test device (vendor=opaque), such as slow:50,fail:3; see vendors/opaque/mishap.c.")                \
  X(opaque_missing, "DITORCH_OPAQUE_MISSING", STRING, "", NULL, 0, 0,                                                  \
    "What the test device lacks: functions (diopiAdd, diopi*Backward), kernel:copy, dtype:bfloat16, layout:strided.")  \
  X(opaque_graph, "DITORCH_OPAQUE_GRAPH", STRING, "", NULL, 0, 0,                                                      \
    "What the test device's graph engine refuses: operations (GELU), operators (aten::mm), dtype:int64, compile, or "  \
    "compile:9 for programs of 9 nodes and more; none does without the engine, wrong:GELU miscompiles one.")           \
  X(log_level, "DITORCH_LOG_LEVEL", CHOICE, "warning", "debug|info|warning|error|off", 0, 0,                           \
    "Least important message that is written.")                                                                        \
  X(num_threads, "DITORCH_NUM_THREADS", INT, "0", NULL, 0, 1024,                                                       \
    "Threads of the host device's kernels; 0 takes OMP_NUM_THREADS or the CPUs this process may use.")                 \
  X(host_blas, "DITORCH_HOST_BLAS", STRING, "", NULL, 0, 0,                                                            \
    "BLAS library of the host device: a path, \"none\" for the built-in code, empty to look for one.")                 \
  X(host_onednn, "DITORCH_HOST_ONEDNN", STRING, "", NULL, 0, 0,                                                        \
    "oneDNN library (libdnnl.so.3) of the host device: a path, \"none\" to do without, empty to look for one.")        \
  X(host_batch_invariant, "DITORCH_HOST_BATCH_INVARIANT", BOOL, "0", NULL, 0, 1,                                       \
    "Products of the host device give a row the same bits whatever rows stand beside it: one kernel for every number " \
    "of rows. Slower.")                                                                                                \
  X(host_compiler, "DITORCH_HOST_COMPILER", STRING, "", NULL, 0, 0,                                                    \
    "C compiler of the host device's graph engine: a command, \"none\" to do without, empty for CC or cc.")            \
  X(host_cache, "DITORCH_HOST_CACHE", STRING, "", NULL, 0, 0,                                                          \
    "Directory of what that compiler made, private to the user; empty for the user's cache directory.")                \
  X(graph_cache, "DITORCH_GRAPH_CACHE", STRING, "", NULL, 0, 0,                                                        \
    "Directory of the programs of a vendor's graph engine, private to the user; \"none\" to keep none, empty for the " \
    "user's cache directory.")                                                                                         \
  X(cuda_cudnn, "DITORCH_CUDA_CUDNN", STRING, "", NULL, 0, 0,                                                          \
    "cuDNN library of NVIDIA devices by C: a path, \"none\" for the built-in kernels, empty to look for one.")         \
  X(cuda_blas, "DITORCH_CUDA_BLAS", STRING, "", NULL, 0, 0,                                                            \
    "cuBLASLt library (libcublasLt.so.13 or 12) of vendor cuda: a path, \"none\" for the built-in kernel, empty to "   \
    "look for one.")                                                                                                   \
  X(cuda_nvrtc, "DITORCH_CUDA_NVRTC", STRING, "", NULL, 0, 0,                                                          \
    "NVRTC library (libnvrtc.so.13 or 12) of vendor cuda's graph engine: a path, \"none\" to do without, empty to "    \
    "look "                                                                                                            \
    "for one.")                                                                                                        \
  X(cuda_cache, "DITORCH_CUDA_CACHE", STRING, "", NULL, 0, 0,                                                          \
    "Directory of the kernels that NVRTC made, private to the user; empty for the user's cache directory.")            \
  X(cuda_tf32, "DITORCH_CUDA_TF32", BOOL, "0", NULL, 0, 1,                                                             \
    "Let vendor cuda round the factors of float32 matrix products to TF32: faster, 10 bits of mantissa.")              \
  X(cuda_nccl, "DITORCH_CUDA_NCCL", STRING, "", NULL, 0, 0,                                                            \
    "NCCL library (libnccl.so.2) of vendor cuda: a path, \"none\" to do without, empty to look for one.")              \
  X(collectives, "DITORCH_COLLECTIVES", CHOICE, "auto", "auto|gloo", 0, 0,                                             \
    "What carries process groups: auto, the vendor's own library for what it can, gloo for the rest; or gloo alone.")  \
  X(fault, "DITORCH_FAULT", STRING, "", NULL, 0, 0, "Faults to inject into chosen operators, for testing tools.")      \
  X(force_fallback, "DITORCH_FORCE_FALLBACK", STRING, "", NULL, 0, 0,                                                  \
    "Operators that run on the CPU: names or regular expressions such as softmax, add.out or .*_backward, separated "  \
    "by commas.")                                                                                                      \
  X(autocompare, "DITORCH_AUTOCOMPARE", STRING, "", NULL, 0, 0,                                                        \
    "Operators of which every call is judged by the CPU's, results and arguments: the same kind of list.")             \
  X(dump_op_args, "DITORCH_DUMP_OP_ARGS", INT, "-1", NULL, -1, 3,                                                      \
    "Print, to stdout: -1 nothing, 0 operators that fall back, 1 every operator and its function, 2 also the "         \
    "arguments, 3 also their values.")                                                                                 \
  X(ledger, "DITORCH_LEDGER", BOOL, "0", NULL, 0, 1, "Print at exit which operators ran in C and which fell back.")    \
  X(banner, "DITORCH_BANNER", BOOL, "1", NULL, 0, 1, "Say at import what cuda is now and what was chosen.")            \
  X(launch_blocking, "CUDA_LAUNCH_BLOCKING", BOOL, "0", NULL, 0, 1, "Wait for every operator to end.")                 \
  X(visible_devices, "CUDA_VISIBLE_DEVICES", STRING, "", NULL, 0, 0, "Device indices to offer, such as 0,1.")          \
  X(alloc_conf, "PYTORCH_CUDA_ALLOC_CONF", STRING, "", NULL, 0, 0, "Settings of the caching allocator.")               \
  X(allocator, "DITORCH_ALLOCATOR", CHOICE, "torch", "torch|bf|bs|raw", 0, 0,                                          \
    "Algorithm for device memory: that of PyTorch, best fit with coalescing, buckets of equal size, or no cache.")     \
  X(host_allocator, "DITORCH_HOST_ALLOCATOR", CHOICE, "torch", "torch|bf|bs|raw", 0, 0,                                \
    "The same for pinned host memory.")                                                                                \
  X(allocator_extend, "DITORCH_ALLOCATOR_EXTEND", SIZE, "1GiB", NULL, 8388608, INT64_C(1) << 50,                       \
    "Largest step by which the algorithm bf grows; the first is 8 MiB, each one doubles.")                             \
  X(allocator_min_size, "DITORCH_ALLOCATOR_MIN_SIZE", SIZE, "512", NULL, 1, INT64_C(1) << 40,                          \
    "Smallest block of the algorithm bs; rounded up to 512 bytes.")                                                    \
  X(allocator_adaptable, "DITORCH_ALLOCATOR_ADAPTABLE", BOOL, "0", NULL, 0, 1,                                         \
    "The algorithm bs rounds sizes to powers of two, so that more requests share a bucket.")                           \
  X(allocator_pending, "DITORCH_ALLOCATOR_PENDING", INT, "96", NULL, 0, INT32_MAX,                                     \
    "Freed blocks that may wait for other streams before a free looks whether these are done, as every allocation "    \
    "does.")                                                                                                           \
  X(allocator_debug, "DITORCH_ALLOCATOR_DEBUG", INT, "0", NULL, 0, 15,                                                 \
    "Write to the log, by the sum of: 1 allocations, 2 frees, 4 memory taken from and given to the device, 8 with C "  \
    "backtraces.")                                                                                                     \
  X(memory_check, "DITORCH_MEMORY_CHECK", BOOL, "0", NULL, 0, 1,                                                       \
    "Find leaks, double frees and writes beyond the ends of blocks of device and pinned memory.")                      \
  X(memory_check_backtrace, "DITORCH_MEMORY_CHECK_BACKTRACE", BOOL, "0", NULL, 0, 1,                                   \
    "Keep the C backtrace of every allocation for the checker's reports.")                                             \
  X(memory_check_blocks, "DITORCH_MEMORY_CHECK_BLOCKS", INT, "10000", NULL, 0, INT64_MAX,                              \
    "Number of live blocks above which the checker speaks of a leak.")                                                 \
  X(memory_check_interval, "DITORCH_MEMORY_CHECK_INTERVAL", INT, "1000", NULL, 0, INT64_MAX,                           \
    "Allocations between two lines about the state; 0: none.")                                                         \
  X(memory_check_guard, "DITORCH_MEMORY_CHECK_GUARD", SIZE, "512", NULL, 0, 1048576,                                   \
    "Guard zone in front of and behind each block that the checker watches, rounded up to 512 bytes; 0: none.")        \
  X(memory_protect, "DITORCH_MEMORY_PROTECT", CHOICE, "off", "off|report|stop", 0, 0,                                  \
    "Accesses of the program to device memory by host code: not noticed, reported and let through, or reported and "   \
    "fatal.")                                                                                                          \
  X(metrics, "DITORCH_METRICS", BOOL, "0", NULL, 0, 1, "Count what the allocators do, for ditorch.metrics.")           \
  X(metrics_file, "DITORCH_METRICS_FILE", STRING, "", NULL, 0, 0,                                                      \
    "Write the metrics to this file at exit, in the text format of Prometheus; turns them on. %p is the process id.")  \
  X(cpu_affinity, "DITORCH_CPU_AFFINITY", INT, "-1", NULL, INT32_MIN, 65536,                                           \
    "Bind a thread that sets its device to CPUs of this process: below 0 never, 0 to an equal share, else to so many " \
    "per device.")                                                                                                     \
  X(tools, "DITORCH_TOOLS", STRING, "", NULL, 0, 0,                                                                    \
    "Operator tools to start with the program, as of `ditorch run --tool`: autocompare,time.")                         \
  X(run, "DITORCH_RUN", STRING, "", NULL, 0, 0,                                                                        \
    "File that `ditorch run` writes for the processes of a command: tools and what they look at.")                     \
  X(compile_backend, "DITORCH_COMPILE_BACKEND", CHOICE, "dit", "aot_eager|dit", 0, 0,                                  \
    "What torch.compile without a backend of its own uses on the device: aot_eager, operator by operator; dit, the "   \
    "graph engine.")                                                                                                   \
  X(compile_check, "DITORCH_COMPILE_CHECK", BOOL, "0", NULL, 0, 1,                                                     \
    "Run every graph of torch.compile(backend=\"dit\") once more operator by operator and judge its results.")         \
  X(compile_check_dir, "DITORCH_COMPILE_CHECK_DIR", STRING, "ditorch_compile_check", NULL, 0, 0,                       \
    "Folder for what reproduces a graph that the check found wrong.")                                                  \
  X(config, "DITORCH_CONFIG", STRING, "", NULL, 0, 0, "Path of a TOML file whose [ditorch] table sets options.")

/// Variables of DIPU that set options of ditorch: X(variable, option, unit). The unit is appended to the value. A
/// variable of ditorch's own that is set too wins.
#define DIT_OPTION_ALIAS_LIST(X)                                   \
  X("DIPU_PYTHON_DEVICE_AS_CUDA", show_device_as_cuda, "")         \
  X("DIPU_AUTOLOAD", autoload, "")                                 \
  X("DIPU_LOG_FALLBACK_INFO", ledger, "")                          \
  X("DIPU_FORCE_FALLBACK_OPS_LIST", force_fallback, "")            \
  X("DIPU_AUTOCOMPARE_OPS_LIST", autocompare, "")                  \
  X("DIPU_DUMP_OP_ARGS", dump_op_args, "")                         \
  X("DIPU_SYNC_EXEC_MODE", launch_blocking, "")                    \
  X("DIPU_DEVICE_MEMCACHING_ALGORITHM", allocator, "")             \
  X("DIPU_HOST_MEMCACHING_ALGORITHM", host_allocator, "")          \
  X("DIPU_TORCH_ALLOCATOR_CONF", alloc_conf, "")                   \
  X("DIPU_MAX_EXTEND_SIZE", allocator_extend, "MiB")               \
  X("DIPU_MAX_ASYNC_RESOURCE_POOL_LENGTH", allocator_pending, "")  \
  X("DIPU_BS_ALLOCATOR_MIN_ALLOCATE_SIZE", allocator_min_size, "") \
  X("DIPU_BS_MORE_ADAPTABLE", allocator_adaptable, "")             \
  X("DIPU_DEBUG_ALLOCATOR", allocator_debug, "")                   \
  X("DIPU_MEM_CHECK", memory_check, "")                            \
  X("DIPU_MEM_CHECK_ENABLE_BACKTRACE", memory_check_backtrace, "") \
  X("DIPU_MEM_CHECK_MAX_BLOCK", memory_check_blocks, "")           \
  X("DIPU_MEM_CHECK_LOG_INTERVAL", memory_check_interval, "")      \
  X("DIPU_CPU_AFFINITY", cpu_affinity, "")

/// The operator tools: X(constant, name). The name is the TOML table; upper case, it is the middle of
/// OP_<TOOL>_<OPTION>.
#define DIT_TOOL_LIST(X)              \
  X(OBSERVE, "observe")               \
  X(TIME_MEASURE, "time_measure")     \
  X(OVERFLOW_CHECK, "overflow_check") \
  X(CAPTURE, "capture")               \
  X(FALLBACK, "fallback")             \
  X(AUTOCOMPARE, "autocompare")       \
  X(DTYPE_CAST, "dtype_cast")         \
  X(PROCESS_MONITOR, "process_monitor")

/// Options of the tools: X(name, tools, scope, environment, type, default, choices, min, max, help).
///
/// `tools` is a set of the constants above. A name may have several rows with different tools: the same option with
/// another default. Scopes: SHARED is read from OP_<TOOL>_<NAME>, else from OP_TOOLS_<NAME>; OWN only from the former;
/// NAMED from the variable `environment`; PATTERN from every variable that ends in `environment` and has something in
/// front: its default is "KEY|KEY=text".
#define DIT_TOOL_OPTION_LIST(X)                                                                                        \
  X(list, HOOKS, OWN, NULL, NAMES, ".*", NULL, 0, 0,                                                                   \
    "Operators that the tool handles: names and regular expressions that match the whole name, separated by commas; "  \
    "empty: "                                                                                                          \
    "none.")                                                                                                           \
  X(disable_list, HOOKS, OWN, NULL, NAMES, "", NULL, 0, 0, "Operators that it leaves alone; wins over the list.")      \
  X(include, HOOKS, SHARED, NULL, PATTERNS, "", NULL, 0, 0,                                                            \
    "Shell patterns (or re:expression) of operators, separated by commas; empty: all that the list has.")              \
  X(exclude, HOOKS, SHARED, NULL, PATTERNS, "", NULL, 0, 0, "Patterns to take out again, after include.")              \
  X(modules, HOOKS, SHARED, NULL, PATTERNS, "", NULL, 0, 0,                                                            \
    "Patterns of the path of the nn.Module that makes the call, such as GPT.layers.0.*; empty: from anywhere.")        \
  X(module_paths, HOOKS, SHARED, NULL, BOOL, "0", NULL, 0, 1,                                                          \
    "Note the path of the nn.Module with every record, also without a selection by modules.")                          \
  X(steps, HOOKS, SHARED, NULL, RANGES, "", NULL, 0, 0,                                                                \
    "Steps to look at, such as 4-6,9 or 100-; a step ends with step(), the first is 0; empty: all.")                   \
  X(every, HOOKS, SHARED, NULL, INT, "1", NULL, 1, INT32_MAX, "Only steps that are a multiple of this number.")        \
  X(ranks, HOOKS, SHARED, NULL, RANGES, "", NULL, 0, 0, "Ranks of a distributed program, such as 0,4-7; empty: all.")  \
  X(first, HOOKS, SHARED, NULL, INT, "0", NULL, 0, INT64_MAX,                                                          \
    "Only the first calls of each operator with the same dtypes and shapes; 0: all.")                                  \
  X(numel_min, HOOKS, SHARED, NULL, INT, "0", NULL, 0, INT64_MAX,                                                      \
    "Only calls whose largest tensor has at least as many elements.")                                                  \
  X(numel_max, HOOKS, SHARED, NULL, INT, "0", NULL, 0, INT64_MAX,                                                      \
    "Only calls whose largest tensor has at most as many elements; 0: no limit.")                                      \
  X(level, HOOKS, SHARED, NULL, CHOICE, "torch", "torch|aten", 0, 0,                                                   \
    "Calls as the program writes them (torch.nn.functional.linear), or the operators below them (aten::addmm).")       \
  X(cpu, HOOKS, SHARED, NULL, BOOL, "0", NULL, 0, 1, "Also calls that touch no device but the CPU.")                   \
  X(threads, HOOKS, SHARED, NULL, CHOICE, "current", "current|all", 0, 0,                                              \
    "The thread that starts the tool, or every Python thread of the process.")                                         \
  X(fork, HOOKS, SHARED, NULL, BOOL, "0", NULL, 0, 1, "Stay on in forked children, such as DataLoader workers.")       \
  X(compile, HOOKS, SHARED, NULL, CHOICE, "eager", "eager|leave", 0, 0,                                                \
    "Code under torch.compile: run it eagerly while a tool is on, or leave it compiled and unseen.")                   \
  X(console, HOOKS, SHARED, NULL, CHOICE, "short", "short|full|off", 0, 0,                                             \
    "Findings and a summary; every call in the format of the original; or nothing.")                                   \
  X(results, HOOKS, SHARED, NULL, STRING, "op_tools_results", NULL, 0, 0, "Directory of everything that is written.")  \
  X(log, HOOKS, SHARED, NULL, BOOL, "1", NULL, 0, 1, "Write records to <results>/log.")                                \
  X(log_pressure, HOOKS, SHARED, NULL, CHOICE, "block", "block|drop", 0, 0,                                            \
    "When records come faster than the disk takes them: wait, or drop and count.")                                     \
  X(log_queue, HOOKS, SHARED, NULL, SIZE, "4MiB", NULL, 4096, INT64_MAX, "Memory for records that wait.")              \
  X(log_rotate, HOOKS, SHARED, NULL, SIZE, "0", NULL, 0, INT64_MAX,                                                    \
    "Start a new log file beyond this size; 0: never.")                                                                \
  X(print_stack, HOOKS, SHARED, NULL, INT, "0", NULL, 0, INT32_MAX,                                                    \
    "With console=full: 1 or more prints the Python stack of every call.")                                             \
  X(max_cache_size, AUTOCOMPARE, SHARED, NULL, INT, "100", NULL, 0, INT64_MAX, "Rows to collect before writing them.") \
  X(max_cache_size, TIME_MEASURE, SHARED, NULL, INT, "5000", NULL, 0, INT64_MAX,                                       \
    "Rows to collect before writing them.")                                                                            \
  X(max_cache_size, PROCESS_MONITOR, NAMED, "OP_TOOLS_MAX_CACHE_SIZE", INT, "1", NULL, 0, INT64_MAX,                   \
    "Rows to collect before writing them.")                                                                            \
  X(backward, BACKWARD, SHARED, NULL, BOOL, "1", NULL, 0, 1, "Follow the backward pass of each call too.")             \
  X(view, OBSERVE, OWN, NULL, CHOICE, "off", "off|text|table|jsonl", 0, 0,                                             \
    "What stop() prints of the calls it saw, from the log.")                                                           \
  X(view_rows, OBSERVE, OWN, NULL, INT, "200", NULL, 0, INT64_MAX, "Most calls of that view; 0: all.")                 \
  X(stats, OBSERVE, OWN, NULL, BOOL, "0", NULL, 0, 1,                                                                  \
    "Statistics and a hash of every result and of every gradient, for ditorch compare.")                               \
  X(sync, TIME_MEASURE, OWN, NULL, BOOL, "0", NULL, 0, 1,                                                              \
    "Wait for the device before and after every call, as the original does.")                                          \
  X(sort, TIME_MEASURE, OWN, NULL, CHOICE, "total", "total|count|mean|median|p90|p99|max|name", 0, 0,                  \
    "Order of the summary table.")                                                                                     \
  X(top, TIME_MEASURE, OWN, NULL, INT, "20", NULL, 0, INT64_MAX, "Rows of the summary table that is printed; 0: all.") \
  X(rows, TIME_MEASURE, OWN, NULL, INT, "20000", NULL, 1, INT64_MAX, "Signatures to keep apart; more share a row.")    \
  X(pending, TIME_MEASURE, OWN, NULL, INT, "4096", NULL, 2, INT64_MAX,                                                 \
    "Measurements to hold before waiting for the device.")                                                             \
  X(leaves, TIME_MEASURE, OWN, NULL, BOOL, "1", NULL, 0, 1, "Write the arguments with every time to the log.")         \
  X(trace, TIME_MEASURE, OWN, NULL, BOOL, "0", NULL, 0, 1, "Write a Chrome trace at stop().")                          \
  X(stop, FINDERS, OWN, NULL, BOOL, "0", NULL, 0, 1, "Raise an exception at the first finding.")                       \
  X(save, OVERFLOW_CHECK, OWN, NULL, BOOL, "0", NULL, 0, 1, "Save the arguments of the operators that are reported.")  \
  X(allow_list, OVERFLOW_CHECK, OWN, NULL, NAMES, "", NULL, 0, 0,                                                      \
    "Operators whose NaN and infinities are intended, such as masks.")                                                 \
  X(stats, OVERFLOW_CHECK, OWN, NULL, BOOL, "1", NULL, 0, 1, "Statistics of the tensors with each finding.")           \
  X(read_every, OVERFLOW_CHECK, OWN, NULL, INT, "4096", NULL, 1, INT64_MAX,                                            \
    "Calls after which the device is asked at the latest; otherwise once per step.")                                   \
  X(max_findings, FINDERS, OWN, NULL, INT, "100", NULL, 0, INT64_MAX, "Findings to report; 0: all.")                   \
  X(layout, CAPTURE, OWN, NULL, CHOICE, "files", "files|packed", 0, 0,                                                 \
    "A .pth file per tensor group, or one container per process that ditorch export unpacks.")                         \
  X(compress, CAPTURE, OWN, NULL, CHOICE, "off", "off|auto|zstd|zlib", 0, 0,                                           \
    "Compress tensors of the packed layout: never, where that is faster than writing them (measured), or all that "    \
    "shrink.")                                                                                                         \
  X(write_ahead, CAPTURE, OWN, NULL, BOOL, "0", NULL, 0, 1,                                                            \
    "Have the inputs of a call on disk before it runs, so that a crash leaves them.")                                  \
  X(outputs, CAPTURE, OWN, NULL, BOOL, "1", NULL, 0, 1, "Save the results too, not only the inputs.")                  \
  X(cap_bytes, KEEPERS, OWN, NULL, SIZE, "10GiB", NULL, 0, INT64_MAX, "Most bytes to save per process; 0: no cap.")    \
  X(cap_calls, SAVERS, OWN, NULL, INT, "100000", NULL, 0, INT64_MAX, "Most calls to save per process; 0: no cap.")     \
  X(queue_bytes, CAPTURE, OWN, NULL, SIZE, "256MiB", NULL, 65536, INT64_MAX, "Memory for tensors that wait.")          \
  X(pressure, CAPTURE, OWN, NULL, CHOICE, "block", "block|drop", 0, 0,                                                 \
    "When tensors come faster than the disk takes them: wait, or drop and count.")                                     \
  X(dtype_cast_dict, CASTERS, NAMED, "OP_DTYPE_CAST_DICT", CASTS,                                                      \
    "torch.float16->torch.float32,torch.bfloat16->torch.float32", NULL, 0, 0, "Dtype to compute in, by dtype.")        \
  X(verdict, AUTOCOMPARE, OWN, NULL, CHOICE, "auto", "auto|legacy", 0, 0,                                              \
    "What decides whether a result is wrong: the error against float64 measured by the error of the CPU, or the "      \
    "tolerances.")                                                                                                     \
  X(reference, AUTOCOMPARE, OWN, NULL, CHOICE, "cpu", "cpu|device", 0, 0,                                              \
    "Where an operator runs once more: on the CPU, or first on the device in float64 and only suspects on the CPU.")   \
  X(save, AUTOCOMPARE, OWN, NULL, BOOL, "1", NULL, 0, 1,                                                               \
    "Save the calls whose results are wrong: what the device and the CPU got and gave.")                               \
  X(rows, AUTOCOMPARE, OWN, NULL, CHOICE, "all", "all|wrong|none", 0, 0,                                               \
    "Comparisons to write to the table: all, those that are not close or wrong, or none.")                             \
  X(share, AUTOCOMPARE, OWN, NULL, INT, "0", NULL, 0, 100,                                                             \
    "Most percent of the running time to spend on comparing; calls beyond it are left out; 0: no limit.")              \
  X(max_bytes, AUTOCOMPARE, OWN, NULL, SIZE, "0", NULL, 0, INT64_MAX,                                                  \
    "Leave out calls whose tensors are larger together; 0: no limit.")                                                 \
  X(op_dtype_cast_dict, DTYPE_CAST, PATTERN, "_OP_DTYPE_CAST_DICT", CASTS, "", NULL, 0, 0,                             \
    "The same for one operator, by the last part of its name in upper case.")                                          \
  X(op_dtype_cast_dict, AUTOCOMPARE, PATTERN, "_OP_DTYPE_CAST_DICT", CASTS,                                            \
    "LINEAR|EMBEDDING|NORMALIZE|NORM|CROSS_ENTROPY|MUL|MATMUL="                                                        \
    "torch.float16->torch.float64,torch.bfloat16->torch.float64,torch.float32->torch.float64",                         \
    NULL, 0, 0, "The same for one operator, by the last part of its name in upper case.")                              \
  X(error_tolerance, AUTOCOMPARE, NAMED, "AUTOCOMPARE_ERROR_TOLERANCE", TOLERANCE, "", NULL, 0, 0,                     \
    "Absolute and relative tolerance of all dtypes, such as 1e-3,1e-3.")                                               \
  X(error_tolerance_float16, AUTOCOMPARE, NAMED, "AUTOCOMPARE_ERROR_TOLERANCE_FLOAT16", TOLERANCE, "", NULL, 0, 0,     \
    "The same for float16; empty: 1e-4,1e-4.")                                                                         \
  X(error_tolerance_bfloat16, AUTOCOMPARE, NAMED, "AUTOCOMPARE_ERROR_TOLERANCE_BFLOAT16", TOLERANCE, "", NULL, 0, 0,   \
    "The same for bfloat16; empty: 1e-3,1e-3.")                                                                        \
  X(error_tolerance_float32, AUTOCOMPARE, NAMED, "AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", TOLERANCE, "", NULL, 0, 0,     \
    "The same for float32; empty: 1e-5,1e-5.")                                                                         \
  X(error_tolerance_float64, AUTOCOMPARE, NAMED, "AUTOCOMPARE_ERROR_TOLERANCE_FLOAT64", TOLERANCE, "", NULL, 0, 0,     \
    "The same for float64; empty: 1e-8,1e-8.")                                                                         \
  X(op_error_tolerance_float16, AUTOCOMPARE, PATTERN, "_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT16", TOLERANCE, "", NULL, 0,  \
    0, "The same for one operator, by the last part of its name in upper case.")                                       \
  X(op_error_tolerance_bfloat16, AUTOCOMPARE, PATTERN, "_AUTOCOMPARE_ERROR_TOLERANCE_BFLOAT16", TOLERANCE, "", NULL,   \
    0, 0, "The same for one operator, by the last part of its name in upper case.")                                    \
  X(op_error_tolerance_float32, AUTOCOMPARE, PATTERN, "_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", TOLERANCE, "", NULL, 0,  \
    0, "The same for one operator, by the last part of its name in upper case.")                                       \
  X(op_error_tolerance_float64, AUTOCOMPARE, PATTERN, "_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT64", TOLERANCE, "", NULL, 0,  \
    0, "The same for one operator, by the last part of its name in upper case.")                                       \
  X(label, PROCESS_MONITOR, NAMED, "label", STRING, "", NULL, 0, 0, "Part of the name of the monitor's file.")

/// Old variable names that still work: X(variable, tool, option).
#define DIT_TOOL_ALIAS_LIST(X)                 \
  X("OP_DISPATCH_WATCH_LIST", OBSERVE, "list") \
  X("OP_DISPATCH_WATCH_DISABLE_LIST", OBSERVE, "disable_list")

/// Variables of earlier versions that are accepted and have no effect any more.
#define DIT_TOOL_RETIRED_LIST(X) X("OP_TOOLS_GARBAGE_COLLECTION_CYCLE")

#endif
