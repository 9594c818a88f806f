"""What OpAutoCompare leaves behind: the table, the log, files of wrong calls, the original's console, and errors about
options.

Write the golden files anew with: python tests/python/test_op_autocompare_report.py
"""

import csv
import glob
import json
import os
import re
import subprocess
import sys

import ditorch
import pytest
import torch
import torch.nn.functional as F
from op_tools import OpAutoCompare, save_op_args
from op_tools.legacy import console as legacy
from op_tools.legacy.autocompare import CompareConsole
from op_tools.reader import load_item

pytestmark = pytest.mark.usefixtures("warm_children")

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
ADDRESS = 20067179823104
HEADER = "forward_id,name,allclose,cosine_similarity,max_abs_diff,max_relative_diff,atol,rtol,error_info,verdict"
DEVICE = "cuda"


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path, monkeypatch, device):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if "AUTOCOMPARE" in name or name.endswith("OP_DTYPE_CAST_DICT")]:
        monkeypatch.delenv(name)
    yield tmp_path
    ditorch.fault("")


def compare(**options):
    return OpAutoCompare(**{"console": "off", "save": False, **options})


def values(**options):
    return torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=DEVICE, **options)


def program():
    """Right and wrong results of known size, several dtypes, gradients, None, scalars, names beyond 30 characters."""
    x, y = values(requires_grad=True), values(dtype=torch.float16)
    F.linear(x, x).sum().backward()
    with ditorch.fault("value:exp,scale=0.5"):
        torch.exp(x.detach())
    y.mul_(2)
    y[0] = 1
    torch.sort(y)
    torch.add(input=x, other=1.0)
    torch.tensor([1, 2], device=DEVICE).sum().item()
    bool((y == y).all())


def read_table(**options):
    """The bytes of the CSV file, identifiers counted from 1."""
    with compare(**options) as tool:
        first = None
        program()
    (path,) = glob.glob("op_tools_results/op_autocompare_result/*.csv")
    assert re.fullmatch(rf"op_autocompare_info_pid{os.getpid()}_\d{{4}}(-\d\d){{5}}\.csv", os.path.basename(path))
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    lines = text.split("\r\n")
    first = min(int(line.split(",")[0]) for line in lines[1:] if line)
    numbered = [re.sub(r"^\d+", lambda match: str(int(match[0]) - first + 1), line) for line in lines[1:]]
    return tool, "\r\n".join([lines[0], *numbered]), text


# The table


def test_the_table_is_as_it_was():
    _, text, _ = read_table()
    with open(f"{GOLDEN}/autocompare.csv", encoding="utf-8", newline="") as file:
        assert text == file.read()


def test_a15_one_header_whatever_the_number_of_flushes():
    _, text, _ = read_table(max_cache_size=1)
    assert text.count("forward_id") == 1 and text.startswith(HEADER + "\r\n") and text.endswith("\r\n")
    with open(f"{GOLDEN}/autocompare.csv", encoding="utf-8", newline="") as file:
        assert text == file.read()


def test_rows_of_wrong_results_alone():
    _, text, _ = read_table(rows="wrong")
    assert [line.split(",")[1] for line in text.split("\r\n")[1:-1]] == ["torch.exp output"]


def test_no_rows():
    with compare(rows="none") as tool:
        program()
    assert not os.path.exists("op_tools_results/op_autocompare_result")
    assert tool.describe()["rows"] == 0 and list(tool.records("compare")) == []


