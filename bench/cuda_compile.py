"""Compiled programs on one GPU: ours in eager mode, backend "dit", and torch.compile of PyTorch's own CUDA build.

    python bench/cuda_compile.py [--rows softmax,gpt] [--rounds 7] [--seconds 170] [--json FILE]

Two processes, ditorch over vendors/cuda and PyTorch's own CUDA, measure in turns. A figure is the time of ours in eager
mode divided by the side's: above 1 the side is faster. `torch.compile` needs Triton; a side that fails is a row that
says why, and the others go on. What a side returned is compared with what its own eager mode returned. No row is begun
after --seconds. Needs a torch with CUDA.
"""

import argparse
import json
import os
import selectors
import subprocess
import sys
import time

import common

sys.path.insert(0, os.path.join(common.ROOT, "examples"))

SIDES = {"ditorch": ("nvidia", ["eager", "dit"]), "torch": ("none", ["eager", "inductor"])}
PREPARE_SECONDS = 75  # of a row, compilation in all
BLOCK_SECONDS = 0.02


def heavy(torch, x, y, z):
    a = torch.sigmoid(x) * y + torch.tanh(z)
    b = torch.exp(-a * a) * x - y * 0.5
    c = torch.where(b > 0, b, b * 0.01)
    d = torch.sin(c) * torch.cos(a) + torch.sqrt(torch.abs(b) + 1e-6)
    return torch.nn.functional.silu(d) * (x + z) - torch.log1p(torch.abs(c)) * a


def light(torch, x, y, z):
    a = x * y + z
    b = a * a - x
    c = torch.relu(b) * 0.5 + y
    d = torch.where(c > a, c, z)
    return (d - x) * (a + 1.0) - c


def many(torch, x):
    for _ in range(10):
        x = torch.relu(x * 1.01) + 0.1
    return x


def draw(torch, count, *sizes, dtype="float32"):
    return [torch.randn(*sizes, device="cpu").to("cuda", getattr(torch, dtype)) for _ in range(count)]


def make_pointwise(function, count, *sizes, dtype="float32"):
    def make(torch, wrap):
        compiled, arguments = wrap(lambda *tensors: function(torch, *tensors)), draw(torch, count, *sizes, dtype=dtype)
        return lambda: compiled(*arguments)

    return make


def make_layer_norm(rows, width, dtype):
    def make(torch, wrap):
        (x,), weights = draw(torch, 1, rows, width, dtype=dtype), draw(torch, 2, width, dtype=dtype)
        compiled = wrap(lambda x, w, b: torch.nn.functional.layer_norm(x, (width,), w, b))
        return lambda: compiled(x, *weights)

    return make


def make_step(torch, wrap, model, tokens):
    optimizer, compiled = torch.optim.AdamW(model.parameters(), lr=1e-4), wrap(model)

    def step():
        _, loss = compiled(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def make_gpt(torch, wrap):
    from gpt import GPT

    return make_step(torch, wrap, GPT(128, 128, 256, 4, 8).to("cuda"), torch.randint(0, 128, (4, 129)).to("cuda"))


def make_llama(torch, wrap):
    from llama import Llama

    model = Llama(32000, 2048, 2048, 2, 16, 4, 5632).to("cuda", torch.bfloat16)
    return make_step(torch, wrap, model, torch.randint(0, 32000, (1, 2049)).to("cuda"))


ROWS = {
    "heavy 16M": make_pointwise(heavy, 3, 4096, 4096),
    "softmax 16384x1024": make_pointwise(lambda torch, x: torch.softmax(x * 0.125, -1), 1, 16384, 1024),
    "layer_norm 16384x1024": make_layer_norm(16384, 1024, "float32"),
    "20 tiny": make_pointwise(many, 1, 64, 64),
    "gpt step": make_gpt,
    "llama step bf16": make_llama,
    "light 16M": make_pointwise(light, 3, 4096, 4096),
    "light 16M bf16": make_pointwise(light, 3, 4096, 4096, dtype="bfloat16"),
    "softmax 8192x4096 bf16": make_pointwise(
        lambda torch, x: torch.softmax(x * 0.125, -1), 1, 8192, 4096, dtype="bfloat16"
    ),
    "layer_norm 8192x4096 bf16": make_layer_norm(8192, 4096, "bfloat16"),
    "columns 16384x1024": make_pointwise(lambda torch, x, y: (x * y).sum(0), 2, 16384, 1024),
    "sum of 16M": make_pointwise(lambda torch, x, y: (x * y).sum(), 2, 4096, 4096),
    "bias and row 4096x4096": make_pointwise(lambda torch, x, y: torch.relu(x + y[0]) * y[:, :1], 2, 4096, 4096),
    "launch": make_pointwise(lambda torch, x: x + 1, 1, 4),
}


class Server:
    """One side: prepares a row, then measures blocks of its functions, as standard input says."""

    def __init__(self):
        self.has_ditorch = os.environ["DITORCH_BACKEND"] == "nvidia"
        if self.has_ditorch:
            import ditorch  # noqa: F401
        import torch

        self.torch, self.functions, self.calls = torch, {}, {}

    def block(self, kind, calls):
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            self.functions[kind]()
        self.torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls

    def prepare_kind(self, row, kind):
        torch = self.torch
        torch.manual_seed(0)
        wrap = (lambda function: function) if kind == "eager" else lambda f: torch.compile(f, backend=kind)
        start = time.perf_counter()
        self.functions[kind] = ROWS[row](torch, wrap)
        result = self.functions[kind]().float().cpu()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        self.block(kind, 2)
        self.calls[kind] = max(1, min(2000, int(BLOCK_SECONDS / max(self.block(kind, 3), 1e-6))))
        return result, seconds

    def prepare(self, row):
        kinds, wanted = SIDES["ditorch" if self.has_ditorch else "torch"][1], None
        self.torch._dynamo.reset()
        self.functions.clear()
        answer = {}
        kept = None
        if self.has_ditorch:
            from ditorch import graph

            kept = graph.keep()
        for kind in kinds:
            try:
                result, seconds = self.prepare_kind(row, kind)
            except Exception as error:
                answer[kind] = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}
                self.functions.pop(kind, None)
                continue
            wanted = result if wanted is None else wanted
            away = (result - wanted).abs().max().item() if wanted.shape == result.shape else float("nan")
            answer[kind] = {"first_call_s": seconds, "differs_by": away, "largest": wanted.abs().max().item()}
            if kind == "dit":
                answer[kind]["steps"] = [describe(entry) for entry in kept]
        return answer

    def serve(self):
        for line in sys.stdin:
            word, what = json.loads(line)
            try:
                if word == "prepare":
                    answer = self.prepare(what)
                else:
                    answer = {"seconds": self.block(what, self.calls[what])}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
            print("ANSWER " + json.dumps(answer), flush=True)


