"""A word language model: embedding, two-layer LSTM with carried hidden state, truncated backpropagation, clipping."""

import argparse
import json

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, num_layers=2)
        self.decoder = nn.Linear(width, words)

    def forward(self, tokens, hidden):
        output, hidden = self.rnn(self.encoder(tokens), hidden)
        return self.decoder(output).flatten(0, 1), hidden


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(4)
    model = Model(40, 24).to(device)
    data = torch.randint(0, 40, (12 * args.steps + 1, 5)).to(device)
    criterion = nn.CrossEntropyLoss()
    hidden = tuple(torch.zeros(2, 5, 24, device=device) for _ in range(2))
    for step in range(args.steps):
        tokens, targets = data[step * 12 : (step + 1) * 12], data[step * 12 + 1 : (step + 1) * 12 + 1]
        hidden = tuple(h.detach() for h in hidden)
        model.zero_grad()
        output, hidden = model(tokens, hidden)
        loss = criterion(output, targets.reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=-2.0)
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
