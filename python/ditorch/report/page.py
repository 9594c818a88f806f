"""The page: template, style and scripts of this folder and the data, in one file.

Two rules keep a hostile log harmless. What this module writes into the markup is escaped, and data stands in elements
that browsers do not run, with every `<` written as an escape; the scripts put it into the page as text alone. And the
page's own policy allows no network, and no script or style but those with the fingerprints made here.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import zlib
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ("dom.js", "table.js", "charts.js", "timeline.js", "page.js")
_WORDS = {"wrong": "wrong", "nan": "NaN or Inf", "sound": "sound", "nothing": "open"}


def make_page(data: dict[str, Any]) -> str:
    """One HTML file."""
    style = _read("page.css")
    script = f"\n'use strict';\n(() => {{\n{''.join(map(_read, SCRIPTS))}}})();\n"
    verdict = data["page"]["verdict"]
    packed = zlib.compress(json.dumps(data["details"], separators=(",", ":"), allow_nan=False).encode("ascii"), 9)
    parts = {
        "policy": f"default-src 'none'; script-src '{fingerprint(script)}'; style-src '{fingerprint(style)}'; "
        "base-uri 'none'; form-action 'none'",
        "title": _escape(f"ditorch report: {verdict['sentence']}"),
        "style": style,
        "verdict": _make_verdict(verdict),
        "line": _escape(_describe(data["page"])),
        "data": encode(data["page"]),
        "details": base64.b64encode(packed).decode("ascii"),
        "script": script,
    }
    page = _read("page.html")
    pieces = page.split("@@")
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def encode(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends the element or begins another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _read(name: str) -> str:
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


def fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _escape(text: Any) -> str:
    return html.escape(str(text).encode("utf-8", "replace").decode("utf-8"))


def _describe(page: dict[str, Any]) -> str:
    runs = page["runs"]
    names = ", ".join(run["label"] for run in runs[:4]) + (" ..." if len(runs) > 4 else "")
    lanes = len(page["lanes"])
    return f"{names} · {lanes} process{'' if lanes == 1 else 'es'} · {page['records']:,} records · {page['made']}"


def _make_verdict(verdict: dict[str, Any]) -> str:
    """As markup, so that it can be read without scripts too."""
    state = verdict["state"]
    lines = [
        f'<section id="verdict" class="verdict {_escape(state)}">',
        f'<p class="mark">{_escape(_WORDS.get(state, state))}</p>',
        f"<h1>{_escape(verdict['sentence'])}</h1>",
    ]
    if verdict["notes"]:
        lines.append(f'<p class="notes">{_escape("; ".join(verdict["notes"]))}</p>')
    for answer in verdict["answers"]:
        lines += [
            '<article class="answer">',
            f"<h2>{_escape(answer['title'])}</h2>" if len(verdict["answers"]) > 1 else "",
            f'<p class="sure"><b class="{_escape(answer["sure"].split()[0])}">{_escape(answer["sure"])}</b> '
            f"{_escape(answer['why'])}.</p>",
            "<dl>",
            *(f"<dt>{_escape(label)}</dt><dd>{_escape(text)}</dd>" for label, text in answer["facts"]),
            "</dl>",
        ]
        if answer["steps"]:
            lines.append('<ol class="steps">')
            for label, command in answer["steps"]:
                lines.append(f"<li><span>{_escape(label)}</span><code>{_escape(command)}</code></li>")
            lines.append("</ol>")
        lines.append("</article>")
    if verdict["more"]:
        lines.append(f"<p>{verdict['more']} more below.</p>")
    return "\n".join([*lines, "</section>"])
