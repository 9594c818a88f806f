"""Does `ditorch bisect` name the broken operators, and in how many runs?

Scenarios: a small model, one of its operators, a kind of fault; or two operators, each with a fault. One counts when
the run is wrong with the fault and right with every operator on the CPU. Of a pair those operators are needed whose
fault alone makes the run wrong, asked by two runs that are not the bisection's. It is right when the operators named
are those needed, and in time when it took at most 3 + 2 log2(operators) runs, those for details not counted. Each run
is a process of its own, forked from one that has imported torch. Results go to a JSON lines file as they come.

    python bench/bisect_lab.py [--single 64] [--pairs 32] [--share 4] [--jobs 1] [--seed 1] [--json]
"""

import argparse
import concurrent.futures
import contextlib
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(ROOT, "tests", "python"), os.path.join(ROOT, "python")]
KINDS = ("value", "precision", "nan", "stride", "unwritten")
PAIRED = ("value", "unwritten")
"""Kinds whose effect does not hide that of another, as NaN does, and is rarely too small."""
PROGRAM = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from models import MODELS
torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[3]))
kind = MODELS[sys.argv[2]]
model = kind().cuda()
data, target = (x.cuda() for x in kind.make_batch(torch.Generator().manual_seed(0)))
momenta = [torch.zeros_like(p) for p in model.parameters()]
for step in range(3):
    loss = kind.loss(model(data), target)
    loss.backward()
    with torch.no_grad():
        for p, m in zip(model.parameters(), momenta):
            if p.grad is not None:
                m.mul_(0.9).add_(p.grad)
                p.sub_(m, alpha=0.1)
                p.grad = None
    print("loss", loss.item())
