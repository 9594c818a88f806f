"""The standard's table, its headers and the walk-through for vendors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(c|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def generate(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(folder / "tools" / "gen_diopi.py"), *words], capture_output=True, text=True, check=False
    )


def copy_tree(folder: Path) -> Path:
    """The generator and all it reads and writes, in a folder of their own."""
    for part in ("tools/gen_diopi.py", "standard/diopi.tsv"):
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / part, folder / part)
    shutil.copytree(ROOT / "include" / "diopi", folder / "include" / "diopi")
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "diopi-reference.md", folder / "docs")
    return folder


def test_everything_written_from_the_table_is_current():
    result = generate("--check")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("diopiTensorHandle_t out, diopiConstTensorHandle_t input)", "diopiTensorHandle_t out)", "not current"),
        ("int64_t groups", "int65_t groups", "has no known type"),
        ("\tfunctions_sparse.h\t", "\tfunctions_dense.h\t", "not well formed"),
        ("diopiSpMM\t", "diopiMm\t", "names functions twice: diopiMm"),
        ("Text of the last error", "", ""),
    ],
)
def test_a_wrong_table_is_noticed(tmp_path: Path, before: str, after: str, message: str):
    folder = copy_tree(tmp_path)
    table = folder / "standard" / "diopi.tsv"
    text = table.read_text()
    assert before in text
    table.write_text(text.replace(before, after, 1))
    result = generate("--check", folder=folder)
    assert result.returncode != 0 and message in result.stderr


def test_a_function_without_contract_is_noticed(tmp_path: Path):
    folder = copy_tree(tmp_path)
    table = folder / "standard" / "diopi.tsv"
    lines = table.read_text().split("\n")
    lines[5] = lines[5].rsplit("\t", 1)[0] + "\t"
    table.write_text("\n".join(lines))
    result = generate("--check", folder=folder)
    assert result.returncode != 0 and "without a contract: " + lines[5].split("\t")[0] in result.stderr


def test_walk_through_for_vendors_works(tmp_path: Path):
    """Every block of docs/diopi-vendor.md, in order: C goes into the file that its first line names, shell is run."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    environment = dict(os.environ, DITORCH_BANNER="0", OMP_NUM_THREADS="1")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    package = os.pathsep.join(part for part in sys.path if part and (Path(part) / "ditorch").is_dir())
    environment.update(PATH=path, PYTHONPATH=package)
    outputs = []
    for language, text in BLOCK.findall((ROOT / "docs" / "diopi-vendor.md").read_text()):
        if language == "c":
            name = re.match(r"// (\w+\.c):", text)[1]
            (tmp_path / name).write_text(text)
            continue
        result = subprocess.run(["sh", "-ec", text], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, text + result.stdout + result.stderr
        outputs.append(result.stdout + result.stderr)
    assert re.search(r"diopiRelu +\| implemented", outputs[1]) and re.search(r"diopiAdd +\| missing", outputs[1])
    assert re.search(r"diopiRelu\b.*\d", outputs[3])
    assert re.search(r"\d+ cases: \d+ pass, \d+ unsupported$", outputs[3], re.MULTILINE)
    assert "pass        library/names" in outputs[3] and not re.search(r"^fail", outputs[3], re.MULTILINE), outputs[3]
    assert re.search(r"\d+ cases: \d+ pass$", outputs[4], re.MULTILINE)
    assert re.search(r"adaptor: \d+ cases direct, \d+ cases converted, \d+ cases composed", outputs[4])
