"""The program's own modes, transforms and tensor classes beside the tools: nothing is added to what they see, and
nothing raises into them, at any console level."""

import contextlib
import io

import ditorch  # noqa: F401
import op_tools
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

WATCHING = ("OpObserve", "OpTimeMeasure", "OpCapture", "OpOverflowCheck", "OpAutoCompare")
ACTING = ("OpFallback", "OpDtypeCast")


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def step(x, w, mode):
    w.grad = None
    with mode:
        F.gelu(F.linear(x, w)).sum().backward()
    return mode


def make(name, level="torch", console="off"):
    return getattr(op_tools, name)(level=level, console=console, log=False)


@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize("name", WATCHING)
def test_a_dispatch_mode_sees_the_programs_operators_alone(name, level):
    x, w = torch.randn(8, 16).cuda(), torch.randn(4, 16).cuda().requires_grad_()
    plain = step(x, w, Recorder()).names
    with make(name, level):
        seen = step(x, w, Recorder()).names
    assert seen == plain


@pytest.mark.parametrize("name", [*WATCHING, *ACTING])
def test_flops_are_counted_once(name):
    x, w = torch.randn(8, 16).cuda(), torch.randn(4, 16).cuda().requires_grad_()
    plain = step(x, w, FlopCounterMode(display=False)).get_total_flops()
    with make(name):
        assert step(x, w, FlopCounterMode(display=False)).get_total_flops() == plain > 0


@pytest.mark.parametrize("name", ACTING)
def test_copies_of_acting_tools_are_not_seen_in_the_forward(name):
    x, w = torch.randn(8, 16).cuda(), torch.randn(4, 16).cuda()
    with Recorder() as plain:
        F.gelu(F.linear(x, w)).sum()
    with make(name), Recorder() as seen:
        F.gelu(F.linear(x, w)).sum()
    assert seen.names == plain.names


def test_modes_are_back_after_an_exception():
    x = torch.randn(8, 16).cuda()
    with make("OpAutoCompare"), Recorder() as mode:
        with pytest.raises(RuntimeError):
            torch.mm(x, x)
        mode.names.clear()
        x.add(1)
    assert mode.names == ["aten.add.Tensor"]
    assert torch._C._len_torch_dispatch_stack() == 0


# Transforms and classes, at every console level


class Wrapper(torch.Tensor):
    """As Float8Tensor and its like: a tensor around another, by __torch_dispatch__."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"Wrapper({self.inner})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        open_all = lambda v: v.inner if isinstance(v, cls) else v  # noqa: E731
        args, kwargs = torch.utils._pytree.tree_map(open_all, (args, kwargs or {}))
        close_all = lambda v: cls(v) if isinstance(v, torch.Tensor) else v  # noqa: E731
        return torch.utils._pytree.tree_map(close_all, func(*args, **kwargs))


def square_sum(a):
    return (a.sin() ** 2).sum()


def run_fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return tuple((torch.empty(3, 4, device="cuda") * 2).shape)


PROGRAMS = {
    "vmap": lambda x: torch.vmap(lambda a: (a * 2).sum())(x.view(2, 3)),
    "grad": lambda x: torch.func.grad(square_sum)(x),
    "vmap of grad": lambda x: torch.vmap(torch.func.grad(square_sum))(x.view(2, 3)),
    "jvp": lambda x: torch.func.jvp(square_sum, (x,), (torch.ones_like(x),))[1],
    "jacfwd": lambda x: torch.func.jacfwd(lambda a: a.exp())(x),
    "jacrev": lambda x: torch.func.jacrev(lambda a: a.exp())(x),
    "hessian": lambda x: torch.func.hessian(square_sum)(x),
    "jagged": lambda x: torch.nested.nested_tensor([x[:2], x[2:]], layout=torch.jagged).mul(2).values(),
    "wrapper": lambda x: (Wrapper(x) * 2 + 1).inner,
    "fake": lambda x: torch.tensor(run_fake()),
}


@pytest.mark.parametrize("console", ["off", "short", "full"])
@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize("name", [*WATCHING, *ACTING])
def test_transforms_and_classes_work_under_every_tool(name, level, console):
    x = torch.linspace(0, 1, 6).cuda()
    wrong = {}
    for key, program in PROGRAMS.items():
        wanted = program(x).cpu()
        try:
            quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
            with quiet[0], quiet[1], make(name, level, console):
                found = program(x).cpu()
            torch.testing.assert_close(found, wanted)
        except Exception as error:
            wrong[key] = f"{type(error).__name__}: {str(error)[:200]}"
    assert not wrong


def test_linearize_is_not_disturbed():
    """It traces: operators of a tool would become a part of the program."""
    x = torch.linspace(0, 1, 4).cuda()
    wanted = torch.func.linearize(square_sum, x)[1](x)
    for name in (*WATCHING, *ACTING):
        with make(name):
            torch.testing.assert_close(torch.func.linearize(square_sum, x)[1](x), wanted)


# Functions that once went past the tools


@pytest.mark.parametrize("name", [*WATCHING, "OpFallback"])
def test_type_is_an_operator_when_it_converts(name):
    x = torch.randn(4, device="cuda")
    with make(name) as tool:
        assert x.type() == "torch.cuda.FloatTensor"
        a, b = x.type(torch.float16), x.type("torch.cuda.HalfTensor")
    assert tool.counts()["seen"] == 2
    assert a.dtype == b.dtype == torch.float16 and a.is_cuda and b.is_cuda


class Depth(torch.overrides.TorchFunctionMode):
    """Counts how deep inside of functions that modes see the program is."""

    depth = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.depth += 1
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self.depth -= 1


class Unseen(TorchDispatchMode):
    """Operators that run outside of all functions that modes see."""

    def __init__(self, outer):
        super().__init__()
        self.outer, self.names = outer, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.outer.depth == 0:
            self.names.add(func._schema.name)
        return func(*args, **(kwargs or {}))


def list_calls(x):
    """Every method of Tensor with the arguments that it takes, of the few that are tried."""
    for name in sorted(dir(torch.Tensor)):
        function = getattr(torch.Tensor, name, None)
        if not callable(function) or name in SKIPPED or isinstance(function, type):
            continue
        for arguments in ((), (x.clone(),), (1,), (0, 1), (torch.float64,), ("torch.cuda.HalfTensor",), ((2, 3),)):
            yield name, function, arguments


SKIPPED = {"__class__", "__init__", "__new__", "__init_subclass__", "__subclasshook__", "share_memory_", "__setstate__"}
UNSEEN = {"__deepcopy__", "set_"}
"""Methods that copy or take over memory and are no operators to torch."""


def test_no_method_computes_past_the_modes():
    """torch.Tensor.type was the only one; a new PyTorch may bring others."""
    x = torch.rand(2, 3, device="cuda")
    found = {}
    for name, function, arguments in list_calls(x):
        outer = Depth()
        with (
            contextlib.suppress(BaseException),
            contextlib.redirect_stdout(io.StringIO()),
            outer,
            Unseen(outer) as inner,
        ):
            function(x.clone(), *arguments)
        if inner.names:
            found.setdefault(name, set()).update(inner.names)
    assert not {name: names for name, names in found.items() if name not in UNSEEN}
