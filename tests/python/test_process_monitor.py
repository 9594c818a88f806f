"""op_tools.process_monitor: columns, files, vendor probes (their commands are scripts made here), and its ends."""

import csv
import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest
from conftest import child_environment
from op_tools import monitor_probes, process_monitor

SCRIPT = process_monitor.__file__
ORIGINAL = ["runningtime(Seconds)", "time_str", "time(Seconds)", "cpu_percent(%)", "rss(MB)"]
DEVICE = ["device_memusage(MB)", "device_cards"]
TREE = ["children", "tree_cpu_percent(%)", "tree_rss(MB)"]
SAVED = "op process monitor result saved to "


@pytest.fixture
def sleeper():
    """A process that waits until the test is over."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


class Monitor:
    """Runs the program in an empty folder, with faked commands first on the path."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.calls = folder / "calls.txt"

    def fake(self, name, *cases):
        """A command that answers argument texts; everything else fails."""
        lines = ["#!/bin/sh", f'echo "{name} $*" >> "{self.calls}"', 'case "$*" in']
        for number, (arguments, text) in enumerate(cases):
            (self.bin / f"{name}.{number}").write_text(text)
            lines.append(f'"{arguments}") exec cat "{self.bin}/{name}.{number}";;')
        (self.bin / name).write_text("\n".join([*lines, "*) exit 3;;", "esac", ""]))
        (self.bin / name).chmod(stat.S_IRWXU)

    def environment(self, **changes):
        path = f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin"
        return child_environment(PATH=path, PYTHONUNBUFFERED="1", OP_TOOLS_MAX_CACHE_SIZE=None, label=None, **changes)

    def run(self, pid, *arguments, status=0, **changes):
        command = [sys.executable, SCRIPT, "--pid", str(pid), "--interval", "0.05", *arguments]
        environment = self.environment() | changes
        answer = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600)
        assert answer.returncode == status, answer.stdout + answer.stderr
        assert "Traceback" not in answer.stderr, answer.stderr
        return answer

    def start(self, pid, *arguments):
        command = [sys.executable, SCRIPT, "--pid", str(pid), "--interval", "0.05", *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, text=True)

    def rows(self):
        (path,) = (self.folder / "op_tools_results" / "process_monitor_result").iterdir()
        with open(path, newline="", encoding="utf-8") as file:
            text = file.read()
        assert text.count("\r\n") == text.count("\n")
        table = list(csv.reader(text.splitlines()))
        assert all(len(row) == len(table[0]) for row in table)
        return path.name, table[0], [dict(zip(table[0], row, strict=True)) for row in table[1:]]


@pytest.fixture
def monitor(tmp_path):
    return Monitor(tmp_path)


def test_columns_and_file(monitor, sleeper):
    answer = monitor.run(sleeper.pid, "--count", "3", "--probe", "none", label="run7")
    name, columns, rows = monitor.rows()
    assert columns == ORIGINAL + TREE and len(rows) == 3
    assert name.startswith(f"process_monitor_result__pid{sleeper.pid}_run7_") and name.endswith(".csv")
    time.strptime(name[-23:-4], "%Y-%m-%d-%H-%M-%S")
    for row in rows:
        assert row["rss(MB)"].endswith(" ") and int(row["rss(MB)"]) > 0
        assert len(row["runningtime(Seconds)"].partition(".")[2]) == 7 and float(row["runningtime(Seconds)"]) > 0
        assert abs(float(row["time(Seconds)"]) - time.time()) < 600
        time.strptime(row["time_str"], "%Y-%m-%d %H:%M:%S")
    # One more than the cache holds (1) is written at once, the rest at the end.
    saved = [line for line in answer.stdout.splitlines() if line.startswith(SAVED)]
    assert len(saved) == 2 and saved[0] == f"{SAVED}op_tools_results/process_monitor_result/{name}"
    block = answer.stdout.split(SAVED)[0]
    lines = block.splitlines()
    assert lines[1].split() == ["|", "key", "|", "value", "|"] and lines[0] == lines[2] and set(lines[0]) == {"+", "-"}
    assert [line.split()[1] for line in lines[3:11]] == columns
    assert lines[11] == lines[0] and lines[12:15] == ["", "", ""] and lines[15] == lines[0]


