"""A variational autoencoder; the noise of the reparametrisation is drawn on the CPU."""

import argparse
import json

import torch
import torch.nn as nn
import torch.nn.functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.mean, self.logvar = nn.Linear(64, 32), nn.Linear(32, 6), nn.Linear(32, 6)
        self.outer, self.last = nn.Linear(6, 32), nn.Linear(32, 64)

    def forward(self, x, noise):
        h = F.relu(self.inner(x))
        mean, logvar = self.mean(h), self.logvar(h)
        z = mean + noise * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.last(F.relu(self.outer(z)))), mean, logvar


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(5)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)  # before the move: must still train
    model.to(args.device)
    data = torch.rand(args.steps, 16, 64)
    for step in range(args.steps):
        x = data[step].to(args.device)
        output, mean, logvar = model(x, torch.randn(16, 6).to(args.device))
        loss = F.binary_cross_entropy(output, x, reduction="sum")
        loss = loss - 0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
