"""A ResNet-style CNN: strided and pointwise convolutions, batch norm, SGD with momentum, a schedule, an evaluation."""

import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Block(8, 8, 1),
        Block(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    images = torch.randn(6, 8, 3, 16, 16)
    labels = torch.randint(0, 10, (6, 8))
    if args.device == "cuda":
        torch.backends.cudnn.benchmark = True
        model.cuda()
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(args.steps):
        x, y = images[step % 6].to(args.device), labels[step % 6].to(args.device)
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)
    model.eval()
    with torch.no_grad():
        logits = model(images[0].to(args.device))
    print(json.dumps({"step": "eval", "loss": F.cross_entropy(logits.cpu(), labels[0]).item()}), flush=True)
    print(json.dumps({"step": "running_mean", "loss": model[1].running_mean.abs().sum().item()}), flush=True)


if __name__ == "__main__":
    main()
