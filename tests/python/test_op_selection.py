"""Selection of calls: name lists, patterns, ranges, limits, conditions, module paths."""

from __future__ import annotations

import gc
import os
import random
import threading

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import settings
from op_tools import OpObserve, console, modules, results, selection, tool
from op_tools.selection import NameList, OperatorPatterns, PatternList, Ranges, Selection, split
from torch import nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("OP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OP_TOOLS_RESULTS", str(tmp_path / "results"))
    console._said.clear()
    yield
    for active in tool.active_tools():
        active.stop()
    results.close_log()


def on_list(name, text):
    return NameList(text, "the list").match(name)


# Lists


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("torch.add", "torch.add", True),
        ("torch.add", "torch.addmm", False),
        ("torch.addmm", "torch.add", False),
        ("torch.sub", ".*", True),
        ("torch.sub", "torch.add,.*", True),
        ("torch.add", "", False),
        ("torch.add", " , ,", False),
        ("torch_mlu.fused_l2_norm", "torch_mlu.*", True),
        ("torch.add", "add", True),  # here the word is every function of that name; the original says no
        ("torch.add", "ad", False),
        ("torch.add", ".*add", True),
        ("npu.npu_fusion_attention", "npu.npu_fusion_attention", True),
    ],
)
def test_list_matches_as_the_original(name, text, expected):
    assert on_list(name, text) is expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("torch.sub", "torch.add, torch.sub", True),  # blanks
        ("torch.addmm", "torch.add|torch.addmm", True),  # alternation
        ("torch.add", "(torch).(add)", True),  # groups
        ("torch.add", "(torch.add)", True),
        ("torchxadd", "torch.add", False),  # an exact name is no expression
        ("torch.aa", "torch.a{1,2}", True),  # commas inside brackets
        ("torch.a,", "torch.a[b,c]", True),
        ("torch.ab", "torch.(?:ab,|ab)", True),
        ("a,b", r"a\,b", True),
        ("x]", "[]],y", False),
        ("]", "[]],y", True),
        ("y", "[]],y", True),
        ("torch.addx", "torch.add", False),
    ],
)
def test_i14_full_match(name, text, expected):
    assert on_list(name, text) is expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("torch.add, a[b", ["'a[b'", "character 12", "unterminated character set at position 1"]),
        ("(", ["'('", "character 1 ", "position 0"]),
        ("x,*y", ["'*y'", "nothing to repeat at position 0"]),
        ("a{2,1}", ["min repeat greater than max repeat"]),
        ("torch.nn.functional.linera", ["torch.nn.functional.linera", "torch.nn.functional.linear"]),
        ("torch.float32", ["has no function 'torch.float32'"]),
        ("aten::adm", ["has no operator 'aten::adm'", "aten::add"]),
    ],
)
def test_i14_bad_entry_is_refused(text, parts):
    with pytest.raises(ValueError) as caught:
        NameList(text, "environment variable OP_OBSERVE_LIST")
    assert str(caught.value).startswith("environment variable OP_OBSERVE_LIST: ")
    for part in parts:
        assert part in str(caught.value)


def test_name_of_the_same_function_counts():
    """torch.norm is seen as torch.functional.norm; users write the former."""
    assert on_list("torch.functional.norm", "torch.norm")
    assert on_list("torch.norm", "torch.norm")
    x = torch.ones(3, device="cuda")
    with OpObserve(list="torch.norm") as observe:
        torch.norm(x)
    assert observe.counts()["applied"] == 1


def test_all_names_of_torch_are_accepted():
    names = selection.known_names()
    assert len(names) > 1000
    lists = NameList(",".join(names), "x")
    assert all(map(lists.match, names))


def test_split_keeps_what_brackets_hold():
    seed = random.randrange(2**32)
    print("seed", seed)
    generator = random.Random(seed)
    pieces = ["torch.add", "a{1,2}", "[x,y]", "(a,b)", r"\,", "[^],]", "(a[(,]b)", "x.*"]
    for _ in range(300):
        entries = [
            "".join(generator.choices(pieces, k=generator.randint(1, 3))) for _ in range(generator.randint(0, 5))
        ]
        blanks = [" " * generator.randint(0, 2) for _ in range(2 * len(entries))]
        text = ",".join(blanks[2 * i] + entry + blanks[2 * i + 1] for i, entry in enumerate(entries))
        found = list(split(text))
        assert [entry for _, entry in found] == entries
        assert all(text[position : position + len(entry)] == entry for position, entry in found)


# Patterns and ranges


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("*.add", "torch.add", True),
        ("add", "torch.add", False),
        ("torch.[am]*", "torch.mul", True),
        ("torch.[am]*", "torch.sub", False),
        ("re:torch\\.(add|mul)", "torch.mul", True),
        ("re:torch\\.(add|mul)", "torch.mul_", False),
        ("re:t{1,2}, *.mul", "torch.mul", True),
        ("*.ADD", "torch.add", False),
    ],
)
def test_patterns(text, name, expected):
    assert PatternList(text, "include").match(name) is expected


