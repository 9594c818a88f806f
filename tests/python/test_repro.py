"""The exported repro: a folder that runs with torch alone, gives the call exactly as it was, and says FAIL when the
data or the device says so."""

import collections
import contextlib
import io
import json
import os
import pathlib
import py_compile
import re
import subprocess
import sys
import types

import ditorch
import numpy
import pytest
import torch
from ditorch.judge import Request
from ditorch.other_ways import run_other_way
from op_tools.reader import Case, find_cases, load_case
from op_tools.reader.tagged import Described
from op_tools.repro import ReproError, moves, rule, template, write_repro
from op_tools.repro.values import write_literal

CASES = pathlib.Path(__file__).parent / "fixtures" / "cases"


def make_case(name, *args, output=None, grads=None, meta=None, run=True, **kwargs):
    """A call as a capture has it: arguments before, the result after. The gradients are ones."""
    from op_tools.replay.operator_lookup import find_function

    before = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t, (args, kwargs))
    case = Case(name, before[0], before[1], output, path=f"test/{name}", meta=dict(meta or {}))
    if run:
        copies = copy_sharing((args, kwargs))
        with torch.no_grad() if grads is None else torch.enable_grad():
            result = find_function(name)(*copies[0], **copies[1])
        tensors = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        case.output = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), result)
        if grads is not None:
            case.grad_outputs = tuple(torch.ones_like(t) if t.requires_grad else None for t in tensors)
    return case


def copy_sharing(values):
    """The same tensors in memory of their own, which they share as before."""
    storages = {}

    def copy(tensor):
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return tensor.clone()
        storage = tensor.untyped_storage()
        new = storages.setdefault(storage._cdata, storage.clone())
        made = torch.empty(0, dtype=tensor.dtype).set_(new, tensor.storage_offset(), tensor.shape, tensor.stride())
        made = made.conj() if tensor.is_conj() else made
        return made.requires_grad_() if tensor.requires_grad and tensor.is_leaf else made

    return torch.utils._pytree.tree_map_only(torch.Tensor, copy, values)


def run_script(folder, *words, code="", extra=()):
    """The script in a fresh interpreter without this project: isolated, and without PYTHONPATH. `code` runs before."""
    start = [sys.executable, "-I", "-W", "ignore"]
    path = os.path.join(folder, "repro.py")
    if code:
        program = (
            f"import sys, runpy\nsys.argv = {[path, *words]!r}\n{code}\nrunpy.run_path({path!r}, run_name='__main__')"
        )
        command = [*start, "-c", program]
    else:
        command = [*start, path, *words]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("DITORCH")}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1", **dict(extra)},
    )


def load_call(code, folder):
    """The Call of a script that was executed into `code`."""
    names = ("OPERATOR", "TENSORS", "make_arguments", "ORDER", "GRADS", "STATE", "RULE", "ROW")
    return code["Call"](*(code[name] for name in names), code["load_data"](folder))


def run_here(folder, *words):
    """The script in this process: (exit status, what it printed, what it complained about)."""
    code, out, err = {"__name__": "repro"}, io.StringIO(), io.StringIO()
    exec(compile(pathlib.Path(folder, "repro.py").read_text(), "repro.py", "exec"), code)
    call = load_call(code, folder)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = code["main"](call, "cpu", list(words))
    return status, out.getvalue(), err.getvalue()


def break_first(monkeypatch, owner, name, damage):
    """The first call of a function, which is the device's, is damaged."""
    true, calls = getattr(owner, name), []

    def broken(*args, **kwargs):
        calls.append(1)
        result = true(*args, **kwargs)
        return damage(result, args) if len(calls) == 1 else result

    monkeypatch.setattr(owner, name, broken)


ALONE = """
import atexit
@atexit.register
def check():
    names = [name for name in sys.modules if name.split(".")[0] in ("ditorch", "op_tools")]
    print("alone" if not names else names)
"""

X = torch.arange(12.0).view(3, 4)
G = X.clone().requires_grad_()


