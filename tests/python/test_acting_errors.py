"""Bad input to the tools that act: each is one clear error that names variable (or path) and value, the program's own
result is intact, and what was already written stays."""

import json
import os
import shutil
import zlib

import ditorch
import pytest
import torch
import torch.nn.functional as F
from conftest import run_python
from op_tools import (
    OpAutoCompare,
    OpCapture,
    OpDtypeCast,
    OpFallback,
    apply_feature,
    list_features,
    remove_feature,
    run_op_from_data,
)
from op_tools.op_runner import OpRunner

TOOLS = [OpAutoCompare, OpFallback, OpDtypeCast]


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("OP_") or "AUTOCOMPARE" in name]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "off")
    yield tmp_path
    remove_feature()
    ditorch.fault("")


def step():
    """A small training step; its result."""
    torch.manual_seed(1)
    weight = torch.randn(4, 4).cuda().requires_grad_()  # drawn on the CPU: a fallback has other numbers than the device
    loss = F.gelu(torch.randn(3, 4).cuda() @ weight).square().mean()
    loss.backward()
    return loss.item(), weight.grad.tolist()


# Options


@pytest.mark.parametrize(
    "variable,text",
    [
        ("AUTOCOMPARE_ERROR_TOLERANCE", "a,b"),
        ("AUTOCOMPARE_ERROR_TOLERANCE", "1e-3"),
        ("AUTOCOMPARE_ERROR_TOLERANCE", "1e-3,1e-3,1e-3"),
        ("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT16", "-1,1e-3"),
        ("AUTOCOMPARE_ERROR_TOLERANCE_BFLOAT16", "nan,1e-3"),
        ("LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "1e-3;1e-3"),
        ("OP_DTYPE_CAST_DICT", "torch.float16-torch.float32"),
        ("OP_DTYPE_CAST_DICT", "torch.float16->torch.flaot32"),
        ("OP_DTYPE_CAST_DICT", "torch.float16->"),
        ("LINEAR_OP_DTYPE_CAST_DICT", "torch.float17->torch.float32"),
        ("OP_AUTOCOMPARE_VERDICT", "strict"),
        ("OP_AUTOCOMPARE_ROWS", "some"),
        ("OP_AUTOCOMPARE_SHARE", "101"),
        ("OP_AUTOCOMPARE_MAX_BYTES", "many"),
        ("OP_AUTOCOMPARE_SAVE", "maybe"),
        ("OP_AUTOCOMPARE_LIST", "torch.(add"),
        ("OP_AUTOCOMPARE_LEVEL", "deep"),
    ],
)
def test_a_bad_variable_is_refused_at_start_and_named(variable, text, monkeypatch):
    wanted = step()
    monkeypatch.setenv(variable, text)
    tool = OpAutoCompare()
    with pytest.raises(ValueError) as caught:
        tool.start()
    assert variable in str(caught.value) and text in str(caught.value), caught.value
    assert not tool.is_active and torch._C._len_torch_function_stack() == 0 and step() == wanted


@pytest.mark.parametrize("tool", [OpFallback, OpDtypeCast])
def test_bad_variables_of_other_tools(tool, monkeypatch):
    name = {OpFallback: "OP_FALLBACK_LEVEL", OpDtypeCast: "OP_DTYPE_CAST_DICT"}[tool]
    monkeypatch.setenv(name, "torch.half->torch.double!")
    with pytest.raises(ValueError, match=name) as caught:
        tool().start()
    assert "torch.half->torch.double!" in str(caught.value)


@pytest.mark.parametrize("tool", TOOLS)
def test_an_unknown_option_lists_the_valid_ones(tool):
    with pytest.raises((TypeError, ValueError)) as caught, tool(lisst="torch.add"):
        pass
    assert "lisst" in str(caught.value) and "disable_list" in str(caught.value), caught.value


@pytest.mark.parametrize(
    "tool,options,part",
    [
        (OpAutoCompare, {"error_tolerance": "x"}, "error_tolerance"),
        (OpAutoCompare, {"verdict": 3}, "verdict"),
        (OpAutoCompare, {"share": -1}, "share"),
        (OpDtypeCast, {"dtype_cast_dict": {torch.half: "float99"}}, "float99"),
        (OpFallback, {"level": "both"}, "both"),
    ],
)
def test_a_bad_keyword_is_refused_and_named(tool, options, part):
    with pytest.raises((TypeError, ValueError), match=part):
        tool(**options).start()


def test_a_bad_change_while_running_keeps_the_old_value_and_the_program(monkeypatch, capsys):
    wanted = step()
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "short")
    with OpAutoCompare() as tool:
        assert step() == wanted
        os.environ["AUTOCOMPARE_ERROR_TOLERANCE"] = "very,little"
        try:
            assert step() == wanted
        finally:
            del os.environ["AUTOCOMPARE_ERROR_TOLERANCE"]
        assert step() == wanted
    said = "".join(capsys.readouterr())
    assert "AUTOCOMPARE_ERROR_TOLERANCE" in said and "very,little" in said
    assert tool.ok and tool.describe()["forward"]["compared"] >= 12


# apply_feature


