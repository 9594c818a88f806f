"""A vision transformer: convolutional patch embedding, class token, torch's own encoder layers, warm-up schedule."""

import argparse
import json

import torch
import torch.nn as nn


class ViT(nn.Module):
    def __init__(self, size=16, patch=4, width=32, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.norm(self.encoder(x)[:, 0]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(9)
    model = ViT()
    images, labels = torch.randn(args.steps, 6, 3, 16, 16), torch.randint(0, 10, (args.steps, 6))
    model.to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
    for step in range(args.steps):
        loss = nn.functional.cross_entropy(model(images[step].to(args.device)), labels[step].to(args.device))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)
    model.eval()
    with torch.inference_mode():
        print(json.dumps({"step": "eval", "loss": model(images[0].to(args.device)).float().norm().item()}), flush=True)


if __name__ == "__main__":
    main()
