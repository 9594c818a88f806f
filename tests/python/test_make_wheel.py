"""tools/make_wheel.py: wheels for several versions of torch become one; its range is said the same everywhere."""

from __future__ import annotations

import csv
import io
import re
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import make_wheel  # noqa: E402


def _make(path, minor):
    files = {
        "ditorch/lib/libdit.so": f"built with {minor}",
        f"ditorch/lib/torch-{minor}/libdit_torch.so": minor,
        "ditorch-1.dist-info/METADATA": "Name: ditorch\nRequires-Dist: torch>=2.8,<2.16\nRequires-Dist: psutil\n",
        "ditorch-1.dist-info/RECORD": "old",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path


@pytest.mark.parametrize(
    ("minors", "text"),
    [
        ([(2, 13)], "torch>=2.13,<2.14"),
        ([(2, 9), (2, 10)], "torch>=2.9,<2.11"),
        ([(2, 9), (2, 12)], "torch>=2.9,<2.13,!=2.10.*,!=2.11.*"),
    ],
)
def test_the_range_is_that_of_the_adapters(minors, text):
    assert make_wheel.describe_range(minors) == text


def test_all_adapters_and_one_of_everything_else(tmp_path, monkeypatch):
    """auditwheel is not here; what it is given is looked at."""
    given = {}

    def repair(words, check):
        given.update(make_wheel.read(Path(words[-1])))
        Path(words[words.index("-w") + 1], "ditorch-1-tagged.whl").write_bytes(b"")

    monkeypatch.setattr(make_wheel.subprocess, "run", repair)
    wheels = [str(_make(tmp_path / f"ditorch-{minor}.whl", minor)) for minor in ("2.9", "2.10")]
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(sys, "argv", ["make_wheel.py", *wheels, "--out", str(tmp_path / "out")])
    assert make_wheel.main() == 0
    texts = {name: data.decode() for name, (_, data) in given.items()}
    assert texts["ditorch/lib/libdit.so"] == "built with 2.9"
    assert [texts[f"ditorch/lib/torch-{minor}/libdit_torch.so"] for minor in ("2.9", "2.10")] == ["2.9", "2.10"]
    assert "Requires-Dist: torch>=2.9,<2.11\nRequires-Dist: psutil" in texts["ditorch-1.dist-info/METADATA"]
    rows = {row[0] for row in csv.reader(io.StringIO(texts["ditorch-1.dist-info/RECORD"]))}
    assert rows == set(texts)


def test_the_range_is_said_the_same_everywhere():
    project = (ROOT / "pyproject.toml").read_text()
    low, high = re.search(r'"torch>=(\d+\.\d+),<(\d+\.\d+)"', project).groups()
    cmake = (ROOT / "adapter" / "CMakeLists.txt").read_text()
    assert f"VERSION_LESS {low} OR torch_version VERSION_GREATER_EQUAL {high}" in cmake
    last = f"2.{int(high.partition('.')[2]) - 1}"
    assert f"range {low} - {last}" in cmake and f"({low} to {last} can be)" in (ROOT / "README.md").read_text()
