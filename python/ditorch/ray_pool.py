"""The executor of worker_pool.py on a Ray cluster: one seat per device, and in each seat a Pool of one worker.

A seat is a Ray actor that holds one device of its machine (an accelerator that Ray counts, else a CPU) and runs the
same worker process there that Pool runs here, so a task that crashes or hangs is answered as it is here. A seat that is
lost with its machine costs nothing but time: its task goes to another seat, and seats come and go as the cluster's
machines do. Every machine needs ditorch and the files of the tasks at the same paths.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .worker_pool import START_SECONDS, Pool, PoolError, StartError, fail, make_environment

ACCELERATORS = ("GPU", "NPU", "MLU", "HPU", "TPU", "neuron_cores")
"""Resources of a cluster that are devices, the first that it has counts."""
MOST_LOSSES = 3
"""Workers that a task may lose before it is at fault itself."""
KEPT = ("DITORCH_", "DIPU_", "OP_TOOLS_", "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "PYTORCH_T")
"""Beginnings of variables that workers of a cluster take from here, not from their machine."""
PATIENCE = 10.0
"""Seconds without a free device, after which that is said."""


def _keep_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(KEPT)}


class Seat:
    """On a machine of the cluster. Problems of the pool are answers: an exception would come with Ray's traceback."""

    def __init__(self, variables: dict[str, str], folder: str, pool: dict[str, Any]) -> None:
        for name in [name for name in os.environ if name.startswith(KEPT)]:
            del os.environ[name]
        os.environ.update(variables)
        if os.path.isdir(folder):
            os.chdir(folder)
        pool["command"] = [sys.executable, *pool["command"][1:]]
        self._pool = Pool(jobs=1, **pool)

    def start(self) -> dict[str, Any]:
        try:
            return self._pool.start()
        except PoolError as error:
            return {"problem": type(error).__name__, "text": str(error)}

    def work(self, task: dict[str, Any], timeout: float) -> dict[str, Any]:
        self._pool.set_timeout(timeout)
        try:
            return next(self._pool.run([task]))[1]
        except PoolError as error:
            return {"problem": type(error).__name__, "text": str(error)}

    def leave(self) -> None:
        """Also while `work` runs: Ray calls it in another thread."""
        self._pool.__exit__(None, None, None)


