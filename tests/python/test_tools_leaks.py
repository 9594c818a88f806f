"""Every function of ditorch._C that belongs to the tools, called a thousand times: neither objects nor memory grow."""

from conftest import open_memory

PREFIXES = (
    *("engine_", "mode_", "backward_", "capture_", "environ_", "tool_", "tensor_", "helper_", "store_", "tools_"),
    *("compare_", "judge", "EmptyMode", "Hook", "LogReader", "RunPair", "Tool", "call_settings"),
    *("log_open", "log_close", "log_flush", "log_path", "log_counts", "log_tool", "log_repair", "log_columns"),
)

CODE = """
import gc, os, sys, torch, ditorch
from ditorch import _C
x = torch.ones(4, 4, device="cuda", requires_grad=True)
y = torch.ones(4, 4, device="cuda")
p = torch.rand(4, dtype=torch.float64)
folder = os.getcwd()
parts = None

def quietly(call):
    try:
        call()
    except Exception:
        return
    raise AssertionError("did not raise")

def tool():
    one = _C.Tool("observe", {})
    one.set_matcher(lambda name: True)
    one.set_condition(lambda *args, **kwargs: True)
    one.set_modules(lambda path: True)
    one.set_console(lambda kind, event: None)
    one.set_limits(0, 100, 10)
    one.set_due(True), one.set_cpu(False), one.set_aten(False)
    one.start()
    torch.mm(x, y).sum().backward()
    one.flush()
    one.stop()
    one.counts(), one.describe(), one.active, one.kind

def hook():
    one = _C.Hook("torch.mm", torch.mm)
    one.features = ((observer, None), (observer, lambda *args: True))
    one(x, y), one.features, one.func, one.op_name, repr(one), one == torch.mm
    one.features = ()

observer = _C.Tool("observe", {})
observer.attach()

def act(kind):
    one = _C.Tool(kind, {})
    one.start()
    torch.mm(x, y).sum().backward()
    one.stop()
    one.describe()

def module():
    _C.engine_module_push("a.b")
    _C.engine_module_pop()

def mode():
    torch._C._push_on_torch_function_stack(_C.EmptyMode())
    y + 1
    torch._C._pop_torch_function_stack()

def reader():
    for record in _C.LogReader([closed]):
        pass

def pair():
    both = _C.RunPair(_C.LogReader([closed]), _C.LogReader([closed]))
    list(both), both.sizes(), both.call(0, 0), both.judge(0, 0), both.text(1)

_C.log_open(folder, {"a": "b"}, {"pressure": "drop"})
for kind in ("observe", "time"):
    one = _C.Tool(kind, {})
    one.start()
    torch.mm(x, y).sum().backward()
    one.stop()
closed = _C.log_path()
_C.log_close()

def log():
    _C.log_open(folder, {"a": "b"}, {})
    _C.log_tool("observe", "start", "text")
    _C.log_flush(), _C.log_path(), _C.log_counts()
    path = _C.log_path()
    _C.log_close()
    os.unlink(path)

for _ in range(12_000):  # Python's own method caches settle slowly when a class attribute comes and goes
    _C.backward_hooks_install(), _C.backward_hooks_remove()

CALLS = {
    "Tool": (200, tool, [lambda: _C.Tool("x", {}), lambda: _C.Tool("observe", 3)]),
    "Hook": (200, hook, [lambda: _C.Hook("x", 3), lambda: _C.Hook(3, len)]),
    "engine_classify": (1000, lambda: _C.engine_classify("torch.Tensor.view"), [lambda: _C.engine_classify(3)]),
    "tools_twin": (500, lambda: _C.tools_twin((x, y, y[1:])), [lambda: _C.tools_twin((torch.ones(1, device="meta"),))]),
    "EmptyMode": (1000, mode, []),
    "LogReader": (200, reader, [lambda: _C.LogReader(["/nothere"])]),
    "RunPair": (200, pair, [lambda: _C.RunPair(3, 4)]),
    "log_open log_close log_flush log_path log_counts log_tool": (50, log, [lambda: _C.log_open("/nothere", {}, {})]),
    "log_columns": (200, lambda: _C.log_columns(_C.LogReader([closed]), (("name", "text"), ("seq", "int")), 100),
        [lambda: _C.log_columns(3, (), 1), lambda: _C.log_columns(_C.LogReader([closed]), (("name", "x"),), 1)]),
    "log_repair": (200, lambda: _C.log_repair(closed), [lambda: _C.log_repair("/nothere")]),
    "engine_facts": (1000, _C.engine_facts, []),
    "helper_time": (200, lambda: _C.helper_time(y, lambda: y + 1), [lambda: _C.helper_time(3, len)]),
    "helper_copy": (500, lambda: _C.helper_copy(y), [lambda: _C.helper_copy(3)]),
    "helper_cost": (20, lambda: _C.helper_cost(y, 10), [lambda: _C.helper_cost(3)]),
    "tensor_batch": (500, lambda: _C.tensor_batch("stats", [y, y]), [lambda: _C.tensor_batch("x", [y])]),
    "engine_step": (1000, _C.engine_step, []),
    "engine_get_step": (1000, _C.engine_get_step, []),
    "engine_invalidate": (1000, _C.engine_invalidate, []),
    "engine_module_push engine_module_pop": (1000, module, [lambda: _C.engine_module_push(3)]),
    "mode_push mode_pop mode_is_on": (1000, lambda: (_C.mode_push(), _C.mode_is_on(), _C.mode_pop()), []),
    "backward_enter backward_leave": (1000, lambda: _C.backward_leave(_C.backward_enter()), []),
    "backward_hooks_install backward_hooks_remove": (200,
        lambda: (_C.backward_hooks_install(), _C.backward_hooks_remove()), []),
    "environ_generation environ_changed environ_refresh": (
        1000,
        lambda: (_C.environ_generation(), _C.environ_changed(), _C.environ_refresh()),
        [],
    ),
    "environ_listen": (200,
        lambda: (_C.environ_listen(frozenset([b"DIT_X"]), print), _C.environ_listen(frozenset(), None)),
        [lambda: _C.environ_listen(3, None), lambda: _C.environ_listen(frozenset(), 3)]),
    "call_settings": (200, _C.call_settings, []),
    "environ_watch": (200, lambda: _C.environ_watch(None), [lambda: _C.environ_watch(3)]),
    "tool_options": (100, _C.tool_options, []),
    "tool_options_resolve": (100, lambda: _C.tool_options_resolve("observe", None, {}),
        [lambda: _C.tool_options_resolve("x", None, {})]),
    "helper_set_answer": (500, lambda: (_C.helper_set_answer(len), _C.helper_set_answer(None)),
        [lambda: _C.helper_set_answer(3)]),
    "tensor_plain": (500, lambda: _C.tensor_plain(y, on_cpu=True), [lambda: _C.tensor_plain(3),
        lambda: _C.tensor_plain(torch.ones(2, device="meta"))]),
    "helper_names": (500, _C.helper_names, []),
    "helper_why_not": (500, lambda: _C.helper_why_not("cuda"), []),
    "tensor_stats": (500, lambda: _C.tensor_stats(y), [lambda: _C.tensor_stats(3)]),
    "tensor_nonfinite": (500, lambda: _C.tensor_nonfinite(y), [lambda: _C.tensor_nonfinite(3)]),
    "tensor_hash": (500, lambda: _C.tensor_hash(y), [lambda: _C.tensor_hash(3)]),
    "tensor_compare": (500, lambda: _C.tensor_compare(y, y, 1e-5, 1e-8, True),
        [lambda: _C.tensor_compare(y, 3, 0, 0, True)]),
    "judge": (200, lambda: (_C.judge("add", y, y + 1, lambda *_: "none"), _C.judge("sort", p, p + 1, lambda *_: [p],
        args=(p, 0), inputs=(p,))),
        [lambda: _C.judge("add", 1, y, None), lambda: _C.judge("add", y, y + 1, lambda: 0)]),
    "judge_move": (500, lambda: _C.judge_move(p.clone(), 1e-3, 1, 0), [lambda: _C.judge_move(y, 1e-3, 1, 0)]),
    "judge_move_numbers": (500, lambda: _C.judge_move_numbers([1.5, 0.3], 1e-3, 1), []),
    "judge_constants": (500, _C.judge_constants, []),
    "judge_forget": (500, _C.judge_forget, []),
    "tensor_compare_detail": (500, lambda: _C.tensor_compare_detail(y, y, 1e-5, 1e-8, True), []),
}
ELSEWHERE = ELSEWHERE_NAMES
names = {name for name in dir(_C) if callable(getattr(_C, name)) and name.startswith(PREFIXES_HERE)}
rows = {name for key in CALLS for name in key.split()} | ELSEWHERE
assert names <= rows, f"without a row: {names - rows}"

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4

def counts():
    gc.collect()
    return sys.getallocatedblocks(), resident()

for name, (rounds, good, bad) in CALLS.items():
    if not all(hasattr(_C, part) for part in name.split()):
        raise AssertionError(f"no function for {name}")
    for call in [good, *[lambda wrong=wrong: quietly(wrong) for wrong in bad]]:
        least = None
        for window in range(5):
            before = counts()
            for _ in range(rounds):
                call()
            grown = [b - a for a, b in zip(before, counts())]
            least = grown if least is None else list(map(min, least, grown))
            if least[0] < max(20, rounds // 25) and least[1] < 512:
                break
        else:
            raise AssertionError(f"{name}: {least} (Python blocks, KiB) in {rounds} calls")
print("measured", len(CALLS))
"""

# Called by their own tests, which count too: they need items, containers or a whole graph.
ELSEWHERE = {"capture_write", "capture_parts", "store_unpack", "backward_probe"}


@open_memory  # the helpers in C, whose functions are called too, serve host memory and CUDA
def test_no_function_of_the_tools_leaks(python, tmp_path):
    code = CODE.replace("ELSEWHERE_NAMES", repr(ELSEWHERE)).replace("PREFIXES_HERE", repr(PREFIXES))
    assert "measured" in python(code, cwd=tmp_path).stdout
