"""The interception engine: which calls are shown, under which name, with which arguments, on which thread; and that
nothing of the program changes. The observing tool with its console callback is the probe."""

import collections
import dataclasses
import gc
import os
import textwrap
import threading
import weakref

import ditorch  # noqa: F401
import pytest
import torch
import torch.nn.functional as F
from conftest import HERE, run_python
from ditorch import _C

DEVICE = "cuda"


class Probe:
    """An observing tool that keeps what it was shown."""

    def __init__(self, names=None, **settings):
        self.tool = _C.Tool("observe", {})
        self.tool.set_console(self._tell)
        if names is not None:
            self.tool.set_matcher(lambda name: name in names)
        for key, value in settings.items():
            getattr(self.tool, f"set_{key}")(*value if isinstance(value, tuple) else (value,))
        self.events = []
        self.lines = []

    def _tell(self, kind, event):
        if kind == "forward":
            self.events.append(event)
        elif kind in ("apply", "skip"):
            self.lines.append(f"{kind} {event['name']}")

    @property
    def names(self):
        return [event["name"] for event in self.events]

    def __enter__(self):
        self.tool.start()
        return self

    def __exit__(self, *exc):
        self.tool.stop()


@pytest.fixture
def x():
    return torch.arange(12.0, device=DEVICE).reshape(3, 4)


# Names


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda x: x + x, "torch.Tensor.add"),
        (lambda x: x - x, "torch.Tensor.sub"),
        (lambda x: x * 2, "torch.Tensor.mul"),
        (lambda x: x / 2, "torch.Tensor.div"),
        (lambda x: x.__iadd__(1), "torch.Tensor.add_"),
        (lambda x: x == x, torch.overrides.resolve_name(torch.Tensor.__eq__)),
        (lambda x: x**2, "torch.Tensor.__pow__"),
        (lambda x: 2**x, "torch.Tensor.__rpow__"),
        (lambda x: 1 / x, "torch.Tensor.__rtruediv__"),
        (lambda x: x[0], "torch.Tensor.__getitem__"),
        (lambda x: x.__setitem__(0, 1), "torch.Tensor.__setitem__"),
        (lambda x: bool(x[0, 0]), "torch.Tensor.__bool__"),
        (lambda x: torch.norm(x), "torch.functional.norm"),
        (lambda x: F.linear(x, x), "torch.nn.functional.linear"),
        (lambda x: torch.mm(x, x.T), "torch.mm"),
        (lambda x: x.T, "torch.Tensor.T.__get__"),
        (lambda x: x.mT, "torch.Tensor.mT.__get__"),
        (lambda x: x.data, "torch.Tensor.data.__get__"),
        (lambda x: torch.ones(2, device=DEVICE), "torch.ones"),
    ],
)
def test_names(x, call, name):
    with Probe() as probe:
        call(x)
    assert probe.names[-1] == name


def test_getters_and_questions_are_not_operators(x):
    with Probe() as probe:
        assert x.shape == (3, 4) and x.device.type == "cuda" and x.dtype is torch.float32 and x.dim() == 2
        assert x.size(0) == 3 and x.numel() == 12 and x.is_contiguous() and x.stride() == (4, 1)
        assert not x.requires_grad and x.grad is None and x.is_cuda and len(x) == 3 and x.ndim == 2
        x.data_ptr(), x.element_size(), x.untyped_storage(), repr(x), f"{x}", hash(x)
        x.requires_grad_(False)
        x.data = x.detach()
    assert set(probe.names) <= {"torch.Tensor.detach"}


def test_i13_function_without_module_has_a_name(x):
    class Odd(torch.Tensor):
        pass

    def odd(value):
        return torch.overrides.handle_torch_function(odd, (value,), value)

    odd.__module__ = None
    with Probe() as probe, pytest.raises(TypeError):
        odd(x.as_subclass(Odd))  # no implementation: torch's own error, not ours
    assert all(isinstance(name, str) for name in probe.names)


# Which calls


def test_cpu_calls_are_not_shown():
    a = torch.ones(3)
    with Probe() as probe:
        a + a
        torch.ones(2)
        torch.zeros(2, device="cpu")
        a.to("cpu")
    assert probe.events == [] and probe.tool.counts()["cpu"] == 4


