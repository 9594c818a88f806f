"""The documentation tells the truth: Python blocks run, generated tables are current, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def list_blocks() -> list:
    found = []
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text())):
            found.append(pytest.param(match[1], id=f"{page.stem}-{number}"))
    return found


@pytest.mark.parametrize("code", list_blocks())
def test_python_block_runs(code: str, python, tmp_path) -> None:
    python(code, cwd=tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert not missing, f"{page.name} links to files that do not exist"


@pytest.mark.parametrize(
    "tool",
    [
        "gen_options.py",
        "gen_cuda_table.py",
        "gen_diopi.py",
        "gen_operators.py",
        "gen_diopi_support.py",
        "gen_stub.py",
        "gen_keywords.py",
    ],
)
def test_generated_file_is_current(tool: str, python) -> None:
    result = python(str(ROOT / "tools" / tool), "--check", check=False, warm=True)
    assert result.returncode == 0, result.stdout + result.stderr
