"""alias=python behaves as alias=binary, can be taken back, and docs/modes.md is true for every combination of options.

The same expressions are evaluated in one child process per mode and show setting; each outcome is compared with what is
expected and with the other mode's.
"""

# ruff: noqa: E501, SIM905 (expressions stay on one line, and in one text)
import itertools
import json
import os
import re

import pytest
import torch
from conftest import run_python

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODES = ("binary", "python")

PRELUDE = r'''
import copy, enum, io, json, os, pickle, sys, tempfile, threading, warnings, zipfile
import importlib.util as util
warnings.simplefilter("ignore")
import torch
import ditorch
torch.cuda.init()
D = torch.device("dit", 0)

class Place(str, enum.Enum):
    GPU = "cuda:0"

class Text(str):
    pass

def inside(make):
    with torch.device("cuda"):
        return make()

def default(make):
    torch.set_default_device("cuda")
    try:
        return make()
    finally:
        torch.set_default_device(None)

def saved(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True, **options)

def tag(value):
    file = io.BytesIO()
    torch.save(value, file)
    with zipfile.ZipFile(file) as archive:
        text = next(archive.read(n) for n in archive.namelist() if n.endswith("data.pkl"))
    return [name for name in (b"cuda:0", b"dit:0") if name in text]

def autocast(**options):
    with torch.autocast("cuda", **options):
        y = torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        return y.dtype, torch.is_autocast_enabled(), torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled("cpu")

def autocast_legacy():
    torch.set_autocast_enabled(True)
    answers = [torch.is_autocast_enabled(), torch.is_autocast_enabled("cuda"), torch.is_autocast_enabled(device_type="dit")]
    torch.set_autocast_enabled(False)
    torch.set_autocast_gpu_dtype(torch.bfloat16)
    answers += [torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype(), torch.get_autocast_dtype("cuda")]
    torch.set_autocast_dtype("cuda", torch.float16)
    return answers + [torch.get_autocast_gpu_dtype()]

def in_thread(make):
    found = []
    thread = threading.Thread(target=lambda: found.append(make()))
    thread.start()
    thread.join()
    return found[0]

def seen_by_a_mode(make):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append((function, str((kwargs or {}).get("device"))))
            return function(*args, **(kwargs or {}))
    seen = []
    with Mode():
        make()
    return seen

class Wrapped(torch.Tensor):
    @classmethod
    def make(cls, device):
        return torch.Tensor._make_wrapper_subclass(cls, (2,), device=device)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError

SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.device("cuda")), torch.zeros(1, device="cuda:0"), torch.device("cuda:1")
@torch.jit.script
def literal():
    return torch.device("cuda:1")
@torch.jit.script
def made(x: torch.Tensor, d: torch.device):
    return torch.zeros(2, device="cuda") + x.to(d)
"""

def script():
    path = os.path.join(tempfile.mkdtemp(), "scripted.py")
    with open(path, "w") as file:
        file.write(SOURCE)
    spec = util.spec_from_file_location("scripted", path)
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def script_file():
    model = torch.jit.script(script().Model())
    file = io.BytesIO()
    torch.jit.save(model, file)
    with zipfile.ZipFile(file) as archive:
        code = b"".join(archive.read(n) for n in archive.namelist() if n.endswith(".py"))
    file.seek(0)
    again = torch.jit.load(file)
    second = io.BytesIO()
    torch.jit.save(again, second)
    second.seek(0)
    return b"cuda:1" in code, b"dit" in code, model(torch.ones(1)), again(torch.ones(1)), torch.jit.load(second)(torch.ones(1))

def traced_file():
    traced = torch.jit.trace(lambda x: x.to("cuda") + torch.ones(2, device="cuda"), torch.ones(2))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    with zipfile.ZipFile(file) as archive:
        code = b"".join(archive.read(n) for n in archive.namelist() if n.endswith(".py"))
    file.seek(0)
    return b'"cuda' in code, b"dit" in code, torch.jit.load(file, map_location="cuda")(torch.ones(2))

def traced_by_fx():
    graph = torch.fx.symbolic_trace(lambda x: torch.ones_like(x, device="cuda") + x.to("cuda"))
    return graph(torch.ones(2)), "ones_like" in graph.code

def compiled():
    def function(x):
        y = x.to("cuda") + torch.ones(2, device="cuda") + torch.tensor([1.0, 2.0], device=torch.device("cuda"))
        return y * 2 if torch.is_autocast_enabled() or y.device.type == "cuda" else y, y.device.type
    return torch.compile(function, backend="eager", fullgraph=True)(torch.ones(2))

def show(value):
    return f"{type(value).__name__}: {str(value).splitlines()[0]}" if isinstance(value, Exception) else repr(value)

def evaluate(text):
    try:
        return show(eval(text, globals()))
    except Exception as error:
        return show(error)
'''

