"""The line of a long command: on a terminal alone, with an estimate, and gone at the end."""

import io
import time
from importlib import import_module

import pytest
from ditorch import cli, progress
from ditorch.conform import cli as conform
from op_tools.merge import merge
from report_runs import write_run


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_is_left():
    assert [progress.show_rest(seconds) for seconds in (0, 99, 100, 5999, 9000)] == [
        "0 s left", "99 s left", "2 min left", "100 min left", "2.5 h left"
    ]  # fmt: skip
    begin = time.monotonic() - 10
    assert progress.estimate_rest(begin, 0, 5) == 0 and 29 < progress.estimate_rest(begin, 1, 4) < 40


def test_a_terminal_has_a_line_that_goes_away(monkeypatch):
    monkeypatch.setattr(progress.Progress, "EVERY", 0)
    stream = Terminal()
    with progress.Progress("calls", stream) as told:
        told.begin -= 10
        told(1, 4, 1234)
    assert stream.getvalue().startswith("\r\x1b[Kditorch:  25 %, 1,234 calls, 3")
    assert stream.getvalue().endswith(" s left\r\x1b[K")
    pipe = io.StringIO()
    with progress.Progress("calls", pipe) as told:
        told(1, 4)
    assert pipe.getvalue() == ""


def test_merge_tells_bytes_and_records(tmp_path, monkeypatch):
    monkeypatch.setattr("op_tools.merge.TELL_EVERY", 10)
    folder, said = write_run(tmp_path / "run"), []
    summary = merge([folder], lambda *words: said.append(words))
    done = [words[0] for words in said]
    assert len(said) > 3 and done == sorted(done) and done[-1] == said[0][1]
    assert said[-1][2] == sum(rank.records for rank in summary.ranks.values())


@pytest.mark.parametrize("command", ["merge", "compare", "report"])
def test_commands_show_it_and_take_it_away(command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress.Progress, "EVERY", 0)
    for name in ("op_tools.merge", "op_tools.compare.runs", "ditorch.report.collect"):
        monkeypatch.setattr(import_module(name), "TELL_EVERY", 2)
    folder = str(write_run(tmp_path / "run"))
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    cli.main([command, folder, *([folder] if command == "compare" else [])])
    assert " % " in stream.getvalue().replace("%,", "% ") and " left" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_conform_estimates_too(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    for done in (1, 2, 4):
        conform._show_progress(done, 4)
    assert "2 of 4 cases, 0 s left" in stream.getvalue() and stream.getvalue().endswith("4 of 4 cases\n")