def make_cases():
    """A good set: views, in-place, out=, sharing, conj, complex, half, empty, lists, keywords."""
    torch.manual_seed(3)
    big = torch.randn(6, 8)
    shared = torch.randn(20)
    z = torch.randn(3, dtype=torch.complex64)
    return [
        make_case("torch.mm", big.t()[:4], big[:, ::2], grads=True),
        make_case(
            "torch.mm", torch.randn(4, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True).t(), grads=True
        ),
        make_case("torch.Tensor.__getitem__", G, (slice(1, None, 2), Ellipsis, None, torch.tensor([0, 2])), grads=True),
        make_case("torch.Tensor.add_", shared[2:8], shared[8:14], run=False),
        make_case("torch.Tensor.mul_", torch.randn(3, 4)[:, 1:3], 2.5),
        make_case("torch.add", X, X, alpha=2, out=torch.empty(4, 3).t()),
        make_case("torch.mul", z.conj(), z, grads=None),
        make_case("torch.Tensor.abs", z.conj().imag),
        make_case("torch.softmax", torch.randn(4, 6, dtype=torch.float16), dim=-1),
        make_case("torch.nn.functional.linear", torch.randn(5, 8).bfloat16(), torch.randn(3, 8).bfloat16()),
        make_case("torch.sum", torch.empty(0, 3), dim=0),
        make_case("torch.cat", [X, X[:1], torch.empty(0)], dim=0),
        make_case("torch.stack", (G, G), grads=True),
        make_case("torch.Tensor.to", X, torch.float16),
        make_case("torch.Tensor.to", X, "cuda", torch.int32, run=False),
        make_case("torch.zeros", (2, 3), dtype=torch.bfloat16, device=torch.device("cuda:0"), run=False),
        make_case("torch.sort", torch.tensor([3.0, 1.0, 1.0, 2.0]), descending=True),
        make_case("torch.index_select", X, 1, torch.tensor([0, 3, 3])),
        make_case("torch.clamp", torch.tensor([float("nan"), float("inf"), -5.0]), min=-1.0, max=float("inf")),
        make_case("torch.Tensor.item", torch.tensor(2.5)),
        make_case("torch.eq", torch.tensor([1, 2]), torch.tensor([1, 3])),
        make_case("torch.nn.functional.layer_norm", torch.randn(2, 5, requires_grad=True), torch.Size([5]), grads=True),
        make_case("torch.empty_like", X, memory_format=torch.preserve_format, run=False),
        make_case("torch.sparse.mm", torch.eye(3).to_sparse(), torch.ones(3, 2), run=False),
        make_case("aten::addmm", torch.ones(2), torch.ones(2, 3), torch.ones(3, 2), beta=2.0),
        make_case("torch.nn.functional.dropout", X, p=0.5, training=True, run=False),
        make_case("torch.Tensor.exponential_", torch.empty(3), generator=torch.Generator().manual_seed(1), run=False),
    ]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """All of them, each run once by one interpreter that has torch alone: importing torch is what takes time."""
    root = tmp_path_factory.mktemp("repro")
    cases = make_cases()
    facts = []
    for number, case in enumerate(cases):
        facts.append(write_repro(case, root / str(number), device="cpu"))
    driver = root / "driver.py"
    driver.write_text(
        "import contextlib, io, json, runpy, sys\n"
        "answers = []\n"
        f"for number in range({len(cases)}):\n"
        "    out = io.StringIO()\n"
        f"    sys.argv = [{str(root)!r} + f'/{{number}}/repro.py']\n"
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):\n"
        "        try:\n"
        "            runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "        except SystemExit as end:\n"
        "            answers.append((end.code, out.getvalue()))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('ditorch', 'op_tools')]\n"
        "print(json.dumps(answers))\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    answer = subprocess.run(
        [sys.executable, "-I", "-W", "ignore", driver],
        capture_output=True,
        text=True,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    return root, cases, facts, json.loads(answer.stdout.splitlines()[-1])


def test_every_repro_runs_with_torch_alone(exported):
    _root, cases, facts, answers = exported
    assert len(answers) == len(cases)
    for case, fact, (status, text) in zip(cases, facts, answers, strict=True):
        assert status == 0 and text.endswith("PASS\n"), f"{case.name}: {text}"
        assert text.startswith(f"{case.name}, torch ") and fact["verdict"] in ("PASS", ""), (case.name, fact)


