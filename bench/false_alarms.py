"""How often does OpAutoCompare accuse an operator that is right?

Clean runs on the embedded device: PyTorch's operator database (forward and backward), training steps of small models.
Nothing is broken on purpose, so every accusation is a false alarm (or a defect of the device, or of PyTorch's CPU
kernels). Prints comparisons, accusations and the rate with an upper 95 % bound; with --details each accusation.

    python bench/false_alarms.py --samples 4 --seeds 2
    python bench/false_alarms.py --only models
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import signal
import sys
import tempfile
import time

import common

sys.path.insert(0, os.path.join(common.ROOT, "examples"))

DTYPES = ("float32", "bfloat16", "float16")
# Not run: no CPU reference, sparse tensors, memory as it is, or minutes for one sample.
LEFT_OUT = ("jiterator", "sparse", "empty", "_scaled_mm", "_flash_attention", "_efficient_attention", "without_cudnn")


class Tally:
    """Comparisons and accusations of several runs."""

    def __init__(self):
        self.compared, self.further, self.unknown, self.accused = 0, 0, {}, []

    def add(self, tool, where):
        facts = tool.describe()
        self.compared += facts["forward"]["compared"] + facts["backward"]["compared"]
        self.further += max(0, facts["runs"] - facts["forward"]["compared"])
        for name, (count, reason) in facts["unable"].items():
            self.unknown[(name, reason)] = self.unknown.get((name, reason), 0) + count
        for finding in facts["findings"]:
            self.accused.append((where, finding))


def bound(events, trials, confidence=0.95):
    """The exact (Clopper-Pearson) upper bound of a rate."""
    if events >= trials:
        return 1.0

    def tail(rate):  # probability of at most `events`
        term = total = (1 - rate) ** trials
        for k in range(events):
            term *= (trials - k) / (k + 1) * rate / (1 - rate)
            total += term
        return total

    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > 1 - confidence else (low, middle)
    return high


# ---- the operator database


@contextlib.contextmanager
def limited(seconds):
    def stop(*_):
        raise TimeoutError(f"more than {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def find_tensors(value):
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from find_tensors(item)
    elif isinstance(value, dict):
        yield from find_tensors(list(value.values()))


def run_sample(op, sample, backward):
    """Forward, and backward with random gradients."""
    import torch

    result = op(sample.input, *sample.args, **sample.kwargs)
    outputs = [t for t in find_tensors(result) if t.requires_grad]
    if not backward or not outputs:
        return
    gradients = [torch.randn(t.shape, dtype=torch.float64).to(t.device, t.dtype) for t in outputs]
    torch.autograd.backward(outputs, gradients)


def run_entry(op, dtype, options, tally):
    """One entry of the database in one dtype, in all seeds."""
    import torch
    from op_tools import OpAutoCompare

    backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    tool = OpAutoCompare(**options.tool)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        torch.manual_seed(seed)
        samples = iter(op.sample_inputs("cuda", dtype, requires_grad=backward))
        for _ in range(options.samples):
            try:
                with limited(60):
                    sample = next(samples)
            except StopIteration:
                break
            with limited(60), tool, contextlib.suppress(RuntimeError, NotImplementedError, ValueError, TypeError):
                run_sample(op, sample, backward)
            tally.add(tool, f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''} {dtype}")


def run_database(options, tally, op_db):
    import torch

    names = options.ops.split(",") if options.ops else None
    chosen = [op for op in op_db if not any(word in op.name + op.variant_test_name for word in LEFT_OUT)]
    chosen = [op for op in chosen if not names or op.name in names][options.shard :: options.shards]
    for number, op in enumerate(chosen):
        for text in options.dtypes.split(","):
            dtype = getattr(torch, text)
            if dtype not in op.supported_dtypes("cpu"):
                continue
            try:
                run_entry(op, dtype, options, tally)
            except Exception as error:  # samples that cannot be made on this device
                options.notes.append(f"{op.name} {text}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        if options.progress and number % 20 == 19:
            print(f"{number + 1} of {len(chosen)} entries, {tally.compared} comparisons", file=sys.stderr, flush=True)


# ---- models


def make_models():
    """name: function(dtype) -> (model, function that gives the loss)"""
    import torch
    from gpt import GPT
    from torch import nn
    from torch.nn import functional as F

    def gpt(dtype):
        model = GPT(64, 32, 48, 3, 4).to("cuda", dtype)
        tokens = torch.randint(0, 64, (2, 33), device="cuda")
        return model, lambda: model(tokens[:, :-1], tokens[:, 1:])[1]

    def cnn(dtype):
        layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3)]
        layers += [nn.GroupNorm(4, 32), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)]
        model = nn.Sequential(*layers).to("cuda", dtype)
        images = torch.randn(8, 3, 16, 16).to("cuda", dtype)
        labels = torch.randint(0, 10, (8,), device="cuda")
        return model, lambda: F.cross_entropy(model(images).float(), labels)

    def lstm(dtype):
        model = nn.ModuleList([nn.Embedding(50, 24), nn.LSTM(24, 32, 2), nn.Linear(32, 50)]).to("cuda", dtype)
        tokens = torch.randint(0, 50, (13, 4), device="cuda")

        def loss():
            hidden, _ = model[1](model[0](tokens[:-1]))
            return F.cross_entropy(model[2](hidden).flatten(0, 1).float(), tokens[1:].flatten())

        return model, loss

    return {"gpt": gpt, "cnn": cnn, "lstm": lstm}


def run_models(options, tally):
    import torch
    from op_tools import OpAutoCompare

    for name, make in make_models().items():
        for text in ("float32", "bfloat16"):
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                torch.manual_seed(seed)
                model, loss = make(getattr(torch, text))
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
                tool = OpAutoCompare(**options.tool)
                with tool:
                    for _ in range(options.steps):
                        loss().backward()
                        optimizer.step()
                        optimizer.zero_grad()
                tally.add(tool, f"{name} {text} seed {seed}")


# ---- the report


def describe(where, finding):
    keys = (
        "name",
        "kind",
        "error",
        "allowed",
        "cpu_error",
        "value",
        "reference",
        "wrong",
        "numel",
        "dtype",
        "reason",
    )
    return f"{where}: " + ", ".join(f"{key}={finding.get(key)}" for key in keys)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["database", "models"])
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--ops", default="", help="entries of the database, by name, with commas")
    parser.add_argument("--samples", type=int, default=4, help="of each entry and dtype")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3, help="training steps of each model")
    parser.add_argument("--level", choices=["torch", "aten"], default="torch")
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--details", action="store_true")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # Before the device is loaded: the tables of dtypes then describe the CPU.
    from torch.testing._internal.common_methods_invocations import op_db

    importlib.import_module("ditorch")

    options.notes = []
    tally, begin = Tally(), time.time()
    with tempfile.TemporaryDirectory() as folder:
        options.tool = {"results": folder, "save": False, "rows": "none", "console": "off", "level": options.level}
        with contextlib.redirect_stdout(io.StringIO()):
            if options.only != "models":
                run_database(options, tally, op_db)
            if options.only != "database":
                run_models(options, tally)
    accused = sum(finding["count"] for _, finding in tally.accused)
    answer = {
        "comparisons": tally.compared,
        "further_runs": tally.further,
        "accusations": accused,
        "rate": accused / max(1, tally.compared),
        "bound95": bound(accused, max(1, tally.compared)),
        "seconds": round(time.time() - begin, 1),
        "torch": __import__("torch").__version__,
        "accused": [describe(*item) for item in tally.accused],
        "not_compared": sum(tally.unknown.values()),
    }
    if options.json:
        print(json.dumps(answer, indent=1))
    else:
        print(
            f"{answer['comparisons']} comparisons, {accused} accusations: rate {answer['rate']:.2g}, at most "
            f"{answer['bound95']:.2g} with 95 % confidence; {answer['further_runs']} further CPU runs to decide; "
            f"{answer['not_compared']} calls not compared; {answer['seconds']} s"
        )
    if options.details and not options.json:
        print("\n".join(answer["accused"]))
        for (name, reason), count in sorted(tally.unknown.items(), key=lambda item: -item[1]):
            print(f"not compared {count} x {name}: {reason}")
        print("\n".join(options.notes))
    return 1 if accused else 0


if __name__ == "__main__":
    sys.exit(main())
