"""Results as JUnit XML: suites of cases. Characters that XML cannot hold are replaced."""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from xml.etree import ElementTree

from .output import write_whole

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_KINDS = {"failures": "failure", "errors": "error", "skipped": "skipped"}


class Case(NamedTuple):
    """A test: `kind` is failure, error, skipped, or empty for one that passed; `type` and `text` say more."""

    group: str
    name: str
    seconds: float
    kind: str = ""
    type: str = ""
    text: str = ""


def write(path: str, title: str, about: dict[str, Any], suites: dict[str, list[Case]]) -> None:
    """`about`: the properties of every suite."""
    root = ElementTree.Element("testsuites", name=title)
    for name, cases in suites.items():
        _add_suite(root, name, cases, about)
    for name in ("tests", *_KINDS):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", f"{sum(case.seconds for cases in suites.values() for case in cases):.3f}")
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    write_whole(path, f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')


def _add_suite(root: Any, name: str, cases: list[Case], about: dict[str, Any]) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(cases)))
    for key, kind in _KINDS.items():
        suite.set(key, str(sum(case.kind == kind for case in cases)))
    suite.set("time", f"{sum(case.seconds for case in cases):.3f}")
    properties = ElementTree.SubElement(suite, "properties")
    for key, value in about.items():
        ElementTree.SubElement(properties, "property", name=key, value=_clean(str(value)))
    for case in cases:
        _add_case(suite, case)


def _add_case(suite: Any, case: Case) -> None:
    names = {"classname": case.group, "name": case.name, "time": f"{case.seconds:.6f}"}
    element = ElementTree.SubElement(suite, "testcase", names)
    if not case.kind:
        return
    text = _clean(case.text)
    child = ElementTree.SubElement(element, case.kind, message=text[:300])
    if case.kind != "skipped":
        child.set("type", case.type)
        child.text = text


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