def connect(address: str) -> Any:
    """The module ray, connected; once per process."""
    try:
        import ray
    except ImportError:
        raise PoolError("--ray needs the package ray: pip install ray") from None
    if ray.is_initialized():
        return ray
    _check_address(address)
    local = re.fullmatch(r"local(?::(\d+))?", address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    options: dict[str, Any] = {"address": address}
    if local:
        options = {"address": "local", "num_cpus": int(local[1] or os.cpu_count() or 1), "include_dashboard": False}
    try:
        ray.init(**options, log_to_driver=False, logging_level="error", configure_logging=False)
    except Exception as error:  # of many kinds, Ray's and gRPC's
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise PoolError(f"--ray {address}: no connection to a Ray cluster: {lines[0]}") from None
    return ray


def _check_address(address: str) -> None:
    """Ray itself tries for minutes."""
    found = re.fullmatch(r"(?:ray://)?([^:/]+):(\d+)", address)
    if not found or found[1] == "local":
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise PoolError(f"--ray {address}: no connection to a Ray cluster: {error}") from None


def _say(text: str) -> None:
    print(f"ditorch: {text}", file=sys.stderr, flush=True)


class RayPool:
    """Arguments as of Pool; `jobs` is the most seats."""

    def __init__(
        self,
        address: str,
        options: dict[str, Any],
        jobs: int,
        timeout: float,
        command: Sequence[str],
        **more: Any,
    ) -> None:
        self._ray = connect(address)
        self._jobs, self._timeout = jobs, timeout
        self._pool = {"options": options, "timeout": timeout, "command": list(command), **more}
        found = self._ray.cluster_resources()
        self.resource = next((name for name in ACCELERATORS if found.get(name)), "CPU")
        self._idle: list[Any] = []
        self._calls: dict[Any, tuple[Any, dict[str, Any] | None]] = {}  # reference: (seat, task; None: it starts)
        self._losses: Counter[int] = Counter()
        self._lost_starts = 0
        self._alone_since = time.monotonic()
        self._told = False
        self.facts: dict[str, Any] = {}

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        seats = [*self._idle, *(seat for seat, _ in self._calls.values())]
        farewells = [seat.leave.remote() for seat in seats]
        if farewells:
            self._ray.wait(farewells, num_returns=len(farewells), timeout=PATIENCE)
        for seat in seats:
            self._ray.kill(seat)
        self._idle, self._calls = [], {}

    def set_timeout(self, seconds: float) -> None:
        self._timeout = seconds

    def set_jobs(self, jobs: int) -> None:
        self._jobs = jobs

    @property
    def width(self) -> int:
        """Devices that the cluster has now."""
        return int(self._ray.cluster_resources().get(self.resource, 0))

    def start(self) -> dict[str, Any]:
        self._hire(self._jobs)
        while not self.facts:
            list(self._wait(deque()))
        return self.facts

    def run(self, tasks: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        waiting = deque(tasks)
        while waiting or any(task is not None for _, task in self._calls.values()):
            self._hire(len(waiting))
            while self._idle and waiting:
                seat, task = self._idle.pop(), waiting.popleft()
                self._calls[seat.work.remote(task, self._timeout)] = seat, task
            yield from self._wait(waiting)

    # Seats

    def _hire(self, wanted: int) -> None:
        busy = sum(task is not None for _, task in self._calls.values())
        here = len(self._idle) + len(self._calls)
        for _ in range(min(self._jobs, self.width, wanted + busy) - here):
            seat = self._make_seat()
            self._calls[seat.start.remote()] = seat, None

    def _make_seat(self) -> Any:
        needs: dict[str, Any] = {"num_cpus": 1} if self.resource == "CPU" else {"num_cpus": 0}
        if self.resource == "GPU":
            needs["num_gpus"] = 1
        elif self.resource != "CPU":
            needs["resources"] = {self.resource: 1}
        # The seat itself imports ditorch without a device; its worker has the variables of this process.
        variables = {"PYTHONPATH": make_environment()["PYTHONPATH"], "DITORCH_BACKEND": "none", "DITORCH_BANNER": "0"}
        actor = self._ray.remote(Seat).options(
            **needs, max_concurrency=2, max_restarts=0, runtime_env={"env_vars": variables}
        )
        return actor.remote(_keep_variables(), os.getcwd(), self._pool)

    def _wait(self, waiting: deque[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Answers that come within a second; tasks of lost seats go back to `waiting`."""
        done = self._ray.wait(list(self._calls), num_returns=1, timeout=1.0)[0] if self._calls else []
        if not self._calls:
            time.sleep(0.2)
        for reference in done:
            seat, task = self._calls.pop(reference)
            try:
                answer = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError as error:
                yield from self._lose(seat, task, error, waiting)
                continue
            if "problem" in answer:
                raise (StartError if answer["problem"] == "StartError" else PoolError)(answer["text"])
            self._idle.append(seat)
            if task is None:
                self.facts = answer
            else:
                yield task, answer
        self._watch()

    def _lose(
        self, seat: Any, task: dict[str, Any] | None, error: Exception, waiting: deque[dict[str, Any]]
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        self._ray.kill(seat)
        if task is None:
            self._lost_starts += 1
            if self._lost_starts > MOST_LOSSES and not self.facts:
                raise StartError(f"workers of the cluster are lost as they start: {_first_line(error)}")
            return
        self._losses[task["index"]] += 1
        if self._losses[task["index"]] > MOST_LOSSES:
            yield task, fail(task, "crash", f"{MOST_LOSSES + 1} workers of the cluster were lost with it")
            return
        waiting.appendleft(task)
        _say("a worker of the cluster was lost; another one does its task again")

    def _watch(self) -> None:
        """No device is free, or none is left: said once, and an error after a while."""
        if self._idle or any(task is not None for _, task in self._calls.values()):
            self._alone_since = time.monotonic()
            return
        alone = time.monotonic() - self._alone_since
        if alone > START_SECONDS:
            raise StartError(f"the cluster had no {self.resource} for a worker within {START_SECONDS:.0f} s")
        if alone > PATIENCE * 3 and not self._told:
            self._told = True
            _say(f"waiting for a free {self.resource} of the cluster")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