"""


def start_with(nursery):
    def start(words, environment, folder, timeout):
        answer = nursery.run(*words[1:], environment=environment, cwd=folder, timeout=600)
        for name in ("stdout", "stderr"):
            with open(os.path.join(folder, f"{name}.txt"), "w", encoding="utf-8") as file:
                file.write(getattr(answer, name))
        return answer.returncode, False

    return start


def hunt(scenario, nursery, by):
    """The answer for one scenario, and the faults of it that alone make the run wrong. Faults are in the environment of
    the runs alone."""
    from ditorch.bisect.hunt import Hunt, Wish
    from ditorch.bisect.runner import Choice, Question, Runner
    from ditorch.bisect.state import State
    from ditorch.command.tree import Head

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        words = [path, os.path.join(HERE, "faultlab"), scenario["model"], str(scenario["seed"])]
        question = Question(names=["loss"], within=scenario["within"])
        runner = Runner(words, False, question, Head(options={"fault": ";".join(scenario["rules"])}), folder)
        runner.start = start_with(nursery)
        wish = Wish(depth="name", by=by, reference_is_cpu=True)
        answer = Hunt(runner, State(folder, {}), wish, lambda text: None).find()
        if answer.kind != "found" or len(scenario["rules"]) < 2:
            return answer, scenario["culprits"]
        needed = []
        for name, rule in zip(scenario["culprits"], scenario["rules"], strict=True):
            runner.head = Head(options={"fault": rule})
            if not runner.run(Choice()).is_good:
                needed.append(name)
        return answer, needed


def list_operators(nursery, models):
    """Suspects of each model, as a bisection lists them; a sound run must have nothing to find."""
    found = {}
    for model in models:
        sound = {"model": model, "seed": 0, "within": 1e-3, "rules": [], "culprits": []}
        answer, _ = hunt(sound, nursery, "auto")
        if answer.kind != "nothing to find":
            raise SystemExit(f"{model}: a sound run is not found sound: {answer.kind}, {answer.before.reason}")
        found[model] = answer.operators
    return found


def make_scenarios(operators, single, pairs, seed):
    """Seeded; models, kinds and operators take turns."""
    rng = random.Random(seed)
    queues = {model: rng.sample(names, len(names)) for model, names in operators.items()}
    models, scenarios = sorted(queues), []

    def draw(model):
        queues[model].append(queues[model].pop(0))
        return queues[model][-1]

    def rule(kind, name):
        more = {"value": ",scale=10", "precision": ",bits=3"}.get(kind, "")
        return f"{kind}:{name}|{name}_{more}"

    for number in range(single + pairs):
        model = models[number % len(models)]
        names = {draw(model)} if number < single else {draw(model), draw(model)}
        known = KINDS if number < single else PAIRED
        kinds = [known[(number // len(models) + i) % len(known)] for i in range(len(names))]
        rules = [rule(kind, name) for kind, name in zip(kinds, sorted(names), strict=True)]
        scenarios.append(
            {
                "name": f"{model}-{'+'.join(kinds)}-{'+'.join(sorted(names))}-s{seed}",
                "model": model,
                "culprits": sorted(names),
                "rules": rules,
                "seed": rng.randint(0, 99),
                "within": 1e-3,
            }
        )
    return scenarios


def run_scenario(scenario, nursery, by):
    begin = time.perf_counter()
    try:
        answer, needed = hunt(scenario, nursery, by)
    except Exception as error:
        return {**scenario, "error": f"{type(error).__name__}: {error}"}
    named = sorted(culprit.name for culprit in answer.culprits)
    count = len(answer.operators)
    return {
        **scenario,
        "answer": answer.kind,
        "named": named,
        "needed": needed,
        "operators": count,
        "runs": answer.runs,
        "limit": 3 + 2 * math.log2(max(count, 1)),
        "reason": answer.before.reason,
        "by": answer.by,
        "seconds": round(time.perf_counter() - begin, 2),
    }


def average(numbers):
    numbers = list(numbers)
    return round(sum(numbers) / max(len(numbers), 1), 2)


def make_figures(rows):
    done = [row for row in rows if "error" not in row]
    counted = [row for row in done if row["answer"] == "found"]
    figures = {"scenarios": len(rows), "failed": len(rows) - len(done)}
    for answer in ("nothing to find", "not an operator"):
        figures[answer] = sum(row["answer"] == answer for row in done)
    for label, number in (("single", 1), ("pairs", 2)):
        these = [row for row in counted if len(row["needed"]) == number]
        right = [row for row in these if row["named"] == row["needed"]]
        figures[label] = {
            "counted": len(these),
            "right": len(right),
            "right_in_time": sum(row["runs"] <= row["limit"] for row in right),
            "runs": average(row["runs"] for row in these),
            "most_runs": max((row["runs"] for row in these), default=0),
            "limit": average(row["limit"] for row in these),
            "operators": average(row["operators"] for row in these),
        }
    figures["not_right"] = [
        f"{row['name']}: {row['answer']}, {'+'.join(row['named'])} (needed {'+'.join(row['needed'])}; {row['reason']})"
        for row in counted
        if row["named"] != row["needed"]
    ]
    late = [row for row in counted if row["runs"] > row["limit"]]
    figures["late"] = [f"{row['name']}: {row['runs']} of {row['limit']:.1f}" for row in late]
    figures["seconds"] = round(sum(row.get("seconds", 0) for row in rows))
    return figures


def load_done(path):
    done = {}
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
        for line in file:
            with contextlib.suppress(ValueError):
                row = json.loads(line)
                done[row["name"]] = row
    return done


def run_all(options):
    import nursery

    kept = {k: v for k, v in os.environ.items() if not k.startswith("DITORCH_")}
    os.environ.clear()
    os.environ.update(kept, OMP_NUM_THREADS="1", PYTHONPATH=os.path.join(ROOT, "python"))
    server = nursery.Nursery(dict(os.environ))
    try:
        operators = list_operators(server, options.models.split(","))
        scenarios = make_scenarios(operators, options.single, options.pairs, options.seed)[:: options.share]
        done = load_done(options.out)
        todo = [scenario for scenario in scenarios if scenario["name"] not in done]
        print(f"{len(scenarios)} scenarios, {len(todo)} to do ({options.out})", file=sys.stderr)
        os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
        with (
            open(options.out, "a", encoding="utf-8") as file,
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
        ):
            for row in pool.map(lambda scenario: run_scenario(scenario, server, options.by), todo):
                done[row["name"]] = row
                file.write(json.dumps(row) + "\n")
                file.flush()
                named = "+".join(row.get("named", ())) or row.get("answer") or row["error"]
                print(f"{row['name']}: {named}, {row.get('runs', 0)} runs", file=sys.stderr)
        return [done[scenario["name"]] for scenario in scenarios]
    finally:
        server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--single", type=int, default=64, help="scenarios with one broken operator")
    parser.add_argument("--pairs", type=int, default=32, help="with two")
    parser.add_argument("--models", default="cnn,gpt,lstm,vit")
    parser.add_argument("--by", choices=("auto", "control", "tool"), default="auto")
    parser.add_argument("--share", type=int, default=1, help="every n-th scenario alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run found")
    parser.add_argument("--json", action="store_true", help="the figures alone, on one line")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "bisect.jsonl"))
    options = parser.parse_args()
    if options.fresh and os.path.exists(options.out):
        os.unlink(options.out)
    if shutil.disk_usage(tempfile.gettempdir()).free < 1 << 28:
        raise SystemExit("less than 256 MiB free for temporary files")
    figures = make_figures(run_all(options))
    print(json.dumps(figures, indent=None if options.json else 1))
    one = figures["single"]
    return 0 if one["right_in_time"] >= 0.95 * one["counted"] and not figures["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