def test_scripts_are_plain_and_tidy(exported):
    root, cases, _facts, _answers = exported
    for number, case in enumerate(cases):
        script = root / str(number) / "repro.py"
        text = script.read_text()
        py_compile.compile(str(script), cfile=str(root / "x.pyc"), doraise=True)
        assert "ditorch" not in text and "op_tools" not in text and f"OPERATOR = {case.name!r}" in text
        assert sorted(os.listdir(root / str(number))) == ["README.md", "data.pt", "repro.py"]
        readme = (root / str(number) / "README.md").read_text()
        assert readme.startswith(f"# {case.name}\n") and torch.__version__ in readme and "python repro.py" in readme
        torch.load(root / str(number) / "data.pt", weights_only=True)


def test_the_call_is_the_one_that_was_captured(tmp_path):
    """Strides, offsets, sharing, conj, values: what make_arguments of the script gives, against the capture."""
    base = torch.arange(40.0)
    z = torch.randn(4, dtype=torch.complex64)
    ints = torch.arange(8, dtype=torch.int32)
    args = (
        *(
            base[2:12].view(2, 5).t(),
            base[5:9],
            base[2:12].view(2, 5).t()[1:],
            z.conj(),
            z,
            ints,
            ints.view(torch.int64),
        ),
        *([torch.ones(1).expand(3, 2), {"k": (None, 1.5, float("-inf"), 2**70, b"\xff", "é", 1 + 2j)}], slice(None, 3)),
        *(torch.Size([2]), torch.float32, torch.channels_last, torch.strided, range(3), {1, 2}, frozenset(), True),
        *(collections.OrderedDict(a=1), numpy.float32(2.5), numpy.arange(3), torch.nn.functional.relu),
    )
    case = Case("torch.add", args, {"out": base[20:]}, path="x")
    write_repro(case, tmp_path)
    code = {"__name__": "x"}
    exec(compile((tmp_path / "repro.py").read_text(), "repro.py", "exec"), code)
    call = load_call(code, tmp_path)
    got, kwargs = call.make_arguments(code["Inputs"](call, "cpu", code["Run"](), True))
    tensors = [t for t in torch.utils._pytree.tree_leaves(list(args)) if isinstance(t, torch.Tensor)]
    mine = [t for t in torch.utils._pytree.tree_leaves(list(got)) if isinstance(t, torch.Tensor)]
    assert len(tensors) == len(mine) == 8
    for a, b in zip(tensors, mine, strict=True):
        assert (a.dtype, a.shape, a.stride(), a.storage_offset(), a.is_conj()) == (
            *(b.dtype, b.shape, b.stride(), b.storage_offset(), b.is_conj()),
        )
        assert torch.equal(a, b)
    for i, a in enumerate(tensors):
        for j, b in enumerate(tensors):
            assert (a.untyped_storage()._cdata == b.untyped_storage()._cdata) == (
                mine[i].untyped_storage()._cdata == mine[j].untyped_storage()._cdata
            )
    assert (
        kwargs["out"].untyped_storage()._cdata == mine[0].untyped_storage()._cdata
        and kwargs["out"].storage_offset() == 20
    )
    plain = [value for value in args[8:] if not isinstance(value, (numpy.ndarray, numpy.generic))]
    assert [value for value in got[8:] if not isinstance(value, (numpy.ndarray, numpy.generic))] == plain
    assert got[7][1] == args[7][1] and type(got[-4]) is collections.OrderedDict and type(got[-3]) is numpy.float32
    assert (got[-2] == args[-2]).all()


def test_in_float64_the_geometry_stays():
    base = torch.arange(12, dtype=torch.float16)
    tensors = [(0, torch.float16, (2, 2), (3, 1), 4, ""), (0, torch.float16, (3,), (2,), 1, "")]
    data = {"memory": [base.view(torch.uint8)]}
    call = template.Call("x", tensors, None, [0, 1], [], {}, {}, {}, data)
    inputs = template.Inputs(call, "cpu", moves.Run("wide"), False)
    a, b = inputs.tensor(0), inputs.tensor(1)
    assert a.dtype == b.dtype == torch.float64 and a.tolist() == [[4, 5], [7, 8]] and b.tolist() == [1, 3, 5]
    assert a.stride() == (3, 1) and a.untyped_storage()._cdata == b.untyped_storage()._cdata


# The verdict


