"""The CPython extension: the device alias, bindings of libdit, the engine of the operator tools.

Written by tools/gen_stub.py (make docs) from the extension itself.
"""

from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from typing import Any

from torch import Tensor

class EmptyMode:
    """A torch-function mode that only passes calls on, for comparison."""
    def __init__(self) -> None: ...
    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        /,
    ) -> Any:
        """Called by torch for every function."""

class Gate:
    def __init__(self, old: Any, new: Any, label: str) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Any: ...
    __wrapped__: Any
    """What callers get that are not exempt"""
    label: str
    """The name that the audit counts under"""
    old: Any
    """What was there before ditorch"""

class Hook:
    """Calls func with the tools of `features` around it; binds like a function."""
    def __init__(self, name: str, func: Callable[..., Any]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Any: ...
    __wrapped__: Callable[..., Any]
    """What is wrapped."""
    director: Callable[..., Any] | None
    """Called with (hook, args, kwargs) while a tool is on."""
    features: tuple[tuple[Tool, Callable[..., bool] | None], ...]
    """Tuple of (Tool, condition or None)."""
    func: Callable[..., Any]
    """What is wrapped."""
    def hide(self, func: Callable[..., Any], /, *args: Any) -> Any:
        """Call func(*args) unseen by any tool: work of the hook's own."""
    @staticmethod
    def is_operator_name(name: str, /) -> bool:
        """False for questions and bookkeeping, which no tool looks at."""
    op_name: str
    """Under which the tools know it."""
    open: bool
    """Also shown to tools that were started, not attached."""
    def show(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] = {},
        act: bool = False,
        reference: bool = False,
        /,
    ) -> Any:
        """Call func(*args, **kwargs) as this operator, with its tools; those that act in its place only with act.
        reference: func called once more computes what should come out."""

class LogReader:
    """Iterate over the records of log files, merged by time, as dictionaries. types: names or numbers of record types;
    steps: pairs (first, last); matcher: function of an operator's name."""
    def __init__(
        self,
        paths: Sequence[str | PathLike[str]],
        types: Sequence[str | int] | None = None,
        steps: Sequence[tuple[int, int]] | None = None,
        matcher: Callable[[str], bool] | None = None,
    ) -> None: ...
    def __iter__(self) -> Iterator[dict[str, Any]]: ...
    def __next__(self) -> dict[str, Any]: ...
    def close(self) -> None:
        """Close the files; again is allowed."""
    def counts(self, index: int | None = None, /) -> dict[str, Any]:
        """What was met so far, of all files or of one."""
    def export(self, view: str, fd: int, /) -> None:
        """Write all records to a file descriptor; rewinds first."""
    def header(self, index: int, /) -> dict[str, Any] | None:
        """rank, pid, world_size, time and metadata of one file."""
    def position(self) -> int:
        """Bytes of all files that were read so far, for a progress display."""

class RunPair:
    """The calls of two runs, aligned. Iteration gives tuples (a, b, moved, verdict, error, step, name, module, flags_a,
    flags_b, dtype_a, dtype_b, host_a, host_b, device_a, device_b); a or b is -1 for a call of one run alone. `limit`:
    bytes per run."""
    def __init__(self, a: LogReader, b: LogReader, limit: int = 1 << 30) -> None: ...
    def __iter__(self) -> Iterator[dict[str, Any]]: ...
    def __next__(self) -> dict[str, Any]: ...
    def call(self, side: int, index: int, /) -> dict[str, Any]:
        """Everything known of one call: side 0 is run a, 1 is run b."""
    def judge(self, a: int, b: int, /) -> tuple[int, float]:
        """Verdict (0 unknown, 1 shapes differ, 2 equal, 3 error is told) and error of any two calls."""
    def sizes(self) -> tuple[int, int, int, int]:
        """Calls of a and of b, records read of a and of b."""
    def text(self, number: int, /) -> str:
        """The text of a number; empty for 0."""

