"""Break one operator on purpose, see the loss go wrong, and let OpAutoCompare say which one it is.

    python examples/find_fault.py [--fault "precision:aten::native_layer_norm,bits=1"]

The fault hook of the embedded device plays the part of a chip with a broken kernel: nothing raises, nothing is NaN.
"""

import argparse
import contextlib
import sys

import ditorch
import torch
from gpt import GPT
from op_tools import OpAutoCompare, OpFallback, OpTimeMeasure

FAULT = "precision:aten::native_layer_norm,bits=1"


def train(steps, tool=None):
    torch.manual_seed(0)
    model = GPT(64, 32, 48, 2, 4).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = torch.randint(0, 64, (4, 33), generator=torch.Generator().manual_seed(1)).to("cuda")
    losses = []
    with tool or contextlib.nullcontext():
        for _ in range(steps):
            logits = model(tokens[:, :-1])[0]
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def show(title, losses):
    shown = [*losses[:3], *losses[-2:]]
    print(f"{title:<28} loss {' '.join(f'{loss:.4f}' for loss in shown[:3])} ... {shown[-1]:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", default=FAULT, help="what to break (see `ditorch.fault`)")
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    show("a sound device", train(options.steps))
    with ditorch.fault(options.fault):
        show("one kernel broken", train(options.steps))
        print("\nwhich operator is it? two steps under OpAutoCompare:", flush=True)
        with OpTimeMeasure(console="off"), OpAutoCompare(rows="wrong", max_findings=1, module_paths=True) as compare:
            train(2)
            sys.stdout.flush()
        findings = compare.findings()
        if not findings:
            print("nobody was accused: did the fault fire?")
            return 1
        name = findings[0]["name"]
        print(f"\nit is {name}. Around it until it is mended: OpFallback(list={name!r})", flush=True)
        show(f"{name.rpartition('.')[2]} on the CPU", train(options.steps, OpFallback(list=name, console="off")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
