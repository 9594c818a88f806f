"""The life of a tool: start, stop, end, with, step; what it says; exceptions, forks, threads, compiled code, exit."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sys
import threading

import ditorch  # noqa: F401
import op_tools
import pytest
import torch
from ditorch import _C, export
from op_tools import OpObserve, compile_stance, console, results, tool
from torch import nn


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith("OP_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    console._said.clear()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()  # code that other tests compiled is told of
    yield
    for active in tool.active_tools():
        active.stop()
    results.close_log()


@pytest.fixture
def x():
    return torch.ones(3, device="cuda")


def applied(observe):
    return observe.counts()["applied"]


# Start and stop


def test_start_stop_end_and_with_on_one_object(x):
    observe = OpObserve()
    assert observe.start() is observe and observe.is_active
    x + 1
    observe.stop()
    x + 1
    assert applied(observe) == 1 and not observe.is_active
    with observe as same:
        assert same is observe
        x + 1
        x + 1
    assert applied(observe) == 2


def test_i19_end_is_stop(x):
    observe = OpObserve()
    observe.start()
    x + 1
    observe.end()
    x + 1
    assert applied(observe) == 1 and not observe.is_active


def test_i18_double_start_and_double_stop_are_harmless(x):
    observe = OpObserve()
    observe.stop()
    observe.start()
    observe.start()
    x + 1
    assert applied(observe) == 1
    observe.stop()
    x + 1
    observe.stop()
    assert applied(observe) == 1 and not tool.active_tools()


def test_i18_any_order_of_stops(x):
    first, second, third = OpObserve(), OpObserve(), OpObserve()
    for observe in (first, second, third):
        observe.start()
    x + 1
    first.stop()
    x + 1
    third.stop()
    x + 1
    assert tool.active_tools() == [second]
    second.stop()
    x + 1
    assert [applied(observe) for observe in (first, second, third)] == [1, 3, 2]


def test_i18_exception_between_start_and_stop(x):
    observe = OpObserve()
    with pytest.raises(ZeroDivisionError), observe:
        x + 1
        raise ZeroDivisionError
    x + 1
    assert applied(observe) == 1 and not observe.is_active
    with observe:
        x + 1
    assert applied(observe) == 1


def test_nested_blocks_of_one_tool(x):
    observe = OpObserve()
    with observe:
        with observe:
            x + 1
        x + 1
        assert observe.is_active
    assert applied(observe) == 2 and not observe.is_active
    observe.start()
    with observe:
        pass
    assert observe.is_active  # start() had it on before


def test_other_modes_stay_as_they_are(x):
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Mode.calls += 1
            return func(*args, **(kwargs or {}))

    observe = OpObserve()
    with Mode():
        observe.start()
        with Mode():
            x + 1
            observe.stop()
            calls = Mode.calls
            x + 1
            assert Mode.calls == calls + 2
    assert applied(observe) == 1
    with torch.device("cuda"), observe:
        assert torch.ones(2).device.type == "cuda"


def test_failing_start_leaves_nothing(x, monkeypatch):
    from torch.nn.modules import module

    class Failing(OpObserve):
        def console_options(self, options):
            raise RuntimeError("in the middle")

    hooks = len(module._global_forward_pre_hooks)
    observe = Failing(console="full", module_paths=True)
    with pytest.raises(RuntimeError, match="in the middle"):
        observe.start()
    assert not observe.is_active and not tool.active_tools()
    assert len(module._global_forward_pre_hooks) == hooks and compile_stance._users == 0
    x + 1
    with pytest.raises(RuntimeError, match="in the middle"), observe:
        pass
    assert observe._entered == []


def test_trap_stop_on_the_error_path_does_not_hide_the_error(x, capsys):
    class Failing(OpObserve):
        def stopped(self):
            raise OSError("the disk is gone")

    with pytest.raises(ZeroDivisionError), Failing():
        raise ZeroDivisionError
    assert "Failing: stop() failed: the disk is gone" in capsys.readouterr().err
    with pytest.raises(OSError, match="the disk is gone"), Failing():
        x + 1
    assert not tool.active_tools()


def test_failing_operator_reaches_the_program(x):
    with OpObserve() as observe:
        with pytest.raises(RuntimeError, match="size"):
            x + torch.ones(4, device="cuda")
        x + 1
    calls = list(observe.calls())
    assert [("error" in call) for call in calls if call["name"] == "torch.Tensor.add"] == [True, False]


# Steps


def test_step_counts_an_iteration_once_for_several_tools(x):
    start = _C.engine_get_step()
    first, second = OpObserve(), OpObserve()
    with first, second:
        for _ in range(3):
            x + 1
            first.step()
            second.step()
        assert _C.engine_get_step() == start + 3
        assert op_tools.step() == start + 4
        first.step()
        second.step()
        assert _C.engine_get_step() == start + 5
    first.step()
    assert _C.engine_get_step() == start + 5
    assert sorted({call["step"] - start for call in second.calls()}) == [0, 1, 2]


# What is said and written


def test_summary_and_configuration_on_the_console(x, capsys):
    cpu = torch.ones(2)
    with OpObserve(exclude="*.mul"):
        x + 1
        x * 2
        cpu + 1
    log = os.path.relpath(_C.log_path())
    assert capsys.readouterr().err.splitlines() == [
        f"OpObserve: on, exclude=*.mul; log {log}",
        "OpObserve: 3 calls seen, 1 observed; 1 on the CPU; 1 not on the lists",
    ]
    with OpObserve(exclude="*.mul"):
        x + 1
    assert capsys.readouterr().err == "OpObserve: 1 call seen, 1 observed\n"  # the configuration only once


def test_console_off_says_nothing(x, capfd):
    with OpObserve(console="off", steps="9999-"):
        x + 1
    assert capfd.readouterr() == ("", "")


def test_configuration_and_summary_are_in_the_log(x):
    with OpObserve(first=3) as observe:
        x + 1
    observe.flush()
    events = [(r["event"], r["text"]) for r in export.read(_C.log_path()) if r["type"] == "tool"]
    assert events == [("start", "first=3"), ("summary", "OpObserve: 1 call seen, 1 observed"), ("stop", "")]


def test_the_line_about_nothing_has_no_holes(x, capfd):
    """A tool with a choice of its own, and no list set."""
    with op_tools.OpDtypeCast():
        x.view(-1)
        x.reshape(-1)
    line = next(line for line in capfd.readouterr().err.splitlines() if "nothing was" in line)
    parts = [part.strip() for part in line.partition(". ")[2].split(";")]
    assert all(parts) and not line.rstrip().endswith(":")
    assert "names that came: torch.Tensor.reshape, torch.Tensor.view" in parts[-1]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"list": ""}, ["the list is empty (option 'list')"]),
        ({"include": "*.ad"}, ["1 not on the lists", "include is '*.ad'", "names that came: torch.Tensor.add"]),
        ({"steps": "99999-"}, ["No selected step came: steps=99999-"]),
        ({"ranks": "3"}, ["This is rank 0; option 'ranks' selects 3"]),
        ({"numel_min": 100}, ["1 outside the limits of numel", "option 'numel_min' is 100"]),
        ({"modules": "GPT.*"}, ["1 from other modules", "option 'modules' is GPT.*"]),
        ({"condition_func": lambda *a, **k: False}, ["1 refused by condition_func"]),
    ],
)
def test_why_is_my_output_empty(options, parts, x, capsys):
    with OpObserve(**options):
        x + 1
    said = capsys.readouterr().err
    assert "nothing was observed" in said
    for part in parts:
        assert part in said


def test_why_is_my_output_empty_on_the_cpu_and_without_calls(capsys):
    with OpObserve():
        torch.ones(2) + 1
    assert "cpu=1 takes in calls that touch only the CPU" in capsys.readouterr().err
    with OpObserve():
        pass
    assert "No operator was called between start() and stop()" in capsys.readouterr().err


def test_log_is_opened_at_the_first_start_only(x):
    observe = OpObserve(log=False)
    with observe:
        x + 1
    assert not os.path.exists("op_tools_results/log") and applied(observe) == 1
    with OpObserve():
        x + 1
    names = os.listdir("op_tools_results/log")
    assert names == [f"ops-r0-p{os.getpid()}.dlog"]
    with OpObserve():
        x + 1
    assert os.listdir("op_tools_results/log") == names


@pytest.mark.parametrize("log", [0, 1])
def test_unwritable_results_are_refused_at_start(log, x, tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below", "/proc/nothing"):
        observe = OpObserve(results=name, log=log)
        with pytest.raises(OSError, match=r"OpObserve: the results directory .* cannot be written.*OP_TOOLS_RESULTS"):
            observe.start()
        assert not observe.is_active
    x + 1


def test_results_directory_does_not_follow_chdir(x, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    with OpObserve() as observe:
        monkeypatch.chdir(tmp_path / "elsewhere")
        x + 1
    assert len(list(observe.calls())) == 1
    assert os.listdir(tmp_path / "elsewhere") == []
    with OpObserve():  # a new start: the log of the new directory, because no other tool writes to the old one
        x + 1
    assert os.listdir(tmp_path / "elsewhere" / "op_tools_results" / "log")


def test_records_are_those_since_the_last_start(x):
    observe, other = OpObserve(list="torch.Tensor.add"), OpObserve(list="torch.Tensor.mul")
    with observe:
        x + 1
    with observe:
        x + 1
        x + 2
        assert [call["args.1"] for call in observe.calls()] == [1, 2]
    with other:
        x * 3
    assert [call["args.1"] for call in other.calls()] == [3]
    assert {record["type"] for record in observe.records("call")} == {"call"}


def test_trap_log_of_an_earlier_process_with_this_pid(x):
    """Process numbers come again: an old file is neither overwritten nor read."""
    os.makedirs("op_tools_results/log")
    old = f"op_tools_results/log/ops-r0-p{os.getpid()}.dlog"
    with open(old, "wb") as file:
        file.write(b"of another run")
    with OpObserve() as observe:
        x + 1
    assert len(list(observe.calls())) == 1
    with open(old, "rb") as file:
        assert file.read() == b"of another run"


# Views of OpObserve


def run_view(capsys, view, **options):
    x = torch.ones(3, 4, device="cuda")
    with OpObserve(view=view, console="off", **options):
        torch.cat([x, x], dim=1)
        x.t().sum(dim=(0, 1), keepdim=True)
        torch.sort(x)
        torch.add(x, float("nan"))
    return capsys.readouterr().out


def test_view_text(capsys):
    lines = [re.sub(r"^\d+ |  at .*", "", line) for line in run_view(capsys, "text").splitlines()]
    assert lines == [
        "torch.cat([float32[3,4], float32[3,4]], dim=1) -> float32[3,8]",
        "torch.Tensor.t(float32[3,4]) -> float32[4,3] strides [1,4]",
        "torch.Tensor.sum(float32[4,3] strides [1,4], dim=[0, 1], keepdim=True) -> float32[1,1]",
        "torch.sort(float32[3,4]) -> (float32[3,4], int64[3,4])",
        "torch.add(float32[3,4], nan) -> float32[3,4]",
    ]


def test_view_table(capsys):
    lines = run_view(capsys, "table", view_rows=2).splitlines()
    assert lines[0].split() == ["id", "step", "operator", "arguments", "result", "us", "place"]
    assert len(lines) == 4 and "[float32[3,4], float32[3,4]], dim=1" in lines[2]
    assert re.search(r"test_op_tool_base\.py:\d+$", lines[2])


def test_view_jsonl_is_strict(capsys):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    rows = [json.loads(line, parse_constant=refuse) for line in run_view(capsys, "jsonl").splitlines()]
    assert [row["name"] for row in rows][-1] == "torch.add" and rows[-1]["args.1"] == "NaN"
    assert rows[0]["args.0.0"]["shape"] == [3, 4]


def test_full_console_prints_every_call(x, capsys):
    with OpObserve(console="full"):
        x.lgamma()  # the line comes once per process: an operator that no other test here uses
    captured = capsys.readouterr()
    assert "apply OpObserveHook on torch.Tensor.lgamma\n" in captured.out
    assert "torch.Tensor.lgamma inputs" in captured.out and captured.err == ""


def test_full_console_prints_the_stack_on_request(x, capsys, monkeypatch):
    def count_frames():
        return capsys.readouterr().out.count("_pytest/")

    with OpObserve(console="full", print_stack=1):
        x + 1
        assert count_frames() > 5
    with OpObserve(console="full"):
        x + 1
        assert count_frames() == 0
        monkeypatch.setenv("OP_TOOLS_PRINT_STACK", "1")
        x + 1
        assert count_frames() > 5


def test_old_name_of_the_class():
    assert op_tools.OpDispatchWatcher is OpObserve
    with pytest.raises(AttributeError, match="OpObserve"):
        _ = op_tools.OpObserv


def test_nothing_grows(x, monkeypatch):
    """Starts and stops, module paths and changes of the environment leave no objects behind."""
    net = nn.Linear(3, 3).cuda()
    monkeypatch.setenv("OP_OBSERVE_EXCLUDE", "")  # and back at the end

    def run(count):
        for i in range(count):
            with OpObserve(console="off", module_paths=i % 2, first=i % 3, list="torch.*,.*"):
                os.environ["OP_OBSERVE_EXCLUDE"] = f"*.mul{i % 5}"
                net(x)
        gc.collect()
        return len(gc.get_objects())

    run(30)
    before = run(30)
    assert run(100) - before < 10


# Threads, processes, compiled code


def test_threads_only_on_request():
    def work():
        torch.ones(2, device="cuda") + 1

    for threads, expected in (("current", 0), ("all", 2)):
        with OpObserve(threads=threads) as observe:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert applied(observe) == expected


def test_forked_child_is_off_unless_asked(python, tmp_path):
    answer = python(
        """
        import os, sys, torch, ditorch
        from op_tools import OpObserve, tool
        from ditorch import _C, export

        def child(function):
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                function()
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(pid, 0)

        def work():
            torch.ones(2) + 1
            print("child", t.is_active, len(tool.active_tools()))

        def explicit():
            with OpObserve(cpu=True) as own:
                torch.ones(2) + 1
            print("explicit", own.counts()["applied"], len(list(own.calls())))

        def asked():
            torch.ones(2) + 1
            t.stop()
            print("asked", t.counts()["applied"], len(list(t.calls())))

        with OpObserve(cpu=True) as t:
            child(work)
            child(explicit)
            torch.ones(2) + 1
        print("parent", t.counts()["applied"], len(list(t.calls())))
        with OpObserve(cpu=True, fork=True) as t:
            child(asked)
        print("parent", t.counts()["applied"])
        """,
        cwd=tmp_path,
    )
    assert answer.stdout.splitlines() == ["child False 0", "explicit 2 2", "parent 2 2", "asked 2 2", "parent 0"]


def test_workers_of_a_data_loader(python, tmp_path):
    """Off by default; with fork=1 every worker writes its own log, which is whole although they end without atexit."""
    program = """
        import glob, sys, torch, ditorch
        from op_tools import OpObserve
        from ditorch import export

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, index):
                return torch.ones(2) * index

        with OpObserve(cpu=True, fork=int(sys.argv[1]), list="torch.Tensor.mul", console="off"):
            total = sum(batch.sum() for batch in torch.utils.data.DataLoader(Data(), num_workers=2))
        files = glob.glob("op_tools_results/log/*.dlog")
        calls = list(export.read(files, ["call"]))
        events = [record["event"] for record in export.read(files, ["tool"])]
        print(int(total), len(files), len(calls), len({call["pid"] for call in calls}), events.count("stop"))
        """
    path = tmp_path / "loader.py"
    path.write_text("import textwrap\nexec(textwrap.dedent('''" + program + "'''))\n")
    for fork, expected in (("0", "12 1 0 0 1"), ("1", "12 3 4 2 3")):
        folder = tmp_path / fork
        folder.mkdir()
        assert python(str(path), fork, cwd=folder).stdout.strip() == expected


def test_a_tool_that_starts_in_compiled_code(x):
    """The code around it runs eagerly then; the tool sees what it encloses, and works afterwards."""

    @torch.compile(backend="eager")
    def function(value):
        with OpObserve(console="off") as observe:
            result = value * 2
        return result, applied(observe)

    result, seen = function(x)
    assert torch.equal(result, x * 2) and seen == 1
    with OpObserve(console="off") as observe:
        x + 1
    assert applied(observe) == 1


def test_trap_mode_during_compile(x, capsys):
    """Compiled code runs eagerly while a tool is on, nothing is compiled then, and compiled code is untouched later."""
    from torch._dynamo import eval_frame

    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def function(value):
        return (value * 2).relu()

    torch.compiler.set_stance("eager_on_recompile")
    before = eval_frame._stance
    try:
        with OpObserve() as observe, OpObserve():
            function(x)
            assert eval_frame._stance.stance == "force_eager" and graphs == []
        assert applied(observe) == 2
        assert eval_frame._stance is before
    finally:
        torch.compiler.set_stance("default")
    function(x)
    assert len(graphs) == 1
    with OpObserve() as observe:
        function(x)
    assert applied(observe) == 2 and len(graphs) == 1
    function(x)
    assert len(graphs) == 1  # the compiled code of before still fits
    assert capsys.readouterr().err.count("code under torch.compile runs eagerly") == 1


def test_stance_set_by_the_program_stays(x):
    from torch._dynamo import eval_frame

    try:
        with OpObserve():
            torch.compiler.set_stance("eager_on_recompile")
        assert eval_frame._stance.stance == "eager_on_recompile"
        with OpObserve(compile="leave"):
            assert eval_frame._stance.stance == "eager_on_recompile"
    finally:
        torch.compiler.set_stance("default")


def test_compiler_loaded_while_a_tool_is_on(tmp_path, monkeypatch):
    """A stand-in for dynamo: the stance is set after its import, and nothing is left of the finder."""
    for name in ("late_a", "late_b"):
        (tmp_path / f"{name}.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    set_with = []
    monkeypatch.setattr(compile_stance, "_set", lambda: set_with.append(sys.modules["late_a"].loaded))
    monkeypatch.setattr(compile_stance, "_DYNAMO", "late_a")
    before = list(sys.meta_path)
    with OpObserve(), OpObserve():
        import late_a  # noqa: F401

        assert set_with == [True] and sys.meta_path == before
    monkeypatch.setattr(compile_stance, "_DYNAMO", "late_b")
    with OpObserve():
        assert sys.meta_path != before
    import late_b  # noqa: F401

    assert set_with == [True] and sys.meta_path == before


def test_exit_stops_what_is_on(python, tmp_path):
    """An uncaught exception ends the program with its own status; tools are stopped and the log is whole."""
    answer = python(
        """
        import torch, ditorch
        from op_tools import OpObserve
        first = OpObserve(cpu=True, include="*.add").start()
        second = OpObserve(cpu=True).start()
        torch.ones(2) + 1
        raise KeyError("mine")
        """,
        check=False,
        cwd=tmp_path,
    )
    assert answer.returncode == 1 and "KeyError: 'mine'" in answer.stderr
    summaries = [line for line in answer.stderr.splitlines() if "calls seen" in line]
    assert summaries == [
        "OpObserve: 2 calls seen, 1 observed; 1 not on the lists",
        "OpObserve: 2 calls seen, 2 observed",
    ]
    records = list(export.read(tmp_path / "op_tools_results"))
    assert [r["type"] for r in records].count("call") == 3
    assert [r["event"] for r in records if r["type"] == "tool"].count("stop") == 2


def test_interrupt_stops_the_tool(x):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs of a shell
    observe = OpObserve()
    try:
        with pytest.raises(KeyboardInterrupt), observe:
            signal.raise_signal(signal.SIGINT)
            while True:
                x + 1
    finally:
        signal.signal(signal.SIGINT, before)
    assert not observe.is_active and (x + 1).sum().item() == 6


def test_training_goes_on_unchanged():
    """The same losses, bit for bit, with and without the tool and its module hooks."""

    def train(observe):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        data = torch.randn(32, 8, device="cuda")
        losses = []
        for _ in range(5):
            loss = net(data).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            observe.step()
        return losses

    plain = train(OpObserve())
    with OpObserve(module_paths=True, every=2) as observe:
        assert train(observe) == plain
    assert applied(observe) > 0
