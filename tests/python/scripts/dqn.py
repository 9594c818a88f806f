"""Deep Q-learning on a small random world: replay memory on the device, target network, gather, smooth L1 loss."""

import argparse
import json
import random

import torch
import torch.nn as nn

STATES, ACTIONS = 6, 3


class World:
    """Deterministic dynamics drawn once; lives on the CPU."""

    def __init__(self):
        generator = torch.Generator().manual_seed(8)
        self.step_matrix = torch.randn(ACTIONS, STATES, STATES, generator=generator) * 0.4
        self.reward_vector = torch.randn(STATES, generator=generator)

    def step(self, state, action):
        state = torch.tanh(self.step_matrix[action] @ state)
        return state, float(self.reward_vector @ state)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(7)
    random.seed(7)
    policy = nn.Sequential(nn.Linear(STATES, 32), nn.ReLU(), nn.Linear(32, ACTIONS)).to(device)
    target = nn.Sequential(nn.Linear(STATES, 32), nn.ReLU(), nn.Linear(32, ACTIONS)).to(device)
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)
    world, state, memory = World(), torch.ones(STATES) * 0.5, []
    for step in range(args.steps):
        for _ in range(8):
            if random.random() < 0.5:
                action = random.randrange(ACTIONS)
            else:
                with torch.no_grad():
                    action = policy(state.to(device).unsqueeze(0)).max(1).indices.item()
            following, reward = world.step(state, action)
            memory.append(
                (
                    state.to(device),
                    torch.tensor([action], device=device),
                    following.to(device),
                    torch.tensor([reward], device=device),
                )
            )
            state = following
        batch = random.sample(memory, 8)
        states, actions, following, rewards = (torch.stack(column) for column in zip(*batch, strict=False))
        q = policy(states).gather(1, actions)
        with torch.no_grad():
            best = target(following).max(1, keepdim=True).values
        loss = nn.functional.smooth_l1_loss(q, rewards + 0.95 * best)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        with torch.no_grad():
            for a, b in zip(target.parameters(), policy.parameters(), strict=False):
                a.mul_(0.9).add_(b, alpha=0.1)
        print(json.dumps({"step": step, "loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
