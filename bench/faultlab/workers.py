"""Scenarios in worker processes (ditorch.worker_pool): one that kills its process costs itself alone.

A worker is replaced after 100 scenarios, and at once when its device is lost: an index out of range stops a CUDA
context for good (a device-side assert), and with it all that follows in the process.
"""

import json
import os
import sys

MOST_TASKS = 100
COMMAND = (sys.executable, os.path.abspath(__file__))


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


def serve(prepare, work):
    """The worker's side: scenarios as lines of JSON from standard input, their rows to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a scenario prints is no answer

    def send(answer):
        print(json.dumps(answer), file=answers, flush=True)

    sys.stdin.readline()  # the options: none
    prepare()
    send({"ready": {"pid": os.getpid()}})
    for number, line in enumerate(sys.stdin, 1):
        row = work(json.loads(line)["scenario"])
        send({"row": row, "last": number >= MOST_TASKS or device_is_lost()})


def run_scattered(todo, jobs, fail, command=COMMAND):
    """The rows of all scenarios, as they are done. `fail(scenario, text)` answers for a worker that died."""
    from ditorch.worker_pool import Pool

    tasks = [{"index": index, "scenario": scenario} for index, scenario in enumerate(todo)]
    with Pool({}, jobs, 0, command) as pool:
        for task, answer in pool.run(tasks):
            yield answer["row"] if "row" in answer else fail(task["scenario"], answer["error"]["text"])


if __name__ == "__main__":
    from run import prepare, run_scenario

    serve(prepare, run_scenario)
