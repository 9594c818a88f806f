"""Ground truth from a child process without ditorch, and the results as JSON for docs/libraries.md."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import ditorch  # before any library asks torch.cuda
import pytest

HERE = Path(__file__).resolve().parent
RESULTS = Path(os.environ.get("DIT_LIBRARIES_JSON") or HERE.parents[1] / "build" / "libraries.json")

sys.path.insert(0, str(HERE))


def plain_environment() -> dict[str, str]:
    """The environment of a program that has never heard of ditorch."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(ditorch.__file__)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DITORCH_")}
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = [path for path in paths if os.path.abspath(path) != home]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """Function: the CPU's answers of all programs of a module, computed once."""
    known: dict[str, dict] = {}

    def run(module: str) -> dict:
        if module not in known:
            folder = tmp_path_factory.mktemp(f"cpu_{module}")
            answer = subprocess.run(
                [sys.executable, "-W", "ignore", "-m", "programs", module, str(folder)],
                capture_output=True,
                text=True,
                cwd=HERE,
                env=plain_environment(),
                timeout=900,
            )
            assert answer.returncode == 0, f"the CPU's run of {module} failed\n{answer.stderr[-4000:]}"
            known[module] = json.loads(answer.stdout.strip().splitlines()[-1])
        return known[module]

    return run


def version_of(library: str) -> str:
    try:
        return importlib.metadata.version(library.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return ""


def pytest_configure(config) -> None:
    config.addinivalue_line("markers", "feature(library, text, variant, outcome): a line of docs/libraries.md")
    config._library_results = {}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    mark = item.get_closest_marker("feature")
    if mark is None or (report.when != "call" and report.passed):
        return
    library, text, variant = (*mark.args, "", "")[:3]
    good = mark.kwargs.get("outcome", "works")
    result = {"passed": good, "failed": "fails", "skipped": "skipped"}[report.outcome]
    row = {
        "library": library,
        "feature": text,
        "variant": variant,
        "result": result,
        "seconds": round(call.duration, 2),
    }
    row["version"] = version_of(library)
    if report.skipped and isinstance(report.longrepr, tuple):
        row["note"] = report.longrepr[2].removeprefix("Skipped: ")
    item.config._library_results[f"{library}: {item.name}"] = row


def pytest_sessionfinish(session) -> None:
    """Add this run's rows to the file; rows of tests that did not run stay."""
    results = session.config._library_results
    if not results:
        return
    try:
        rows = json.loads(RESULTS.read_text())["rows"]
    except (OSError, ValueError, KeyError):
        rows = {}
    rows.update({key: row for key, row in results.items() if row["result"] != "skipped" or key not in rows})
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"torch": version_of("torch"), "rows": dict(sorted(rows.items()))}, indent=1) + "\n")
