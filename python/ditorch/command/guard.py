"""How a command ends when the world does not play along: Ctrl-C, a pipe that nobody reads any more, a full disk.

Each is one sentence or none, never a traceback, and what was written so far stays valid. Exit statuses: 130 for Ctrl-C,
141 for a closed pipe, 1 for a disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .parser import CLOSED_PIPE, INTERRUPTED

_DISK = {
    errno.ENOSPC: "the disk is full: no space left on the device",
    errno.EDQUOT: "the disk quota is exhausted",
    errno.EROFS: "the file system can only be read",
    errno.EIO: "the disk failed (input/output error)",
}


def say(text: str) -> None:
    """One message on standard error, if there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(f"ditorch: {text}", file=sys.stderr, flush=True)


def explain(error: OSError) -> str:
    """A disk's trouble in words, with the file where it is known."""
    words = _DISK.get(error.errno or 0) or f"{error.strerror or error}"
    return f"{words} ({error.filename!r})" if error.filename else words


class Interrupts:
    """SIGINT for the length of a command. `at_once`: nothing is kept, the process ends in the handler, because the
    import of torch and numpy swallows a KeyboardInterrupt and goes on half loaded. Otherwise the first raises
    KeyboardInterrupt, is remembered, and the second ends the process."""

    def __init__(self, at_once: bool):
        self.at_once, self.came = at_once, False

    def handle(self, number: int, frame: Any) -> None:
        if self.at_once or self.came:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            with contextlib.suppress(OSError):
                os.write(2, b"\nditorch: interrupted\n")
            os._exit(INTERRUPTED)
        self.came = True
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def installed(self) -> Iterator[Interrupts]:
        try:
            before = signal.signal(signal.SIGINT, self.handle)
        except ValueError:  # not the main thread: nobody sends it here
            yield self
            return
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)


def _mute() -> None:
    """Standard output goes nowhere from now on: the interpreter flushes it once more at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def run(function: Callable[[], int], at_once: bool = False) -> int:
    """Call `function`, flush its output, and turn the ways in which that can fail into an exit status."""
    with Interrupts(at_once).installed() as interrupts:
        try:
            status = function()
            sys.stdout.flush()
            return status
        except KeyboardInterrupt:
            say("interrupted")
            return INTERRUPTED
        except BrokenPipeError:
            _mute()
            return CLOSED_PIPE
        except OSError as error:
            _mute()
            if interrupts.came:
                say("interrupted")
                return INTERRUPTED
            say(explain(error))
            return 1
        except Exception:
            if not interrupts.came:
                raise
            say("interrupted")
            return INTERRUPTED
