"""One verdict: OpAutoCompare, the judge of Python, the exported repro, replay, test-device and the controls say one
thing about every case of the corpus that they are asked about.

A case is made by running the operator on the embedded device under OpAutoCompare with a wrapper in its place that
damages what the device gave, and nothing on the CPU. The other consumers judge the same value with the same seed. To
add one, write a function from a case to "right", "wrong" or "unknown" and put it into CONSUMERS. The controls see
operators below PyTorch's dispatcher, so their cases are broken there, by the fault hook.
"""

import collections
import functools
import types
from unittest import mock

import ditorch
import pytest
import torch
import verdict_corpus as corpus
from ditorch import _C, controls
from ditorch.device_suite import compare, entry, samples
from ditorch.device_suite.tolerance import Tolerance
from ditorch.judge import Runs, judge, keeps_dtypes, run_other_way
from op_tools import OpAutoCompare
from op_tools.reader import Case
from op_tools.replay import accuracy
from op_tools.replay import judge as replay_judge
from op_tools.repro import export, template
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

VERDICTS = {"PASS": "right", "FAIL": "wrong", "none": "unknown"}


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def list_tensors(values):
    return [leaf for leaf in tree_leaves(values) if is_tensor(leaf)]


# OpAutoCompare


class Damage(torch.autograd.Function):
    """A view whose gradient is damaged."""

    @staticmethod
    def forward(ctx, tensor, change):
        ctx.change = change
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.change(gradient), None


class Watched:
    """An operator under the tool, by its own name; `change` acts on what the device gives."""

    def __init__(self, name, tool):
        self.function, self.change, self.target, self.what = corpus.find(name), None, 0, "output"
        self.hook = _C.Hook(name, self.run)
        self.hook.features = [(tool._engine, None)]

    def run(self, *args, **kwargs):
        tensors = list_tensors((args, kwargs))
        if all(tensor.device.type == "cpu" for tensor in tensors):
            return self.function(*args, **kwargs)
        if self.what == "grad":
            wanted = tensors[self.target]
            args, kwargs = tree_map(lambda t: Damage.apply(t, self.change) if t is wanted else t, (args, kwargs))
            return self.function(*args, **kwargs)
        result = self.function(*args, **kwargs)
        wanted = list_tensors(result)[self.target]
        if any(wanted is tensor for tensor in tensors):  # in place
            wanted.copy_(self.change(wanted))
            return result
        return tree_map(lambda t: self.change(t) if t is wanted else t, result)


class Device:
    """The embedded device under OpAutoCompare: cases, and what the tool says about them."""

    def __init__(self):
        self.tool = OpAutoCompare(save=False, rows="all", console="off")
        self.tool.attach()
        self.watched = {}

    def make(self, call, index, name, damage):
        """One case, run; None where the damage does not apply."""
        if call.entry.name not in self.watched:
            self.watched[call.entry.name] = Watched(call.entry.name, self.tool)
        watched, seen = self.watched[call.entry.name], []

        def change(tensor):
            generator = torch.Generator().manual_seed(len(name))
            clean = tensor.detach().cpu().clone()
            value = damage(clean, generator)
            seen.append((value, clean))
            return tensor if value is None else value.to(tensor.device)

        def to_device(tensor):
            made = tensor.detach().to("cuda")
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda").copy_(made)
            return made.requires_grad_(tensor.requires_grad)

        watched.change, watched.target, watched.what = change, index, call.what
        args, kwargs = tree_map_only(torch.Tensor, to_device, (call.args, call.kwargs))
        _C.judge_forget()
        result = watched.hook(*args, **kwargs)
        if call.what == "grad":
            pairs = [(t, g.cuda()) for t, g in zip(list_tensors(result), call.grads, strict=True) if g is not None]
            torch.autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        value, clean = seen[0]
        return corpus.Judged(call, index, name, clean if value is None else value, clean), value is not None


