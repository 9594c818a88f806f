"""The report in a real browser: it renders, sorts, filters, opens rows, and says nothing on the console."""

import json
import re

import browser
import pytest
from ditorch import report
from record_log import Log
from report_runs import write_hostile, write_run
from test_report import CHANGED, MEASURED

chromium = browser.find()
pytestmark = pytest.mark.skipif(chromium is None, reason="no chromium here (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def page():
    one = browser.Browser(chromium)
    yield one
    one.close()


def show(page, tmp_path, *folders):
    path = tmp_path / "report.html"
    path.write_text(report.make(folders)[0])
    page.open(path)
    return path


def column(page, table, place):
    cells = f"[...document.querySelectorAll('#{table} tbody tr:not(.open)')].map(row => row.cells[{place}].textContent)"
    return page.run(cells)


def test_it_renders_sorts_filters_and_opens(page, tmp_path):
    show(page, tmp_path, write_run(tmp_path / "run-001"))
    assert page.run("document.querySelector('h1').textContent") == "torch.nn.functional.layer_norm gives wrong results"
    assert page.run("document.querySelectorAll('main > section').length") == 14
    page.wait("document.querySelectorAll('#wrong-table tbody tr').length == 12")
    assert page.run("document.querySelectorAll('#growth polyline').length") >= 1
    assert page.run("document.querySelectorAll('#flame .flame button').length") > 5
    assert page.run("document.querySelectorAll('#timeline rect').length") > 3
    assert page.run("document.querySelectorAll('#memory polyline').length") == 3
    before = column(page, "operator-table", 0)
    assert before[0] == "torch.nn.functional.layer_norm"
    page.run("document.querySelector('#operator-table th button').click()")
    assert column(page, "operator-table", 0) == sorted(before)
    page.run("document.querySelectorAll('#operator-table th button')[1].click()")
    calls = [int(text.replace(",", "")) for text in column(page, "operator-table", 1)]
    assert calls == sorted(calls, reverse=True)
    search = "document.getElementById('operator-table-filter')"
    page.run(f"{search}.value = 'NORM layer'; {search}.dispatchEvent(new Event('input'))")
    assert column(page, "operator-table", 0) == ["torch.nn.functional.layer_norm"]
    page.run("document.querySelector('#operator-table tbody tr').click()")
    page.wait("document.querySelector('#operator-table tr.open table')")
    text = page.run("document.querySelector('#operator-table tr.open').textContent")
    assert "GPT.blocks.0.norm" in text and "float32[4,8]" in text
    assert page.errors == []


def test_what_the_tools_changed(page, tmp_path):
    folder = write_run(tmp_path / "run-001")
    show(page, tmp_path, folder)
    assert "not measured: --baseline" in page.run("document.querySelector('#effect').textContent")
    file = folder / "run-r0-p100.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "observer": {**MEASURED, "loss": CHANGED}}))
    show(page, tmp_path, folder)
    cells = [column(page, "effect-table", place)[0] for place in (1, 2, 3, 5, 6)]
    assert cells == ["2.5 \N{MULTIPLICATION SIGN}", "50 ms", "20 ms", "loss 3 is 1.5, the baseline's 1.25", "+2 MiB"]
    assert page.run("document.querySelector('#effect-table .bad').textContent").startswith("loss 3")
    assert "the tools CHANGED" in page.run("document.querySelector('#verdict').textContent")
    assert page.errors == []


def test_keys_theme_flame_and_timeline(page, tmp_path):
    show(page, tmp_path, write_run(tmp_path / "run-001"))
    theme = page.run("document.documentElement.dataset.theme")
    page.press("t")
    assert page.run("document.documentElement.dataset.theme") != theme
    page.press("/")
    assert page.run("document.activeElement.id") == "operator-table-filter"
    page.run("document.activeElement.blur()")
    page.press("?")
    assert page.run("document.getElementById('help').open") is True
    page.run("document.getElementById('help').close()")
    count = page.run("document.querySelectorAll('#flame .flame button').length")
    page.run("[...document.querySelectorAll('#flame .flame button')].find(b => b.textContent == '1').click()")
    assert page.run("document.querySelectorAll('#flame .flame button').length") < count
    page.wait("document.querySelector('#timeline canvas') && document.querySelector('#timeline canvas').width > 100")
    page.run("document.querySelector('#timeline canvas').focus()")
    picture = "document.querySelector('#timeline canvas').toDataURL()"
    whole = page.run(picture)
    page.press("+")
    assert page.run(picture) != whole
    page.press("0")
    assert page.run(picture) == whole and page.errors == []


def test_a_hostile_log_stays_text(page, tmp_path):
    path = show(page, tmp_path, write_hostile(tmp_path / "run-001"))
    page.wait("document.querySelectorAll('#slow-table tbody tr').length > 0")
    assert page.run("window.pwned === undefined && document.title.includes('</script>')")
    assert page.run("document.querySelectorAll('img, iframe, main script').length") == 0
    assert page.run("document.querySelector('h1').textContent").startswith("</script><script>")
    assert page.errors == []
    assert not re.search(r"<script>window\.pwned", path.read_text())


def test_the_policy_refuses_what_is_not_ours(page, tmp_path):
    """Also if a mistake in the scripts ever put markup into the page."""
    show(page, tmp_path, write_run(tmp_path / "run-001"))
    page.run(
        "document.body.append(document.createRange().createContextualFragment('<script>window.pwned = 1</script>'))"
    )
    page.run(
        "document.body.append(document.createRange().createContextualFragment('<img src=\"https://example.com/x\">'))"
    )
    assert page.run("window.pwned") is None
    page.wait("true")
    assert any("Content Security Policy" in error for error in page.errors)


def test_an_empty_run(page, tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log/ops-r0-p1.dlog").write_bytes(bytes(Log().data))
    show(page, tmp_path, tmp_path / "log")
    assert page.run("document.querySelector('h1').textContent") == "No operator call was recorded"
    assert page.errors == []