def judge_alone(name, got, native, wide, inputs=()):
    """The rule on one value, without further runs."""
    values = {"native": native, "wide": wide}
    row = ditorch._C.operator_find(name) or {}
    facts = {
        "what": "output",
        "index": 0,
        "careful": True,
        "seed": 0,
        "dim": None,
        "place": None,
        "unsorted": False,
        "inexact": False,
        "input_roundoff": 0.0,
    }
    case = types.SimpleNamespace(rule=ditorch._C.judge_constants(), row=row, inputs=list(inputs), **facts)
    return rule.judge(case, got, wide, lambda run: values.get(run.kind, "no such run"))


@pytest.mark.parametrize("change", ["scale", "one", "nan", "shape", "dtype"])
def test_a_wrong_captured_result_fails(tmp_path, change):
    """--captured judges the data alone; running on a sound device still passes."""
    case = make_case("torch.mm", torch.randn(4, 5), torch.randn(5, 3))
    if change == "shape":
        case.output = case.output[:2]
    elif change == "dtype":
        case.output = case.output.double()
    elif change == "scale":
        case.output *= 1.001
    else:
        case.output[2, 1] = float("nan") if change == "nan" else case.output[2, 1] + 1e-3
    facts = write_repro(case, tmp_path, device="cpu")
    assert facts["verdict"] == "FAIL" and "FAIL" in (tmp_path / "README.md").read_text()
    if change == "one":
        assert "worst at [2, 1]" in facts["lines"][0] and "1 of 12 wrong" in facts["lines"][0]
        status, out, _ = run_here(tmp_path, "--captured")
        assert status == 1 and out.endswith("FAIL\n")
        status, out, _ = run_here(tmp_path)
        assert status == 0 and out.endswith("PASS\n")


def test_a_broken_operator_fails(tmp_path):
    """The first call, which is the device's, is off in one element; the CPU's and float64's are right."""
    case = make_case("torch.mm", torch.randn(4, 5, requires_grad=True), torch.randn(5, 3), grads=True)
    write_repro(case, tmp_path, device="cpu")
    breaking = """
import torch
true, calls = torch.mm, []
def broken(*args, **kwargs):
    calls.append(1)
    result = true(*args, **kwargs)
    return result if len(calls) > 1 else result + torch.eye(4, 3) * 1e-3
torch.mm = broken
"""
    answer = run_script(tmp_path, code=breaking)
    assert answer.returncode == 1 and answer.stdout.endswith("FAIL\n"), answer.stdout + answer.stderr
    assert re.search(r"FAIL  result 0: max error 0\.001 .* 3 of 12 wrong", answer.stdout)
    assert "PASS  gradient of tensor 0" in answer.stdout


def test_a_broken_backward_fails(tmp_path, monkeypatch):
    case = make_case("torch.mul", torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True), grads=True)
    write_repro(case, tmp_path, device="cpu")
    break_first(monkeypatch, torch.autograd, "grad", lambda result, _args: (result[0], result[1] * 1.01))
    status, out, _ = run_here(tmp_path)
    assert status == 1 and "PASS  gradient of tensor 0" in out and "FAIL  gradient of tensor 1" in out


def test_an_argument_that_is_written_to_by_mistake_fails(tmp_path, monkeypatch):
    write_repro(make_case("torch.mul", torch.randn(4), torch.randn(4)), tmp_path, device="cpu")
    break_first(monkeypatch, torch, "mul", lambda result, args: (args[1].add_(1), result)[1])
    status, out, _ = run_here(tmp_path)
    assert status == 1 and "FAIL  tensor 1 after the call" in out and "PASS  result 0" in out


def test_an_argument_that_is_not_written_to_fails(tmp_path, monkeypatch):
    """An operator in place that works on a copy: the defect that the original's fallback had."""
    write_repro(make_case("torch.Tensor.mul_", torch.randn(4), 3.0), tmp_path, device="cpu")
    true, calls = torch.Tensor.mul_, []

    def broken(tensor, *args):
        calls.append(1)
        return true(tensor.clone() if len(calls) == 1 else tensor, *args)

    monkeypatch.setattr(torch.Tensor, "mul_", broken)
    status, out, _ = run_here(tmp_path)
    assert status == 1 and "FAIL  tensor 0 after the call" in out and "PASS  result 0" in out