def collect(calls, quick=False):
    """All cases of some calls with OpAutoCompare's verdicts, in order."""
    device, cases = Device(), []
    try:
        for number, call in enumerate(calls):
            for index in choose_targets(call):
                for name, damage in choose_damages(call, number if quick else None):
                    before = device.tool.describe()
                    cases.append((*device.make(call, index, name, damage), count_unable(before, device.tool)))
    finally:
        device.tool.stop()
    records = collections.defaultdict(dict)
    for record in device.tool.records("compare"):
        records[record["id"]][record["what"], max(record["index"], 0)] = record["verdict"]
    return list(attach(cases, records))


def choose_damages(call, quick=None):
    """autograd itself refuses or repairs a gradient of another shape or dtype, and what is written in place keeps both.
    `quick`: the number of the call. Of choices and running sums in float32 it then gets all damages, else every second
    one in float32 and every third in other dtypes. The number turns them, so that an operator meets every damage in
    its output or its gradient, and every dtype meets every damage."""
    keeps = {"shape", "dtype"} if call.what == "grad" or call.entry.name.endswith("_") else ()
    chosen = [(name, damage) for name, damage in corpus.DAMAGES.items() if name not in keeps]
    if quick is None or (call.dtype == torch.float32 and is_special(call)):
        return chosen
    every = 2 if call.dtype == torch.float32 else 3
    return chosen[quick % every :: every]


def is_special(call):
    """Choices among equal values and running sums have rules of their own."""
    row = _C.operator_find(call.entry.name)
    return bool(row and row["traits"] & {"ties", "scan"})


def choose_targets(call):
    if call.what == "output":
        return call.entry.targets
    return [number for number, tensor in enumerate(call.tensors) if tensor.requires_grad][:1]


def count_unable(before, tool):
    """Did the tool say that it cannot compare this call? Such calls have no record."""
    total = sum(count for count, _reason in tool.describe()["unable"].values())
    return total > sum(count for count, _reason in before["unable"].values())


def attach(cases, records):
    numbers = iter(sorted(records))
    for case, applies, unable in cases:
        verdicts = {}
        if not unable or case.call.what == "grad":
            case.seed = next(numbers)
            verdicts = records[case.seed]
        what = {"output": "output", "grad": "grad"}[case.call.what]
        case.verdicts["OpAutoCompare"] = verdicts.get((what, case.index), "unknown")
        if applies:
            yield case


# The judge of Python


@functools.lru_cache(maxsize=64)
def make_runner(key):
    return Runner(_calls[key])


_calls = {}


def get_runner(call):
    _calls[id(call)] = call
    return make_runner(id(call))