def test_table_is_that_of_prettytable():
    from prettytable import PrettyTable

    for width in range(1, 12):
        info = {"a" * width: "1", "bcd": "22" * width, "efgh": "", "xyz" * 3: "12345"}
        wanted = PrettyTable()
        wanted.field_names = ["key", "value"]
        wanted.add_rows(list(info.items()))
        assert process_monitor.table(info) == str(wanted)


def test_original_columns_alone(monitor, sleeper):
    monitor.run(sleeper.pid, "--count", "1", "--no-children", "--probe", "none")
    assert monitor.rows()[1] == ORIGINAL


def test_cache_size(monitor, sleeper):
    answer = monitor.run(sleeper.pid, "--count", "5", "--probe", "none", OP_TOOLS_MAX_CACHE_SIZE="100")
    assert answer.stdout.count(SAVED) == 1 and len(monitor.rows()[2]) == 5
    bad = monitor.run(sleeper.pid, "--count", "1", status=1, OP_TOOLS_MAX_CACHE_SIZE="many")
    assert "OP_TOOLS_MAX_CACHE_SIZE='many'" in bad.stderr


def test_as_a_module(monitor, sleeper):
    command = [sys.executable, "-m", "op_tools.process_monitor", "--pid", str(sleeper.pid), "--count", "1"]
    answer = subprocess.run(command, cwd=monitor.folder, env=monitor.environment(), capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert monitor.rows()[1][: len(ORIGINAL)] == ORIGINAL


def test_p2_no_torch(python):
    python("import sys, op_tools.process_monitor\n" + "assert not {'torch', 'psutil', 'ditorch'} & set(sys.modules)\n")


# Ends


def test_p1_clean_end_with_the_process(monitor, sleeper):
    running = monitor.start(sleeper.pid, "--probe", "none")
    while SAVED not in running.stdout.readline():
        assert running.poll() is None
    sleeper.stdin.close()  # its input ends, and so does it; nobody waits for it yet
    output = running.communicate(timeout=600)[0]
    assert running.returncode == 0 and f"process {sleeper.pid} has ended" in output
    assert len(monitor.rows()[2]) == output.count("runningtime(Seconds)") + 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_p1_clean_end_by_signal(monitor, sleeper, number):
    running = monitor.start(sleeper.pid, "--probe", "none")
    shown = 0
    while shown < 3:
        shown += "runningtime" in running.stdout.readline()
    running.send_signal(number)
    rest = running.communicate(timeout=600)[0]
    assert running.returncode == 0
    assert len(monitor.rows()[2]) == 3 + rest.count("runningtime")


def test_bad_arguments(monitor, sleeper):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    answer = monitor.run(gone.pid, status=1)
    assert answer.stderr == f"process {gone.pid} does not exist\n"
    assert "--interval -1" in monitor.run(sleeper.pid, "--interval=-1", status=2).stderr
    assert "--pid" in subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True).stderr
    assert not (monitor.folder / "op_tools_results").exists()


def test_unwritable_folder(monitor, sleeper):
    (monitor.folder / "op_tools_results").write_text("a file")
    assert "can not be saved" in monitor.run(sleeper.pid, "--count", "2", "--probe", "none").stderr


def test_samples_as_objects(tmp_path):
    words = ["--pid", str(os.getpid()), "--interval", "0.1", "--count", "2", "--json", "--probe", "none"]
    command = [sys.executable, "-m", "op_tools.process_monitor", *words]
    answer = subprocess.run(command, cwd=tmp_path, env=child_environment(), capture_output=True, text=True, timeout=300)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert len(rows) == 2 and float(rows[0]["rss(MB)"]) > 0, answer.stderr
    assert "result saved to" in answer.stderr


def test_rows_are_kept_until_the_disk_takes_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "op_tools_results").write_text("a file")
    result = process_monitor.ResultFile(7, "x", 0)
    result.append({"a": "1"})
    assert "can not be saved" in capsys.readouterr().err
    (tmp_path / "op_tools_results").unlink()
    result.append({"a": "2"})
    assert (tmp_path / result.path).read_text() == "a\n1\n2\n"


def test_a_number_that_belongs_to_another_process(sleeper):
    sampler = process_monitor.Sampler(sleeper.pid, None)
    assert sampler.sample() is not None
    first = sampler.first
    sampler.first = process_monitor.Process(first.pid, first.parent, first.created - 5, first.cpu, first.rss)
    assert sampler.sample() is None


