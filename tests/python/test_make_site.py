"""The site's pages: every link leads to a page of the site or names a file; a broken one ends the build."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_site  # noqa: E402


def test_all_pages_are_laid_out(tmp_path):
    command = [sys.executable, ROOT / "tools/make_site.py", tmp_path / "site"]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (0, "")
    pages = tmp_path / "site/pages"
    assert "](report.md)" in (pages / "index.md").read_text() and (pages / "report.png").exists()
    assert "](../options.md)" in (pages / "tools/autocompare.md").read_text()
    nav = (tmp_path / "site/mkdocs.yml").read_text().partition("nav: ")[2]
    assert all(f'"{path.relative_to(pages)}"' in nav for path in pages.rglob("*.md"))


def test_links():
    pages, problems = {"README.md": "index.md", "docs/a.md": "a.md", "docs/tools/b.md": "tools/b.md"}, []
    text = "[`a [x]` b](../a.md#part) [c](../../src) [d](missing.md) [e](https://x.y/z) [f](#here) [g](../../README.md)"
    wanted = (
        "[`a [x]` b](../a.md#part) c (`src`) d (`docs/tools/missing.md`) [e](https://x.y/z) [f](#here) [g](../index.md)"
    )
    assert make_site.rewrite(text, "docs/tools/b.md", pages, problems) == wanted
    assert problems == ["docs/tools/b.md: missing.md does not exist"]
