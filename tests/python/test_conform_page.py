"""The page of `ditorch conform run --html`: every number and reason of the rows stands where it belongs, escaped."""

from html.parser import HTMLParser

from ditorch.conform import cli, page, report


def make_row(case, verdict, **more):
    function = case.split("/")[0]
    return {"id": case, "function": function, "verdict": verdict, "reason": "", "text": "", "seconds": 0.5, **more}


class Tables(HTMLParser):
    """Headings of a page and, below each, the rows of its tables: (class, text) of every cell."""

    def __init__(self, text):
        super().__init__()
        self.parts, self.heading, self.tags, self.scripts = {"": []}, "", [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.parts[self.heading].append([])
        elif tag in ("td", "th"):
            self.parts[self.heading][-1].append([dict(attrs).get("class", ""), ""])
        elif tag in ("h1", "h2"):
            self.heading = ""

    def handle_data(self, data):
        inside = self.tags[-1][0] if self.tags else ""
        if inside in ("h1", "h2") and not self.heading:
            self.heading = data
            self.parts[data] = []
        elif inside == "script" and data.strip():
            self.scripts.append(data)
        elif self.parts[self.heading] and self.parts[self.heading][-1]:
            self.parts[self.heading][-1][-1][1] += data.strip("\n")


ODD_ROWS = (
    ("diopiA/e/float32/contiguous/0", "pass", {}),
    ("diopiA/e/float32/strided/0", "fail", {"kind": "value", "reason": "out[0] is <1>, expected 2 & more"}),
    ("diopiA/e/bfloat16/contiguous/0", "unsupported", {"reason": "diopiDtypeNotSupported"}),
    ("diopiB/e/float32/contiguous/0", "crash", {"kind": "crash", "reason": "by signal 11", "text": "</script>oh"}),
    ("diopiC/e/int64/contiguous/0", "missing", {"reason": "diopiNoImplement"}),
    ("diopiD/e/int64/contiguous/0", "skipped", {"reason": "the chip is cold"}),
    ("diopiD/e/int64/contiguous/1", "skipped", {"reason": "the chip is cold"}),
    ("diopiE/e/bool/contiguous/0", "pass", {}),
    ("diopiE/e/bool/contiguous/1", "pass", {}),
)


def test_the_page_tells_what_the_rows_tell():
    rows = [make_row(name, verdict, **more) for name, verdict, more in ODD_ROWS]
    text = page.make({"library": "lib<x>.so", "seed": 3, "pack": ""}, rows)
    found = Tables(text)
    assert "<title>Conformance of lib&lt;x&gt;.so</title>" in text and "<li>seed: 3</li>" in text
    assert "pack" not in text.split("<h2>")[0]  # what is empty is not told
    for line in report.format_totals(report.summarize(rows)).splitlines():
        assert line in text
    assert found.parts["Failures"][1:] == [
        [["", "diopiA/e/float32/strided/0"], ["", "value"], ["", "out[0] is <1>, expected 2 & more"]],
        [["", "diopiB/e/float32/contiguous/0"], ["", "crash"], ["", "by signal 11 [</script>oh]"]],
    ]
    head, *lines = found.parts["Functions by dtype"]
    assert [text for _, text in head] == ["function", "verdict", "float32", "bfloat16", "int64", "bool"]
    assert lines == [
        [["", "diopiA"], ["fail", "fail"], ["n fail", "1/2"], ["n unsupported", "0/1"], ["n ", ""], ["n ", ""]],
        [["", "diopiB"], ["fail", "fail"], ["n fail", "0/1"], ["n ", ""], ["n ", ""], ["n ", ""]],
        [["", "diopiC"], ["missing", "missing"], ["n ", ""], ["n ", ""], ["n missing", "0/1"], ["n ", ""]],
        [["", "diopiD"], ["skipped", "skipped"], ["n ", ""], ["n ", ""], ["n skipped", "0/2"], ["n ", ""]],
        [["", "diopiE"], ["pass", "pass"], ["n ", ""], ["n ", ""], ["n ", ""], ["n pass", "2"]],
    ]
    assert [[text for _, text in line] for line in found.parts["Not run"][1:]] == [
        ["diopiA", "unsupported", "diopiDtypeNotSupported", "1"],
        ["diopiC", "missing", "diopiNoImplement", "1"],
        ["diopiD", "skipped", "the chip is cold", "2"],
    ]
    # the filter works on rows with a name, and nothing is loaded from elsewhere
    assert len(found.scripts) == 1 and "getElementById('filter')" in found.scripts[0]
    assert ("input", {"id": "filter", "placeholder": "show functions with this in their name"}) in found.tags
    assert [attrs["data-name"] for tag, attrs in found.tags if tag == "tr" and "data-name" in attrs][:3] == [
        "diopiA/e/float32/strided/0",
        "diopiB/e/float32/contiguous/0",
        "diopiA",
    ]
    assert not any({"src", "href"} & set(attrs) for _, attrs in found.tags) and "@import" not in text


def test_the_page_of_a_run_without_failures(tmp_path):
    path, ids = tmp_path / "out.html", "diopiSoftmax/basic/float32/contiguous/[012]"
    assert cli.main(["run", "--case", ids, "--jobs", "1", "--quiet", "--html", str(path)]) == 0
    found = Tables(path.read_text())
    assert "No case failed." in path.read_text() and "Every case ran." in path.read_text()
    assert [text for _, text in found.parts["Functions by dtype"][1]] == ["diopiSoftmax", "pass", "3"]


def test_the_page_counts_failures_that_it_does_not_write_out(monkeypatch):
    monkeypatch.setattr(page, "_COUNTED", 2)
    rows = [make_row(f"diopiA/e/float32/contiguous/{i}", "fail", kind="value", reason="bad") for i in range(5)]
    text = page.make({"library": "x"}, rows)
    assert len(Tables(text).parts["Failures"]) == 3 and "and 3 more" in text
