"""Compiled programs against eager mode: eager on the device, aot_eager, backend "dit", and Inductor on CPU tensors.

All sides of a row run in turns in one process. With one thread the clock is the process's CPU time, so that other work
on the machine disturbs less; with more it is the wall's. A figure is eager's time divided by the side's: above 1 the
side is faster. The first calls compile; `settle` waits until code that is made in the background is there. The light
chain has a side more, `copy`: a plain copy of as many bytes, as STREAM's. compile_more.py has what is no row: a call's
overhead and a process's start.

python bench/compile.py [--only pointwise,gpt,overhead,start] [--sides dit,inductor] [--threads 1] [--rounds 9]
"""

import argparse
import os
import sys
import time

ROWS, SIDES = {}, ("eager", "aot_eager", "inductor", "dit")
GOAL = 0.95
GOALS = {"layer_norm_4096x1024": 1.0, "llama_one_token_d128": 2.2, "gpt_step_with_adamw": 1.2}
BANDWIDTH, BANDWIDTH_GOAL, ARENA_GOAL = "pointwise_light_4M", 0.8, 0.5


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose name contains one of these words")
    parser.add_argument("--sides", default=",".join(SIDES[1:]), help="what eager mode is compared with")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--block", type=float, default=0.03, help="seconds per block of calls")
    options = parser.parse_args()
    options.only = [word for word in options.only.split(",") if word]
    options.sides = [side for side in options.sides.split(",") if side]
    unknown = [side for side in options.sides if side not in SIDES[1:]]
    if unknown:
        parser.error(f"no side is called {unknown[0]}; there are {', '.join(SIDES[1:])}")
    return options