@pytest.mark.parametrize("ops", ["torch.ad", ["torch.add", "torch.nn.functional.liner"], "torch.Tensor.ad"])
def test_an_unknown_operator_is_named_and_nothing_is_hooked(ops):
    add = torch.add
    with pytest.raises(AttributeError) as caught:
        apply_feature(ops, "fallback")
    last = (ops if isinstance(ops, str) else ops[-1]).split(".")[-1]
    assert last in str(caught.value) and torch.add is add and not list_features()


def test_a_bad_variable_hooks_nothing(monkeypatch):
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "half to float")
    add = torch.add
    with pytest.raises(ValueError, match="OP_DTYPE_CAST_DICT"):
        apply_feature("torch.add", "cast_dtype")
    assert torch.add is add and not list_features()


# The results directory


@pytest.mark.parametrize("tool", TOOLS)
def test_a_file_in_the_place_of_the_results_directory(tool, clean, monkeypatch):
    (clean / "taken").write_text("mine")
    wanted = step()
    monkeypatch.setenv("OP_TOOLS_RESULTS", str(clean / "taken"))
    made = tool()
    with pytest.raises(OSError) as caught:
        made.start()
    assert str(clean / "taken") in str(caught.value) and "OP_TOOLS_RESULTS" in str(caught.value)
    assert not made.is_active and (clean / "taken").read_text() == "mine" and step() == wanted


@pytest.mark.parametrize("part", ["op_autocompare_result", "op_capture_results"])
def test_a_file_in_the_place_of_a_folder_of_the_results(part, clean, monkeypatch, capfd):
    """The table or the saved cases cannot be written: said once, findings and the program's results stay."""
    wanted = step()
    (clean / "op_tools_results").mkdir()
    (clean / "op_tools_results" / part).write_text("mine")
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "short")
    with ditorch.fault("value:gelu,scale=0.2"):
        broken = step()
        with OpAutoCompare(max_cache_size=1) as tool:
            assert step() == broken != wanted
    assert [finding["name"] for finding in tool.findings()] == ["torch.nn.functional.gelu"]
    said = "".join(capfd.readouterr())
    assert part in said and "Not a directory" in said, said
    assert (clean / "op_tools_results" / part).read_text() == "mine"


@pytest.mark.parametrize("tool", TOOLS)
def test_a_results_directory_that_vanishes(tool, clean, monkeypatch, capsys):
    wanted = step()
    monkeypatch.setenv("OP_TOOLS_CONSOLE", "short")
    made = tool(**({"max_cache_size": 1} if tool is OpAutoCompare else {}))
    with made:
        assert step()[0] == pytest.approx(wanted[0])
        shutil.rmtree(clean / "op_tools_results")
        with ditorch.fault("value:gelu,scale=0.2" if tool is OpAutoCompare else ""):
            step()
    assert made.counts()["applied"] > 4
    if tool is OpAutoCompare:
        assert [finding["name"] for finding in made.findings()] == ["torch.nn.functional.gelu"]
    assert step() == wanted


FULL_DISK = """
    import json, resource, signal, sys
    import torch, ditorch, op_tools
    import torch.nn.functional as F

    def step():
        torch.manual_seed(1)
        weight = torch.randn(64, 64, device="cuda", requires_grad=True)
        loss = F.gelu(torch.randn(32, 64, device="cuda") @ weight).square().mean()
        loss.backward()
        return loss.item()

    ditorch.fault("value:gelu,scale=0.2")
    wanted = step()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    tool = getattr(op_tools, sys.argv[1])(**json.loads(sys.argv[2]))
    with tool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        losses = [step() for _ in range(40)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    names = [finding["name"] for finding in tool.findings()] if hasattr(tool, "findings") else []
    print("answer", json.dumps({"same": all(abs(x - wanted) < 1e-5 for x in losses), "names": names,
                                "exact": losses == [wanted] * 40, "applied": tool.counts()["applied"]}))
"""


@pytest.mark.parametrize(
    "tool,options",
    [
        ("OpAutoCompare", {"max_cache_size": 1}),
        ("OpFallback", {}),
        ("OpDtypeCast", {"dtype_cast_dict": "torch.float32->torch.float64"}),
    ],
)
def test_a_full_disk_is_said_and_stops_nobody(tool, options, clean):
    answer = run_python(FULL_DISK, tool, json.dumps(options), cwd=clean)
    told = json.loads(answer.stdout.split("answer", 1)[1].splitlines()[0])
    said = answer.stdout + answer.stderr
    assert told["applied"] == 40 * 7 and f"{os.path.join('log', 'ops-r0-p')}" in said
    assert "cannot be written: File too large" in said and "did not take" in said, said
    if tool == "OpAutoCompare":
        assert told["exact"] and set(told["names"]) == {"torch.nn.functional.gelu"}, told
        assert "can not be saved" in said and ".csv cannot be written" in said, said
        assert "OP_TOOLS_RESULTS" in said
    else:
        assert told["same"] == (tool == "OpDtypeCast")  # on the CPU the operator is not broken
    # What lies there is whole or absent: a reader finds no half of a case.
    for path in clean.rglob("*.pth"):
        torch.load(path, weights_only=True, map_location="cpu")
    for path in clean.rglob("*.csv"):
        lines = path.read_bytes().split(b"\r\n")
        assert lines[-1] == b"" and {line.count(b",") for line in lines[:-1]} == {9}, lines[-2:]


