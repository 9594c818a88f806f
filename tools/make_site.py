"""Lay the documentation out for MkDocs: make_site.py build/site-source

Pages are copied as they are; the first page is README.md, the order is that of its table "Find your way". A link to a
page becomes a link of the site, a link to a file of the source tree becomes the file's name. A link that leads nowhere
ends it.
"""

from __future__ import annotations

import json
import posixpath
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[((?:[^\]`]|`[^`]*`)*)\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
TOP = {
    "README.md": "index.md",
    "README.zh-CN.md": "index.zh-CN.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
SETTINGS = """site_name: ditorch
docs_dir: pages
use_directory_urls: false
theme:
  name: material
  font: false
  features: [navigation.top, content.code.copy, search.highlight]
  palette:
    - media: "(prefers-color-scheme: light)"
      scheme: default
      toggle: {icon: material/weather-night, name: dark}
    - media: "(prefers-color-scheme: dark)"
      scheme: slate
      toggle: {icon: material/weather-sunny, name: light}
plugins: [search, offline]
markdown_extensions: [tables, admonition, pymdownx.superfences, {toc: {permalink: true}}]
validation: {links: {not_found: warn, anchors: info, unrecognized_links: warn}, nav: {omitted_files: warn}}
nav: """


def list_pages() -> dict[str, str]:
    """Path in the repository -> path in the site."""
    pages = {name: place for name, place in TOP.items() if (ROOT / name).exists()}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        inside = path.relative_to(ROOT / "docs").as_posix()
        pages[f"docs/{inside}"] = inside.replace("README.md", "index.md")
    return pages


def rewrite(text: str, source: str, pages: dict[str, str], problems: list[str]) -> str:
    """The page's text with the site's links."""
    here = posixpath.dirname(pages[source]) or "."

    def change(match: re.Match) -> str:
        mark, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in pages:
            return f"{mark}[{words}]({posixpath.relpath(pages[path], here)}{anchor})"
        if mark and path.startswith("docs/") and (ROOT / path).exists():
            return f"{mark}[{words}]({posixpath.relpath(path.removeprefix('docs/'), here)})"
        if not (ROOT / path).exists():
            problems.append(f"{source}: {target} does not exist")
        return f"{words} (`{path}`)"

    return LINK.sub(change, text)


def order(pages: dict[str, str]) -> list[str]:
    """Sources, those of the README's table first."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Find your way")[2]
    named = [posixpath.normpath(target) for _, _, target, _ in LINK.findall(table)]
    return list(dict.fromkeys(name for name in [*TOP, *named, *sorted(pages)] if name in pages))


def make_nav(pages: dict[str, str]) -> list:
    """First page, the pages in order, the tools' pages by themselves, and the rest of the top."""
    sources = order(pages)
    tools = [pages[name] for name in sources if name.startswith("docs/tools/")]
    others = [pages[name] for name in sources if name.startswith("docs/") and not name.startswith("docs/tools/")]
    tools.sort(key=lambda place: not place.endswith("index.md"))
    top = [place for name, place in TOP.items() if name in pages]
    return [*top[:2], {"Pages": others}, {"The tools": tools}, *top[2:]]


def main(words: list[str]) -> int:
    folder = Path(words[0])
    shutil.rmtree(folder, ignore_errors=True)
    pages, problems = list_pages(), []
    for source, place in pages.items():
        target = folder / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / source).read_text(encoding="utf-8")
        target.write_text(rewrite(text, source, pages, problems), encoding="utf-8")
    for picture in (ROOT / "docs").rglob("*.png"):
        shutil.copy(picture, folder / "pages" / picture.relative_to(ROOT / "docs"))
    (folder / "mkdocs.yml").write_text(SETTINGS + json.dumps(make_nav(pages)) + "\n", encoding="utf-8")
    for problem in problems:
        print(problem, file=sys.stderr)
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
