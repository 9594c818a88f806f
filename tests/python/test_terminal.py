"""What a terminal is shown: colour and width, on a pseudo-terminal; and that nothing else is."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from conftest import child_environment
from ditorch import cli, terminal
from ditorch.table import format_table

COLUMNS = ("name", "calls", "place")
ROWS = [
    ("torch.nn.functional.scaled_dot_product_attention", 1234567, "/home/somebody/project/models/attention.py:117"),
    ("torch.add", 7, "pass"),
]


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal.choose("auto")
    yield
    terminal.choose("auto")


def open_terminal(columns):
    """Both ends of a pseudo-terminal of so many columns."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return outer, inner


@pytest.fixture(params=[60, 80, 160])
def screen(request, monkeypatch):
    outer, inner = open_terminal(request.param)
    monkeypatch.setenv("COLUMNS", str(request.param))  # the size is that of the process's own terminal
    with open(inner, "w", encoding="utf-8") as stream:
        yield request.param, stream
    os.close(outer)


def test_a_table_fits_the_terminal_and_is_shortened_in_the_middle(screen):
    width, stream = screen
    lines = terminal.strip(format_table(COLUMNS, ROWS, stream)).split("\n")
    assert max(map(len, lines)) <= width
    whole = format_table(COLUMNS, ROWS).split("\n")
    if width > 120:
        assert lines == whole
    else:
        assert re.search(r"torch\.nn\.\S*…\S*attention  1234567  /home\S*…\S*:117$", lines[2]), lines[2]
    assert "1234567" in lines[2] and lines[3].startswith("torch.add") and lines[3].endswith("pass")


def test_a_terminal_gets_colour_and_no_color_takes_it(screen, monkeypatch):
    _, stream = screen
    text = format_table(COLUMNS, ROWS, stream)
    assert text.startswith("\x1b[1mname") and "\x1b[32mpass\x1b[0m" in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in format_table(COLUMNS, ROWS, stream)
    terminal.choose("always")
    assert "\x1b[32mpass\x1b[0m" in format_table(COLUMNS, ROWS, stream)
    monkeypatch.delenv("NO_COLOR")
    terminal.choose("never")
    assert "\x1b" not in format_table(COLUMNS, ROWS, stream)


def test_a_pipe_gets_all_of_it_and_no_colour(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    assert format_table(COLUMNS, ROWS, stream) == format_table(COLUMNS, ROWS)
    monkeypatch.setenv("FORCE_COLOR", "1")
    painted = format_table(COLUMNS, ROWS, stream)
    assert "\x1b" in painted and terminal.strip(painted) == format_table(COLUMNS, ROWS)


def test_a_terminal_that_cannot_show_the_ellipsis_gets_whole_cells(monkeypatch):
    outer, inner = open_terminal(60)
    monkeypatch.setenv("COLUMNS", "60")
    with open(inner, "w", encoding="ascii") as stream:
        assert terminal.strip(format_table(COLUMNS, ROWS, stream)) == format_table(COLUMNS, ROWS)
    os.close(outer)


@pytest.mark.parametrize(
    ("widths", "flexible", "room", "expected"),
    [
        ([50, 7, 40], [True, False, True], 60, [24, 7, 25]),
        ([50, 7, 12], [True, False, True], 60, [37, 7, 12]),
        ([8, 7, 9], [True, True, True], 10, [8, 7, 9]),  # nothing is made narrower than is of use
        ([30, 30], [False, False], 40, [30, 30]),
        ([5], [True], 80, [5]),
    ],
)
def test_the_widest_give_way(widths, flexible, room, expected):
    assert terminal.fit_widths(widths, flexible, room) == expected


def test_shorten_keeps_both_ends():
    assert terminal.shorten("abcdefghij", 5) == "ab…ij" and terminal.shorten("abc", 3) == "abc"
    assert all(len(terminal.shorten("x" * 30, width)) == width for width in range(1, 31))


@pytest.mark.parametrize("words", [["--color", "always", "options"], ["options", "--color", "always"]])
def test_color_may_stand_before_the_command_or_behind_it(words, capsys):
    assert cli.main(words) == 0
    assert "\x1b[1mbackend\x1b[0m" in capsys.readouterr().out
    terminal.choose("auto")
    assert cli.main(["options"]) == 0 and "\x1b" not in capsys.readouterr().out
    assert cli.main(["options", "--color", "neverr"]) == 2 and "did you mean 'never'" in capsys.readouterr().err


def test_doctor_on_a_terminal():
    """80 columns: no line is longer, unless a path is; what is right is green."""
    outer, inner = open_terminal(80)
    environment = {**child_environment(DITORCH_BANNER="0", TERM="xterm"), "COLUMNS": "80"}
    words = [sys.executable, "-m", "ditorch", "doctor"]
    process = subprocess.Popen(words, stdin=inner, stdout=inner, stderr=subprocess.DEVNULL, env=environment)
    os.close(inner)
    found = b""
    while True:
        try:
            part = os.read(outer, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        found += part
    os.close(outer)
    text = found.decode().replace("\r\n", "\n")
    assert process.wait() == 0, text
    assert "  mm: \x1b[32mok\x1b[0m" in text and "\x1b[1mtorch\x1b[0m: " in text
    long = [line for line in terminal.strip(text).split("\n") if len(line) > 80]
    assert not [line for line in long if " " in line.strip() and "/" not in line], long