ON_CUDA = """empty(2) zeros(2) ones(2) full((2,),1.) rand(2) randn(2) randint(3,(2,)) randperm(3) arange(3) range(0,2) linspace(0,1,3)
logspace(0,1,3) eye(2) empty_strided((2,),(1,)) empty_permuted((2,2),(1,0)) tensor([1]) as_tensor([1]) asarray([1]) scalar_tensor(1)
hann_window(3) hamming_window(3) bartlett_window(3) blackman_window(3) kaiser_window(3) tril_indices(2,2) triu_indices(2,2)
normal(0.,1.,(2,)) empty_like(C) zeros_like(C) ones_like(C) full_like(C,1) rand_like(C) randn_like(C) randint_like(C,3)
fft.fftfreq(4) fft.rfftfreq(4) signal.windows.cosine(3) nn.Linear(2,2) nn.Parameter(C) nn.Embedding(2,2) C.new_empty(2) C.new_zeros(2)
C.new_ones(2) C.new_full((2,),1) C.new_tensor([1]) C.new_empty_strided((2,),(1,)) C.to() UntypedStorage(4) Generator() Stream() Event()
ops.aten.empty([2]) ops.aten.zeros.default([2])
sparse_coo_tensor([[0]],[1.],(2,)) nested.nested_tensor([C])""".split()
"""Calls that take device=; `C` is a CPU tensor."""


def device_calls():
    """Expression -> expected outcome (None: whatever the binary alias gives)."""
    calls = {}
    for call in ON_CUDA:
        name, _, arguments = call.partition("(")
        arguments = arguments[:-1].replace("C", "torch.ones(2)")
        name = name.replace("C.", "torch.ones(2).", 1) if name.startswith("C.") else f"torch.{name}"
        for device in ("'cuda'", "'cuda:0'", "0", "torch.device('cuda')", "'cuda:x'"):
            expression = f"{name}({arguments}{', ' if arguments else ''}device={device})"
            value = "next({}.parameters())" if call.startswith(("nn.Linear", "nn.Embedding")) else "{}"
            calls[f"{value.format(expression)}.device"] = None
    return calls