# Processes


def test_p3_children_are_followed(monitor):
    grandchild = "x = b'x' * (60 << 20); input()"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    program = f"import subprocess, sys; print('up', flush=True); subprocess.run([sys.executable, '-c', {child!r}])"
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        parent.stdout.readline()
        sampler = process_monitor.Sampler(parent.pid, None)
        for _ in range(500):  # until the grandchild has its memory
            row = sampler.sample()
            if row["children"] == "2" and int(row["tree_rss(MB)"]) >= int(row["rss(MB)"]) + 60:
                break
            time.sleep(0.02)
        assert row["children"] == "2"
        assert int(row["tree_rss(MB)"]) >= int(row["rss(MB)"]) + 60
    finally:
        parent.stdin.close()
        parent.wait()


def test_the_monitor_is_no_child_of_its_parent():
    found = [
        process_monitor.Process(10, 1, 0, 0, 0),
        process_monitor.Process(11, 10, 0, 0, 0),
        process_monitor.Process(12, 11, 0, 0, 0),
        process_monitor.Process(13, 10, 0, 0, 0, alive=False),
        process_monitor.Process(os.getpid(), 10, 0, 0, 0),
        process_monitor.Process(15, os.getpid(), 0, 0, 0),
    ]
    assert [process.pid for process in process_monitor.descendants(10, found)] == [11, 12]


def test_process_names_with_brackets(tmp_path):
    (tmp_path / "stat").write_text("cpu  1 2\nbtime 1000\n")
    (tmp_path / "77").mkdir()
    tail = "S 5 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 1 0 400 999 30 18446744073709551615"
    (tmp_path / "77" / "stat").write_bytes(f"77 (a) b (c) {tail}".encode() + b"\n")
    source = process_monitor.ProcFiles(str(tmp_path))
    source.tick, source.page = 100, 4096
    assert source.all() == [process_monitor.Process(77, 5, 1004.0, 3.0, 30 * 4096)]
    assert source.read(78) is None


def test_cpu_share_is_of_the_time_between_samples(sleeper):
    sampler = process_monitor.Sampler(sleeper.pid, None)
    one = process_monitor.Process(5, 1, 100.0, 10.0, 0)
    sampler._shares([one])
    sampler.clock -= 2.0  # as if two seconds had passed
    later = process_monitor.Process(5, 1, 100.0, 11.0, 0)
    new = process_monitor.Process(6, 5, 101.0, 0.5, 0)
    shares = sampler._shares([later, new])
    assert 45 < shares[0] <= 50 and 22 < shares[1] <= 25


# Vendors


def npu_table(*processes):
    lines = [
        "+------------------------------------------------------------------------------------------------+",
        "| npu-smi 24.1.rc1                 Version: 24.1.rc1                                             |",
        "+---------------------------+---------------+----------------------------------------------------+",
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        "+===========================+===============+====================================================+",
        "| 0     910B                | OK            | 90.4        43                0    / 0             |",
        "| 0                         | 0000:C1:00.0  | 0           0    / 0          3330 / 65536         |",
        "+===========================+===============+====================================================+",
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
        "+===========================+===============+====================================================+",
    ]
    for card, pid, memory in processes:
        lines.append(f"| {card}       0                 | {pid:<13} | python train (rank)      | {memory:<23} |")
        lines.append(
            "+===========================+===============+====================================================+"
        )
    return "\n".join([*lines, ""])


def usages(card, rate):
    return (
        f"\tNPU ID                         : {card}\n\tChip Count                     : 1\n\n"
        f"\tHBM Capacity(MB)               : 65536\n\tAicore Usage Rate(%)           : {rate}\n"
        f"\tLast Reset                     : 10:20:30\n"
    )