class Tool:
    """A tool around operator calls: observe, time, overflow, capture, compare, fallback or cast."""
    def __init__(self, kind: str, options: dict[str, Any] = {}, /) -> None: ...
    active: bool
    """Between start and stop."""
    def attach(self) -> None:
        """Like start, but only calls of a Hook that has the tool reach it."""
    def counts(self) -> dict[str, int]:
        """Calls seen since the start, applied, and why not."""
    def describe(self) -> dict[str, Any]:
        """The tool's results."""
    def flush(self) -> None:
        """Work off what is pending (device events, deferred checks)."""
    kind: str
    """observe, time, overflow, capture, compare, fallback or cast."""
    def set_aten(self, on: bool, /) -> None:
        """ATen operators instead of Python functions."""
    def set_condition(self, function: Callable[..., bool] | None, /) -> None:
        """Asked with the arguments of each call."""
    def set_console(self, function: Callable[[str, dict[str, Any]], Any] | None, /) -> None:
        """Called with (kind, event) for each event."""
    def set_cpu(self, on: bool, /) -> None:
        """Also calls that touch no device."""
    def set_due(self, on: bool, /) -> None:
        """Is this step selected?"""
    def set_limits(self, numel_min: int, numel_max: int, first: int, /) -> None: ...
    def set_matcher(self, function: Callable[[str], bool] | None, /) -> None:
        """Name of an operator -> is it wanted? Asked once per operator."""
    def set_modules(self, function: Callable[[str], bool] | None, /) -> None:
        """Path of the nn.Module -> is it wanted?"""
    def start(self) -> None:
        """Show the calls of this thread to the tool; nothing when it is active."""
    def stop(self) -> None:
        """The end of start or attach; nothing when it is not active."""

def _alias_set_failure(stage: str | None, /) -> None:
    """For tests: the next alias_install fails at 'symbol', 'layout', 'slot', 'protect', 'write' or 'probe'; None takes
    it back."""

def alias_install(device_type: int, show: bool = True, libraries: Sequence[str] | None = None) -> dict[str, Any]:
    """Make 'cuda' parse to the device type of this number in PyTorch (and, with show, make that type print as 'cuda').
    libraries: file names of the PyTorch libraries to patch, default libtorch_python.so and libtorch_cpu.so. Everything
    is verified before anything is written; on an error nothing is changed. Returns alias_status()."""

def alias_restore() -> None:
    """Put every import slot back. Does nothing when not installed."""

def alias_second_name(name: str | None, cuda: bool = True, /) -> None:
    """Make `name` (and `name:1` ...) parse to the aliased device type too; None takes that back. cuda: whether 'cuda'
    means the device type as well, or PyTorch's own."""

def alias_status() -> dict[str, Any]:
    """What is patched: installed, device_type, show, slots, libraries (file name -> symbol -> number of slots), paths
    (file name -> path)."""

def backward_enter() -> bool:
    """Put the mode back on the stack for a run of the autograd engine that was started from inside a torch function
    (torch has taken it off). Returns whether it was pushed; hand the answer to backward_leave."""

def backward_hooks_install() -> None:
    """Register the tools' own autograd hooks without Python code: takes the place of
    torch.autograd.Function._register_hook. Nothing when it has it already."""

def backward_hooks_remove() -> None:
    """Undo backward_hooks_install."""

def backward_leave(pushed: bool, /) -> None:
    """The run ended."""

def backward_probe(callback: Callable[[str, dict[str, Any]], Any] | None, /) -> Tool:
    """A tool for tests: callback(kind, event) with kind 'call', 'begin' or 'end' gets every event, CPU operators
    included; None: nothing is told, describe() counts windows."""

def call_settings() -> dict[str, Any] | None:
    """What decides the result of a call made here and now besides its arguments: autocast, deterministic algorithms.
    None when all is as usual."""

def capture_parts(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], identifier: str, /
) -> tuple[bytes, str, list[bytes]]:
    """One item as its parts, without a file."""

def capture_write(
    path: str | PathLike[str],
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    identifier: str,
    state: dict[str, Any] | None = None,
    /,
) -> int:
    """Write one item as a .pth file with its .json, atomically; bytes written. state: what call_settings() said at the
    call."""

def conversions() -> dict[str, dict[str, Any]]:
    """What the adaptor did, by operator: converted, composed (calls), layouts, written (tensors), dtypes
    ('float16->float32' to the number of tensors)."""

def counts_by_option() -> bool:
    """Does the loaded vendor have as many devices as the option host_devices says? Else they are its own."""

def current_device() -> int:
    """Of the calling thread."""

def device_count() -> int:
    """0 before init."""

def device_properties(device: int, /) -> dict[str, Any]:
    """Every field of struct dit_device_properties."""