def test_a_name_without_wildcards_is_one_that_people_know():
    include = OperatorPatterns("softmax, torch.*.gelu, F.relu", "include")
    names = ["torch.nn.functional.softmax", "torch.softmax", "torch.nn.functional.gelu", "torch.nn.functional.relu"]
    assert all(map(include.match, names)) and not include.match("torch.log_softmax")
    with pytest.raises(ValueError, match="the nearest are"):
        OperatorPatterns("torch.sofmax", "include")


def test_include_comes_before_exclude_and_lists_count_too():
    options = settings.resolve_tool(
        "observe",
        {"include": "torch.*", "exclude": "*.mul,*.sub", "list": "torch.*,x.*", "disable_list": "torch.div"},
    )
    chosen = Selection(options)
    assert [name for name in ("torch.add", "torch.mul", "torch.sub", "torch.div", "x.y") if chosen.match(name)] == [
        "torch.add"
    ]
    assert chosen.rejected == {"torch.mul", "torch.sub", "torch.div", "x.y"}


def test_disable_list_beats_list():
    options = settings.resolve_tool("observe", {"list": "torch.add", "disable_list": "torch.add"})
    assert not Selection(options).match("torch.add")


def test_ranges():
    ranges = Ranges("4-6, 9,20-")
    assert [number for number in range(25) if number in ranges] == [4, 5, 6, 9, 20, 21, 22, 23, 24]
    assert 0 in Ranges("") and 10**12 in Ranges("")


def test_due_by_step_every_and_rank(monkeypatch):
    chosen = Selection(settings.resolve_tool("observe", {"steps": "2-9", "every": 3, "ranks": "1-2"}))
    monkeypatch.setenv("RANK", "2")
    assert [step for step in range(12) if chosen.is_due(step)] == [3, 6, 9]
    monkeypatch.setenv("RANK", "3")
    assert not any(map(chosen.is_due, range(12)))


# With the engine


def run_steps(observe, count=6):
    x = torch.ones(3, device="cuda")
    with observe:
        for _ in range(count):
            x + 1
            observe.step()
    return [record["step"] for record in observe.calls()]


def test_steps_select_calls():
    first = run_steps(OpObserve(steps="1000000-"))
    assert first == []
    from ditorch import _C

    base = _C.engine_get_step()
    assert run_steps(OpObserve(steps=f"{base + 1}-{base + 2},{base + 4}")) == [base + 1, base + 2, base + 4]


def test_first_calls_of_each_signature():
    x, y = torch.ones(3, device="cuda"), torch.ones(4, device="cuda")
    with OpObserve(first=2) as observe:
        for _ in range(5):
            x + 1
            y + 1
            x * 2
    assert observe.counts()["applied"] == 6
    assert observe.counts()["first"] == 9


def test_numel_limits():
    tensors = [torch.ones(n, device="cuda") for n in (1, 10, 100)]
    with OpObserve(numel_min=5, numel_max=50) as observe:
        for tensor in tensors:
            tensor + 1
    assert [record["args.0"]["shape"] for record in observe.calls()] == [[10]]
    assert observe.counts()["numel"] == 2


def test_condition_func_gets_the_arguments_and_may_refuse():
    seen = []
    x = torch.ones(3, device="cuda")

    def condition(*args, **kwargs):
        seen.append((len(args), dict(kwargs)))
        return kwargs.get("alpha") == 2

    with OpObserve(condition_func=condition, list="torch.add") as observe:
        torch.add(x, x)
        torch.add(x, x, alpha=2)
    assert seen == [(2, {}), (2, {"alpha": 2})]
    assert observe.counts()["applied"] == 1 and observe.counts()["condition"] == 1


def test_condition_func_exception_is_the_users_own():
    class Mine(Exception):
        pass

    failure = Mine("as it is")

    def condition(*args, **kwargs):
        raise failure

    x = torch.ones(3, device="cuda")
    observe = OpObserve(condition_func=condition)
    with pytest.raises(Mine) as caught, observe:
        x + 1
    assert caught.value is failure and not observe.is_active
    assert (x + 1).sum().item() == 6


def test_condition_func_must_be_callable():
    with pytest.raises(TypeError, match="condition_func is 3"):
        OpObserve(condition_func=3).start()


# Module paths


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.attn = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.attn(self.norm(x))


class Net(nn.Module):
    def __init__(self, recompute=False):
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])
        self.recompute = recompute

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return x.sum()


def get_paths(observe):
    return [(record["name"].rpartition(".")[2], record.get("module")) for record in observe.calls()]