def test_ascend(monitor, sleeper):
    table = npu_table((3, sleeper.pid, 1250), (3, 999999, 7))
    monitor.fake("npu-smi", ("info", table), ("info -t usages -i 3", usages(3, 17)))
    monitor.run(sleeper.pid, "--count", "2")
    name, columns, rows = monitor.rows()
    assert name.startswith(f"process_monitor_result_ascend_pid{sleeper.pid}__")
    keys = ["NPU ID", "Chip Count", "HBM Capacity(MB)", "Aicore Usage Rate(%)", "Last Reset"]
    assert columns == [*ORIGINAL, *DEVICE, *keys, *TREE, "tree_device_memusage(MB)"]
    for row in rows:
        assert row["device_memusage(MB)"] == "1250" and row["device_cards"] == "3"
        assert row["Aicore Usage Rate(%)"] == "17" and row["Last Reset"] == "10:20:30"
        assert row["tree_device_memusage(MB)"] == "1250"


def test_p1_ascend_before_the_process_uses_it(monitor, sleeper):
    monitor.fake("npu-smi", ("info", npu_table((0, 999999, 7))))
    monitor.run(sleeper.pid, "--count", "1")
    (row,) = monitor.rows()[2]
    assert row["device_memusage(MB)"] == "0" and row["device_cards"] == ""


def test_p1_ascend_several_cards(monitor, sleeper):
    table = npu_table((0, sleeper.pid, 1000), (5, sleeper.pid, 2000))
    cases = [("info -t usages -i 0", usages(0, 10)), ("info -t usages -i 5", usages(5, 50))]
    monitor.fake("npu-smi", ("info", table), *cases)
    monitor.run(sleeper.pid, "--count", "1")
    (row,) = monitor.rows()[2]
    assert row["device_memusage(MB)"] == "1000 2000" and row["device_cards"] == "['0', '5']"
    assert row["0_Aicore Usage Rate(%)"] == "10" and row["5_Aicore Usage Rate(%)"] == "50"
    assert row["tree_device_memusage(MB)"] == "3000"


def test_p2_commands_once_per_sample(monitor, sleeper):
    table = npu_table((0, sleeper.pid, 1000))
    monitor.fake("npu-smi", ("info", table), ("info -t usages -i 0", usages(0, 10)))
    monitor.run(sleeper.pid, "--count", "3")
    calls = monitor.calls.read_text().splitlines()
    assert calls.count("npu-smi info -t usages -i 0") == 3
    assert calls.count("npu-smi info") == 1 + 3  # once to find out that there are such cards


CNMON = """Mon Oct 14 10:20:30 2024
+------------------------------------------------------------------------------+
| CNMON v5.10.29                                               5.10.29         |
+-------------------------------+----------------------+-----------------------+
| 0    /  Board MLU370-M8 v1.1  | 0           0000:1B  | 1500 MiB/ 42396 MiB   |
+-------------------------------+----------------------+-----------------------+
|  Processes:                                                                  |
|   Card  MI  PID     Command Line                             MLU Memory Usage|
|==============================================================================|
|   2     /   {pid:<8}python -u train.py --steps 100           1470 MiB        |
|   2     /   999999  other                                    30 MiB          |
+------------------------------------------------------------------------------+
"""
CNMON_CARD = """Card 2
    Driver                         : v5.10.29
    MLU Bandwidth                  : 12 %
    MLU Average                    : 55 %
    Physical Memory MLU Used       : 1500 MiB
    Note MLU                       : at 10:20:30
"""


def test_cambricon(monitor, sleeper):
    card = "info --card 2 --bandwidth --util --memory"
    monitor.fake("cnmon", ("", CNMON.format(pid=sleeper.pid)), (card, CNMON_CARD))
    monitor.run(sleeper.pid, "--count", "1")
    name, columns, (row,) = monitor.rows()
    assert name.startswith(f"process_monitor_result_camb_pid{sleeper.pid}__")
    assert row["device_memusage(MB)"] == "1470" and row["device_cards"] == "2"
    keys = ["MLU Bandwidth", "MLU Average", "Physical Memory MLU Used", "Note MLU"]
    assert columns == [*ORIGINAL, *DEVICE, *keys, *TREE, "tree_device_memusage(MB)"]
    assert row["MLU Average"] == "55 %" and row["Note MLU"] == "at 10:20:30"


