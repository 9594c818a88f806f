"""Small operators, (4, 4) float32 unless said: the device against ATen on the CPU, in one process, in turns."""

import argparse

import common


def make_cases(torch, move):
    """{name: function} over small tensors where `move` puts them."""
    functional = torch.nn.functional
    generator = torch.Generator().manual_seed(7)

    def make(*shape):
        return move(torch.rand(*shape, generator=generator))

    a, b, c, row = make(4, 4), make(4, 4), make(4, 4), make(4)
    wide, weight, bias, rows = make(4, 64), make(64), make(64), move(torch.tensor([2, 0, 1]))
    many, others = [make(8, 8) for _ in range(50)], [make(8, 8) for _ in range(50)]
    parameters = [torch.nn.Parameter(make(8, 8)) for _ in range(50)]
    for parameter, gradient in zip(parameters, others, strict=True):
        parameter.grad = gradient
    optimizer = torch.optim.AdamW(parameters, lr=1e-9, fused=True)
    return {
        "add": lambda: a + b,
        "mul": lambda: a * b,
        "mm": lambda: a @ b,
        "add_ (in place)": lambda: c.add_(0.0),
        "add with a number": lambda: a + 1.5,
        "add of a row": lambda: a + row,
        "eq": lambda: a == b,
        "relu": lambda: torch.relu(a),
        "gelu": lambda: functional.gelu(a),
        "exp": lambda: torch.exp(a),
        "where": lambda: torch.where(a > b, a, b),
        "sum": lambda: a.sum(),
        "softmax": lambda: torch.softmax(a, 1),
        "linear": lambda: functional.linear(a, b, row),
        "layer_norm (4, 64)": lambda: functional.layer_norm(wide, (64,), weight, bias),
        "copy_": lambda: c.copy_(b),
        "fill_": lambda: c.fill_(1.0),
        "zero_": lambda: c.zero_(),
        "to float16": lambda: a.half(),
        "cat": lambda: torch.cat((a, b)),
        "index_select": lambda: a.index_select(0, rows),
        "foreach add (50 tensors)": lambda: torch._foreach_add_(many, others, alpha=1e-9),
        "fused AdamW (50 tensors)": optimizer.step,
        "fallback (cummax)": lambda: a.cummax(0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--only", nargs="*", help="names of rows")
    options = parser.parse_args()
    import ditorch
    import torch

    torch.set_num_threads(1)
    mine, base = make_cases(torch, lambda tensor: tensor.cuda()), make_cases(torch, lambda tensor: tensor)
    rows = []
    for name in options.only or mine:
        ditorch.reset_counters()
        mine[name]()
        where = "C" if list(ditorch.operators()) and not list(ditorch.fallbacks()) else "fallback"
        calls = max(1, options.calls // 20) if "50 tensors" in name else options.calls
        times = common.interleave({"device": mine[name], "cpu": base[name]}, options.rounds, calls)
        middle, low, high = common.ratio(times["device"], times["cpu"])
        mine_us, base_us = (common.summary(times[side])[0] * 1e6 for side in ("device", "cpu"))
        has_goal = not name.startswith("fallback")
        rows.append(
            {
                "what": f"{name} [{where}]",
                "figure": f"{middle:.2f}x ({low:.2f}-{high:.2f}); device {mine_us:.3f} us, CPU {base_us:.3f} us",
                "goal": "at most 1.0x" if has_goal else "",
                "met": common.verdict(middle <= 1.0) if has_goal else "",
            }
        )
    common.report(
        "Small operators against ATen CPU",
        "python bench/bench_small_ops.py",
        rows,
        f"{options.rounds} rounds of {options.calls} calls a side (a twentieth for lists of tensors); median "
        "(quartiles) of the ratio. 1 thread.",
    )


if __name__ == "__main__":
    main()
