"""Training scripts of the kinds people write themselves: a GPT with AMP, compile and checkpoints; a word model."""

from __future__ import annotations

import contextlib
import math

import torch
from torch import nn
from torch.nn import functional as F

from . import DEVICE, case, rows, seed_all, summary, variants

VOCABULARY = 64


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Gpt(nn.Module):
    """Decoder with tied input and output embeddings."""

    def __init__(self, width: int = 32, depth: int = 2, length: int = 16):
        super().__init__()
        self.length = length
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        for value in self.parameters():
            if value.dim() > 1:
                nn.init.normal_(value, std=0.08)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss

    @torch.no_grad()
    def generate(self, tokens: torch.Tensor, count: int) -> torch.Tensor:
        for _ in range(count):
            logits, _ = self(tokens[:, -self.length :])
            tokens = torch.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], 1)
        return tokens


def batches(steps: int, length: int):
    """Pinned and copied without blocking, as such scripts do."""
    tokens = rows(64, length + 1, VOCABULARY)
    for step in range(steps):
        part = tokens[(step * 8) % 64 : (step * 8) % 64 + 8]
        x, y = part[:, :-1].contiguous(), part[:, 1:].contiguous()
        if DEVICE == "cuda":
            x, y = x.pin_memory(), y.pin_memory()
        yield x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)


def rate(step: int, steps: int) -> float:
    """Warm up, then cosine."""
    return 3e-3 * (step + 1) / 3 if step < 2 else 3e-3 * 0.5 * (1 + math.cos(math.pi * (step - 2) / (steps - 2)))


KINDS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "compile": {"dtype": "float32", "compiled": True},
    "late_cuda": {"dtype": "float32", "late": True},
}


@variants("GPT script: AMP, fused AdamW, compile, checkpoint", KINDS)
def gpt_script(folder, dtype, compiled=False, late=False):
    """`late`: the optimizer is built before the model moves; it must train the moved weights."""
    seed_all(1337)
    steps = 10
    model = Gpt()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    if not late:
        model = model.to(DEVICE)
    decay = [value for value in model.parameters() if value.dim() > 1]
    plain = [value for value in model.parameters() if value.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=DEVICE == "cuda" and not late)
    if late and DEVICE == "cuda":
        model.cuda()
    kind = getattr(torch, dtype)
    if DEVICE == "cpu" and dtype == "float16":
        kind = torch.float32
    mixed = torch.autocast(DEVICE, kind) if kind is not torch.float32 else contextlib.nullcontext()
    scaler = torch.amp.GradScaler(DEVICE, enabled=kind is torch.float16)
    run = torch.compile(model) if compiled else model
    losses = []
    for step, (x, y) in enumerate(batches(steps, 16)):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        with mixed:
            _, loss = run(x, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    moved = {name: not torch.equal(value.cpu(), start[name]) for name, value in model.state_dict().items()}
    path = folder / "ckpt.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    other = Gpt()
    other.load_state_dict(loaded["model"])
    prompt = rows(2, 5, VOCABULARY, 9)
    model.eval()
    return {
        "losses": losses,
        "weights": summary(model),
        "tied": model.head.weight is model.tokens.weight,
        "all_moved": all(moved.values()),
        "tokens": model.generate(prompt.to(DEVICE), 8).tolist() if dtype == "float32" else [],
        "cpu_tokens": other.generate(prompt, 8).tolist() if dtype == "float32" else [],
        "on_cpu": {value.device.type for value in loaded["model"].values()} == {"cpu"},
    }


class WordModel(nn.Module):
    """Embedding, a recurrent net or an encoder, output tied to the embedding."""

    def __init__(self, kind: str, width: int = 24):
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(VOCABULARY, width)
        if kind == "Transformer":
            layer = nn.TransformerEncoderLayer(width, 4, 48, dropout=0.0, batch_first=False)
            self.net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        else:
            names = {"RNN_TANH": (nn.RNN, {"nonlinearity": "tanh"}), "RNN_RELU": (nn.RNN, {"nonlinearity": "relu"})}
            kind_of, extra = names.get(kind, (getattr(nn, kind, None), {}))
            self.net = kind_of(width, width, 2, **extra)
        self.decoder = nn.Linear(width, VOCABULARY)
        self.decoder.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, tokens, state=None):
        x = self.embedding(tokens)
        if self.kind == "Transformer":
            mask = nn.Transformer.generate_square_subsequent_mask(len(tokens), device=tokens.device)
            return self.decoder(self.net(x, mask=mask, is_causal=True)), None
        y, state = self.net(x, state)
        return self.decoder(y), state


