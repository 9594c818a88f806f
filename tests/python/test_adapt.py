"""The adaptor (libdiopi_adapt.so): a library of one function and one of 25 primitives, and what the suite says of them
through it. The libraries are built as a vendor builds them, with a C compiler and the headers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from ditorch.conform import cli, report

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def build(folder: Path, source: Path, name: str) -> str:
    library = folder / f"libdiopi_{name}.so"
    words = ["cc", "-std=c11", "-O2", "-Wall", "-Werror", "-fPIC", "-shared", f"-I{ROOT / 'include'}"]
    subprocess.run([*words, str(source), "-o", str(library), "-lm"], check=True)
    return str(library)


@pytest.fixture(scope="module")
def mychip(tmp_path_factory) -> str:
    """The library of docs/diopi-vendor.md: relu for contiguous float32."""
    folder = tmp_path_factory.mktemp("mychip")
    text = (ROOT / "docs" / "diopi-vendor.md").read_text()
    (folder / "mychip.c").write_text(re.search(r"^```c\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1])
    return build(folder, folder / "mychip.c", "mychip")


@pytest.fixture(scope="module")
def primitives(tmp_path_factory) -> str:
    return build(tmp_path_factory.mktemp("primitives"), ROOT / "tests/c/vendors/primitives.c", "primitives")


def run(monkeypatch, capsys, tmp_path, library: str, *words: str, rules: str = "", through: bool = True):
    """Totals, rows and what was printed."""
    monkeypatch.setenv("DITORCH_ADAPT_LIB", library)
    if rules:
        (tmp_path / "rules.yaml").write_text(rules)
        monkeypatch.setenv("DITORCH_ADAPT_RULES", str(tmp_path / "rules.yaml"))
    path = tmp_path / "out.json"
    name = "adapt" if through else library
    cli.main(["run", "--library", name, "--jobs", "2", "--json", str(path), *words])
    table = json.loads(path.read_text())
    return table["totals"], table["cases"], capsys.readouterr().out


def test_relu_of_the_vendor_page_passes_every_case(monkeypatch, capsys, tmp_path, mychip):
    """Without the adaptor only contiguous float32; with it every dtype and layout, and the in-place form."""
    totals, rows, _ = run(monkeypatch, capsys, tmp_path, mychip, "--function", "diopiRelu", through=False)
    assert totals["cases"]["unsupported"] > 50 and totals["cases"]["fail"] == 0 and "adapt" not in totals
    totals, rows, out = run(monkeypatch, capsys, tmp_path, mychip, "--function", "diopiRelu", "diopiReluInp")
    assert totals["cases"]["pass"] == len(rows) > 200, [row for row in rows if row["verdict"] != "pass"][:3]
    ways = totals["adapt"]
    assert ways["direct"] > 0 and ways["converted"] > 50 and ways["composed"] > 50
    assert f"adaptor: {ways['direct']} cases direct" in out


@pytest.mark.parametrize(
    ("families", "least"),
    [(("pointwise_binary", "comparison"), 0.85), (("shape_layout", "reduction"), 0.85)],
)
def test_primitives_make_most_of_a_family(monkeypatch, capsys, tmp_path, primitives, families, least):
    totals, rows, _ = run(monkeypatch, capsys, tmp_path, primitives, "--family", *families, "--share", "0.02")
    assert totals["cases"]["fail"] == 0, report.format_failures(rows, 2)
    assert totals["cases"]["pass"] >= least * len(rows)


@pytest.mark.full
def test_primitives_pass_most_of_the_suite(monkeypatch, capsys, tmp_path, primitives):
    totals, rows, _ = run(monkeypatch, capsys, tmp_path, primitives)
    assert totals["cases"]["fail"] == 0, report.format_failures(rows, 2)
    assert totals["cases"]["pass"] >= 0.6 * len(rows)


NARROW = "- common_config:\n    layout: NCHW\n    dtype: (float16, bfloat16)->float32, (int8, uint8, int16)->int32\n"


def test_copies_hide_nothing_from_a_library(monkeypatch, capsys, tmp_path):
    """Numbers that the caller's dtype cannot hold, the lowest number of it, the values of a sparse matrix, and masks of
    bytes, which are truth values."""
    cases = ("diopiMaskedFillInpScalar/unfit-float16/*", "diopiScatterInpScalar/unfit-int8/*", "diopiPad/unfit-int8/*")
    cases += ("diopiSpMM/basic/*16/strided/*", "diopiBatchApplyTemperaturePenaltyInp/basic/*16/contiguous/*")
    cases += ("diopiCustomizedFlashAttention/basic/float32/strided/*",)
    totals, rows, _ = run(monkeypatch, capsys, tmp_path, "host", "--case", *cases, rules=NARROW)
    assert totals["cases"]["pass"] == len(rows) > 20, report.format_failures(rows, 2)
    assert totals["adapt"]["converted"] > 10


@pytest.mark.full
def test_a_whole_library_stays_right_under_rules(monkeypatch, capsys, tmp_path):
    """Every function of the host library with converted dtypes and layouts: results, gaps and inputs stay as they
    should."""
    totals, rows, _ = run(monkeypatch, capsys, tmp_path, "host", "--share", "0.1", rules=NARROW)
    assert totals["cases"]["pass"] == len(rows), report.format_failures(rows, 2)
    assert totals["adapt"]["converted"] > 0.3 * len(rows)


def test_a_rule_narrows_and_a_bad_one_names_the_nearest(monkeypatch, capsys, tmp_path, primitives):
    """float64 by float32 is what the rule says, and less than the suite asks for."""
    words = ("--function", "diopiExp", "--dtype", "float64", "--layout", "contiguous")
    rules = "- diopiExp:\n    dtype: (float64)->float32\n"
    totals, _, _ = run(monkeypatch, capsys, tmp_path, primitives, *words, rules=rules)
    assert totals["cases"]["fail"] > 0 and totals["adapt"]["converted"] > 0
    (tmp_path / "rules.yaml").write_text("- diopiExq:\n    layout: ND\n")
    assert cli.main(["run", "--library", "adapt", *words, "--jobs", "1"]) != 0
    captured = capsys.readouterr()
    assert "did you mean 'diopiExp'?" in captured.out + captured.err