def test_an_operator_that_raises_fails(tmp_path, monkeypatch):
    """On the device alone; one that the CPU refuses, too, says nothing about the device."""
    write_repro(make_case("torch.mul", torch.randn(4), torch.randn(4)), tmp_path, device="cpu")
    break_first(monkeypatch, torch, "mul", lambda _result, _args: torch.ones(2) @ torch.ones(3))
    status, out, _ = run_here(tmp_path)
    assert status == 1 and "on cpu: raised RuntimeError: inconsistent tensor size" in out and out.endswith("FAIL\n")
    monkeypatch.setattr(torch, "mul", lambda *args: torch.ones(2) @ torch.ones(3))
    status, out, err = run_here(tmp_path)
    assert status == 2 and "the CPU cannot run it: RuntimeError: inconsistent" in err and "FAIL" not in out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_the_rule_lets_rounding_pass_and_faults_not(dtype, seed):
    """Another order of summation passes; an error far beyond the CPU's does not."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.complex128 if dtype.is_complex else torch.float64
    single = torch.complex64 if dtype.is_complex else torch.float32
    a, b = (torch.randn(64, 64, generator=generator, dtype=kind).to(dtype) for _ in "ab")
    wide, native = a.to(kind) @ b.to(kind), a @ b
    other = sum(a[:, i : i + 8].to(single) @ b[i : i + 8].to(single) for i in range(0, 64, 8)).to(dtype)
    assert judge_alone("torch.mm", other, native, wide).verdict == "PASS", f"seed {seed}"
    u = torch.finfo(dtype).eps / 2
    broken = wide.clone()
    broken[3, 5] += 64 * (u * wide[3, 5].abs() + (native.to(kind) - wide).abs().max())
    found = judge_alone("torch.mm", broken.to(dtype), native, wide)
    assert found.verdict == "FAIL" and found.result.index == 3 * 64 + 5 and found.result.wrong == 1


def test_float64_has_no_wider_reference(tmp_path, monkeypatch):
    """Sums that cancel: another order of the same operations is right, an error of 1e-9 is not."""
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    case = make_case("torch.softmax", x, dim=0, grads=True)
    case.grad_outputs = (torch.randn(5, dtype=torch.float64),)
    true = torch.autograd.grad
    for error, verdict in ((1e-16, 0), (1e-9, 1)):
        write_repro(case, tmp_path, device="cpu")
        break_first(monkeypatch, torch.autograd, "grad", lambda result, _args, error=error: (result[0] + error,))
        status, out, _ = run_here(tmp_path)
        assert status == verdict, out
        monkeypatch.setattr(torch.autograd, "grad", true)
    write_repro(make_case("torch.floor", torch.arange(5, dtype=torch.float64)), tmp_path, device="cpu")
    break_first(monkeypatch, torch, "floor", lambda result, _args: result - torch.eye(5, dtype=torch.float64)[3])
    assert run_here(tmp_path)[0] == 1


@pytest.mark.parametrize(
    "got, native, wide, verdict",
    [
        ([1.0, float("inf")], [1.0, float("inf")], [1.0, 1e5], "PASS"),  # float16 overflows on the CPU, too
        ([1.0, float("inf")], [1.0, 6e4], [1.0, 6e4], "FAIL"),
        ([1.0, float("nan")], [1.0, float("nan")], [1.0, float("nan")], "PASS"),
        ([1.0, 2.0], [1.0, float("nan")], [1.0, float("nan")], "FAIL"),
        ([1.0, float("-inf")], [1.0, float("inf")], [1.0, float("inf")], "FAIL"),
    ],
)
def test_infinities_and_nan(got, native, wide, verdict):
    got, native = torch.tensor(got, dtype=torch.float16), torch.tensor(native, dtype=torch.float16)
    assert judge_alone("torch.exp", got, native, torch.tensor(wide, dtype=torch.float64)).verdict == verdict


def test_whole_numbers_and_ties():
    a, b = torch.tensor([1, 2, 0]), torch.tensor([1, 0, 2])
    assert judge_alone("torch.add", a, a, a).verdict == "PASS"
    assert judge_alone("torch.add", a, b, b).verdict == "FAIL"
    assert judge_alone("torch.argsort", a, b, b, inputs=[torch.tensor([5.0, 1.0, 5.0])]).verdict == "PASS"
    assert judge_alone("torch.argsort", a, b, b, inputs=[torch.tensor([5.0, 1.0, 6.0])]).verdict == "FAIL"
    assert judge_alone("torch.argsort", a * 0, b, b, inputs=[torch.ones(3)]).verdict == "FAIL"  # an index thrice


def test_one_rounding_in_a_copy_is_wrong(tmp_path):
    """The CPU rounds nothing there, so the device must not."""
    case = make_case("torch.Tensor.clone", torch.randn(100))
    case.output[7] = torch.nextafter(case.output[7], torch.tensor(9.0))
    facts = write_repro(case, tmp_path, device="cpu")
    assert facts["verdict"] == "FAIL" and "worst at [7]" in facts["lines"][0] and "1 of 100 wrong" in facts["lines"][0]


def test_the_numbers_and_the_row_are_those_of_the_judge(tmp_path):
    write_repro(make_case("torch.sort", torch.randn(5)), tmp_path, device="cpu")
    code = {"__name__": "x"}
    exec(compile((tmp_path / "repro.py").read_text(), "repro.py", "exec"), code)
    assert code["RULE"] == ditorch._C.judge_constants()
    row = ditorch._C.operator_find("torch.sort")
    assert code["ROW"]["dim"] == row["dim"] == 1 and set(code["ROW"]["traits"]) <= row["traits"]
    assert "distinct" in code["ROW"]["traits"]


def test_running_sums_have_their_other_way(tmp_path):
    """A sum of equal numbers that a device keeps in float32 is far off the CPU's, and right."""
    x = torch.full((1, 3000), 0.1)
    case = make_case("torch.cumsum", x, 1)
    case.output.copy_(run_other_way("cumsum", (x, 1), None))
    assert write_repro(case, tmp_path, device="cpu")["verdict"] == "PASS"
    text = (tmp_path / "repro.py").read_text()
    assert "def run_other_way(" in text and "run_instead" not in text and "ditorch" not in text
    assert run_script(tmp_path, "--captured").returncode == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_inputs_are_moved_as_the_judge_moves_them(dtype):
    """Bit for bit, in any layout."""
    x = (torch.randn(4, 5, 6, dtype=dtype) * 30).permute(2, 0, 1)[:, ::2]
    x[0, 0, 0] = 3
    for kind, size, narrow in (("shaken", 0.0, False), ("jitter", 4.0, False), ("jitter_wide", 4.0, True)):
        for seed in (0, 77, 2**64 - 3):
            mine, wanted = moves.Run(kind, size, narrow, seed), Request(kind, size, narrow, seed)
            for gradient, move in ((False, mine.make), (True, mine.make_gradient)):
                moved = move(x, 2)
                assert torch.equal(moved, wanted.move(x, 2, gradient=gradient)) and moved[0, 0, 0] == 3
                assert not torch.equal(moved, x.to(moved.dtype))
    args, kwargs = (0.1, 2.0, (3.7, None)), {"eps": 1e-5, "beta": 1}
    request, run = Request("shaken", 0.0, False, 9), moves.Run("shaken", 0.0, False, 9)
    assert run.make_numbers(args, kwargs, 2.0**-24) == request.change_arguments(args, kwargs)