options = parse()
for name in ("DITORCH_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = str(options.threads)

import common  # noqa: E402
import compile_more  # noqa: E402
import ditorch  # noqa: E402, F401
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from llama import Block as LlamaBlock  # noqa: E402
from llama import make_rotation  # noqa: E402

torch.set_num_threads(options.threads)


def row(function):
    ROWS[function.__name__] = function
    return function


def heavy(x, y, z):
    a = torch.sigmoid(x) * y + torch.tanh(z)
    b = torch.exp(-a * a) * x - y * 0.5
    c = torch.where(b > 0, b, b * 0.01)
    d = torch.sin(c) * torch.cos(a) + torch.sqrt(torch.abs(b) + 1e-6)
    return F.silu(d) * (x + z) - torch.log1p(torch.abs(c)) * a


def light(x, y, z):
    a = x * y + z
    b = a * a - x
    c = torch.relu(b) * 0.5 + y
    d = torch.where(c > a, c, z)
    return (d - x) * (a + 1.0) - c


def draw(device, count, *sizes):
    return [torch.randn(*sizes).to(device) for _ in range(count)]


@row
def launch(device, wrap):
    return wrap(lambda x: x + 1), draw(device, 1, 4)


@row
def pointwise_heavy_64x128(device, wrap):
    return wrap(heavy), draw(device, 3, 64, 128)


@row
def pointwise_heavy_1M(device, wrap):
    return wrap(heavy), draw(device, 3, 1024, 1024)


@row
def pointwise_light_4M(device, wrap):
    return wrap(light), draw(device, 3, 2048, 2048)


@row
def softmax_4096x1024(device, wrap):
    return wrap(lambda x: F.softmax(x * 0.125, -1)), draw(device, 1, 4096, 1024)


@row
def layer_norm_4096x1024(device, wrap):
    weights = [torch.ones(1024, device=device), torch.zeros(1024, device=device)]
    return wrap(lambda x, w, b: F.layer_norm(x, (1024,), w, b)), draw(device, 1, 4096, 1024) + weights


def make_llama(device, wrap, width, heads, hidden, batch, length):
    model = LlamaBlock(width, heads, heads, hidden).to(device).eval().requires_grad_(False)
    rotation = [table.to(device) for table in make_rotation(length, width // heads)]
    return wrap(model), [*draw(device, 1, batch, length, width), *rotation]


@row
def llama_block_d512_T128_B2(device, wrap):
    return make_llama(device, wrap, 512, 8, 1376, 2, 128)


@row
def llama_one_token_d128(device, wrap):
    return make_llama(device, wrap, 128, 4, 344, 1, 1)


class Layer(nn.Module):
    """A block of GPT's: attention by one projection, GELU, no dropout."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary=256, width=128, heads=4, layers=2, length=64):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return F.cross_entropy(self.head(self.norm(self.layers(x))).flatten(0, 1), targets.flatten())


@row
def gpt_step_with_adamw(device, wrap):
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    tokens, targets = (torch.randint(0, 256, (4, 64)).to(device) for _ in range(2))
    compiled, update = wrap(model), wrap(optimizer.step)

    def step():
        loss = compiled(tokens, targets)
        loss.backward()
        update()
        optimizer.zero_grad()
        return loss

    return step, []


@row
def adamw_alone(device, wrap):
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape).to(device)
    update = wrap(optimizer.step)

    def step():
        update()
        return next(model.parameters())

    return step, []


@row
def llama_step(device, wrap):
    model = LlamaBlock(128, 4, 2, 344).to(device)
    rotation = [table.to(device) for table in make_rotation(64, 32)]
    (x,) = draw(device, 1, 4, 64, 128)
    compiled = wrap(model)

    def step():
        loss = compiled(x, *rotation).square().mean()
        loss.backward()
        model.zero_grad()
        return loss

    return step, []


class Decoder(nn.Module):
    """Eight blocks of GPT's that take one token and a cache that grows by it."""

    def __init__(self, width=128, heads=4, layers=8):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))

    def forward(self, x, keys, values):
        grown = ([], [])
        for layer, key, value in zip(self.layers, keys, values, strict=True):
            parts = layer.qkv(layer.norm1(x)).chunk(3, -1)
            q, k, v = (part.unflatten(-1, (layer.heads, -1)).transpose(1, 2) for part in parts)
            k, v = torch.cat([key, k], 2), torch.cat([value, v], 2)
            x = x + layer.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            x = x + layer.down(F.gelu(layer.up(layer.norm2(x))))
            grown[0].append(k)
            grown[1].append(v)
        return x, *grown


@row
def decode(device, wrap):
    """Each call has another length than the calls before: from 17 to 116, more than plans are kept for."""
    model = Decoder().to(device).eval().requires_grad_(False)
    compiled = wrap(model)
    (x,) = draw(device, 1, 1, 1, 128)
    begin = [draw(device, 8, 1, 4, 16, 32) for _ in range(2)]
    caches = list(begin)

    def step():
        if caches[0][0].shape[2] == 116:
            caches[:] = begin
        y, *caches[:] = compiled(x, *caches)
        return y

    return step, []


@row
def resnet_step(device, wrap):
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 10)).to(device)
    images, labels = torch.randn(8, 3, 32, 32).to(device), torch.randint(0, 10, (8,)).to(device)
    compiled = wrap(model)

    def step():
        loss = F.cross_entropy(compiled(images), labels)
        loss.backward()
        model.zero_grad()
        return loss

    return step, []


def settle():
    from ditorch import graph

    if hasattr(graph, "settle"):
        graph.settle()


def wrap_for(side):
    if side == "eager":
        return lambda function: function
    return lambda function: torch.compile(function, backend=side)


def prepare(build, side):
    """A function without arguments that has run some times; its result then."""
    torch.manual_seed(0)
    function, arguments = build("cpu" if side == "inductor" else "cuda", wrap_for(side))
    for _ in range(3):
        function(*arguments)
    settle()
    return (lambda: function(*arguments)), function(*arguments).detach().cpu().clone()


