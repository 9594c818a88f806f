"""ditorch.metrics: the numbers, the text, the file."""

import os
import re

import ditorch  # noqa: F401
import pytest
import torch
from ditorch import metrics

LINE = re.compile(r'^[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9]+$')


def test_dipu_22_off_by_default():
    metrics.reset()
    x = torch.ones(10, device="cuda")
    assert not metrics.is_metrics_enabled()
    assert [group.name for group in metrics.metrics()] == ["allocator_bytes"]
    del x


def test_dipu_22_groups_text_and_file_at_exit(python, tmp_path):
    result = python(
        """
        import torch, ditorch
        from ditorch import metrics
        assert metrics.is_metrics_enabled()
        x = torch.empty(1000, device="cuda:1")
        torch.cuda.set_device(0)
        del x
        try:
            torch.empty(1 << 40, device="cuda")
        except torch.OutOfMemoryError:
            pass
        groups = {group.name: group for group in metrics.metrics()}
        sizes = {tuple(labels.values()): value for labels, value in groups["allocator_size"].values}
        assert groups["allocator_size"].type == "histogram"
        freed = sizes["caching", "1", "deallocate"]  # by the owner, not by the current device
        assert freed["sum"] == 4000 and freed["count"] == 1
        assert freed["buckets"][freed["thresholds"].index(4096)] == 1 and sum(freed["buckets"]) == 1
        assert len(freed["buckets"]) == len(freed["thresholds"]) + 1
        assert ("caching", "0", "deallocate") not in sizes and ("caching", "0", "allocate") not in sizes
        events = {tuple(labels.values()): value for labels, value in groups["allocator_event_count"].values}
        assert events["caching", "0", "allocate", "failed"] == 1
        print(metrics.text(), end="")
        metrics.reset()
        assert [group.name for group in metrics.metrics()] == ["allocator_bytes"]
        y = torch.ones(5, device="cuda")
        """,
        DITORCH_HOST_DEVICES=2,
        DITORCH_METRICS_FILE=tmp_path / "m-%p.prom",
    )
    lines = result.stdout.splitlines()
    assert lines
    for line in lines:
        assert line.startswith(("# HELP ", "# TYPE ")) or LINE.match(line), line
    assert sum(line.startswith("# TYPE allocator_size ") for line in lines) == 1
    (file,) = tmp_path.iterdir()
    assert re.fullmatch(r"m-\d+\.prom", file.name)
    assert 'allocator_size_sum{type="caching",device="0",method="allocate"} 20\n' in file.read_text()


def test_write_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(FileNotFoundError):
        metrics.write(tmp_path / "nowhere" / "m.prom")
    os.mkdir(tmp_path / "m.prom")
    with pytest.raises(OSError):
        metrics.write(tmp_path / "m.prom")
    assert os.listdir(tmp_path) == ["m.prom"]
