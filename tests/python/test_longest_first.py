"""The order of the files, and the table that it follows."""

import json
import os
import pathlib
from types import SimpleNamespace

import longest_first

HERE = os.path.dirname(os.path.abspath(__file__))


def report(file, name, seconds):
    return SimpleNamespace(nodeid=f"tests/python/{file}::{name}", duration=seconds)


def test_files_that_take_longest_are_first(monkeypatch, tmp_path):
    (tmp_path / "durations.json").write_text(json.dumps({"test_b.py": 7, "test_c.py": 90}))
    read = longest_first.read_table
    monkeypatch.setattr(longest_first, "read_table", lambda: read(tmp_path / "durations.json"))
    items = [SimpleNamespace(path=pathlib.Path(f"x/test_{name}.py"), place=n) for n, name in enumerate("abdcb")]
    longest_first.pytest_collection_modifyitems(items)
    assert [item.place for item in items] == [3, 1, 4, 0, 2]
    assert read(tmp_path / "nothing.json") == {}


def test_the_table_is_the_sum_of_all_phases(monkeypatch, tmp_path):
    rows = {"": [report("test_a.py", "one", 2.0), report("test_b.py", "one", 0.5)], "passed": [
        report("test_a.py", "one", 0.6), report("test_c.py", "two", 4.0)], "warnings": [object()]}  # fmt: skip
    path = tmp_path / "table.json"
    monkeypatch.setenv("DIT_DURATIONS", str(path))
    longest_first.pytest_terminal_summary(SimpleNamespace(stats=rows), 1)
    assert not path.exists()
    longest_first.pytest_terminal_summary(SimpleNamespace(stats=rows), 0)
    assert longest_first.read_table(path) == {"test_c.py": 4, "test_a.py": 3} and path.read_text().index("_c") < 12


def test_every_file_of_the_table_is_there():
    assert [name for name in longest_first.read_table() if not os.path.exists(os.path.join(HERE, name))] == []