def fake_nvidia(monitor, pid):
    form = "--format=csv,noheader,nounits"
    gpus = "0, GPU-aa, 5, 1, 100, 81559\n1, GPU-bb, 93, 40, 2048, 81559\n"
    short = "".join(",".join(line.split(",")[:2]) + "\n" for line in gpus.splitlines())
    usage = "\n".join(", ".join(line.split(", ")[i] for i in (0, 2, 3, 4, 5)) for line in gpus.splitlines())
    columns = "index,utilization.gpu,utilization.memory,memory.used,memory.total"
    apps = f"{pid}, GPU-bb, 1536\n999999, GPU-aa, 64\n{pid}, GPU-aa, [N/A]\nbroken line\n"
    monitor.fake(
        "nvidia-smi",
        ("-L", "GPU 0: NVIDIA (UUID: GPU-aa)\nGPU 1: NVIDIA (UUID: GPU-bb)\n"),
        (f"--query-gpu=index,uuid {form}", short),
        (f"--query-compute-apps=pid,gpu_uuid,used_memory {form}", apps),
        (f"--query-gpu={columns} {form}", usage),
    )


def test_p3_nvidia(monitor, sleeper):
    fake_nvidia(monitor, sleeper.pid)
    monitor.run(sleeper.pid, "--count", "1", "--probe", "nvidia-smi")
    name, _, (row,) = monitor.rows()
    assert name.startswith("process_monitor_result_nvidia_pid")
    assert row["device_memusage(MB)"] == "0 1536" and row["device_cards"] == "['0', '1']"
    assert row["1_GPU Utilization(%)"] == "93" and row["0_Memory Used(MB)"] == "100"
    assert row["tree_device_memusage(MB)"] == "1536"


def test_broken_vendor_command(monitor, sleeper):
    monitor.fake("npu-smi", ("info", "\x00garbage | 1 | \n| 0 0 | x | y | z |\n"))
    monitor.run(sleeper.pid, "--count", "1")
    (row,) = monitor.rows()[2]
    assert row["device_memusage(MB)"] == "0"


def test_a_column_that_appears_later(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = process_monitor.ResultFile(7, "x", 0)
    result.append({"a": "1"})
    result.append({"a": "2", "b": "x,y"})
    result.append({"b": "3"})
    with open(result.path, newline="", encoding="utf-8") as file:
        assert file.read() == 'a,b\r\n1,\r\n2,"x,y"\r\n,3\r\n'


def test_two_monitors_in_one_second(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda form: "now")
    one, two = process_monitor.ResultFile(7, "x", 0), process_monitor.ResultFile(7, "x", 0)
    for result in (one, two, one):
        result.append({"a": "1"})
    assert one.path != two.path and two.path.endswith("_now_2.csv")
    texts = [(tmp_path / result.path).read_text() for result in (one, two)]
    assert texts == ["a\n1\n1\n", "a\n1\n"]


def test_embedded_device(monitor, tmp_path):
    program = tmp_path / "uses_device.py"
    program.write_text(
        "import os, torch, ditorch\n"
        "x = torch.zeros(20 << 20, dtype=torch.uint8, device='cuda')\n"
        "if os.fork() == 0:\n"  # inherits the page, holds nothing itself
        "    os.read(0, 1)\n"
        "    os._exit(0)\n"
        "print(torch.cuda.memory_reserved() >> 20, flush=True)\n"
        "os.read(0, 1)\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, str(program)], env=child_environment(), text=True, **pipes)
    try:
        line = ""
        while not line.strip().isdigit():  # ditorch's own line comes first
            line = process.stdout.readline()
        monitor.run(process.pid, "--count", "1", "--probe", "embedded")
        (row,) = monitor.rows()[2]
        assert int(row["device_memusage(MB)"]) == int(line) >= 20
        assert row["tree_device_memusage(MB)"] == row["device_memusage(MB)"]
        assert row["device_cards"] == "0" and row["children"] == "1"
    finally:
        process.stdin.close()
        process.wait()


def test_damaged_status_page(monkeypatch):
    probe = monitor_probes.Embedded()
    number = os.getpid().to_bytes(8, sys.byteorder)
    for page in (b"", b"DITHOST1", b"DITHOST9" + bytes(100), b"DITHOST1" + bytes(24)):
        monkeypatch.setattr(probe, "pages", lambda pid, page=page: iter([page]))
        assert probe.read(os.getpid()) == {}
    huge = b"DITHOST1" + number + b"\xff" * 8 + bytes(8) + (5 << 20).to_bytes(8, sys.byteorder)
    monkeypatch.setattr(probe, "pages", lambda pid: iter([huge]))
    assert probe.read(os.getpid()) == {0: 5}