class Runner:
    """The further runs of a call, with python/ditorch/judge.py."""

    def __init__(self, call):
        self.call, self.function = call, corpus.find(call.entry.name)
        self.is_double = any(tensor.dtype in (torch.float64, torch.complex128) for tensor in call.tensors)
        self.kept = {}

    def make(self, request):
        key = (request.kind, request.size, request.narrow, request.seed)
        if request.kind == "other" and self.call.entry.name.endswith("_"):
            raise RuntimeError("the CPU has no other way")
        if key not in self.kept:
            made = self.run(request)
            if request.seed:
                return made
            self.kept[key] = made
        return self.kept[key]

    def run(self, request):
        call, place = self.call, iter(range(1000))
        exact = keeps_dtypes(call.entry.name) and call.what == "output"

        def move(tensor):
            moved = request.move(tensor, next(place), exact=exact)
            moved = moved.clone() if moved.data_ptr() == tensor.data_ptr() else moved
            return moved.requires_grad_(tensor.requires_grad)

        args, kwargs = tree_map_only(torch.Tensor, move, (call.args, call.kwargs))
        leaves = list_tensors((args, kwargs))
        args, kwargs = request.change_arguments(args, kwargs, double=self.is_double, exact=exact)
        other = functools.partial(run_other_way, call.entry.name)
        results = list_tensors(other(args, kwargs) if request.kind == "other" else self.function(*args, **kwargs))
        if call.what == "output":
            return [result.detach() for result in results]
        pairs = [
            (result, request.move(gradient, number, gradient=True).to(result.dtype))
            for number, (result, gradient) in enumerate(zip(results, call.grads, strict=True))
            if gradient is not None
        ]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(torch.autograd.grad([r for r, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True))
        return [next(found) if leaf.requires_grad else None for leaf in leaves]


def ask_judge(case, careful=True, name=""):
    """Its caller compares dtypes: the judge takes any precision for the CPU's value."""
    call, runner = case.call, get_runner(case.call)
    runs = Runs(runner.make)
    first = runs("native")[case.index]
    if case.value.dtype != first.dtype:
        return "wrong"
    answer = judge(
        name or call.entry.name, case.value, first, runs, args=call.args, kwargs=call.kwargs, inputs=call.tensors,
        what=call.what, index=case.index, careful=careful, seed=case.seed,
    )  # fmt: skip
    return answer.verdict


def make_case(call):
    """As a captured one."""
    grads = tuple(call.grads) if call.what == "grad" else None
    return Case(call.entry.name, call.args, call.kwargs, None, path="corpus", grad_outputs=grads)


# The repro


@functools.lru_cache(maxsize=64)
def make_references(key):
    return template.References(export._make_call(make_case(_calls[key]))[0])


def ask_repro(case, careful=True):
    _calls[id(case.call)] = case.call
    references = make_references(id(case.call))
    name = f"result {case.index}"
    if case.call.what == "grad":
        name = f"gradient of tensor {references.call.order[case.index]}"
    verdict, _text = template.judge_value(references, name, case.value, case.seed, careful)
    for key in [key for key in references.kept if key[3]]:
        del references.kept[key]
    return VERDICTS[verdict]


# Replay


@functools.lru_cache(maxsize=64)
def make_replay(key, device):
    references = accuracy.References(make_case(_calls[key]), _calls[key].what == "output", device=device)
    return references, references.get("native", _calls[key].what)


def with_seed(case):
    return functools.partial(judge, seed=case.seed)


def ask_replay(case, careful=True):
    call = case.call
    _calls[id(call)] = call
    references, native = make_replay(id(call), "cuda" if careful else "cpu")
    values = list(native.get(call.what))
    values[case.index] = case.value
    run = accuracy.replace(native, **{"outputs" if call.what == "output" else "gradients": values})
    with mock.patch.object(replay_judge, "rule", types.SimpleNamespace(judge=with_seed(case))):
        found = list(accuracy._Judging(run, native, "cpu", references.case, references, call.what).judge())
    return {"pass": "right", "wrong": "wrong", "skip": "unknown"}[found[case.index].verdict]


# Test-device


class Operator:
    """An entry of the corpus as one of the operator database."""

    def __init__(self, name):
        self.name, self.function = name.removeprefix("torch."), corpus.find(name)

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


@functools.lru_cache(maxsize=64)
def make_suite(key, device):
    call = _calls[key]
    operator = Operator(call.entry.name)
    made = entry.Entry(operator, call.dtype, device, Tolerance({}), set(entry.CHECKS) - {"strides"})
    sample = types.SimpleNamespace(input=call.args[0], args=tuple(call.args[1:]), kwargs=call.kwargs)
    given = [gradient for gradient in call.grads if gradient is not None]

    def take_gradients(out, arguments, request):
        return samples.gradients(out, arguments.tensors(), given, request)[0]

    pick = entry.take_result if call.what == "output" else take_gradients
    asked = made._call(sample, operator, call.what, pick)
    return made, asked, asked.runs("native")


def ask_suite(case, careful=True):
    call = case.call
    _calls[id(call)] = call
    suite, asked, cpu = make_suite(id(call), "cuda" if careful else "cpu")
    index = case.index if call.what == "output" else 0  # gradients of the tensors that want one
    values = [case.value if number == index else value for number, value in enumerate(cpu)]
    before = suite.comparison.undecided
    with mock.patch.object(compare, "judge", with_seed(case)):
        try:
            suite._compare(values, cpu, "value", asked, "cpu")
        except compare.Difference:
            return "wrong"
    return "unknown" if suite.comparison.undecided > before else "right"


CONSUMERS = {"judge": ask_judge, "repro": ask_repro, "replay": ask_replay, "test-device": ask_suite}
EVERY = {"replay": 3, "test-device": 3}
"""Of a quick run: each so many cases; they are asked through more machinery. Choices and running sums always."""


def choose_consumers(case, number, quick):
    quick = quick and not is_special(case.call)
    return [name for name in CONSUMERS if not quick or number % EVERY.get(name, 1) == 0]


# The controls

FAULTS = ("", "value:{}", "value:{},scale=1e-7,index=1", "value:{},scale=1e-5", "nan:{}", "precision:{},bits=9")


def ask_controls(call, number):
    """(fault, the operator that the controls saw, their verdict, the judge's) of a call that is one operator there; of
    dtypes other than float32 every second fault, by the number of the call. The run without one comes first."""
    function = corpus.find(call.entry.name)
    clean, *faults = FAULTS
    for fault in (clean, *(faults if call.dtype == torch.float32 else faults[number % 2 :: 2])):
        controls.reset_report()
        args, kwargs = tree_map_only(torch.Tensor, lambda t: t.detach().cuda(), (call.args, call.kwargs))
        with controls.use(autocompare=".*"), ditorch.fault(fault.format("*") if fault else ""):
            result = list_tensors(function(*args, **kwargs))
        rows = controls.rows()
        if len(rows) != 1 or rows[0]["compared"] != 1:
            return
        seen = "wrong" if rows[0]["wrong"] else "unknown" if rows[0]["unknown"] else "right"
        clean = list_tensors(function(*call.args, **call.kwargs))
        verdicts = {
            ask_judge(corpus.Judged(call, number, fault, value.cpu(), clean[number]), name=rows[0]["operator"])
            for number, value in enumerate(result)
        }
        word = next(word for word in ("wrong", "unknown", "right") if word in verdicts)
        yield fault, rows[0]["operator"], seen, word


# The tests


def check(calls, quick=False):
    """Every consumer's verdict on every case; lines about those that do not agree or are not as expected. Cases
    (`quick`: every fifth) are also judged as if the device were not careful, which OpAutoCompare cannot be told."""
    cases, complaints = collect(calls, quick), []
    for number, case in enumerate(cases):
        consumers = choose_consumers(case, number, quick)
        for name in consumers:
            case.verdicts[name] = CONSUMERS[name](case)
        if len(set(case.verdicts.values())) > 1:
            complaints.append(f"disagree: {case}")
        careless = {name: CONSUMERS[name](case, careful=False) for name in consumers if not quick or number % 5 == 0}
        if len(set(careless.values())) > 1:
            complaints.append(f"disagree about a device that is not careful: {case.call} {case.damage}: {careless}")
        row = _C.operator_find(case.call.entry.name)
        expected = corpus.get_expected(case, row["traits"] if row else frozenset())
        is_wrong = case.verdicts["OpAutoCompare"] == "wrong"
        if expected and is_wrong != (expected == "wrong"):
            complaints.append(f"{expected} expected: {case}")
    return cases, complaints


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    yield
    ditorch.fault("")


def test_all_give_one_verdict():
    cases, complaints = check(corpus.list_calls(), quick=True)
    assert not complaints, f"{len(complaints)} of {len(cases)}:\n" + "\n".join(complaints[:40])
    counts = collections.Counter(case.verdicts["OpAutoCompare"] for case in cases)
    assert len(cases) >= 1200 and min(counts[word] for word in ("right", "wrong", "unknown")) > 20, counts


def test_the_controls_give_the_same_verdict(capfd):
    asked, complaints = collections.Counter(), []
    for number, call in enumerate(corpus.list_calls()):
        # What is written in place has no clean value left, and argsort is one of the two results of sort.
        if call.what == "output" and not call.entry.name.endswith(("_", ".argsort")):
            for fault, name, seen, word in ask_controls(call, number):
                asked[word] += 1
                if seen != word:
                    complaints.append(f"{call} as {name}, {fault or 'no fault'}: {seen}, the judge says {word}")
    capfd.readouterr()  # what the controls print
    assert not complaints, "\n".join(complaints[:40])
    assert asked["right"] > 100 and asked["wrong"] > 100, asked


@pytest.mark.full
@pytest.mark.parametrize("seed", range(9))
def test_all_give_one_verdict_on_every_case(seed):
    cases, complaints = check(corpus.list_calls(seed))
    assert not complaints, f"{len(complaints)} of {len(cases)}:\n" + "\n".join(complaints[:40])