# The offline runner


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captured")
    x = torch.randn(3, 4, device="cuda", requires_grad=True)
    with OpCapture(console="off", results=str(folder)):
        torch.mul(x, 2).sum().backward()
    return folder


def replay(*words):
    from op_tools.replay import command

    return command.main([str(word) for word in words])


@pytest.mark.parametrize("missing", ["nowhere", "nowhere/deeper", "none.pth", "none.dpack", "none.dlog"])
def test_a_path_that_is_not_there_is_named(missing, clean, capsys):
    status = replay(clean / missing)
    said = "".join(capsys.readouterr())
    assert status == 2 and missing in said and "Traceback" not in said


def test_an_empty_folder_is_named(clean, capsys):
    (clean / "empty").mkdir()
    assert replay(clean / "empty") == 2
    assert "empty" in "".join(capsys.readouterr())
    assert run_op_from_data.main([str(clean / "empty")]) == 2


@pytest.mark.parametrize(
    "words", [["--device", "tpu"], ["--run-times", "few"], ["--op"], ["--against", "moon"], ["--spede"]]
)
def test_a_bad_word_of_the_command_line_is_named(words, captured, capsys):
    with pytest.raises(SystemExit) as caught:
        raise SystemExit(replay(captured, *words))
    said = "".join(capsys.readouterr())
    assert caught.value.code == 2 and words[-1] in said and "Traceback" not in said


@pytest.mark.parametrize("name", ["input.pth", "output.pth", "grad_outputs.pth"])
def test_missing_and_truncated_files_cost_their_case_alone(name, captured, clean, capsys):
    for damage in ("remove", "cut"):
        copy = clean / damage
        shutil.copytree(captured, copy)
        victim = next(path for path in copy.rglob(name) if "torch.mul" in str(path))
        if damage == "remove":
            victim.unlink()
        else:
            victim.write_bytes(victim.read_bytes()[:40])
        status = replay(copy, "--jobs", 0, "--accuracy", "--json", clean / f"{damage}.json")
        told = json.loads((clean / f"{damage}.json").read_text())
        by_name = {case["name"]: next(iter(case["results"].values())) for case in told["cases"]}
        assert by_name["torch.Tensor.sum"]["error"] is None and by_name["torch.Tensor.sum"]["accuracy"]
        if damage == "cut" or name == "input.pth":
            assert status == 3 and name in json.dumps(by_name["torch.mul"]["error"]), by_name["torch.mul"]
        else:
            assert status == 0  # a call without a stored result can still be run
        assert "Traceback" not in "".join(capsys.readouterr())


def test_the_runner_names_a_folder_without_inputs(clean):
    with pytest.raises((OSError, ValueError), match="nothing"):
        OpRunner(str(clean / "nothing"))


def test_captures_of_mixed_versions_in_one_folder(captured, clean, capsys):
    """Cases of today, an older layout, a version of tomorrow and foreign files: each is run or is one error."""
    mixed = clean / "mixed"
    shutil.copytree(captured, mixed / "today")
    old = mixed / "old" / "torch.mul" / "device"
    old.mkdir(parents=True)
    torch.save({"name": "torch.mul", "args": (torch.ones(2, 3), 2), "kwargs": {}}, old / "input.pth")
    torch.save({"name": "torch.mul", "args": (torch.full((2, 3), 2.0),), "kwargs": {}}, old / "output.pth")
    (mixed / "old" / "torch.mul" / "notes.txt").write_text("not a capture")
    with OpCapture(layout="packed", results=str(mixed / "packed")):
        torch.ones(3, device="cuda").add(1)
    for path in list(mixed.rglob("*.dpack")):
        data = bytearray(path.read_bytes())
        data[8:10] = (250).to_bytes(2, "little")
        data[60:64] = zlib.crc32(data[:60]).to_bytes(4, "little")
        path.with_name("tomorrow.dpack").write_bytes(bytes(data))
    status = replay(mixed, "--jobs", 0, "--accuracy", "--json", clean / "mixed.json")
    said = "".join(capsys.readouterr())
    told = json.loads((clean / "mixed.json").read_text())
    errors = [case for case in told["cases"] if any(result["error"] for result in case["results"].values())]
    right = [case["name"] for case in told["cases"] if case not in errors]
    assert right.count("torch.mul") == 2 and "torch.Tensor.add" in right, said
    assert status == 3 and len(errors) == 1 and "tomorrow.dpack" in json.dumps(errors), said
    assert "Traceback" not in said


def test_an_unwritable_answer_is_named(captured, clean, capsys):
    (clean / "taken").write_text("mine")
    status = replay(captured, "--jobs", 0, "--accuracy", "--limit", 1, "--json", clean / "taken" / "answer.json")
    said = "".join(capsys.readouterr())
    assert status == 2 and "taken" in said and "Traceback" not in said
    assert (clean / "taken").read_text() == "mine"
