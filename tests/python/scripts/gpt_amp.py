"""A small GPT with autocast fp16, a gradient scaler and gradient accumulation. On the CPU it runs in fp32."""

import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, BLOCK, WIDTH, HEADS, LAYERS = 50, 24, 48, 4, 2


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, HEADS, c // HEADS).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(BLOCK, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    amp = args.device.startswith("cuda")
    torch.manual_seed(1)
    model = GPT().to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    scaler = torch.cuda.amp.GradScaler(enabled=amp, init_scale=256.0)
    stream = torch.randint(0, VOCABULARY, (2000,), generator=torch.Generator().manual_seed(2))
    position = 0
    for step in range(args.steps):
        total = 0.0
        for _ in range(2):
            rows = [stream[position + i * 31 : position + i * 31 + BLOCK + 1] for i in range(4)]
            position += 40
            batch = torch.stack(rows)
            if amp:
                batch = batch.pin_memory().to(args.device, non_blocking=True)
            with torch.autocast(
                device_type="cuda" if amp else "cpu", dtype=torch.float16 if amp else torch.bfloat16, enabled=amp
            ):
                loss = model(batch[:, :-1], batch[:, 1:]) / 2
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(json.dumps({"step": step, "loss": total}), flush=True)
    assert model.head.weight is model.token.weight


if __name__ == "__main__":
    main()
