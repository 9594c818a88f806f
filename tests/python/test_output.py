"""Files that appear only when they are complete."""

import os
import stat

import pytest
from ditorch.output import open_whole, write_whole


def test_a_file_appears_whole_with_the_usual_mode(tmp_path):
    path = tmp_path / "x.txt"
    before = os.umask(0o027)
    try:
        with open_whole(path) as handle:
            os.write(handle, b"new")
            assert not path.exists()
    finally:
        os.umask(before)
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["x.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x.txt"
    write_whole(path, "old")
    with pytest.raises(ZeroDivisionError), open_whole(path) as handle:
        os.write(handle, b"half")
        raise ZeroDivisionError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["x.txt"]


def test_a_pipe_is_written_to_as_it_is(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(path, "text")
    assert os.read(reader, 10) == b"text" and stat.S_ISFIFO(path.stat().st_mode)
    os.close(reader)
