"""Training steps and small operators on one GPU: vendors/cuda against PyTorch's own CUDA, two processes taking turns.

    python bench/cuda_steps.py [--tasks gpt,llama] [--rounds 9] [--json FILE]

Tasks: `gpt` (D=256, L=8, B=4, T=128, float32, bound by the host), `gpt2` (the sizes of GPT-2 small, bfloat16 autocast,
B=4, T=1024), `llama` (D=2048, L=6, 16 heads in 4 groups, B=2, T=2048, bfloat16, foreach AdamW), `resnet50` (B=64,
224x224, channels_last, bfloat16 autocast, SGD), `small` (operators on (4, 4)). Each side trains the same model from the
same weights; the first losses are shown beside each other. A ratio above 1 is slower than PyTorch. Needs a torch with
CUDA.
"""

import argparse
import json
import os
import subprocess
import sys
import time

import common

sys.path.insert(0, os.path.join(common.ROOT, "examples"))

GOALS = {"gpt": 1.0, "gpt2": 1.0, "llama": 1.1, "resnet50": 1.1, "small": 1.0}
SIDES = {"ditorch": "nvidia", "torch": "none"}


def make_gpt(torch):
    from gpt import GPT

    model = GPT(128, 128, 256, 8, 8).to("cuda")
    tokens = torch.randint(0, 128, (4, 129)).to("cuda")
    return common.make_training_step(model, tokens, torch.optim.AdamW(model.parameters(), lr=1e-4)), 10


def make_gpt2(torch):
    from gpt import GPT

    model = GPT(50304, 1024, 768, 12, 12).to("cuda")
    tokens = torch.randint(0, 50304, (4, 1025)).to("cuda")
    step = common.make_training_step(model, tokens, torch.optim.AdamW(model.parameters(), lr=1e-4))
    return torch.autocast("cuda", torch.bfloat16)(step), 3