def device_show_install(
    device_class: type,
    device_type: int,
    real_name: str,
    stream_class: type | None,
    event_class: type | None,
    truth: bool = False,
    /,
) -> None:
    """Make torch.device objects of the device type of this number say 'cuda' (type, str, repr, pickle), and the repr of
    streams and events too (None where this torch has no such class). truth: they say so already; exempt packages alone
    get the real name. Installed already: does nothing."""

def device_show_restore() -> None:
    """Let devices say their real name again. Does nothing when not installed."""

def diopi_activate(name: str, /) -> None:
    """Take a DIOPI library, by name ('host') or path, for the operators of the device."""

def engine_classify(name: str, /) -> dict[str, Any]:
    """What an operator's name says: view, transfer, random, uninitialised, collective."""

def engine_facts() -> dict[str, Any]:
    """How tensors are read: exchange (DLPack's C API), layout (torch's tensor objects)."""

def engine_get_step() -> int:
    """The number of the iteration, from 0."""

def engine_invalidate() -> None:
    """Ask the matchers again."""

def engine_module_pop() -> None:
    """Its forward ended."""

def engine_module_push(path: str, /) -> None:
    """The forward of this module begins on this thread."""

def engine_step() -> int:
    """The next iteration begins; returns its number."""

def environ_changed() -> bool:
    """Whether a variable of the tools changed since the last refresh."""

def environ_generation() -> int:
    """Changes of the tools' variables seen so far."""

def environ_listen(names: frozenset[bytes], function: Callable[[bytes, bytes | None], Any] | None, /) -> bool:
    """Call it with the name and the new value (None: it was removed) soon after one of these variables changed; None:
    nobody listens any more. False when changes cannot be seen."""

def environ_refresh() -> None:
    """What the engine does after a change."""

def environ_watch(callable: Callable[[], Any] | None, /) -> bool:
    """Call it (no arguments; None: nothing) at the first operator after a variable of the operator tools changed. False
    when changes cannot be seen: an audit hook of the program refused ours."""

def event_block(event_id: int, device: int, stream: int, /) -> None:
    """Make later work of the stream wait for the event; on the default stream, which runs inline, that means now."""

def event_elapsed(start_id: int, end_id: int, /) -> float:
    """Milliseconds between two events."""

def exchange_device(device: int, /) -> int:
    """Set the current device (negative: no change) and return the previous one."""

def exempt_count(on: bool, /) -> None:
    """Start counting who asks (from zero), or stop and forget."""

def exempt_counts() -> dict[tuple[str, str | None], int] | None:
    """(label, module) -> calls since exempt_count(True); None: not counting."""

def exempt_set(packages: dict[str, int], /) -> None:
    """The exempt packages: a dict of name -> 1 (names) or 3 (everything); it replaces the one before."""

def fault_configure(text: str | None, /) -> str:
    """Replace the rules of the fault hook; None or '' removes them all. Returns what the user should be told: rules
    that match no operator."""

def fault_count() -> int:
    """Faults injected since the last configure."""

def fault_idle() -> str:
    """Rules that have not acted since the last configure, and why, once operators have run."""

def helper_copy(tensor: Tensor, /) -> bytes:
    """The span of memory that a tensor covers, through staging memory."""

def helper_cost(tensor: Tensor, repeat: int = 100, /) -> dict[str, Any]:
    """Nanoseconds of the host and of the device per call, by name: recording an event, flags, statistics and hash of
    the tensor (16 copies where the name says so)."""

def helper_names() -> list[str]:
    """The device helpers that work here: 'host', 'cuda'."""

def helper_set_answer(function):
    """Hand down what answers for tensors that C does not read by itself: function(kind, tensors, helper, rtol, atol,
    equal_nan); None takes it back."""

def helper_time(tensor: Tensor, function: Callable[[], Any], /) -> float:
    """Milliseconds between two events around function() on the current stream of the tensor's device."""

def helper_why_not(name: str, /) -> str | None:
    """Why a helper does not work here, or why it computes no numbers."""

def host_empty_cache() -> None:
    """Give cached pinned memory back."""

def host_is_pinned(address: int, /) -> bool: ...
def host_register(address: int, size: int, /) -> None:
    """Pin memory that somebody else owns."""

def host_reset_peak() -> None: ...
def host_stats() -> dict[str, Any]:
    """Every field of struct dit_host_stats (bytes and counts of pinned memory)."""

