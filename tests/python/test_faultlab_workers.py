"""Workers of the fault laboratory that are broken by their work are replaced."""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench" / "faultlab"))

from workers import run_scattered


def prepare():
    os.environ["PREPARED"] = "1"


def work(task):
    if task % 5 == 3:
        os._exit(7)
    return task, os.environ["PREPARED"], os.getpid()


def fail(task, code):
    return task, code, None


def test_every_task_is_answered():
    answers = sorted(run_scattered(work, list(range(8)), 2, prepare, fail, tasks=3), key=lambda answer: answer[0])
    assert [answer[:2] for answer in answers] == [(i, 7 if i == 3 else "1") for i in range(8)]
    assert list(run_scattered(work, [], 2, prepare, fail)) == []
