"""Worker processes that may be broken by their work: one that died, or whose device is lost, is replaced.

An index out of range stops a CUDA context for good (a device-side assert), and with it all that follows in the process.
"""

import multiprocessing
import sys
from multiprocessing.connection import wait


def device_is_lost():
    """Has an earlier kernel stopped the device for this process? Not where nothing has loaded torch."""
    torch = sys.modules.get("torch")
    if not torch or not torch.cuda.is_available():
        return False
    try:
        torch.ones(1, device="cuda").sum().item()
    except RuntimeError:
        return True
    return False


def serve(prepare, work, tasks, pipe):
    """Up to `tasks` tasks, or until the device is lost; the answer says whether another one is welcome."""
    prepare()
    for number in range(tasks):
        try:
            task = pipe.recv()
        except EOFError:
            return
        answer = work(task)
        lost = device_is_lost()
        pipe.send((answer, lost or number == tasks - 1))
        if lost:
            return


class Worker:
    def __init__(self, context, prepare, work, tasks):
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(prepare, work, tasks, other), daemon=True)
        self.process.start()
        other.close()
        self.task = None

    def give(self, task):
        self.task = task
        self.pipe.send(task)

    def close(self):
        self.pipe.close()
        self.process.join(10)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join()


def take(worker, fail):
    """The answer of a worker that has something to say, and whether it has to be replaced."""
    try:
        return worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        return fail(worker.task, worker.process.exitcode), True


def run_scattered(work, todo, jobs, prepare, fail, tasks=100):
    """work(task) of every task, as they are done. `fail(task, exit_code)` answers for a worker that died."""
    context = multiprocessing.get_context("spawn")
    left, busy = list(reversed(todo)), []

    def begin(worker):
        if left:
            worker = worker or Worker(context, prepare, work, tasks)
            worker.give(left.pop())
            busy.append(worker)
        elif worker:
            worker.close()

    try:
        for _ in range(min(jobs, len(todo))):
            begin(None)
        while busy:
            ready = wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                answer, ends = take(worker, fail)
                busy.remove(worker)
                if ends:
                    worker.close()
                begin(None if ends else worker)
                yield answer
    finally:
        for worker in busy:
            worker.process.terminate()