CUDA0 = "device(type='cuda', index=0)"
EXPRESSIONS = {
    "[torch.device(d) for d in ('cuda', 'cuda:1', 'cpu', 'meta')]": "[device(type='cuda'), device(type='cuda', index=1), device(type='cpu'), device(type='meta')]",
    "torch.device('cuda', 1), torch.device(type='cuda', index=1), torch.device('cuda', index=1), torch.device(device='cuda:1')": "("
    + ", ".join(["device(type='cuda', index=1)"] * 4)
    + ")",
    "torch.device(0) == D, torch.device(torch.device('cuda:0')) == D, torch.device(Place.GPU) == D, torch.device(Text('cuda:0')) == D": "(True, True, True, True)",
    "torch.device.__new__(torch.device, 'cuda:0') == D": "True",
    "type(torch.device('cuda')) is torch.device, isinstance(D, torch.device), isinstance('cuda', torch.device)": "(True, True, False)",
    "len({torch.device('cuda:0'), D, torch.device('cuda:1')}), hash(D) == hash(torch.device('cuda:0'))": "(2, True)",
    "str(D), repr(D), f'{D}', D.type, D.index, D.__repr__(), D.__str__(), torch.device.__repr__(D)": f"('cuda:0', \"{CUDA0}\", 'cuda:0', 'cuda', 0, \"{CUDA0}\", 'cuda:0', \"{CUDA0}\")",
    "D.type == 'cuda', D == 'cuda', D != torch.device('cpu')": "(True, False, True)",
    "D.__reduce__()[1], pickle.loads(pickle.dumps(D)) == D, copy.deepcopy(D) == D, b'dit' in pickle.dumps(D)": "(('cuda', 0), True, True, False)",
    "[evaluate(f'torch.device({d!r})') for d in ('cuda:foo', 'cuda:-1', 'cuda:01', '', 'cudax', ':1', 'cuda:999999')]": None,
    "[evaluate(f'torch.empty(1, device={d!r})') for d in ('cuda:foo', 'cuda:-1', 'cuda:', 'cudax', 'cuda:7')]": None,
    "evaluate('torch.device()'), evaluate('torch.device(1.5)'), evaluate('torch.empty(1, device=1.5)')": None,
    "torch.ones(2, device='cuda')": "tensor([1., 1.], device='cuda:0')",
    "torch.ones(2).to('cuda').device, torch.ones(2).to(device='cuda').device, torch.ones(2).to('cuda:0', torch.int32).dtype": f"({CUDA0}, {CUDA0}, torch.int32)",
    "torch.ones(2).to(0).device, torch.ones(2).cuda().device, torch.ones(2).cuda('cuda:0').device, torch.ones(2).cuda(0).device": f"({CUDA0}, {CUDA0}, {CUDA0}, {CUDA0})",
    "torch.ones(2).to(Place.GPU).device, torch.ones(2, device=Text('cuda')).device": f"({CUDA0}, {CUDA0})",
    "next(torch.nn.Linear(2, 2).to('cuda').parameters()).device, next(torch.nn.Linear(2, 2).cuda().parameters()).is_cuda": f"({CUDA0}, True)",
    "next(torch.nn.Linear(2, 2).to_empty(device='cuda').parameters()).device": CUDA0,
    "torch.ones(2).pin_memory('cuda').is_pinned('cuda'), torch.ones(2).is_pinned(device='cuda')": None,
    "inside(lambda: (torch.ones(2).device, torch.tensor([1]).device, torch.nn.Linear(2, 2).weight.device))": f"({CUDA0}, {CUDA0}, {CUDA0})",
    "default(lambda: (torch.ones(2).device, torch.get_default_device()))": f"({CUDA0}, {CUDA0})",
    "in_thread(lambda: torch.empty(2, device='cuda').device)": CUDA0,
    "torch.Generator('cuda').device, torch.Generator(device='cuda:0').device": f"({CUDA0}, {CUDA0})",
    "torch.Generator('cuda').manual_seed(3).initial_seed()": "3",
    "torch.Stream('cuda').device, torch.Stream(device='cuda:0').device, torch.Event('cuda').device.type": f"({CUDA0}, {CUDA0}, 'cuda')",
    "repr(torch.Stream('cuda'))[:38], repr(torch.Event('cuda'))[:29]": "('torch.Stream device_type=cuda, device_', 'torch.Event device_type=cuda,')",
    "torch.UntypedStorage(4, device='cuda').device, torch.TypedStorage(4, device='cuda', dtype=torch.int8).device": f"({CUDA0}, {CUDA0})",
    "torch.ones(1, device='cuda').untyped_storage().is_cuda, torch.ones(1, device='cuda').type()": "(True, 'torch.cuda.FloatTensor')",
    "tag(torch.ones(1, device='cuda')), tag(D)": None,
    "saved(torch.ones(1, device='cuda')).device, saved(torch.ones(1), map_location='cuda').device": f"({CUDA0}, {CUDA0})",
    "saved(torch.ones(1, device='cuda'), map_location={'cuda:0': 'cpu'}).device": "device(type='cpu')",
    "autocast(), autocast(dtype=torch.bfloat16), autocast(enabled=False)": "((torch.float16, True, True, False), (torch.bfloat16, True, True, False), (torch.float32, False, False, False))",
    "autocast_legacy()": "[True, True, True, False, torch.bfloat16, torch.bfloat16, torch.float16]",
    "torch.amp.is_autocast_available('cuda'), torch.is_autocast_enabled('cpu'), evaluate('torch.is_autocast_enabled(1, 2, 3)')": None,
    "torch.random.fork_rng(devices=['cuda:0'], device_type='cuda').__enter__()": "None",
    "Wrapped.make('cuda').device": "device(type='cuda')",
    "torch._C._dispatch_key_for_device('cuda')": "'PrivateUse1'",
    "torch.accelerator.current_accelerator()": None,
    "torch.ops.aten.to.device(torch.ones(1), 'cuda', torch.float32).device": CUDA0,
    "torch.ones(2, device='cuda').to('cpu').device, torch.ones(2, device='meta').device": "(device(type='cpu'), device(type='meta'))",
    "evaluate('torch.ones(2, device=\"cuda\").numpy()')": '"TypeError: can\'t convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."',
    "evaluate('torch.ones(2, device=\"cuda\") + torch.ones(2)')": None,
    "[s[0] is torch.empty for s in seen_by_a_mode(lambda: torch.empty(1, device='cuda'))]": "[True]",
    "torch.overrides.resolve_name(torch.Tensor.to), torch.overrides.resolve_name(torch.ones_like)": "('torch.Tensor.to', 'torch.ones_like')",
    "pickle.loads(pickle.dumps(torch.ones_like)) is torch.ones_like, torch.empty.__name__": "(True, 'empty')",
    "script().literal() == torch.device('dit:1')": "True",
    "script().made(torch.ones(2), torch.device('cuda'))": "tensor([1., 1.], device='cuda:0')",
    "script_file()": None,
    "traced_file()": "(True, False, tensor([2., 2.], device='cuda:0'))",
    "traced_by_fx()": "(tensor([2., 2.], device='cuda:0'), True)",
    "compiled()": "(tensor([6., 8.], device='cuda:0'), 'cuda')",
    **device_calls(),
}
EVALUATE = "print(json.dumps({text: evaluate(text) for text in json.load(open(sys.argv[1]))}))"
_outcomes = {}


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    """outcomes(mode, show): expression -> outcome, from one child process."""

    def get(mode, show=1):
        if (mode, show) not in _outcomes:
            path = tmp_path_factory.mktemp("expressions") / "list.json"
            path.write_text(json.dumps(list(EXPRESSIONS)))
            answer = run_python(
                PRELUDE + EVALUATE, str(path), DITORCH_ALIAS=mode, DITORCH_SHOW_DEVICE_AS_CUDA=show, timeout=900
            )
            _outcomes[mode, show] = json.loads(answer.stdout.splitlines()[-1])
        return _outcomes[mode, show]

    return get


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", [text for text, wanted in EXPRESSIONS.items() if wanted is not None])
def test_outcome(outcomes, text, mode):
    assert outcomes(mode)[text] == EXPRESSIONS[text]