def host_times() -> tuple[dict[str, int], dict[str, int]]:
    """The vendor's allocations and frees of pinned memory: count, and nanoseconds in total, max and min."""

def host_unregister(address: int, /) -> None: ...
def infer_functions() -> list[str]:
    """The functions of LLM inference (dit/infer.h) that the device's operator library has."""

def init(vendor: str, /) -> None:
    """Load a vendor library by name ('host') or path and make it the process's device."""

def is_active() -> bool:
    """Is a vendor loaded?"""

def is_bad_fork() -> bool:
    """True in a child forked after the parent had used the device."""

def is_cuda_install(tensor_base: type, device_type: int, /) -> None:
    """Make is_cuda of tensors (torch._C.TensorBase) and of untyped storages true on CUDA and on the device type of this
    number."""

def is_cuda_restore() -> None:
    """Give is_cuda its original getters back. Does nothing when not installed."""

def judge(
    name,
    device,
    first,
    run,
    args=(),
    kwargs=None,
    inputs=(),
    what="output",
    index=0,
    careful=False,
    seed=0,
    between=0.0,
) -> dict:
    """Is value number `index` of a call right? `first` is what the CPU has at hand; run(kind, size, narrow, seed) makes
    a further run and returns its values, or a text that says why there is none. `inputs` are the tensors among the
    arguments."""

def judge_constants() -> dict[str, Any]:
    """The numbers of the rule (dit/verdict.h)."""

def judge_forget() -> None:
    """Forget what earlier calls left behind for OpAutoCompare: the next results are judged by full runs, as the first
    ones were."""

def judge_move(tensor, size, seed, place, gradient=False) -> None:
    """Move every number of a dense float64 or complex128 CPU tensor by a random relative error of at most `size`, in
    place, as the judge's further runs want it. The tensor is argument number `place`, or the gradient of output number
    `place`."""

def judge_move_numbers(numbers, size, seed) -> list[float]:
    """The numbers among the arguments of a call, in order, each off by a random relative error of at most `size`; small
    integers stay."""

def ledger() -> list[dict[str, Any]]:
    """Most calls first: name, c and fallback, each with calls, bytes, nanoseconds."""

def ledger_reset() -> None:
    """Forget all counts."""

def ledger_set_timing(on: bool, /) -> None:
    """Also take the times of C operators."""

def log_close() -> None:
    """Write everything out and close."""

def log_columns(
    reader: LogReader, columns: tuple[tuple[str, str], ...], rows: int, /
) -> tuple[int, dict[str, tuple[bytes, bytes]], list[str]]:
    """The next rows of a log as columns (key, 'int' | 'float' | 'text'): their number, per column the values and a bit
    per row that has one, and the texts that the values of text columns count. dtype, shape and device are of the first
    result."""

def log_counts() -> dict[str, Any]: ...
def log_flush() -> None:
    """Return when everything recorded so far survives the process."""

def log_open(
    directory: str | PathLike[str], metadata: dict[str, str] | None = None, options: dict[str, Any] | None = None, /
) -> None:
    """Open the process's record log; nothing when it is open. Options: pressure ('block' or 'drop'), queue_bytes,
    rotate_bytes, rank, world_size."""

def log_path() -> str | None: ...
def log_repair(path: str | PathLike[str], /) -> int:
    """Cut a torn end off a log file; the bytes removed."""

def log_set_level(name: str, /) -> None:
    """'debug', 'info', 'warning', 'error' or 'off'."""

def log_tool(tool: str, event: str, text: str, /) -> None:
    """A record about a tool itself: start, stop, step, summary."""

def memory_alloc(device: int, stream: int, size: int, /) -> int:
    """The address of a new block; 0 for size 0."""

def memory_apply_options() -> None:
    """Put the options about memory in force, after they changed."""

def memory_check_blocks(since: int = 0, /) -> list[dict[str, Any]]:
    """The live blocks whose allocation number is above `since`: address, size, device (-1: pinned), stream, number,
    place, frames."""

def memory_check_is_on() -> bool: ...
def memory_check_report() -> None:
    """Write the report that comes at exit."""

def memory_check_start(backtrace: bool, max_blocks: int, interval: int, guard: int, /) -> None:
    """Watch every block of device and pinned memory that is allocated from now on."""

def memory_check_state() -> dict[str, Any]:
    """Every field of struct dit_memory_check_state."""

