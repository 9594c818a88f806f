"""PyTorch's operator database on the device, forward and backward with random gradients."""

import contextlib
import sys

from false_alarms.tally import limited

# Not run: no CPU reference, sparse tensors, uninitialised memory, or minutes for one sample.
LEFT_OUT = ("jiterator", "sparse", "empty", "_scaled_mm", "_flash_attention", "_efficient_attention", "without_cudnn")


def find_tensors(value):
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from find_tensors(item)
    elif isinstance(value, dict):
        yield from find_tensors(list(value.values()))


def run_sample(op, sample, backward):
    """Forward, and backward with random gradients."""
    import torch

    result = op(sample.input, *sample.args, **sample.kwargs)
    outputs = [t for t in find_tensors(result) if t.requires_grad]
    if not backward or not outputs:
        return
    gradients = [torch.randn(t.shape, dtype=torch.float64).to(t.device, t.dtype) for t in outputs]
    torch.autograd.backward(outputs, gradients)


def run_entry(op, dtype, options, tally):
    """One entry of the database in one dtype, in all seeds."""
    import torch
    from op_tools import OpAutoCompare

    backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    tool = OpAutoCompare(**options.tool)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        torch.manual_seed(seed)
        samples = iter(op.sample_inputs("cuda", dtype, requires_grad=backward))
        for _ in range(options.samples):
            try:
                with limited(60):
                    sample = next(samples)
            except StopIteration:
                break
            with limited(60), tool, contextlib.suppress(RuntimeError, NotImplementedError, ValueError, TypeError):
                run_sample(op, sample, backward)
            tally.add(tool, f"{op.name}{'.' + op.variant_test_name if op.variant_test_name else ''} {dtype}")


def run_database(options, tally, op_db):
    import torch

    names = options.ops.split(",") if options.ops else None
    chosen = [op for op in op_db if not any(word in op.name + op.variant_test_name for word in LEFT_OUT)]
    chosen = [op for op in chosen if not names or op.name in names][options.shard :: options.shards]
    for number, op in enumerate(chosen):
        for text in options.dtypes.split(","):
            dtype = getattr(torch, text)
            if dtype not in op.supported_dtypes("cpu"):
                continue
            try:
                run_entry(op, dtype, options, tally)
            except Exception as error:  # samples that cannot be made on this device
                options.notes.append(f"{op.name} {text}: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
        if options.progress and number % 20 == 19:
            print(f"{number + 1} of {len(chosen)} entries, {tally.compared} comparisons", file=sys.stderr, flush=True)