ADDRESS = re.compile(r"0x[0-9a-f]+|stream_id=\d+|scripted_\w+")


@pytest.mark.parametrize("show", [1, 0])
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_both_modes_agree(outcomes, text, show):
    assert ADDRESS.sub("", outcomes("python", show)[text]) == ADDRESS.sub("", outcomes("binary", show)[text])


def test_most_calls_reach_the_device(outcomes):
    """Agreement alone could be two equal failures."""
    calls = [text for text in device_calls() if "'cuda'" in text and "torch.device" not in text]
    found = [text for text in calls if outcomes("python")[text] in (CUDA0, "device(type='cuda')")]
    refused = {text: outcomes("python")[text] for text in calls if text not in found}
    assert all("sparse" in text or "nn.Parameter" in text or "kaiser" in text for text in refused), refused


# Completeness


EXEMPT = {
    "_import_ir_module_from_package": "torch.device objects only",
    "import_ir_module": "torch.device objects only",
    "import_ir_module_from_buffer": "torch.device objects only",
    "_load_for_lite_interpreter": "torch.device objects only",
    "_construct_storage_from_data_pointer": "torch.device objects only",
    "_torchDeviceToDLDevice": "torch.device objects only",
    "cuda": "replaced by the torch.cuda surface",
    "xpu": "another device",
    "from_ipc_handle": "refused on the device",
    "_DTensor_compute_global_tensor_info": "a mesh, not a device",
    "_register_py_class_for_device": "redirected where the running torch has it",
}
NUMBERS = re.compile(
    r"_(cuda|xpu|mtia|accelerator|cufft)_|_broadcast|_scatter|^__init__$|^__new__$|^create$|^_load_kernel$"
)


def declared_device_functions():
    """Functions of torch's stub files with a parameter that may be a device."""
    folder = os.path.join(os.path.dirname(torch.__file__), "_C")
    found = set()
    for file in ("__init__.pyi", "_VariableFunctions.pyi", "_nn.pyi"):
        path = os.path.join(folder, file)
        if not os.path.exists(path):
            pytest.skip(f"this torch has no {file}")
        with open(path) as stream:
            for match in re.finditer(r"^ *def (\w+)\((.*?)\)\s*->", stream.read(), re.S | re.M):
                if re.search(r"\bdevice\w*\s*:|DeviceLikeType", match.group(2)):
                    found.add(match.group(1))
    return {name for name in found if not NUMBERS.search(name)}


