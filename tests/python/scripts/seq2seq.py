"""An encoder-decoder transformer that learns to reverse sequences: nn.Transformer with masks, then greedy decoding."""

import argparse
import json

import torch
import torch.nn as nn

WORDS, LENGTH, WIDTH, PAD, START = 20, 7, 32, 0, 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = (
            nn.Embedding(WORDS, WIDTH, padding_idx=PAD),
            nn.Embedding(WORDS, WIDTH, padding_idx=PAD),
        )
        self.position = nn.Parameter(torch.randn(LENGTH + 1, WIDTH) * 0.1)
        self.transformer = nn.Transformer(WIDTH, 4, 1, 1, 64, dropout=0.0, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        padding = source == PAD
        hidden = self.transformer(
            self.source(source) + self.position[: source.shape[1]],
            self.target(target) + self.position[: target.shape[1]],
            tgt_mask=mask,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.out(hidden)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(10)
    model = Model().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    source = torch.randint(2, WORDS, (args.steps, 6, LENGTH))
    source[:, :3, -2:] = PAD
    for step in range(args.steps):
        x = source[step].to(args.device)
        y = torch.cat([torch.full((6, 1), START, device=args.device), x.flip(1)], dim=1)
        logits = model(x, y[:, :-1])
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), y[:, 1:], ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)
    model.eval()
    with torch.no_grad():
        x, y = source[0].to(args.device), torch.full((6, 1), START, device=args.device)
        for _ in range(3):
            y = torch.cat([y, model(x, y)[:, -1].argmax(-1, keepdim=True)], dim=1)
    print(json.dumps({"step": "decoded", "loss": y.tolist()}), flush=True)


if __name__ == "__main__":
    main()