def memory_check_stop() -> None:
    """Later blocks are not watched."""

def memory_check_verify() -> int:
    """Wait for the devices and look at all guard zones; the number of damaged ones that were not reported before."""

def memory_configure(text: str | None, /) -> None:
    """The grammar of PYTORCH_CUDA_ALLOC_CONF; None or '' resets to the defaults."""

def memory_empty_cache(device: int = -1, /) -> None:
    """Give unused segments back to the vendor; -1: all devices."""

def memory_find(address: int, /) -> tuple[int, int, int] | None:
    """The live block that contains the address."""

def memory_free(address: int, /) -> None:
    """Give a block of memory_alloc back; 0 does nothing."""

def memory_get_algorithm() -> str:
    """torch, bf, bs or raw."""

def memory_get_configuration() -> str:
    """The text last accepted."""

def memory_get_fraction(device: int, /) -> float: ...
def memory_info(device: int, /) -> tuple[int, int]:
    """Bytes, as the vendor counts them."""

def memory_pool_begin(device: int, pool: int, /) -> None:
    """This thread's allocations come from the pool until the end."""

def memory_pool_end(device: int, pool: int, /) -> None: ...
def memory_pool_release(pool: int, /) -> None:
    """Its free segments go back to the devices."""

def memory_reset_accumulated(device: int, /) -> None:
    """The counts 'allocated' and 'freed' start again from 0."""

def memory_reset_peak(device: int, /) -> None:
    """Peaks start again from the current values."""

def memory_set_fraction(device: int, fraction: float, /) -> None:
    """Share of the device's memory this process may use, 0 < fraction <= 1."""

def memory_snapshot(device: int = -1, /) -> list[dict[str, Any]]:
    """One dict per segment, as torch.cuda.memory_snapshot(); -1: all devices."""

def memory_stats(device: int, /) -> dict[str, Any]:
    """Nested as torch._C._cuda_memoryStats returns it."""

def metrics() -> list[tuple[str, str, str, dict[str, str], Any]]:
    """Every series that has counted something; the value of a histogram is a dict of thresholds, buckets, sum and
    count."""

def metrics_enable(on: bool, /) -> None: ...
def metrics_is_enabled() -> bool: ...
def metrics_reset() -> None:
    """Counters and histograms back to 0."""

def metrics_text() -> str:
    """The text format of Prometheus."""

def mode_is_on() -> bool:
    """Are this thread's calls shown to tools?"""

def mode_pop() -> None:
    """Undo mode_push."""

def mode_push() -> None:
    """Show this thread's calls to the active tools."""

def num_threads() -> int:
    """Threads of the C operators."""

def operator_find(name) -> dict | None:
    """What the operator table (standard/operators.tsv) knows about a name of any spelling; the traits are those of
    exactly this name. None: nothing."""

def operator_list() -> list[str]:
    """Every word of the operator table, sorted."""

def operator_parts(name: str, /) -> list[str]:
    """Words of the operators that may do the work of a function: _softmax of softmax, convolution of conv2d. Not all of
    them exist."""

def operators_c() -> list[str]:
    """The operators implemented in C: 'aten::add.Tensor', 'aten::relu'."""

def operators_diopi() -> dict[str, str]:
    """The DIOPI function behind each operator of operators_c() that has one: {'aten::relu': 'diopiRelu'}. Others, such
    as its form for numbers, may be used as well."""

def option_aliases() -> list[tuple[str, str, str]]:
    """Variables of DIPU that set options of ditorch."""

def option_set(name: str, text: str, /) -> None:
    """The keyword form: highest precedence."""

def options() -> list[dict[str, Any]]:
    """The schema and the values in force: name, environment, type, default, choices, min, max, help, value (bool, int
    or str), text (canonical form), source."""

def options_load(path: str | PathLike[str] | None, /) -> None:
    """Read the TOML file (None: none) and the environment. Nothing changes on error."""

def options_reset() -> None:
    """Back to the defaults."""

def redirect_install(
    device_class: type,
    device_type: int,
    name: str,
    show: bool,
    functions: list[tuple[Any, ...]],
    classes: list[type],
    /,
) -> None:
    """Make 'cuda' mean the device type of this number and real name: in torch.device, in the C functions of the
    (function, form[, substitute]) tuples (form 'device', 'text', 'autocast', 'nothing' or 'key') and in the
    constructors of the classes. Installed already: does nothing."""

