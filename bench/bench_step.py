"""One training step of a GPT and of a ResNet: the device against the CPU, in one process, in turns."""

import argparse
import copy
import os
import sys

import common

sys.path.insert(0, os.path.join(common.ROOT, "examples"))


def gpt_step(device):
    import torch
    from gpt import GPT

    torch.manual_seed(0)
    model = GPT(64, 64, 128, 4, 4).to(device)
    tokens = torch.randint(0, 64, (8, 65)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return common.make_training_step(model, tokens, optimizer)


def make_resnet():
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outside),
                nn.ReLU(),
                nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outside),
            )
            self.skip = nn.Identity() if stride == 1 else nn.Conv2d(inside, outside, 1, stride, bias=False)

        def forward(self, x):
            return nn.functional.relu(self.body(x) + self.skip(x))

    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        Block(32, 32, 1),
        Block(32, 64, 2),
        Block(64, 64, 1),
        Block(64, 128, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def resnet_step(device):
    import torch

    torch.manual_seed(0)
    model = copy.deepcopy(make_resnet()).to(device)
    images, labels = torch.randn(16, 3, 32, 32).to(device), torch.randint(0, 10, (16,)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step():
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    import ditorch
    import torch

    rows = []
    for name, make in (("GPT step", gpt_step), ("ResNet step", resnet_step)):
        device, cpu = make("cuda"), make("cpu")
        times = common.interleave({"device": device, "cpu": cpu}, options.rounds, calls=2)
        middle, low, high = common.ratio(times["device"], times["cpu"])
        mine, base = (common.summary(times[side])[0] * 1e3 for side in ("device", "cpu"))
        ditorch.reset_counters()
        device()
        in_c = sum(row["calls"] for row in ditorch.operators())
        fell = sum(row["calls"] for row in ditorch.fallbacks())
        rows.append(
            {
                "what": name,
                "figure": f"{middle:.2f}x ({low:.2f}-{high:.2f}); device {mine:.1f} ms, CPU {base:.1f} ms; "
                f"{in_c} calls in C, {fell} fallbacks",
                "goal": "at most 1.1x",
                "met": common.verdict(middle <= 1.1),
            }
        )
    common.report(
        "Training steps against the CPU",
        "python bench/bench_step.py",
        rows,
        f"{options.rounds} rounds of 2 steps a side; median (quartiles) of the ratio per round. "
        f"{torch.get_num_threads()} torch threads.",
    )


if __name__ == "__main__":
    main()
