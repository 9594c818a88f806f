"""Train, save everything, start anew from the file, train on; also activation checkpointing and random states."""

import argparse
import io
import json

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 3)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = checkpoint(lambda y: torch.nn.functional.gelu(self.second(y)), x, use_reentrant=False)
        return self.last(x)


def build(device):
    model = Model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.7)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    cuda = args.device.startswith("cuda")
    torch.manual_seed(12)
    data, labels = torch.randn(args.steps, 10, 12), torch.randint(0, 3, (args.steps, 10))
    model, optimizer, scheduler = build(args.device)
    for step in range(args.steps):
        if step == args.steps // 2:
            file = io.BytesIO()
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "cpu_rng": torch.get_rng_state(),
                "rng": torch.cuda.get_rng_state_all() if cuda else [],
            }
            torch.save(state, file)
            expected = torch.rand(4, device=args.device)
            model, optimizer, scheduler = build(args.device)
            file.seek(0)
            state = torch.load(file, map_location=args.device, weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            scheduler.load_state_dict(state["scheduler"])
            torch.set_rng_state(state["cpu_rng"].cpu())
            if cuda:
                torch.cuda.set_rng_state_all([s.cpu() for s in state["rng"]])
            assert torch.equal(expected, torch.rand(4, device=args.device)), "random state was not restored"
        loss = nn.functional.cross_entropy(model(data[step].to(args.device)), labels[step].to(args.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
