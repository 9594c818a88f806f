"""The files that take longest come first, so that no worker is left with one of them while the others are done.

durations.json has the seconds of every file that takes some; `make durations` writes it anew.
"""

import collections
import json
import os

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "durations.json")
LEAST = 2
"""Seconds; a file that takes less matters to no worker."""


def read_table(path=TABLE):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def pytest_collection_modifyitems(items):
    seconds = read_table()
    items.sort(key=lambda item: -seconds.get(item.path.name, 0))


def sum_by_file(reports):
    """Whole seconds by file, the longest first."""
    taken = collections.Counter()
    for report in reports:
        taken[os.path.basename(report.nodeid.partition("::")[0])] += report.duration
    return {name: round(seconds) for name, seconds in taken.most_common() if seconds >= LEAST}


def pytest_terminal_summary(terminalreporter, exitstatus):
    """With DIT_DURATIONS=PATH, after a run without failures: write the table."""
    path = os.environ.get("DIT_DURATIONS")
    if path and exitstatus == 0:
        reports = [r for rows in terminalreporter.stats.values() for r in rows if hasattr(r, "duration")]
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps(sum_by_file(reports), indent=0) + "\n")