# State


def test_random_numbers_autocast_and_determinism_are_kept(tmp_path):
    state = torch.Generator().manual_seed(99).get_state()
    meta = {
        "random": {"cpu": state},
        "autocast": {"cuda": {"enabled": True, "dtype": "bfloat16"}, "cpu": {"enabled": False, "dtype": "bfloat16"}},
        "deterministic": True,
        "grad_enabled": False,
    }
    case = make_case("torch.nn.functional.dropout", torch.ones(100), p=0.5, training=True, meta=meta, run=False)
    write_repro(case, tmp_path, device="cpu")
    text = (tmp_path / "repro.py").read_text()
    assert 'STATE = {"grad": False, "deterministic": True, "autocast": [torch.bfloat16]}' in text
    code = {"__name__": "x"}
    exec(compile(text, "repro.py", "exec"), code)
    call = load_call(code, tmp_path)
    values, _written = code["run"](call, "cpu")
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    assert torch.equal(values["result 0"], torch.nn.functional.dropout(torch.ones(100), p=0.5))
    torch.set_rng_state(before)
    with code["captured_state"](call, "cpu", 0):
        assert torch.are_deterministic_algorithms_enabled() and torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16 and not torch.is_grad_enabled()
    assert not torch.are_deterministic_algorithms_enabled() and torch.is_grad_enabled()