def test_cpu_calls_on_request():
    a = torch.ones(3)
    with Probe(cpu=True) as probe:
        a + a
        torch.ones(2)
    assert probe.names == ["torch.Tensor.add", "torch.ones"]


def test_i8_keyword_tensors_and_moves_count_as_device_calls(x):
    a = torch.ones(3)
    with Probe() as probe:
        torch.add(input=x, other=x)
        a.cuda()
        a.to("cuda")
        a.to(device="cuda")
        a.to(torch.device("cuda"))
        torch.ones(3, device=0)
        torch.ones(3, device="cuda:0")
    assert len(probe.events) == 7


def test_i8_default_device_below_and_above():
    with Probe() as probe, torch.device(DEVICE):
        torch.ones(3)
    with torch.device(DEVICE), Probe() as below:
        torch.ones(3)
    assert probe.names == below.names == ["torch.ones"]


def test_i9_meta_and_fake_tensors_are_not_read():
    from torch._subclasses import FakeTensorMode

    with Probe() as probe:
        torch.ones(3, device="meta") + 1
        with FakeTensorMode():
            a = torch.empty(3)
            a + 1
    assert probe.names == []


def test_first_calls_per_signature(x):
    y = torch.ones(2, device=DEVICE)
    with Probe(limits=(0, 2**62, 2)) as probe:
        for _ in range(5):
            x + 1
            y + 1
    assert len(probe.events) == 4 and probe.tool.counts()["first"] == 6


def test_numel_limits(x):
    with Probe(limits=(5, 12, 2**63 - 1)) as probe:
        x + 1
        torch.ones(4, device=DEVICE) + 1
        torch.ones(13, device=DEVICE) + 1
    assert probe.names == ["torch.Tensor.add"] and probe.tool.counts()["numel"] == 4


def test_condition_sees_the_arguments_and_decides(x):
    seen = []

    def condition(*args, **kwargs):
        seen.append((args, kwargs))
        return args[0].shape[0] == 3 if args and isinstance(args[0], torch.Tensor) else False

    with Probe(condition=condition) as probe:
        torch.add(x, 1, alpha=2)
        torch.ones(2, device=DEVICE) + 1
    assert probe.names == ["torch.add"]
    assert seen[0][0][0] is x and seen[0][1] == {"alpha": 2}


def test_condition_that_raises_reaches_the_user_untouched(x):
    class Mine(Exception):
        pass

    error = Mine("by the user")

    def condition(*args, **kwargs):
        raise error

    with Probe(condition=condition) as probe:
        with pytest.raises(Mine) as caught:
            x + 1
        assert caught.value is error
        assert x.shape == (3, 4)
    assert probe.events == [] and torch.equal(x + 1, x.add(1))


def test_decisions_are_cached_until_invalidated(x):
    asked = []

    def matcher(name):
        asked.append(name)
        return len(asked) > 1

    tool = _C.Tool("observe", {})
    tool.set_matcher(matcher)
    tool.start()
    x + 1, x + 1
    assert asked == ["torch.Tensor.add"] and tool.counts()["applied"] == 0
    _C.engine_invalidate()
    x + 1, x + 1
    tool.stop()
    assert asked == ["torch.Tensor.add"] * 2 and tool.counts()["applied"] == 2


def test_counts_add_up(x):
    with Probe(names={"torch.Tensor.add"}) as probe:
        x + 1
        x * 2
        torch.ones(2) + 1
    counts = probe.tool.counts()
    assert counts["applied"] == 1 and counts["cpu"] == 1 and counts["name"] == 2 and counts["seen"] == 4


# Arguments


Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Item:
    tensor: torch.Tensor
    number: int = 3


@dataclasses.dataclass
class Slotted:
    __slots__ = ("tensor",)
    tensor: torch.Tensor


