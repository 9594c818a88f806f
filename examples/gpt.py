"""A small GPT, written for CUDA as such programs are: character level, mixed precision, gradient clipping, sampling.

The text is made by the script itself from a small grammar, so that nothing is downloaded and every run is the same.

    python examples/gpt.py [--steps 60] [--width 128] [--layers 3]
"""

import argparse
import math
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SUBJECTS = ["the cat", "a dog", "the old man", "my sister", "the small bird", "a quiet engineer", "the moon"]
VERBS = ["sees", "likes", "follows", "remembers", "paints", "measures", "forgets"]
OBJECTS = ["the river", "a red apple", "the long road", "an open window", "the first snow", "a number"]
ENDINGS = [". ", ", and ", "; then ", " because "]


def make_text(sentences=4000, seed=1234):
    """Sentences of a small grammar: enough structure for the loss to fall quickly."""
    rng = random.Random(seed)
    return "".join(
        f"{rng.choice(SUBJECTS)} {rng.choice(VERBS)} {rng.choice(OBJECTS)}{rng.choice(ENDINGS)}"
        for _ in range(sentences)
    )


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        batch, time_steps, width = x.shape
        q, k, v = self.qkv(x).view(batch, time_steps, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(batch, time_steps, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, width, layers, heads, dropout=0.0):
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self.initialise)
        self.head.weight = self.tokens.weight

    @staticmethod
    def initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens, targets=None):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        loss = None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss

    @torch.no_grad()
    def generate(self, tokens, count, temperature=0.8):
        for _ in range(count):
            logits, _ = self(tokens[:, -self.context :])
            probabilities = F.softmax(logits[:, -1] / temperature, dim=-1)
            tokens = torch.cat([tokens, torch.multinomial(probabilities, 1)], dim=1)
        return tokens


class Batches:
    """Random windows of the text, pinned and copied asynchronously."""

    def __init__(self, data, context, batch, device):
        self.data, self.context, self.batch, self.device = data, context, batch, device
        self.generator = torch.Generator().manual_seed(7)

    def next(self):
        starts = torch.randint(len(self.data) - self.context - 1, (self.batch,), generator=self.generator)
        windows = torch.stack([self.data[s : s + self.context + 1] for s in starts.tolist()])
        if self.device.type == "cuda":
            windows = windows.pin_memory().to(self.device, non_blocking=True)
        return windows[:, :-1], windows[:, 1:]


def learning_rate(step, steps, peak):
    warm = max(1, steps // 10)
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))))


def train(model, batches, args, device):
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], betas=(0.9, 0.95)
    )
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[args.precision]
    scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "fp16")
    start = time.perf_counter()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        tokens, targets = batches.next()
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not torch.float32):
            _, loss = model(tokens, targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0 or step == args.steps - 1:
            value = loss.item()
            speed = (step + 1) * tokens.numel() / (time.perf_counter() - start)
            print(f"step {step:4d}  loss {value:.4f}  |gradient| {norm.item():.3f}  {speed:,.0f} tokens/s", flush=True)
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--precision", choices=("fp32", "fp16", "bf16"), default="fp32")
    args = parser.parse_args()
    torch.manual_seed(1337)
    device = torch.device(args.device)
    text = make_text()
    letters = sorted(set(text))
    numbers = {letter: index for index, letter in enumerate(letters)}
    data = torch.tensor([numbers[letter] for letter in text])
    model = GPT(len(letters), args.context, args.width, args.layers, args.heads).to(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    size = sum(p.numel() for p in model.parameters())
    print(f"GPT with {size:,} parameters on {device} ({name}), {len(text):,} letters of text")
    loss = train(model, Batches(data, args.context, args.batch, device), args, device)
    model.eval()
    prompt = torch.tensor([[numbers[letter] for letter in "the cat "]], device=device)
    print("sample:", "".join(letters[i] for i in model.generate(prompt, 60)[0].tolist()))
    if device.type == "cuda":
        torch.cuda.synchronize()
        print(
            f"peak memory: {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB allocated, "
            f"{torch.cuda.max_memory_reserved() / 2**20:.1f} MiB reserved"
        )
    print(f"final loss: {loss:.4f}")


if __name__ == "__main__":
    main()