def test_autocast_is_judged_in_its_precision(tmp_path):
    meta = {"autocast": {"cpu": {"enabled": True, "dtype": "bfloat16"}}}
    a, b = torch.randn(8, 16), torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = torch.mm(a, b)
    facts = write_repro(make_case("torch.mm", a, b, output=output, meta=meta, run=False), tmp_path, device="cpu")
    assert output.dtype == torch.bfloat16 and facts["verdict"] == "PASS", facts


def test_tensors_that_stayed_on_the_cpu_stay_there(tmp_path):
    meta = {"devices": ["cuda:0", "cpu"]}
    case = make_case("torch.Tensor.__getitem__", X, torch.tensor([0, 2]), meta=meta, run=False)
    write_repro(case, tmp_path)
    text = (tmp_path / "repro.py").read_text()
    assert "(0, torch.float32, (3, 4), (4, 1), 0, '')" in text and "(1, torch.int64, (2,), (1,), 0, 'cpu')" in text


def test_a_call_without_grad_mode(tmp_path):
    """An optimizer's step: parameters that require grad are written to."""
    weight = torch.nn.Parameter(torch.ones(3))
    case = make_case("torch.Tensor.add_", weight, torch.ones(3), alpha=-0.1, run=False, meta={"grad_enabled": False})
    write_repro(case, tmp_path, device="cpu")
    status, out, _ = run_here(tmp_path)
    assert status == 0 and "PASS  tensor 0 after the call" in out


# What cannot be


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "builtins.exec", "torch.load", "torch.hub.load", "torch.Tensor.apply_", "torch.no.such", "x"),
        *("torch.add\nimport os", "torch.add; import os", "torch.mm#", "torch.'x'", "", "torch..mm", "aten::add; x"),
        *("torch_npu.x\nimport os", "torch_npu.é", "torch_npu.class", "torch_npu.os;system"),
    ],
)
def test_names_that_are_no_operators(tmp_path, name):
    with pytest.raises(ReproError):
        write_repro(Case(name, (X,), {}, path="x"), tmp_path / "y")
    assert not os.path.exists(tmp_path / "y")


def test_a_device_is_a_name(tmp_path):
    with pytest.raises(ReproError, match="no name of a device"):
        write_repro(make_case("torch.neg", X), tmp_path, device="cuda'); import os; ('")


def test_texts_of_the_capture_are_literals_alone(tmp_path):
    evil = "'''\n\"\"\"\\N{BULLET}{}%s # \u2028\u202e"
    case = make_case("torch.nn.functional.pad", X, (1, 1), evil, run=False)
    case.kwargs = {"value": 0.0}
    write_repro(case, tmp_path)
    code = {"__name__": "x"}
    exec(compile((tmp_path / "repro.py").read_text(), "repro.py", "exec"), code)
    call = load_call(code, tmp_path)
    assert call.make_arguments(code["Inputs"](call, "cpu", code["Run"](), True))[0][2] == evil
    assert all(ord(c) < 128 for c in (tmp_path / "repro.py").read_text())


def test_values_without_a_notation(tmp_path):
    with pytest.raises(ReproError, match="a description of a object"):
        write_repro(Case("torch.add", (X, Described("object", {"type": "a.B"})), {}, path="x"), tmp_path)
    for value in (os.system, print, object(), lambda: 0):
        with pytest.raises(ReproError, match="cannot be written down"):
            write_literal(value)


def test_vendors_operators(tmp_path):
    case = Case("torch_npu.npu_rms_norm", (X,), {"epsilon": 1e-6}, X, path="x", meta={"parts": ["input", "output"]})
    facts = write_repro(case, tmp_path, device="npu:0")
    assert facts["verdict"] == "" and "not torch's own" in facts["lines"][0] and "torch_npu" not in sys.modules
    status, _, err = run_here(tmp_path)
    assert status == 2 and "torch_npu.npu_rms_norm needs the package 'torch_npu'" in err


