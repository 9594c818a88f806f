"""The fault laboratory: does OpAutoCompare name the broken operator first, and nobody else?

Models x injected faults, each scenario judged by a referee that does not know the tool, and clean runs in which nobody
may be accused. Faults come from the embedded device's fault hook; on a real GPU, and of kinds that the hook does not
have, from injector.py. Seeded; results go to a JSON lines file as they come, and a second run goes on where the first
stopped. `--faults` and `--clean` are numbers for each seed.

    python bench/faultlab/run.py [--faults 400] [--clean 48] [--jobs 2] [--seed 1] [--out build/faultlab.jsonl]
    python bench/faultlab/run.py --seeds 101,102 --json
    python bench/faultlab/run.py --model resnet50 vit --faults 50 --out build/faultlab-models.jsonl
"""

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(ROOT, "python")]
STEPS = 2


def last_part(name):
    """add of torch.Tensor.__add__, aten::add.Tensor, torch.add."""
    return (
        name.removeprefix("aten::").partition(".")[0].strip("_") if "::" in name else name.rpartition(".")[2].strip("_")
    )


def is_culprit(finding, verdict):
    """The operator is what counts: damage that a forward leaves in what it saved shows in its backward alone."""
    return last_part(finding["name"]) == last_part(verdict["culprit"])


def make_tool(results, scenario):
    from op_tools import OpAutoCompare

    judged = {"reference": scenario["reference"]} if scenario.get("reference") else {}
    return OpAutoCompare(
        results=results, console="off", save=False, rows="none", log=False, level=scenario["level"], **judged
    )


def make_fault(scenario):
    import ditorch
    from injector import CHIP_KINDS, Injector

    hooked = ditorch.is_installed() and scenario["kind"] not in CHIP_KINDS
    return ditorch.fault(scenario["text"]) if hooked else Injector(scenario["text"])


def run_fault(scenario):
    from corpora import make_training
    from referee import Referee

    training = make_training(scenario["model"], scenario["dtype"], scenario["seed"])
    with tempfile.TemporaryDirectory() as results, make_fault(scenario) as fault:
        tool = make_tool(results, scenario)
        crash = ""
        referee = Referee(fault, scenario["level"])
        try:
            with referee, tool:
                for _ in range(STEPS):
                    training.step()
        except (RuntimeError, IndexError) as error:  # damaged indices leave their range; on a GPU that is the end
            crash = str(error).splitlines()[0]
        findings = tool.findings()
    verdict = referee.verdict
    answer = {"fired": verdict is not None, "counts": False, "blind": False, **(verdict or {})}
    answer["counts"] = answer["counts"] and not answer["blind"]
    answer["crash"] = crash
    answer["findings"] = [describe(finding) for finding in findings]
    if answer["counts"]:
        answer["named"] = any(is_culprit(finding, verdict) for finding in findings)
        answer["first"] = bool(findings) and is_culprit(findings[0], verdict)
        answer["direction_right"] = bool(findings) and findings[0]["kind"] == verdict["direction"]
    answer["innocents"] = sum(not (verdict and verdict["culprit"] and is_culprit(f, verdict)) for f in findings)
    return answer


def run_clean(scenario):
    from corpora import make_training

    training = make_training(scenario["model"], scenario["dtype"], scenario["seed"])
    with tempfile.TemporaryDirectory() as results:
        tool = make_tool(results, scenario)
        with tool:
            for _ in range(2 * STEPS):
                training.step()
        findings, counts = tool.findings(), tool.counts()
    return {"findings": [describe(finding) for finding in findings], "calls": counts["applied"]}


def describe(finding):
    keys = ("name", "kind", "id", "step", "what", "error", "allowed", "cpu_error", "reason", "wrong", "numel")
    return {key: finding[key] for key in keys if key in finding}


def run_scenario(scenario):
    start = time.perf_counter()
    try:
        with contextlib.redirect_stderr(io.StringIO()) as text:
            answer = run_clean(scenario) if "clean" in scenario else run_fault(scenario)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        answer["text"] = text.getvalue()[-500:]
    return {**scenario, **answer, "seconds": round(time.perf_counter() - start, 3)}


def fail_scenario(scenario, text):
    return {**scenario, "error": f"the worker died: {text}"}


def prepare():
    import torch

    torch.set_num_threads(1)
    import ditorch  # noqa: F401


def load_done(path):
    done = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                with contextlib.suppress(ValueError):  # the last line of a run that was killed
                    row = json.loads(line)
                    done[row["name"]] = row
    return done


def run_all(scenarios, path, jobs):
    from workers import run_scattered

    done = load_done(path)
    todo = [scenario for scenario in scenarios if scenario["name"] not in done]
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    print(f"{len(scenarios)} scenarios, {len(scenarios) - len(todo)} of them done before ({path})", file=sys.stderr)
    begin = told = time.monotonic()
    with open(path, "a", encoding="utf-8") as file:
        for i, row in enumerate(run_scattered(todo, jobs, fail_scenario), 1):
            done[row["name"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            if time.monotonic() - told > 10:
                told = time.monotonic()
                left = (told - begin) / i * (len(todo) - i)
                print(f"{i} of {len(todo)}, about {left:.0f} s to go", file=sys.stderr)
    return [done[scenario["name"]] for scenario in scenarios]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=400, help="planned; those that fire and are large enough count")
    parser.add_argument("--clean", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", help="several seeds in one go, with commas, e.g. 101,102 (instead of --seed)")
    parser.add_argument("--reference", choices=["cpu", "device"], help="OpAutoCompare's option of this name")
    parser.add_argument(
        "--model", nargs="+", default=[], help="recorded models (`ditorch conform list --models`) instead of the five"
    )
    parser.add_argument("--filter", default="", help="scenarios that have this text in their name")
    parser.add_argument("--json", action="store_true", help="all figures as one document instead of tables")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run found")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "faultlab.jsonl"))
    options = parser.parse_args()
    if options.fresh and os.path.exists(options.out):
        os.unlink(options.out)
    prepare()
    import plan
    import report

    seeds = [int(text) for text in options.seeds.split(",")] if options.seeds else [options.seed]
    scenarios = []
    for seed in seeds:
        scenarios += plan.make_faults(options.faults, seed, options.reference, options.model)
        scenarios += plan.make_clean(options.clean, seed, options.reference, options.model)
    scenarios = [scenario for scenario in scenarios if options.filter in scenario["name"]]
    rows = run_all(scenarios, options.out, options.jobs)
    if options.json:
        print(json.dumps({"seeds": seeds, "reference": options.reference, **report.make_figures(rows)}, indent=1))
    else:
        print(report.format_report(rows))
        print(json.dumps(report.make_result(rows)))  # for bench/run.py
    return 0 if report.is_clean(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