def test_containers_in_the_log(x, tmp_path):
    """Nested list, tuple, dict, named tuple, return types, dataclass: each tensor has its own field."""
    from ditorch import export

    script = f"""
    import collections, dataclasses, torch, ditorch
    from ditorch import _C
    import test_engine as t
    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return args[0]
    x = torch.ones(2, 3, device="cuda").as_subclass(Sub)
    def op(*args, **kwargs):
        return torch.overrides.handle_torch_function(op, (x,), *args, **kwargs)
    _C.log_open({str(tmp_path)!r}, {{}}, {{}})
    tool = _C.Tool("observe", {{}})
    tool.start()
    op([x, (x, 1)], {{"a": x, "b": [2.5, None]}}, t.Pair(x, "s"), t.Item(x), t.Slotted(x), torch.Size([2, 3]), k={{x}},
       flag=True, dtype=torch.float16, part=slice(1, None))
    tool.stop()
    _C.log_close()
    """
    run(script)
    (record,) = [r for r in export.read([str(tmp_path)]) if r["type"] == "call"]
    tensors = {key for key, value in record.items() if isinstance(value, dict) and value.get("shape") == [2, 3]}
    assert tensors >= {
        "args.0.0", "args.0.1.0", "args.1.a", "args.2.0", "args.3.tensor", "args.4.tensor", "kwargs.k.0", "out.0",
    }  # fmt: skip
    assert record["args.0.1.1"] == 1 and record["args.1.b.0"] == 2.5 and record["args.1.b.1"] == "None"
    assert record["args.2.1"] == "s" and record["args.3.number"] == 3 and record["args.5"] == [2, 3]
    assert record["kwargs.flag"] is True and record["kwargs.dtype"] == "torch.float16"
    assert record["kwargs.part"] == "slice(1, None, None)"


def test_i10_storages_arrays_and_cycles_are_one_leaf(x):
    numpy = pytest.importorskip("numpy")
    loop = [x]
    loop.append(loop)
    with Probe() as probe:
        torch.as_tensor(numpy.zeros(100_000), device=DEVICE)
        x.untyped_storage()
        try:
            torch.cat(loop)
        except TypeError:
            pass
    assert len(probe.events) >= 1


def test_i11_i12_return_types_and_namedtuples_keep_their_type(x):
    with Probe():
        result = x.max(dim=1)
        assert type(result).__name__ == "max" and result.values.shape == (3,)
        values, indices = torch.sort(x)
        assert torch.equal(values, x) and indices.shape == x.shape


# The program is not changed


def test_i1_exceptions_pass_and_do_not_stick(x):
    with Probe() as probe:
        with pytest.raises(RuntimeError, match="shapes"):
            torch.mm(x, x)
        assert torch.mm(x, x.T).shape == (3, 3)
    failed = probe.events[0]
    assert failed["name"] == "torch.mm" and isinstance(failed["error"], RuntimeError) and failed["result"] is None
    assert probe.events[-1]["error"] is None


def test_i2_nothing_is_kept_alive():
    with Probe() as probe:
        a = torch.ones(3, device=DEVICE)
        b = a * 2
        probe.events.clear()
        reference = weakref.ref(b)
        del b
        assert reference() is None


def test_i3_i4_ids_are_unique_over_tools_and_threads(x):
    first, second = Probe(), Probe()
    with first, second:
        x + 1
        x * 2
    ids = [event["id"] for event in first.events]
    assert ids == [event["id"] for event in second.events] and ids == sorted(set(ids))


def test_i4_one_thread_in_a_tool_does_not_silence_another(x):
    inside, leave = threading.Event(), threading.Event()
    names = []

    def console(kind, event):
        if kind == "forward":
            names.append((threading.current_thread().name, event["name"]))
            if threading.current_thread().name == "slow":
                inside.set()
                leave.wait(600)

    tool = _C.Tool("observe", {})
    tool.set_console(console)
    tool.start()

    def slow():
        _C.mode_push()
        try:
            x + 1
        finally:
            _C.mode_pop()

    thread = threading.Thread(target=slow, name="slow")
    thread.start()
    assert inside.wait(600)
    x * 2
    leave.set()
    thread.join()
    tool.stop()
    assert ("MainThread", "torch.Tensor.mul") in names and ("slow", "torch.Tensor.add") in names


