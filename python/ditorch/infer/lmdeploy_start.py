"""The OpenAI server of LMDeploy starts its engine in a process of its own."""

from __future__ import annotations

import functools
from typing import Any


class Handshake:
    """The condition over which the child tells its port. The parent ends the manager behind it as soon as it has the
    port, perhaps before the child has the answer to its release: on a busy machine the server then did not start."""

    def __init__(self, condition: Any) -> None:
        self._condition = condition
        self.notify = condition.notify

    def __enter__(self) -> Any:
        return self._condition.__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            self._condition.__exit__(*error)
        except (EOFError, ConnectionError):
            pass  # there is nobody left to wait for


def patch(patches: Any, module: Any) -> None:
    """lmdeploy.pytorch.engine.mp_engine.zmq_engine, when it is imported, in both processes."""
    native = module.ZMQMPEngine._mp_proc

    @functools.wraps(native)
    def run(shared_dict: Any, condition: Any, *given: Any, **named: Any) -> None:
        native(shared_dict, Handshake(condition), *given, **named)

    patches.set(module.ZMQMPEngine, "_mp_proc", staticmethod(run))