def make_llama(torch):
    from llama import Llama

    model = Llama(32000, 2048, 2048, 6, 16, 4, 5632).to("cuda", torch.bfloat16)
    tokens = torch.randint(0, 32000, (2, 2049)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    return common.make_training_step(model, tokens, optimizer), 3


def make_resnet50(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inside, middle, stride):
            super().__init__()
            outside = 4 * middle
            sizes = ((inside, middle, 1, 1), (middle, middle, 3, stride), (middle, outside, 1, 1))
            self.layers = nn.ModuleList(nn.Conv2d(a, b, k, s, k // 2, bias=False) for a, b, k, s in sizes)
            self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _, _ in sizes)
            self.skip = None
            if stride != 1 or inside != outside:
                self.skip = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

        def forward(self, x):
            y = x
            for index, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
                y = norm(layer(y))
                if index < 2:
                    y = nn.functional.relu_(y)
            return nn.functional.relu_(y.add_(x if self.skip is None else self.skip(x)))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for depth, middle, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for index in range(depth):
            layers.append(Block(inside, middle, stride if index == 0 else 1))
            inside = 4 * middle
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
    model = model.to("cuda", memory_format=torch.channels_last)
    images = torch.randn(64, 3, 224, 224).to("cuda", memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (64,)).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step, 3


def make_small(torch):
    from bench_small_ops import make_cases

    cases = make_cases(torch, lambda tensor: tensor.cuda())
    return {name: function for name, function in cases.items() if not name.startswith("fallback")}


MODELS = {"gpt": make_gpt, "gpt2": make_gpt2, "llama": make_llama, "resnet50": make_resnet50}


def serve(task):
    """One side: makes the task, then measures one block per line of standard input and answers each with JSON."""
    if os.environ["DITORCH_BACKEND"] == "nvidia":
        import ditorch
    import torch

    torch.manual_seed(0)

    def answer(**fields):
        print(json.dumps(fields), flush=True)

    def block(function, calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls

    if task == "small":
        functions = {
            name: (function, 50 if "50 tensors" in name else 1000) for name, function in make_small(torch).items()
        }
        losses = []
        for function, _ in functions.values():
            function()
    else:
        function, calls = MODELS[task](torch)
        losses = [function() for _ in range(5)]
        functions = {task: (function, calls)}
    fallbacks = {}
    if os.environ["DITORCH_BACKEND"] == "nvidia":
        ditorch.reset_counters()
        for function, _ in functions.values():
            function()
        fallbacks = {row["operator"]: row["calls"] for row in ditorch.fallbacks()}
    answer(losses=losses, names=list(functions), fallbacks=fallbacks, memory=torch.cuda.max_memory_allocated())
    for line in sys.stdin:
        function, calls = functions[line.strip()]
        answer(seconds=block(function, calls))


class Side:
    """A child process that measures when it is asked."""

    def __init__(self, task, backend):
        path = os.pathsep.join(filter(None, [os.path.join(common.ROOT, "python"), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--serve", task],
            env={**os.environ, "DITORCH_BACKEND": backend, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"ended with status {self.process.wait()}")
        return json.loads(line)

    def measure(self, name):
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return self.read()["seconds"]

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def measure_task(task, rounds):
    """One row per measured function; a side that dies is a row that says so."""
    sides = {name: Side(task, backend) for name, backend in SIDES.items()}
    try:
        about = {name: side.read() for name, side in sides.items()}
        rows = []
        for name in about["ditorch"]["names"]:
            times = {side: [] for side in sides}
            for index in range(rounds + 1):
                for side in sides if index % 2 == 0 else reversed(sides):
                    seconds = sides[side].measure(name)
                    if index:
                        times[side].append(seconds)
            middle, low, high = common.ratio(times["ditorch"], times["torch"])
            ours, theirs = (common.summary(times[side])[0] for side in ("ditorch", "torch"))
            rows.append(
                {
                    "name": name,
                    "task": task,
                    "ratio": middle,
                    "low": low,
                    "high": high,
                    "ditorch_s": ours,
                    "torch_s": theirs,
                }
            )
        for row in rows if task != "small" else rows[:1]:
            row["losses"] = {side: about[side]["losses"] for side in sides}
            row["memory"] = {side: about[side]["memory"] for side in sides}
            row["fallbacks"] = about["ditorch"]["fallbacks"]
        return rows
    except RuntimeError as error:
        return [{"name": task, "task": task, "error": str(error)}]
    finally:
        for side in sides.values():
            side.close()


def show(row):
    if "error" in row:
        return f"{row['name']:28} {row['error']}"
    goal = GOALS[row["task"]]
    scale, unit = (1e6, "us") if row["task"] == "small" else (1e3, "ms")
    ours, theirs = row["ditorch_s"] * scale, row["torch_s"] * scale
    lines = [
        f"{row['name']:28} {row['ratio']:.2f}x ({row['low']:.2f}-{row['high']:.2f}); ditorch {ours:.2f} {unit}, "
        f"torch {theirs:.2f} {unit}; goal at most {goal}x: {common.verdict(row['ratio'] <= goal)}"
    ]
    if row.get("losses", {}).get("torch"):
        for side in SIDES:
            losses = " ".join(f"{loss:.5f}" for loss in row["losses"][side])
            lines.append(f"    {side}: losses {losses}; peak {row['memory'][side] / 2**20:.0f} MiB")
    if row.get("fallbacks"):
        lines.append(f"    fallbacks: {row['fallbacks']}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="small,gpt,gpt2,llama,resnet50")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    unknown = set(options.tasks.split(",")) - set(GOALS)
    if unknown:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; valid: {', '.join(GOALS)}")
    rows = []
    for task in options.tasks.split(","):
        for row in measure_task(task, options.rounds):
            rows.append(row)
            print(show(row), flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump(rows, file, indent=1)
    return int(any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