def copy_as_many(arguments):
    """A function that moves as many bytes as reading the arguments and writing one of them."""
    count = sum(x.numel() for x in arguments) + arguments[0].numel()
    source, target = (torch.zeros(count // 2).cuda() for _ in range(2))
    return lambda: target.copy_(source)


def sum_arenas(kept):
    """Bytes of all plans with reuse, and without."""
    plans = [plan for made in kept if not isinstance(made, str) for plan in made.describe()]
    return sum(plan["arena"] for plan in plans), sum(plan["unplanned"] for plan in plans)


def measure(name):
    """Seconds of each side by round, differences from eager mode, and the bytes of the arenas."""
    from ditorch import graph

    torch._dynamo.reset()
    sides, results, arenas = {}, {}, (0, 0)
    for side in ("eager", *options.sides):
        kept = graph.keep() if side == "dit" else []
        sides[side], results[side] = prepare(ROWS[name], side)
        if side == "dit":
            arenas = sum_arenas(kept)
            graph.keep(False)
    if name == BANDWIDTH:
        sides["copy"] = copy_as_many(ROWS[name]("cuda", lambda function: function)[1])
    clock = time.process_time if options.threads == 1 else time.perf_counter
    calls = {side: max(1, int(options.block / max(common.per_call(f, 2), 1e-7))) for side, f in sides.items()}
    times = {side: [] for side in sides}
    for index in range(options.rounds + 1):
        for side in sides if index % 2 == 0 else reversed(sides):
            seconds = common.per_call(sides[side], calls[side], clock)
            if index > 0:
                times[side].append(seconds)
    return times, {side: float((result - results["eager"]).abs().max()) for side, result in results.items()}, arenas


def judge_ours(name, times):
    """The goals of a row, and whether they are met."""
    least = GOALS.get(name, GOAL)
    goals = [(f"at least {least}x", common.ratio(times["eager"], times["dit"])[0] >= least)]
    if "inductor" in times:
        goals.append(("at least Inductor's", common.ratio(times["inductor"], times["dit"])[0] >= 1))
    if "copy" in times:
        share = common.ratio(times["copy"], times["dit"])[0]
        goals.append((f"at least {BANDWIDTH_GOAL:.0%} of a copy's bandwidth ({share:.0%})", share >= BANDWIDTH_GOAL))
    return "; ".join(goal for goal, _ in goals), common.verdict(all(good for _, good in goals))


def make_arena_row(name, arenas):
    with_reuse, without = arenas
    figure = f"{with_reuse:,} of {without:,} bytes, {with_reuse / without:.0%}"
    goal = f"at most {ARENA_GOAL:.0%}"
    return {
        "what": f"{name} arena",
        "figure": figure,
        "goal": goal,
        "met": common.verdict(with_reuse <= ARENA_GOAL * without),
    }


MORE = {"overhead": compile_more.measure_overhead, "start": compile_more.measure_start}


def choose(known):
    return [name for name in known if not options.only or any(word in name for word in options.only)]


def main():
    names, more = choose(ROWS), choose(MORE)
    if not names and not more:
        raise SystemExit(f"no row's name contains {' or '.join(options.only)}; there are {', '.join([*ROWS, *MORE])}")
    rows = []
    for name in names:
        times, differences, arenas = measure(name)
        eager = common.summary(times["eager"])[0]
        for side in options.sides:
            middle, low, high = common.ratio(times["eager"], times[side])
            figure = f"{middle:.2f}x ({low:.2f}-{high:.2f}); eager {eager * 1e6:.1f} us"
            if side != "inductor":
                figure += f", differs by {differences[side]:.1g}"
            goal, met = judge_ours(name, times) if side == "dit" and name != "launch" else ("", "")
            rows.append({"what": f"{name} [{side}]", "figure": figure, "goal": goal, "met": met})
            print(f"{rows[-1]['what']:<36} {figure}", file=sys.stderr, flush=True)
        if arenas[1]:
            rows.append(make_arena_row(name, arenas))
    for name in more:
        rows += MORE[name](3 if name == "start" else options.rounds)
    command = "python bench/compile.py" + (f" --threads {options.threads}" if options.threads != 1 else "")
    note = f"{options.rounds} rounds in turns; eager's time divided by the side's, median (quartiles). "
    common.report("Compiled programs", command, rows, note + f"{options.threads} thread(s).")


if __name__ == "__main__":
    main()