def redirect_restore() -> None:
    """Take every redirect back. Does nothing when not installed."""

def redirect_second_name(name: str | None, /) -> None:
    """Make `name` (and `name:1` ...) mean what 'cuda' means; None takes it back."""

def redirect_status() -> dict[str, Any]:
    """installed, device_type, and the redirected functions and classes by name."""

def set_device(device: int, /) -> None:
    """The calling thread's current device."""

def set_num_threads(count: int, /) -> None:
    """0 is the default."""

def shutdown() -> None:
    """Drain all devices, stop worker threads, give all memory back."""

def store_unpack(container: str | PathLike[str], root: str | PathLike[str], /) -> int:
    """Write every item of a capture container as files below `root`; their number."""

def stream_acquire(device: int, priority: int = 0, /) -> int:
    """The next stream of the device's pool; priority < 0 is high."""

def stream_current(device: int, /) -> int:
    """The calling thread's current stream of the device."""

def stream_launch_host(device: int, stream: int, function: Callable[[], Any], /) -> None:
    """Call function() when the work queued so far is done. An exception in it goes to sys.unraisablehook."""

def stream_priority(device: int, stream: int, /) -> int:
    """0 is normal, less is higher."""

def stream_query(device: int, stream: int, /) -> bool:
    """Is all its work done?"""

def stream_raw(device: int, stream: int, /) -> int:
    """The vendor's own handle; 0 for the default stream."""

def stream_set(device: int, stream: int, /) -> None:
    """Make it the calling thread's current stream of the device."""

def stream_sleep(device: int, stream: int, nanoseconds: int, /) -> None:
    """Occupy the stream for that long."""

def stream_synchronize(device: int, stream: int, /) -> None:
    """Wait for all its work."""

def synchronize(device: int, /) -> None:
    """Wait for all work on all streams of the device."""

def tensor_batch(kind: str, tensors: Sequence[Tensor], /) -> list[Any]:
    """The numbers 'nonfinite', 'stats' or 'hash' of tensors of one device, up to 16 in one launch, read back once."""

def tensor_compare(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False, helper: str | None = None
) -> dict[str, Any]:
    """The candidate a against the reference b, with the fields of struct dit_compare_result."""

def tensor_compare_detail(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> dict[str, Any]:
    """Where and how far they differ (struct dit_compare_detail). Tensors of other devices are copied to the CPU."""

def tensor_hash(tensor: Tensor, helper: str | None = None) -> dict[str, Any]:
    """128 bits of dtype, shape and elements: low, high."""

def tensor_nonfinite(tensor: Tensor, helper: str | None = None) -> int:
    """1: has NaN, 2: has infinities, 3: both."""

def tensor_plain(tensor, on_cpu=False) -> Tensor:
    """The same values in plain strided memory without history: conjugate and negative bits resolved, sparse made dense,
    nested ones flat. TypeError for tensors without values (meta, fake)."""

def tensor_stats(tensor: Tensor, helper: str | None = None) -> dict[str, Any]:
    """Statistics with the fields of struct dit_tensor_stats."""

def tool_options() -> list[dict[str, Any]]:
    """The schema of the operator tools: name, tools (tool -> environment variables, strongest first), scope, type,
    default, choices, min, max, help."""

def tool_options_resolve(
    tool: str, path: str | PathLike[str] | None, arguments: dict[str, str], /
) -> list[dict[str, Any]]:
    """The values of one tool from arguments (dict of str), environment, TOML file (path or None) and defaults: name,
    key (of a pattern), type, value, text, source, origin."""

def tools_twin(args: tuple[Any, ...], attached: bool = False, copy_cpu: bool = False) -> tuple[Any, ...]:
    """Arguments with CPU twins in the tensors' places."""

def torch_names() -> list[tuple[str, str | None, bool]]:
    """Every name of PyTorch that the extension looks up, the first torch that has it where it is optional, and whether
    this one has it. Loads them all."""

def type_attribute_delete(owner: type, name: str) -> None:
    """delattr, after which neither the class nor one below it is a sequence that was none before."""

def type_attribute_set(owner: type, name: str, value: object) -> None:
    """setattr, after which neither the class nor one below it is a sequence that was none before."""

def vendor_info() -> dict[str, Any]:
    """name, version, path, description, driver_version, runtime_version (None: not offered)."""

def version() -> str:
    """Of libdit."""