def test_i5_apply_and_skip_lines_per_tool(x):
    out = run("""
    import torch, ditorch
    from ditorch import _C
    x = torch.ones(3, device="cuda")
    for kind, names in (("observe", None), ("time", {"torch.Tensor.mul"})):
        tool = _C.Tool(kind, {})
        tool.set_console(lambda line, event, kind=kind: line in ("apply", "skip") and print(line, kind, event["name"]))
        if names:
            tool.set_matcher(lambda name: name in names)
        tool.start()
    x + 1, x + 1, x * 2
    """)
    assert sorted(out.splitlines()[-4:]) == [
        "apply observe torch.Tensor.add",
        "apply observe torch.Tensor.mul",
        "apply time torch.Tensor.mul",
        "skip time torch.Tensor.add",
    ]


def test_torch_calls_of_a_tool_are_not_shown(x):
    calls = []

    def console(kind, event):
        if kind == "forward":
            calls.append(event["name"])
            (x + x).sum().item()

    tool = _C.Tool("observe", {})
    tool.set_console(console)
    tool.start()
    x * 3
    tool.stop()
    assert calls == ["torch.Tensor.mul"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_i18_any_order_of_stop(x, order):
    depth = torch._C._len_torch_function_stack()
    probes = [Probe() for _ in range(3)]
    for probe in probes:
        probe.tool.start()
        probe.tool.start()
    for count, index in enumerate(order):
        x + 1
        probes[index].tool.stop()
        probes[index].tool.stop()
        assert len(probes[index].events) == count + 1
    x + 1
    assert torch._C._len_torch_function_stack() == depth
    assert sorted(len(p.events) for p in probes) == [1, 2, 3]


def test_i18_foreign_modes_above_survive(x):
    class Mine(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Mine.calls += 1
            return func(*args, **(kwargs or {}))

    probe = Probe()
    probe.tool.start()
    with Mine():
        x + 1
        probe.tool.stop()
        before = Mine.calls
        x + 1
        assert Mine.calls > before
    assert len(probe.events) == 1 and torch._C._len_torch_function_stack() == 0


def test_lower_modes_do_not_see_the_tools_work(x):
    seen = []

    class Lower(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(torch.overrides.resolve_name(func))
            return func(*args, **(kwargs or {}))

    with Lower(), Probe():
        x + 1
    assert seen == ["torch.Tensor.add"]


def test_restart_and_reuse(x):
    probe = Probe()
    for _ in range(3):
        with probe:
            x + 1
    x + 1
    assert len(probe.events) == 3 and not probe.tool.active


def test_bitwise_equal_training():
    def train(probe):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 4)
        ).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        losses = []
        for _ in range(20):
            if probe:
                probe.tool.start()
            loss = F.cross_entropy(model(torch.randn(6, 8, device=DEVICE)), torch.arange(6, device=DEVICE) % 4)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if probe:
                probe.tool.stop()
            losses.append(loss.item())
        return losses

    probe = Probe()
    assert train(None) == train(probe) and len(probe.events) > 500


# Levels


def test_aten_level_sees_composites_and_the_backward_pass(x):
    weight = torch.ones(5, 4, device=DEVICE, requires_grad=True)
    with Probe(aten=True) as probe:
        F.linear(x, weight, torch.zeros(5, device=DEVICE)).relu().sum().backward()
    assert {"aten::addmm", "aten::relu", "aten::sum", "aten::threshold_backward", "aten::mm"} <= set(probe.names)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_both_levels_at_once(x):
    with Probe() as upper, Probe(aten=True) as lower:
        F.softmax(x, dim=-1)
    assert upper.names == ["torch.nn.functional.softmax"] and "aten::_softmax" in lower.names


def test_functorch(x):
    with Probe() as probe:
        assert torch.equal(torch.vmap(lambda v: v * 2)(x), x * 2)
        torch.func.grad(lambda v: (v * v).sum())(x)
    assert "torch.Tensor.mul" in probe.names


# Processes, threads


def run(code):
    return run_python(code, cwd=HERE).stdout


def test_forked_children_are_off_by_default():
    out = run("""
    import os, torch, ditorch
    from ditorch import _C
    x = torch.ones(3, device="cpu")
    seen = []
    tool = _C.Tool("observe", {})
    tool.set_cpu(True)
    tool.set_console(lambda kind, event: seen.append(kind))
    tool.start()
    x + 1
    before = len(seen)
    pid = os.fork()
    if pid == 0:
        x + 1
        first = len(seen) - before
        tool.start()
        x + 1
        os._exit(10 * first + (len(seen) - before))
    print(before, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """)
    assert out.split()[-2:] == ["2", "2"] or out.split()[-1] == "1", out


def test_new_threads_on_request(x):
    from op_tools import threads

    def work(probe):
        with probe:
            thread = threading.Thread(target=lambda: x * 5)
            thread.start()
            thread.join()
        return probe.names

    assert work(Probe()) == []
    threads.follow(True)
    try:
        assert work(Probe()) == ["torch.Tensor.mul"]
    finally:
        threads.follow(False)
    assert threading.Thread._bootstrap_inner.__module__ == "threading"


def test_many_threads_hammer(x):
    probe = Probe()
    probe.tool.start()
    errors = []

    def work():
        try:
            _C.mode_push()
            for _ in range(200):
                (x + 1).sum()
            _C.mode_pop()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    probe.tool.stop()
    ids = [event["id"] for event in probe.events]
    assert not errors and len(ids) == 4 * 200 * 2 and len(set(ids)) == len(ids)


# Cost of memory

sanitized = pytest.mark.skipif(
    "libasan" in os.environ.get("LD_PRELOAD", ""), reason="AddressSanitizer keeps freed memory"
)


def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@sanitized
def test_many_hooked_calls_do_not_grow():
    run("""
    import os, torch, ditorch
    from ditorch import _C
    def rss():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    x = torch.ones(4, device="cuda")
    tool = _C.Tool("observe", {})
    tool.start()
    def work(n):
        for _ in range(n):
            x.add_(0)
    work(20_000)
    before = rss()
    work(250_000)
    grown = rss() - before
    tool.stop()
    assert tool.counts()["applied"] == 270_000
    assert grown <= 5 << 20, grown  # 20 bytes per call
    """)


@sanitized
def test_tools_do_not_leak_objects(x):
    def once():
        with Probe(names={"torch.Tensor.add"}):
            x + 1

    for _ in range(50):
        once()
    gc.collect()
    objects, memory = len(gc.get_objects()), rss()
    for _ in range(1000):
        once()
    gc.collect()
    assert len(gc.get_objects()) - objects < 50 and rss() - memory < 4 << 20


# Bad input


def test_unknown_kind_and_bad_settings():
    with pytest.raises(ValueError, match="'nonsense' is unknown; valid: observe, time, overflow, capture"):
        _C.Tool("nonsense", {})
    tool = _C.Tool("observe", {})
    with pytest.raises(TypeError, match="condition_func must be callable or None, not int"):
        tool.set_condition(3)
    with pytest.raises(ValueError, match="numel_min"):
        tool.set_limits(5, 4, 1)
    tool.start()
    with pytest.raises(RuntimeError, match="stop it first"):
        tool.set_aten(True)
    tool.stop()
    many = [_C.Tool("observe", {}) for _ in range(17)]
    with pytest.raises(RuntimeError, match="16 tools are active"):
        for one in many:
            one.start()
    for one in many:
        one.stop()
    assert torch._C._len_torch_function_stack() == 0


def test_ctrl_c_inside_the_engine_is_not_lost(python):
    """An error while a name is looked up means another way of naming; a Ctrl-C at that moment must still arrive."""
    code = """
        import os, signal, torch, torch.overrides
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs of a shell
        original, told = torch.overrides.resolve_name, []
        def resolve(func):
            if getattr(func, "__name__", "") == "sinh":
                told.append(1)
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000):
                    pass
            return original(func)
        torch.overrides.resolve_name = resolve
        import ditorch
        from op_tools import OpObserve
        x = torch.ones(2, device="cuda")
        try:
            with OpObserve(console="off", log=False):
                for _ in range(1000):
                    torch.sinh(x)
            print("lost")
        except KeyboardInterrupt:
            print("arrived", len(told))
    """
    assert "arrived 1" in python(textwrap.dedent(code)).stdout
