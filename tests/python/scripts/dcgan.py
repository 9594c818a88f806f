"""A DCGAN: transposed convolutions, two optimizers, weights initialised by name; the noise is drawn on the CPU."""

import argparse
import json

import torch
import torch.nn as nn


def initialise(module):
    name = type(module).__name__
    if "Conv" in name:
        nn.init.normal_(module.weight, 0.0, 0.05)
    elif "BatchNorm" in name:
        nn.init.normal_(module.weight, 1.0, 0.02)
        nn.init.zeros_(module.bias)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(6)
    generator = nn.Sequential(
        nn.ConvTranspose2d(10, 16, 4, 1, 0, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    discriminator = nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1, bias=False),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 16, 4, 2, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 1, 4, 1, 0, bias=False),
        nn.Flatten(),
    )
    generator.apply(initialise)
    discriminator.apply(initialise)
    generator.to(device)
    discriminator.to(device)
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    real = torch.randn(args.steps, 8, 1, 16, 16).clamp(-1, 1)
    ones, zeros = torch.ones(8, 1, device=device), torch.zeros(8, 1, device=device)
    for step in range(args.steps):
        optimizer_d.zero_grad()
        fake = generator(torch.randn(8, 10, 1, 1).to(device))
        loss_real = criterion(discriminator(real[step].to(device)), ones)
        loss_fake = criterion(discriminator(fake.detach()), zeros)
        (loss_real + loss_fake).backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = criterion(discriminator(fake), ones)
        loss_g.backward()
        optimizer_g.step()
        print(json.dumps({"step": step, "loss": [loss_real.item(), loss_fake.item(), loss_g.item()]}), flush=True)


if __name__ == "__main__":
    main()
