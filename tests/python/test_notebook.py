"""What notebooks ask objects for: HTML and data frames."""

import sys
import types

import ditorch
import pytest
import torch
from ditorch.table import Table, make_key
from op_tools import OpAutoCompare, OpFallback, OpObserve, OpTimeMeasure


def test_table_is_html_text_and_keys_without_blanks():
    table = Table(("op", "total ms", "share %"), [{"op": "<b>", "total ms": 1.5, "share %": None}] * 61)
    assert table.row_keys == ("op", "total_ms", "share_percent") == tuple(table[0])
    assert str(table).splitlines()[0].split() == ["op", "total", "ms", "share", "%"] and "1.500" in str(table)
    text = table._repr_html_()
    assert "<th>total ms</th>" in text and "<td>&lt;b&gt;</td>" in text and "<b>" not in text
    assert text.count("<tr>") == 61 and "1 more rows" in text
    assert make_key("left on the device") == "left_on_the_device"


def test_to_pandas_is_lazy(monkeypatch):
    frames = []
    pandas = types.SimpleNamespace(DataFrame=lambda rows, columns=None: frames.append((rows, columns)) or "frame")
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert Table(("op", "total ms"), [{"op": "a", "total ms": 1}]).to_pandas() == "frame"
    assert frames == [([{"op": "a", "total_ms": 1}], ["op", "total_ms"])]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        ditorch.operators().to_pandas()


@pytest.mark.parametrize("tool", [OpTimeMeasure, OpAutoCompare, OpFallback, OpObserve])
def test_tools_show_themselves(tool, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=lambda rows, columns=None: rows))
    watch = tool(results=str(tmp_path), console="off")
    assert "off: 0 calls seen" in repr(watch) and watch._repr_html_().startswith("<p>&lt;")
    assert watch.to_pandas() == []
    with watch:
        torch.ones(4, device="cuda").add(1)
        assert " on: " in repr(watch)
    assert f"<{tool.__name__} off: " in repr(watch)
    rows = watch.to_pandas()
    assert all(" " not in key for row in rows for key in row)
    assert "<table>" in watch._repr_html_() or tool is OpObserve