def test_functions_of_other_packages_by_name_alone(tmp_path):
    case = make_case("torch.neg", X)
    case.name = "my_kernels.neg"
    with pytest.raises(ReproError, match="name its package"):
        write_repro(case, tmp_path / "a")
    package = tmp_path / "packages" / "my_kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import torch\n\ndef neg(x):\n    return torch.neg(x)\n")
    sys.path.insert(0, str(package.parent))
    try:
        facts = write_repro(case, tmp_path / "a", device="cpu", modules=["my_kernels"])
    finally:
        sys.path.remove(str(package.parent))
        sys.modules.pop("my_kernels", None)
    assert facts["verdict"] == "PASS"
    status, _, err = run_here(tmp_path / "a")
    assert status == 2 and "needs the package 'my_kernels'" in err


def test_a_device_that_is_not_there(tmp_path):
    write_repro(make_case("torch.neg", X), tmp_path)
    answer = run_script(tmp_path, "--device", "xpu")
    assert (
        answer.returncode == 2 and "device 'xpu' does not work here" in answer.stderr and "--captured" in answer.stderr
    )


def test_nothing_captured(tmp_path):
    write_repro(make_case("torch.neg", X, run=False, meta={"parts": ["input"]}), tmp_path)
    status, _, err = run_here(tmp_path, "--captured")
    assert status == 2 and "no captured results" in err


# From captures


def test_every_fixture_exports(tmp_path):
    """Old captures, too; the two that were wrong on their device are wrong here."""
    verdicts = {}
    for number, ref in enumerate(find_cases(CASES)):
        facts = write_repro(load_case(ref), tmp_path / str(number), device="cpu")
        verdicts[ref.operator, ref.role, ref.layout] = facts["verdict"]
    assert sorted(key for key, verdict in verdicts.items() if verdict == "FAIL") == [
        ("torch.mm", "device", "compared"),
        ("torch.nn.functional.linear", "device", "mismatch"),
    ]


def test_what_opcapture_caught(tmp_path, device):
    """From a training step with a broken operator to the folder for the vendor."""
    from op_tools import OpCapture

    torch.manual_seed(1)
    x = torch.randn(8, 16, device=device, requires_grad=True)
    w = torch.randn(16, 4, device=device, requires_grad=True)
    with OpCapture(results=str(tmp_path / "results"), list="torch.mm|torch.nn.functional.gelu"):
        with ditorch.fault("value:mm,scale=0.01"):
            y = torch.mm(x, w)
        torch.nn.functional.gelu(y).sum().backward()
    found = {}
    for ref in find_cases(tmp_path / "results"):
        facts = write_repro(load_case(ref), tmp_path / ref.operator)
        found[ref.operator] = (facts["verdict"], [line.partition(":")[0] for line in facts["lines"]])
    assert found["torch.mm"][0] == "FAIL" and "FAIL  result 0" in found["torch.mm"][1]
    assert found["torch.nn.functional.gelu"][0] == "PASS"
    with ditorch.fault("value:mm,scale=0.01"):
        status, out, _ = run_here(tmp_path / "torch.mm", "--device", "cuda")
    assert status == 1 and "FAIL  result 0" in out.partition("on cuda:")[2] and out.endswith("FAIL\n")
    for name in found:
        status, out, _ = run_here(tmp_path / name, "--device", "cuda")
        assert status == 0 and "PASS  gradient of tensor 0" in out.partition("on cuda:")[2], out
    answer = run_script(tmp_path / "torch.mm", "--device", "cpu", code=ALONE)
    assert answer.returncode == 0 and answer.stdout.endswith("PASS\nalone\n")
    assert "FAIL  result 0" in answer.stdout.partition("on cpu:")[0]


def test_a_function_among_the_arguments_is_not_exported(tmp_path):
    """What a capture passes to an operator that calls it must be an operator itself."""
    name = "torch.nn.functional.triplet_margin_with_distance_loss"
    case = Case(name, (torch.ones(2, 2),) * 3, {"distance_function": exec}, None, path="test/case", meta={})
    with pytest.raises(ReproError, match="which an operator could call"):
        write_repro(case, tmp_path / "out")
    assert not (tmp_path / "out").exists()
