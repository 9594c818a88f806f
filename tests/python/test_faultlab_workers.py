"""Workers of the fault laboratory that are broken by their work are replaced."""

import sys
from pathlib import Path

LAB = str(Path(__file__).parents[2] / "bench" / "faultlab")
sys.path.append(LAB)

from workers import run_scattered  # noqa: E402

WORKER = f"""
import os, sys
sys.path.append({LAB!r})
import workers

def work(task):
    print("not an answer")
    if task % 5 == 3:
        os._exit(7)
    return task, os.environ["PREPARED"], os.getpid()

workers.MOST_TASKS = 3
workers.serve(lambda: os.environ.update(PREPARED="1"), work)
"""


def fail(task, text):
    return task, text, None


def test_every_task_is_answered():
    command = (sys.executable, "-c", WORKER)
    answers = sorted(run_scattered(list(range(8)), 2, fail, command), key=lambda answer: answer[0])
    assert [answer[0] for answer in answers] == list(range(8))
    assert "exit status 7" in answers[3][1]
    assert all(answer[1] == "1" for answer in answers if answer[0] != 3)
    assert len({answer[2] for answer in answers if answer[2]}) >= 3  # no worker has more than three tasks
    assert list(run_scattered([], 2, fail, command)) == []