def describe(entry):
    if isinstance(entry, str):
        return entry
    plans = entry.describe()
    return {name: sum(plan[name] for plan in plans) for name in ("regions", "rows", "islands")}


class Side:
    """A child process that does what it is asked; it is started anew after it failed."""

    def __init__(self, backend):
        self.backend, self.process, self.unread = backend, None, b""

    def start(self):
        path = os.pathsep.join(filter(None, [os.path.join(common.ROOT, "python"), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "DITORCH_BACKEND": self.backend, "DITORCH_BANNER": "0", "PYTHONPATH": path}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--serve"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.unread = b""

    def ask(self, *words):
        if self.process is None:
            self.start()
        self.process.stdin.write(json.dumps(words).encode() + b"\n")
        self.process.stdin.flush()

    def read(self, seconds):
        """The next answer; one with an error when there is none."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                if not selector.select(left):
                    break
                piece = os.read(self.process.stdout.fileno(), 1 << 16)
                if not piece:
                    return self.fail(f"the process ended with status {self.process.wait()}")
                self.unread += piece
                *lines, self.unread = self.unread.split(b"\n")
                for line in lines:
                    if line.startswith(b"ANSWER "):
                        return json.loads(line.removeprefix(b"ANSWER "))
        return self.fail(f"no answer within {seconds:.0f} s")

    def fail(self, text):
        self.close()
        return {"error": text}

    def close(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


def measure(sides, row, options, end):
    prepared = {}
    for side in sides.values():
        side.ask("prepare", row)
    for name, side in sides.items():
        prepared[name] = side.read(min(PREPARE_SECONDS, max(5.0, end - time.monotonic())))
    result = {"name": row, "prepared": prepared}
    ready = [
        (name, kind) for name in sides for kind in SIDES[name][1] if "first_call_s" in prepared[name].get(kind, {})
    ]
    times = {f"{name} {kind}": [] for name, kind in ready}
    for index in range(options.rounds + 1):
        for name, kind in ready if index % 2 == 0 else list(reversed(ready)):
            if sides[name].process is None:
                continue
            sides[name].ask("measure", kind)
            answer = sides[name].read(30)
            if "seconds" in answer and index:
                times[f"{name} {kind}"].append(answer["seconds"])
            elif "error" in answer:
                result.setdefault("errors", []).append(f"{name} {kind}: {answer['error']}")
    base = times.get("ditorch eager")
    for name, values in times.items():
        if len(values) == options.rounds and base and len(base) == options.rounds:
            middle, low, high = common.ratio(base, values)
            seconds = common.summary(values)[0]
            result[name] = {"seconds": seconds, "faster": middle, "low": low, "high": high}
    return result


def show(result):
    lines = [result["name"]]
    for name, prepared in result["prepared"].items():
        if "error" in prepared:
            lines.append(f"  {name:16} {prepared['error']}")
            continue
        for kind, about in prepared.items():
            timed = result.get(f"{name} {kind}")
            if "error" in about or not timed:
                lines.append(f"  {name} {kind:9} {about.get('error', 'not measured')}")
                continue
            lines.append(
                f"  {name + ' ' + kind:17} {timed['faster']:5.2f}x ({timed['low']:.2f}-{timed['high']:.2f}) "
                f"{timed['seconds'] * 1e6:10.1f} us; first call {about['first_call_s']:.1f} s; differs by "
                f"{about['differs_by']:.2g} of {about['largest']:.2g} {about.get('steps', '')}"
            )
    return "\n".join([*lines, *(f"  {text}" for text in result.get("errors", []))])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="rows whose name contains one of these words")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return Server().serve()
    words = [word for word in options.rows.split(",") if word]
    names = [name for name in ROWS if not words or any(word in name for word in words)]
    sides = {name: Side(backend) for name, (backend, _) in SIDES.items()}
    rows, end = [], time.monotonic() + options.seconds
    for name in names:
        if time.monotonic() > end:
            print(f"{name}: no time left")
            continue
        rows.append(measure(sides, name, options, end))
        print(show(rows[-1]), flush=True)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"machine": common.machine(), "rows": rows}, file, indent=1)
    for side in sides.values():
        side.close()
    return int(not rows or any("ditorch dit" not in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
