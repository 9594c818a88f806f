"""The results as JUnit XML: a suite per dtype, a case per entry.

A crash and a timeout are errors, other wrong pairs failures; what was not run, is expected to fail or has no reference
is skipped, with the reason. Characters that XML cannot hold are replaced. Depends on report.py.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from .report import Summary, write_file

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(path: str, about: dict[str, Any], summary: Summary) -> None:
    root = ElementTree.Element("testsuites", name="ditorch test-device")
    for dtype in summary.dtypes:
        _add_suite(root, dtype, [r for r in summary.results if r["dtype"] == dtype], about)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name)) for suite in root)))
    root.set("time", f"{sum(float(suite.get('time')) for suite in root):.3f}")
    ElementTree.indent(root)
    write_file(path, '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n")


def _add_suite(root: Any, dtype: str, results: list[dict[str, Any]], about: dict[str, Any]) -> None:
    suite = ElementTree.SubElement(root, "testsuite", name=dtype)
    properties = ElementTree.SubElement(suite, "properties")
    for name in ("ditorch", "torch", "backend", "device", "expect"):
        ElementTree.SubElement(properties, "property", name=name, value=_clean(str(about[name])))
    kinds = [_add_case(suite, result) for result in results]
    suite.set("tests", str(len(results)))
    for name, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(kinds.count(kind)))
    suite.set("time", f"{sum(result['seconds'] for result in results):.3f}")


def _add_case(suite: Any, result: dict[str, Any]) -> str:
    """Returns the kind of its child: failure, error, skipped or nothing."""
    names = {"classname": f"test_device.{result['dtype']}", "name": result["entry"], "time": f"{result['seconds']:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", names)
    if result["verdict"] == "pass":
        return ""
    if result["verdict"] == "wrong":
        kind = "error" if result["status"] in ("crash", "timeout") else "failure"
        text = _clean(result["why"])
        ElementTree.SubElement(case, kind, message=text[:300], type=result["status"]).text = text
        return kind
    why = {"expected": "expected failure", "skipped": "not run", "no_reference": "the CPU cannot run it"}
    why["undecided"] = "no value could be judged"
    text = f"{why[result['verdict']]}: {result['reason'] or result['message']}"
    ElementTree.SubElement(case, "skipped", message=_clean(text)[:300])
    return "skipped"


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
