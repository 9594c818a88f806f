"""Worker of error_inputs.py: reads names of OpInfo entries from standard input, answers one JSON line each.

The inputs that PyTorch's database says an operator must refuse are made twice. Those for the CPU run on the CPU and,
as copies of the same bits, on the device: the device must raise the same type of exception with a message alike, or
accept what the CPU accepts. Those for CUDA run on the device: it must raise what the database expects there.
"""

import faulthandler
import json
import os
import re
import sys
import warnings

import torch
from torch.testing._internal import common_methods_invocations  # noqa: F401  before the device, as worker.py says

# isort: split
from ditorch.device_suite import samples, worker
from error_inputs import is_alike


def raised(call):
    """The exception, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None


def shown(error):
    text = next(iter(str(error).strip().splitlines()), "") if error is not None else ""
    return f"{type(error).__name__}: {text}"[:300] if error is not None else "no error"


def check_against_cpu(op, given, device):
    """A text about the difference, or None."""
    sample = given.sample_input
    theirs = raised(lambda: samples.Arguments(sample, "cpu").call(op))
    mine = raised(lambda: samples.Arguments(sample, device).call(op))
    same = type(mine) is type(theirs) and (theirs is None or is_alike(str(mine), str(theirs)))
    return None if same else f"on the CPU {shown(theirs)}; on the device {shown(mine)}"


def check_against_database(op, given, device):
    """Nothing is said by "" (any exception): some of these raise nowhere, so the CPU is the measure for them."""
    sample = given.sample_input
    if not given.error_regex:
        return None
    mine = raised(lambda: op(sample.input, *sample.args, **sample.kwargs))
    if isinstance(mine, given.error_type) and re.search(given.error_regex, str(mine)):
        return None
    return f"expected {given.error_type.__name__} '{given.error_regex[:160]}'; on the device {shown(mine)}"


CHECKS = {"cpu": check_against_cpu, "cuda": check_against_database}


def run_entry(op, device):
    answer = {"status": "pass", "message": "", "counts": dict.fromkeys(CHECKS, 0), "differences": []}
    for kind, check in CHECKS.items():
        if op.error_inputs_func is None:
            continue
        samples.seed_all(samples.SEED)
        for number, given in enumerate(op.error_inputs(kind if kind == "cpu" else device)):
            answer["counts"][kind] += 1
            difference = check(op, given, device)
            if difference is not None:
                answer["differences"].append(f"{kind} {number}: {difference}")
    if answer["differences"]:
        answer.update(status="fail", message=answer["differences"][0])
    return answer


def main():
    """Lines as ditorch.worker_pool speaks them: options, then tasks."""
    warnings.simplefilter("ignore")
    faulthandler.enable()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    options = json.loads(sys.stdin.readline())
    __import__(options["load"])
    torch.set_num_threads(1)
    table = worker.list_entries()
    names = [name for name, op in table.items() if op.error_inputs_func is not None]
    answers.write(json.dumps({"ready": {"entries": names}}) + "\n")
    for line in sys.stdin:
        task = json.loads(line)
        answers.write(json.dumps({"index": task["index"], **run_entry(table[task["entry"]], options["device"])}) + "\n")


if __name__ == "__main__":
    main()