def detach(state):
    if state is None or isinstance(state, torch.Tensor):
        return None if state is None else state.detach()
    return tuple(detach(part) for part in state)


@variants(
    "word language model: tied weights, truncated backpropagation",
    {kind.lower(): {"kind": kind} for kind in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU", "Transformer")},
)
def word_model(folder, kind):
    """Truncated backpropagation, plain SGD by hand, evaluation, whole-model checkpoint, dropout-free."""
    seed_all(1111)
    corpus = rows(8, 33, VOCABULARY).t().contiguous().to(DEVICE)
    model = WordModel(kind).to(DEVICE)
    losses, state = [], None
    for _ in range(3):
        for start in range(0, 32, 8):
            x, y = corpus[start : start + 8], corpus[start + 1 : start + 9]
            model.zero_grad()
            output, state = model(x, detach(state))
            loss = F.cross_entropy(output.flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for value in model.parameters():
                value.data.add_(value.grad, alpha=-2.0)
            losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        final = F.cross_entropy(model(corpus[:-1])[0].flatten(0, 1), corpus[1:].flatten()).item()
    path = folder / "model.pt"
    torch.save(model, path)
    again = torch.load(path, map_location="cpu", weights_only=False)
    with torch.no_grad():
        on_cpu = F.cross_entropy(again(corpus[:-1].cpu())[0].flatten(0, 1), corpus[1:].cpu().flatten()).item()
    return {
        "losses": losses,
        "values": [final, on_cpu],
        "weights": summary(model),
        "tied": model.decoder.weight is model.embedding.weight and again.decoder.weight is again.embedding.weight,
    }


@case("seeds, generators and saved states")
def random_numbers(folder):
    """Seeds, states and generators: what a script that wants to be repeatable relies on."""

    def draw():
        return torch.rand(8, device=DEVICE), F.dropout(torch.ones(64, device=DEVICE), 0.5)

    torch.manual_seed(3)
    first = draw()
    torch.manual_seed(3)
    again = draw()
    get, put = (
        (torch.cuda.get_rng_state, torch.cuda.set_rng_state)
        if DEVICE == "cuda"
        else (
            torch.get_rng_state,
            torch.set_rng_state,
        )
    )
    state = get()
    later = draw()
    put(state)
    restored = draw()
    generator = torch.Generator(DEVICE).manual_seed(5)
    one = torch.randn(4, device=DEVICE, generator=generator)
    two = torch.randn(4, device=DEVICE, generator=generator.manual_seed(5))
    with torch.random.fork_rng(devices=[0] if DEVICE == "cuda" else []):
        torch.manual_seed(9)
        draw()
    same = [torch.equal(a, b) for pair in ((first, again), (later, restored)) for a, b in zip(*pair, strict=True)]
    return {
        "repeats": all(same),
        "differs": not torch.equal(first[0], later[0]),
        "generator": torch.equal(one, two),
        "forked": torch.equal(draw()[0], draw()[0]) is False,
    }


@case("memory counters")
def memory_counters(folder):
    """Allocated memory goes up by the tensor's size and down again; the peak stays until it is reset."""
    if DEVICE == "cpu":
        return {"grew": 1 << 20, "freed": True, "peak": True, "reset": True}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    block = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    grew = torch.cuda.memory_allocated() - before
    del block
    found = {
        "grew": grew,
        "freed": torch.cuda.memory_allocated() == before,
        "peak": torch.cuda.max_memory_allocated() >= before + (1 << 20),
    }
    torch.cuda.reset_peak_memory_stats()
    return {**found, "reset": torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()}