def test_every_declared_device_function_is_redirected():
    answer = run_python(
        "import ditorch, json\nprint(json.dumps(ditorch._C.redirect_status()['functions']))\n", DITORCH_ALIAS="python"
    )
    redirected = set(json.loads(answer.stdout))
    assert len(redirected) > 60
    missing = declared_device_functions() - redirected - set(EXEMPT)
    assert not missing, f"functions that take a device and are not redirected: {sorted(missing)}"


# Taking it back, failing, falling back

UNDO = """
import ctypes, pickle, torch
def slots(kind):
    # the function pointers of a type object, up to tp_new; tp_flags between them may change on its own
    return ctypes.string_at(id(kind) + 16, 152), ctypes.string_at(id(kind) + 176, 144)
def facts():
    d = torch.device("dit:1")
    try:
        made = str(torch.empty(0, device="cuda").device)
    except Exception as error:
        made = type(error).__name__ + str(error)[:40]
    return (str(d), repr(d), d.type, d.__reduce__()[1], torch.device("cuda:1") == d, made, pickle.dumps(torch.device("cuda")),
            torch.is_autocast_enabled(), torch._ops.OpOverload.__call__, torch._C.ScriptModule.save, torch._C._jit_script_compile,
            repr(torch.Stream.__repr__), torch._C._dispatch_key_for_device("cuda"),
            *map(slots, (torch.device, torch.Generator, torch.Stream, torch.Event, torch.UntypedStorage)))
identities = [torch.empty, torch.Tensor.to, torch.device, torch.is_autocast_enabled, torch.Generator]
import ditorch
ditorch.uninstall()
before = facts()
assert before[0] == "dit:1" and before[4] is False
for round in range(3):
    ditorch.install(backend="host", alias="python", banner=0)
    assert ditorch.adapter.alias == "python" and ditorch._C.redirect_status()["installed"]
    bound = torch.ones(1).to
    assert str(bound("cuda").device) == "cuda:0" and not ditorch._C.alias_status()["installed"]
    now = [torch.empty, torch.Tensor.to, torch.device, torch.is_autocast_enabled, torch.Generator]
    assert all(a is b for a, b in zip(now, identities, strict=True))
    ditorch.uninstall()
    assert facts() == before, (facts(), before)
    assert not ditorch._C.redirect_status()["installed"]
    assert bound(torch.float64).dtype is torch.float64
    try:
        bound("cuda")
        raise SystemExit("a bound method still redirects after uninstall")
    except (RuntimeError, AssertionError):
        pass
"""


def test_uninstall_leaves_torch_as_it_was():
    run_python(UNDO)


def test_the_redirect_takes_over_when_the_binary_alias_cannot_be_installed():
    answer = run_python("""
        import warnings, torch, ditorch
        ditorch.uninstall()
        ditorch._C._alias_set_failure("write")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ditorch.install(backend="host")
        assert any("using the slower Python redirect" in str(w.message) for w in caught), caught
        assert ditorch.adapter.alias == "python" and not ditorch._C.alias_status()["installed"]
        print(torch.ones(2, device="cuda"), torch.ones(2, device="cuda").is_cuda)
        """)
    assert answer.stdout.strip() == "tensor([1., 1.], device='cuda:0') True"


def test_a_failing_installation_leaves_nothing():
    run_python("""
        import torch, ditorch
        from ditorch import redirect, _C
        ditorch.uninstall()
        native = redirect._verify
        def broken(name, show):
            raise NotImplementedError("injected")
        redirect._verify = broken
        try:
            ditorch.install(backend="host", alias="python")
            raise SystemExit("installed in spite of the injected failure")
        except NotImplementedError as error:
            assert "injected" in str(error)
        assert not _C.redirect_status()["installed"] and str(torch.device("dit")) == "dit"
        assert torch.device("cuda") != torch.device("dit")
        redirect._verify = native
        ditorch.install(backend="host", alias="python")
        assert torch.device("cuda") == torch.device("dit")
        """)


