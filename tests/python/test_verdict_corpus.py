"""One verdict: OpAutoCompare, the judge of Python and the exported repro say the same about every case of the corpus.

A case is made by running the operator on the embedded device under OpAutoCompare with a wrapper in its place that
damages what the device gave, and nothing on the CPU. The other consumers judge the same value with the same seed. To
add one, write a function from a case to "right", "wrong" or "unknown" and put it into CONSUMERS.
"""

import collections
import functools

import ditorch
import pytest
import torch
import verdict_corpus as corpus
from ditorch import _C
from ditorch.judge import Runs, judge, keeps_dtypes
from op_tools import OpAutoCompare
from op_tools.reader import Case
from op_tools.repro import export, template
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

VERDICTS = {"PASS": "right", "FAIL": "wrong", "none": "unknown"}


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def list_tensors(values):
    return [leaf for leaf in tree_leaves(values) if is_tensor(leaf)]


# ---- OpAutoCompare


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
    """autograd itself refuses or repairs a gradient of another shape, and what is written in place keeps its own.
    `quick`: the number of the call; of dtypes other than float32 then every second one."""
    keeps_shape = call.what == "grad" or call.entry.name.endswith("_")
    chosen = [(name, damage) for name, damage in corpus.DAMAGES.items() if name != "shape" or not keeps_shape]
    return chosen if quick is None or call.dtype == torch.float32 else chosen[quick % 2 :: 2]


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


# ---- the judge of Python


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
        if request.kind == "other":
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
        results = list_tensors(self.function(*args, **kwargs))
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


def ask_judge(case, careful=True):
    call, runner = case.call, get_runner(case.call)
    runs = Runs(runner.make)
    first = runs("native")[case.index]
    answer = judge(
        call.entry.name, case.value, first, runs, args=call.args, kwargs=call.kwargs, inputs=call.tensors,
        what=call.what, index=case.index, careful=careful, seed=case.seed,
    )  # fmt: skip
    return answer.verdict


# ---- the repro


@functools.lru_cache(maxsize=64)
def make_references(key):
    call = _calls[key]
    grads = tuple(call.grads) if call.what == "grad" else None
    case = Case(call.entry.name, call.args, call.kwargs, None, path="corpus", grad_outputs=grads)
    return template.References(export._make_call(case)[0])


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


CONSUMERS = {"judge": ask_judge, "repro": ask_repro}


# ---- the tests


def check(calls, quick=False):
    """Every consumer's verdict on every case; lines about those that do not agree or are not as expected. Cases
    (`quick`: every fifth) are also judged as if the device were not careful, which OpAutoCompare cannot be told."""
    cases, complaints = collect(calls, quick), []
    for number, case in enumerate(cases):
        for name, ask in CONSUMERS.items():
            case.verdicts[name] = ask(case)
        if len(set(case.verdicts.values())) > 1:
            complaints.append(f"disagree: {case}")
        careless = {name: ask(case, careful=False) for name, ask in CONSUMERS.items() if not quick or number % 5 == 0}
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
    assert len(cases) >= 2000 and min(counts[word] for word in ("right", "wrong", "unknown")) > 20, counts


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 9))
def test_all_give_one_verdict_on_other_numbers(seed):
    cases, complaints = check(corpus.list_calls(seed))
    assert not complaints, f"{len(complaints)} of {len(cases)}:\n" + "\n".join(complaints[:40])