def test_a15_the_log_has_every_row_and_export_writes_the_same_table(tmp_path):
    tool, _, written = read_table()
    tool.flush()
    command = [sys.executable, "-m", "ditorch", "export", "op_tools_results/log", "--format", "legacy-csv"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([*command, "--type", "compare", "-o", "again.csv"], check=True, env=environment)
    with open("again.csv", encoding="utf-8", newline="") as file:
        lines = file.read().split("\r\n")
    assert set(written.split("\r\n")) <= set(lines)


def test_a15_rows_survive_a_kill(python):
    answer = python(
        """
        import os, signal, torch, ditorch
        from op_tools import OpAutoCompare
        tool = OpAutoCompare(console="off").start()
        x = torch.ones(3, device="cuda")
        for _ in range(5):
            torch.exp(x)
        ditorch._C.log_flush()
        os.kill(os.getpid(), signal.SIGKILL)
        """,
        check=False,
    )
    assert answer.returncode == -9
    from ditorch import export

    rows = list(export.read(export.find(["op_tools_results/log"]), ["compare"]))
    assert [row["what"] for row in rows].count("output") == 5 + 1


def test_a15_a_forked_child_has_its_own_table(python):
    python(
        """
        import os, torch, ditorch
        from op_tools import OpAutoCompare, session
        tool = OpAutoCompare(console="off", fork=True, cpu=True).start()
        x = torch.ones(3)
        torch.exp(x)
        child = os.fork()
        if child == 0:
            torch.sin(torch.ones(3))
            for one in session.active_tools():
                one.stop()
            os._exit(0)
        os.waitpid(child, 0)
        tool.stop()
        """
    )
    tables = {}
    for path in glob.glob("op_tools_results/op_autocompare_result/*.csv"):
        with open(path, encoding="utf-8", newline="") as file:
            names = [row["name"].removesuffix(" output") for row in csv.DictReader(file)]
        tables[re.search(r"pid(\d+)", path)[1]] = names
    assert len(tables) == 2
    assert sorted("torch.exp" in names for names in tables.values()) == [False, True]
    assert sorted("torch.sin" in names for names in tables.values()) == [False, True]


# Files of wrong calls


def find_case(name):
    (folder,) = glob.glob(f"op_tools_results/op_capture_results/{name}/{os.getpid()}/autocompare/*/*")
    return folder


def list_files(folder):
    found = [os.path.relpath(path, folder) for path in glob.glob(f"{folder}/*/*")]
    return sorted(found)


def test_a7_a_wrong_call_is_saved_as_it_was_before():
    x = torch.randn(4, 4, device=DEVICE, dtype=torch.float16).t()
    before = x.clone()
    with ditorch.fault("value:mul_"), compare(save=True) as tool:
        x.mul_(3)
    folder = find_case("torch.Tensor.mul_")
    names = [f"{side}/{what}.pth" for side in ("cpu", "device") for what in ("input", "output")]
    assert list_files(folder) == sorted([*names, *(f"{name}.json" for name in names)])
    saved = torch.load(f"{folder}/device/input.pth", weights_only=True)
    assert re.fullmatch(r"autocompare/\d+/[-\d]+/device/input", saved["identifier"])
    (tensor, factor), kwargs = saved["args"], saved["kwargs"]
    assert saved["name"] == "torch.Tensor.mul_" and factor == 3 and kwargs == {}
    assert tensor.device.type == "cuda" and tensor.dtype == torch.float16 and tensor.stride() == x.stride()
    assert torch.equal(tensor.cpu(), before.cpu())
    on_cpu = torch.load(f"{folder}/cpu/input.pth", weights_only=True)["args"][0]
    assert on_cpu.device.type == "cpu" and torch.equal(on_cpu, before.cpu())
    device = torch.load(f"{folder}/device/output.pth", weights_only=True)["args"][0]
    reference = torch.load(f"{folder}/cpu/output.pth", weights_only=True)["args"][0]
    assert torch.equal(device.cpu(), x.cpu()) and torch.equal(reference.to(x.dtype), (before * 3).cpu())
    with open(f"{folder}/device/input.pth.json", encoding="utf-8") as file:
        assert json.load(file)["args"][0]["device"] == "cuda:0"
    assert load_item(f"{folder}/device/input.pth")["name"] == "torch.Tensor.mul_"
    assert tool.findings()[0]["folder"] == os.path.abspath(folder)


def test_a7_a_wrong_backward_saves_its_forward_too():
    x = torch.randn(4, 4, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    with ditorch.fault("value:gelu_backward"), compare(save=True):
        y = F.gelu(x)
        y.backward(torch.ones_like(y))
    folder = find_case("torch.nn.functional.gelu")
    names = ["cpu/input", "cpu/output", "device/input"]
    names += [f"{side}/grad_{what}puts" for side in ("cpu", "device") for what in ("in", "out")]
    assert list_files(folder) == sorted([f"{name}.pth" for name in names] + [f"{name}.pth.json" for name in names])
    raw = torch.load(f"{folder}/device/grad_inputs.pth", weights_only=True)["args"][0]
    assert raw.dtype == torch.bfloat16 and torch.equal(raw, x.grad)
    given = torch.load(f"{folder}/device/input.pth", weights_only=True)["args"][0]
    assert given.requires_grad and torch.equal(given, x)


def test_caps_of_saving(capfd):
    x = torch.randn(4, 4, device=DEVICE)
    with ditorch.fault("value:exp"), compare(save=True, cap_calls=2) as tool:
        for _ in range(5):
            torch.exp(x)
    assert tool.describe()["saved"] == 2 and tool.describe()["capped"] == 3
    assert len(glob.glob("op_tools_results/op_capture_results/torch.exp/*/autocompare/*")) == 2
    assert capfd.readouterr().err.count("cap_calls of 2 is reached") == 1


def test_saving_that_fails_is_said_and_the_program_goes_on(capfd):
    x = torch.randn(4, 4, device=DEVICE)
    with ditorch.fault("value:exp"), compare(save=True) as tool:
        os.makedirs("op_tools_results", exist_ok=True)
        with open("op_tools_results/op_capture_results", "w", encoding="utf-8"):
            pass  # a file where the folder should be
        torch.exp(x), torch.exp(x)
    assert len(tool.findings()) == 1 and tool.describe()["failed"] > 0
    assert capfd.readouterr().err.count("can not be saved") == 1


# The console of the original


def event(number, name, func, *args, extra, **kwargs):
    facts = {"id": number, "name": name, "func": func, "args": args, "kwargs": kwargs, "result": func(*args, **kwargs)}
    return {**facts, "location": "train.py:14 norm: y = f(x)", "extra": extra, "error": None}


def print_console(monkeypatch):
    """Real events of a short program; addresses are one constant, the folder of files is cut."""
    monkeypatch.setattr(save_op_args, "data_pointer", lambda tensor: ADDRESS)
    text: list[str] = []
    created = CompareConsole(write=text.append)
    tool = OpAutoCompare(console="full", max_cache_size=4)
    monkeypatch.setattr(legacy, "create", lambda kind, **options: created)
    with tool:
        x = values(dtype=torch.float16, requires_grad=True)
        with ditorch.fault("value:exp,scale=0.5"):
            torch.exp(x).sum().backward()
        with torch.no_grad():
            x[0] = 7.0
        torch.sort(x.detach(), descending=True)
    return "".join(text)


def normalise(text):
    text = re.sub(r"op_tools_results/op_capture_results/(\S+?)/\d+/autocompare/\d+/[-\d]+/", r"<\1>/", text)
    text = re.sub(r"info_pid\d+_[-\d]+\.csv", "info.csv", text)
    text = re.sub(r"^\S*test_op_autocompare_report\.py:\d+", "<file>", text, flags=re.M)
    numbers: dict[str, str] = {}

    def renumber(match):
        number = numbers.setdefault(match[2], str(len(numbers) + 1))
        return match[1] + number.rjust(len(match[2])) if match[1].startswith("|") else match[1] + number

    text = re.sub(r"(forward_id: )(\d+)", renumber, text)
    return re.sub(r"^(\|\s+)(\d+)(?=\s+\|)", renumber, text, flags=re.M)


def test_the_console_is_as_it_was(python):
    """In a process of its own: an operator's apply line is said once in each."""
    said = python(
        f"""
        import sys
        sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
        import pytest, test_op_autocompare_report as report
        with pytest.MonkeyPatch.context() as patch:
            sys.stdout.write(report.normalise(report.print_console(patch)))
        """
    ).stdout
    with open(f"{GOLDEN}/console/autocompare.txt", encoding="utf-8", newline="") as file:
        assert squeeze(said) == squeeze(file.read())


def squeeze(text):
    """Identifiers have as many digits as the process had calls: borders and padding of their column vary."""
    return re.sub(r"-+", "-", re.sub(r" +", " ", text))


def test_a_call_that_was_not_compared_is_not_shown():
    text: list[str] = []
    console = CompareConsole(write=text.append)
    console("forward", event(1, "torch.empty", torch.ones, 3, extra=None))
    assert text == []


# Options


@pytest.mark.parametrize(
    "variable, value",
    [
        ("AUTOCOMPARE_ERROR_TOLERANCE", "1e-3"),
        ("AUTOCOMPARE_ERROR_TOLERANCE_FLOAT16", "a,b"),
        ("LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_BFLOAT16", "1e-2,1e-2,1"),
        ("OP_DTYPE_CAST_DICT", "torch.float16=torch.float32"),
        ("LINEAR_OP_DTYPE_CAST_DICT", "torch.float16->torch.float33"),
        ("OP_AUTOCOMPARE_VERDICT", "strict"),
        ("OP_AUTOCOMPARE_SHARE", "200"),
    ],
)
def test_a_bad_value_is_an_error_at_the_start(variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError) as caught:
        compare().start()
    assert variable in str(caught.value) and value.split(",")[-1].split("->")[-1] in str(caught.value)
    x = torch.ones(3, device=DEVICE)
    assert (x + 1).tolist() == [2.0, 2.0, 2.0]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="results"):
        compare(results=str(tmp_path / "file" / "below")).start()


def test_the_table_that_cannot_be_written_is_said_once(capfd):
    with compare(max_cache_size=1) as tool:
        os.makedirs("op_tools_results", exist_ok=True)
        with open("op_tools_results/op_autocompare_result", "w", encoding="utf-8"):
            pass
        x = torch.ones(3, device=DEVICE)
        for _ in range(4):
            torch.exp(x)
    assert capfd.readouterr().err.count("cannot be written") == 1
    assert len([row for row in tool.records("compare") if row["what"] == "output"]) == 5  # ones, and four exp


def test_verdict_legacy_is_decided_by_the_tolerances(monkeypatch):
    monkeypatch.setenv("OP_AUTOCOMPARE_VERDICT", "legacy")
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE", "1e9,1e9")
    x = torch.randn(4, 4, device=DEVICE)
    with ditorch.fault("value:exp"), compare() as tool:
        torch.exp(x)
    assert tool.ok
    monkeypatch.setenv("AUTOCOMPARE_ERROR_TOLERANCE", "0,0")
    with compare() as tool:
        F.linear(x, x.t().contiguous().t() * 1.7)
    assert not tool.ok or tool.describe()["forward"]["close"] == tool.describe()["forward"]["compared"]


def test_summary_and_table(capsys):
    x = torch.randn(4, 4, device=DEVICE)
    with ditorch.fault("value:exp"), OpAutoCompare(save=False) as tool:
        torch.exp(x)
    err = capsys.readouterr().err
    assert "1 finding (1 wrong comparison)" in err and "\n  next   " in err and "op_autocompare_info_pid" in err
    assert str(tool.table()).splitlines()[2].startswith("torch.exp")
    with OpAutoCompare(save=False) as tool:
        torch.exp(x), torch.empty(3, device=DEVICE)
    assert "OpAutoCompare: ok; compared 1 forward, 0 backward" in capsys.readouterr().err


# Nothing compared


@pytest.mark.parametrize(
    "run, options, why",
    [
        (lambda x: torch.empty_like(x), {}, ["not compared: 1 give uninitialised memory"]),
        (lambda x: x.is_contiguous(), {}, ["neither right nor wrong"]),
        (lambda x: None, {}, ["No operator was called between start() and stop()"]),
        (
            lambda x: x.add(1),
            {"list": ".*sub.*"},
            ["1 not on the lists", "list is '.*sub.*'", "names that came: torch.Tensor.add"],
        ),
        (lambda x: x.add(1), {"numel_min": 1000}, ["1 outside the limits of numel", "numel_min"]),
    ],
)
def test_nothing_compared_is_not_ok(run, options, why):
    x = torch.ones(3, device="cuda")
    tool = OpAutoCompare(**options)
    assert tool.ok is None
    with tool:
        run(x)
    assert tool.ok is None
    text = tool.summary()
    assert "nothing was compared: neither right nor wrong" in text and "ok;" not in text
    for part in why:
        assert part in text


def test_ok_has_three_values():
    x = torch.ones(3, device="cuda")
    with OpAutoCompare() as tool:
        x.add(1)
    assert tool.ok is True and "ok; compared 1 forward" in tool.summary()
    with ditorch.fault("value:add,scale=0.1"), OpAutoCompare(save=False) as tool:
        x.add(1)
    assert tool.ok is False


# The table as a program reads it


def test_cells_of_the_csv_have_no_blanks_around_them():
    with OpAutoCompare(save=False, console="off"):
        torch.ones(3, device="cuda").add(1), torch.nn.functional.layer_norm(torch.ones(2, 3, device="cuda"), (3,))
    (path,) = glob.glob("op_tools_results/op_autocompare_result/*.csv")
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert "torch.Tensor.add output" in {row[0] for row in rows} | {row[1] for row in rows}
    assert [cell for row in rows for cell in row if cell != cell.strip()] == []


# The column of verdicts


def test_every_row_says_what_was_decided():
    """Close by the tolerances and wrong are different questions."""
    x = torch.full((4, 4), 0.5, device="cuda")
    with ditorch.fault("value:exp,scale=0.000001"), OpAutoCompare(save=False, console="off"):
        torch.exp(x), torch.sin(x)
    (path,) = glob.glob("op_tools_results/op_autocompare_result/*.csv")
    with open(path, encoding="utf-8", newline="") as file:
        rows = {row["name"]: (row["allclose"], row["verdict"]) for row in csv.DictReader(file)}
    assert rows["torch.exp output"] == ("True", "wrong")
    assert rows["torch.sin output"] == ("True", "right")


@pytest.mark.parametrize(
    "run, wanted",
    [
        (lambda x: torch.exp(x), "OpAutoCompare: ok; compared 1 forward, 0 backward"),
        (lambda x: None, "OpAutoCompare: nothing was compared: neither right nor wrong"),
    ],
)
def test_the_full_console_ends_with_the_outcome(run, wanted, capsys):
    x = torch.ones(3, device="cuda")
    with OpAutoCompare(console="full"):
        run(x)
    assert capsys.readouterr().out.rstrip().splitlines()[-1].startswith(wanted)


if __name__ == "__main__":
    import tempfile

    patch = pytest.MonkeyPatch()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open(f"{GOLDEN}/autocompare.csv", "w", encoding="utf-8", newline="") as file:
            file.write(read_table()[1])
        with open(f"{GOLDEN}/console/autocompare.txt", "w", encoding="utf-8", newline="") as file:
            file.write(normalise(print_console(patch)))