def test_bad_arguments_are_refused():
    run_python("""
        import torch, ditorch
        from ditorch import _C
        ditorch.uninstall()
        def refused(kind, text, *args):
            try:
                _C.redirect_install(*args)
            except kind as error:
                assert text in str(error), error
            else:
                raise SystemExit(f"accepted {args}")
            assert torch.device("cuda") != torch.device("dit") and not _C.redirect_status()["installed"]
        for number in (0, 1, 14, 21):
            refused(ValueError, f"device type {number}", torch.device, number, "dit", True, [], [])
        refused(ValueError, "names of up to 31", torch.device, 20, "x" * 40, True, [], [])
        refused(NotImplementedError, "not a C function", torch.device, 20, "dit", True, [(lambda: 0, "device")], [])
        refused(NotImplementedError, "not a C function", torch.device, 20, "dit", True, [(torch.get_autocast_gpu_dtype, "device")], [])
        refused(NotImplementedError, "not a class", torch.device, 20, "dit", True, [], [3])
        refused(ValueError, "form 'shape' is unknown", torch.device, 20, "dit", True, [(torch.empty, "shape")], [])
        refused(TypeError, "tuples", torch.device, 20, "dit", True, [torch.empty], [])
        refused(NotImplementedError, "more than 8 classes", torch.device, 20, "dit", True, [], [type(str(i), (), {}) for i in range(9)])
        class Odd:
            def __init__(self, text): pass
        refused(NotImplementedError, "nothing is redirected", Odd, 20, "dit", True, [], [])
        """)


# docs/modes.md

VALUES = {
    "DITORCH_BACKEND": ["auto", "cuda", "host", "none"],
    "DITORCH_ALIAS": ["binary", "python", "off"],
    "DITORCH_DISABLE_MOCK": ["0", "1"],
    "DITORCH_SHOW_DEVICE_AS_CUDA": ["0", "1"],
}

OBSERVE = """
import json, sys, warnings
import torch, ditorch
warnings.simplefilter("ignore")
def text(make):
    try:
        return str(make())
    except Exception:
        return "error"
def observe(options):
    ditorch.uninstall()
    try:
        backend = ditorch.install(**options)
    except RuntimeError as error:
        return ["error", "error", "error", "error", "DITORCH_BACKEND=cuda" in str(error)]
    alias = ditorch.adapter.alias if ditorch.adapter else "-"
    device = text(lambda: (torch.ones(1, device="cuda") + 1).device)
    return [backend, alias, device, str(torch.cuda.is_available()), torch.device("cuda") == torch.device("privateuseone")]
rows = json.load(open(sys.argv[1]))
print(json.dumps([observe(row) for row in rows]))
"""


def table_rows():
    """Cells of the first table of docs/modes.md, one dictionary per row."""
    with open(os.path.join(ROOT, "docs", "modes.md")) as file:
        lines = [line for line in file.read().split("\n") if line.startswith("|")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    header, rows = cells[0], [row for row in cells[2:] if len(row) == len(cells[0])]
    return [dict(zip(header, row, strict=True)) for row in rows]


def matching(options):
    def fits(row):
        return all(row[name] == "any" or value in row[name].split(", ") for name, value in options.items())

    return [row for row in table_rows() if fits(row)]


COMBINATIONS = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]


@pytest.fixture(scope="session")
def observed(tmp_path_factory):
    """What each combination did, all in one child process, installed and taken back in turn."""
    if torch.version.cuda and torch._C._cuda_getDeviceCount() > 0 and not hasattr(torch, "dit"):
        pytest.skip("the table is about machines whose torch has no CUDA device")
    path = tmp_path_factory.mktemp("modes") / "rows.json"
    rows = [
        {name.removeprefix("DITORCH_").lower(): value for name, value in row.items()} | {"banner": 0}
        for row in COMBINATIONS
    ]
    path.write_text(json.dumps(rows))
    answer = run_python(OBSERVE, str(path), DITORCH_BACKEND="none", timeout=900)
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.parametrize("number", range(len(COMBINATIONS)), ids=["-".join(row.values()) for row in COMBINATIONS])
def test_the_table_is_true(observed, number):
    rows = matching(COMBINATIONS[number])
    assert len(rows) == 1, f"docs/modes.md has {len(rows)} rows for {COMBINATIONS[number]}"
    row = rows[0]
    backend, alias, device, available, aliased = observed[number]
    wanted = [row["chosen"], row["alias"], row['a tensor on "cuda" says'], row["is_available()"]]
    assert [backend, alias, device, available] == wanted
    assert aliased == (alias in MODES) or backend == "error"


@pytest.mark.parametrize("number", [0, 7, 25, 30, 34])
def test_environment_variables_do_the_same(observed, number):
    program = OBSERVE.split("rows =")[0].replace("    ditorch.uninstall()\n", "") + "print(json.dumps(observe({})))\n"
    if observed[number][0] == "error":
        pytest.fail("choose a combination that installs")
    answer = run_python(program, DITORCH_BANNER="0", **COMBINATIONS[number])
    assert json.loads(answer.stdout.splitlines()[-1]) == observed[number]