def test_module_paths_are_recorded():
    net, x = Net().cuda(), torch.ones(2, 4, device="cuda")
    with OpObserve(module_paths=True) as observe:
        x * 1
        net(x)
    assert get_paths(observe) == [
        ("mul", None),
        ("layer_norm", "Net.layers.0.norm"),
        ("linear", "Net.layers.0.attn"),
        ("add", "Net.layers.0"),
        ("layer_norm", "Net.layers.1.norm"),
        ("linear", "Net.layers.1.attn"),
        ("add", "Net.layers.1"),
        ("sum", "Net"),
    ]


def test_modules_select_calls():
    net, x = Net().cuda(), torch.ones(2, 4, device="cuda")
    with OpObserve(modules="Net.layers.0*,re:.*\\.attn") as observe:
        x * 1
        net(x)
    assert get_paths(observe) == [
        ("layer_norm", "Net.layers.0.norm"),
        ("linear", "Net.layers.0.attn"),
        ("add", "Net.layers.0"),
        ("linear", "Net.layers.1.attn"),
    ]


def test_hooks_exist_only_while_a_tool_wants_them():
    from torch.nn.modules import module

    before = len(module._global_forward_pre_hooks), len(module._global_forward_hooks)
    with OpObserve():
        assert (len(module._global_forward_pre_hooks), len(module._global_forward_hooks)) == before
        with OpObserve(module_paths=True), OpObserve(modules="x"):
            assert len(module._global_forward_pre_hooks) == before[0] + 1
        assert (len(module._global_forward_pre_hooks), len(module._global_forward_hooks)) == before


def test_trap_recompute_keeps_the_module_path():
    net, x = Net(recompute=True).cuda(), torch.ones(2, 4, device="cuda", requires_grad=True)
    with OpObserve(module_paths=True, list=".*linear") as observe:
        net(x).backward()
    paths = [path for _, path in get_paths(observe)]
    assert paths[:2] == ["Net.layers.0.attn", "Net.layers.1.attn"]
    assert set(paths[2:]) <= set(paths[:2])


def test_module_stack_survives_exceptions():
    class Failing(nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    x = torch.ones(2, 4, device="cuda")
    inner = nn.Linear(4, 4).cuda()
    outer = nn.Sequential(inner, Failing()).cuda()
    with OpObserve(module_paths=True) as observe:
        with pytest.raises(KeyError):
            outer(x)
        x * 1
        inner(x)
    assert get_paths(observe) == [("linear", "Sequential.0"), ("mul", None), ("linear", "Sequential.0")]


def test_module_paths_per_thread():
    nets = [nn.Sequential(nn.Linear(4, 4)).cuda(), Block().cuda()]
    x = torch.ones(2, 4, device="cuda")
    with OpObserve(module_paths=True, threads="all", list=".*linear") as observe:
        threads = [threading.Thread(target=lambda net=net: [net(x) for _ in range(20)]) for net in nets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [path for _, path in get_paths(observe)]
    assert sorted(set(found)) == ["Block.attn", "Sequential.0"] and len(found) == 40


def test_tool_switched_inside_a_forward():
    observe = OpObserve(module_paths=True)

    class Switch(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            x = self.a(x)
            observe.stop() if observe.is_active else observe.start()
            return self.b(x)

    net, x = Switch().cuda(), torch.ones(2, 4, device="cuda")
    net(x)  # starts inside
    assert observe.is_active
    x * 1
    assert get_paths(observe)[-2:] == [("linear", "Linear"), ("mul", None)]
    net(x)  # stops inside
    with observe:
        x * 1
        net.b(x)
    assert get_paths(observe)[0] == ("mul", None)


def test_modules_are_not_kept_alive():
    net, x = Net().cuda(), torch.ones(2, 4, device="cuda")
    with OpObserve(module_paths=True):
        net(x)
        identities = {id(module) for module in net.modules()}
        assert identities <= set(modules._paths)
        del net
        gc.collect()
        assert not identities & set(modules._paths)


def test_names_that_change_while_on():
    """A module that is wrapped, or gets a new child, has the path of the outermost module of the call."""
    x = torch.ones(2, 4, device="cuda")
    inner = nn.Linear(4, 4).cuda()
    with OpObserve(module_paths=True) as observe:
        inner(x)
        outer = nn.Sequential(inner)
        outer(x)
        outer.add_module("late", nn.Linear(4, 4).cuda())
        outer(x)
    names = [path for name, path in get_paths(observe) if name == "linear"]
    assert names == ["Linear", "Sequential.0", "Sequential.0", "Sequential.late"]


def test_bad_module_pattern_is_refused(monkeypatch):
    monkeypatch.setenv("OP_TOOLS_MODULES", "re:(")
    with pytest.raises(ValueError, match="environment variable OP_TOOLS_MODULES: 're:\\('"):
        OpObserve().start()
