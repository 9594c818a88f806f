"""`make bench`: sections are measured one by one, each replaces its own part of the document, and Ctrl-C keeps them."""

import os
import signal
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = """
import json, os, signal, sys, time
print("on the way")
if {name!r} == os.environ.get("INTERRUPT"):
    parent = os.getppid()
    os.kill(parent, signal.SIGINT)
    while os.getppid() == parent:  # which may be interrupted before it knows whom to end
        time.sleep(0.05)
if {name!r} == os.environ.get("CRASH"):
    sys.exit(3)
row = {{"what": "a row", "figure": os.environ["FIGURE"], "goal": "", "met": ""}}
print(json.dumps({{"title": "Title of {name}", "command": "x", "note": " ".join(sys.argv[1:]), "rows": [row]}}))
"""
DRIVER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
bench = sys.argv.pop(1)
sys.path.insert(0, bench)
import common, run, sections
common.machine = lambda: "a machine, load 0.5; torch 9.9"
folder = os.path.relpath(sys.argv.pop(1), bench)
words = ("-a",), ("--few",), ("--quick",)
sections.SECTIONS[:] = [sections.Section(name, f"{folder}/{name}", 10, *words) for name in ("one", "two", "three")]
sys.exit(run.main())
"""


@pytest.fixture
def bench(tmp_path):
    """bench(figure, *words, **environment): (exit status, the document or None, what was said)"""
    output = tmp_path / "out" / "measurements.md"
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.py").write_text(PROGRAM.format(name=name))

    def run(figure, *words, **environment):
        command = [sys.executable, "-c", DRIVER, os.path.join(ROOT, "bench"), str(tmp_path), "--output", str(output)]
        answer = subprocess.run(
            [*command, *words], capture_output=True, text=True, env={**os.environ, "FIGURE": figure, **environment}
        )
        return answer.returncode, output.read_text() if output.exists() else None, answer.stderr

    return run


def part(document, name):
    return document.split(f"## Title of {name}\n")[1].split("\n## ")[0]


def test_a_chosen_section_replaces_its_part_alone(bench):
    status, first, said = bench("first figure")
    assert status == 0 and [name in first for name in ("Title of one", "Title of two", "Title of three")] == [True] * 3
    assert "[2/3] two (about" in said and "s  in all" in said
    status, second, _ = bench("second figure", "--sections", "two", "--full")
    assert status == 0 and part(second, "one") == part(first, "one") and part(second, "three") == part(first, "three")
    mine = part(second, "two")
    assert "second figure" in mine and "first figure" not in mine and "\n-a\n" in mine
    assert "`make bench SECTIONS=two FULL=1`" in mine and "`make bench SECTIONS=two`" in part(first, "two")
    assert "Machine: a machine, load 0.5; torch 9.9." in mine and "s of processor time) by `" in mine
    assert "\nMeasured 20" in mine
    assert "\n-a --few\n" in part(first, "two") and "shows that it runs" not in first
    _, third, _ = bench("third figure", "--sections", "three", "--quick")
    assert "\n-a --quick\n" in part(third, "three") and "shows that it runs" in part(third, "three")


def test_new_sections_take_their_place_and_others_stay(bench, tmp_path):
    bench("f", "--sections", "three")
    path = tmp_path / "out" / "measurements.md"
    path.write_text(path.read_text() + "\n## Written by hand\n\nwords\n")
    _, document, _ = bench("f", "--sections", "one,two")
    titles = [line for line in document.splitlines() if line.startswith("## ")]
    assert titles == ["## Title of one", "## Title of two", "## Title of three", "## Written by hand"]


def test_an_interrupted_run_keeps_what_is_measured(bench):
    _, first, _ = bench("first figure")
    status, document, said = bench("second figure", INTERRUPT="two")
    assert status == 128 + signal.SIGINT and 'make bench SECTIONS="two three"' in said
    assert "second figure" in part(document, "one")
    assert part(document, "two") == part(first, "two") and part(document, "three") == part(first, "three")


def test_a_section_that_fails_is_named_and_the_others_go_on(bench):
    status, document, said = bench("figure", CRASH="two")
    assert status == 1 and "failed: two" in said and "exit status 3" in document
    assert "figure" in part(document, "one") and "figure" in part(document, "three")


def test_a_wrong_name_is_answered_with_the_nearest(bench):
    status, document, said = bench("figure", "--sections", "one tow")
    assert status == 1 and document is None
    assert "no section of this name: tow; did you mean two? The sections: one, two, three" in said


def run_here(program):
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, sys.argv[1])\n{program}",
        os.path.join(ROOT, "bench"),
    ]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


def test_the_rest_follows_this_runs_pace():
    run_here(
        "from run import estimate_rest\n"
        "from sections import Section\n"
        "all = [Section(name, name, 10) for name in 'abc']\n"
        "assert estimate_rest(all, {}, {}) == 30\n"
        "assert estimate_rest(all, {}, {'b': 100}) == 120\n"
        "assert estimate_rest(all, {'a': 30.0}, {'b': 100}) == 3 * 110\n"
    )


def test_the_document_in_the_tree_is_read_and_every_program_is_there():
    run_here(
        "import os, measurements, sections\n"
        "from common import ROOT\n"
        "parts = measurements.split(measurements.read(os.path.join(ROOT, 'docs', 'measurements.md')))\n"
        "names = [section.name for section in sections.SECTIONS]\n"
        "found = [name for name, _ in parts]\n"
        "assert found and found == [name for name in names if name in found], found\n"
        "for section in sections.SECTIONS:\n"
        "    path = section.file + ('.c' if section.is_c else '.py')\n"
        "    assert os.path.exists(os.path.join(ROOT, 'bench', path)), path\n"
    )
