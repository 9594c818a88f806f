"""Record the operator calls of models into python/ditorch/models/corpus: one command makes everything anew.

    python3 -m venv build/venv-models        # torch==2.13.0 first, then timm, transformers, diffusers with --no-deps
    build/venv-models/bin/python tools/record_models.py [NAME ...]

Each model runs one training step on meta tensors: no weights, no memory. Then every distinct call runs on the embedded
device over libdiopi_observe.so, which computes nothing, so that the operator table of src/ops itself says what the call
becomes in the standard. A process per model and step; what fails is told and keeps its corpus as it was.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "python")]

MOST_BYTES = 24 << 30
_ROI = "float spatial_scale, int pooled_height, int pooled_width"
_SIZES = "int batch_size, int channels, int height, int width"
_TAIL = "int sampling_ratio, bool aligned) -> Tensor"
VISION = [f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")]
VISION += [f"{name}(Tensor input, Tensor rois, {_ROI}, {_TAIL}" for name in ("roi_align", "qroi_align")]
VISION += [f"_roi_align_backward(Tensor grad, Tensor rois, {_ROI}, {_SIZES}, {_TAIL}"]


def _load_corpus() -> Any:
    """The module alone: importing ditorch would install a device."""
    import importlib.util

    path = os.path.join(ROOT, "python", "ditorch", "models", "corpus.py")
    spec = importlib.util.spec_from_file_location("corpus", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["corpus"] = module
    spec.loader.exec_module(module)
    return module


corpus = _load_corpus()


# The training step, on meta tensors


def _describe(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        strides = None if value.is_contiguous() or value.numel() == 0 else tuple(value.stride())
        return corpus.Tensor(str(value.dtype)[6:], tuple(value.shape), strides)
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, torch.Tensor) for item in value):
            return tuple(_describe(item) for item in value)
        return [_describe(item) for item in value]
    for kind, name in ((torch.dtype, "dtype"), (torch.memory_format, "format"), (torch.layout, "layout")):
        if isinstance(value, kind):
            return corpus.Word(name, str(value)[6:])
    if isinstance(value, torch.device):
        return corpus.Word("device")
    return None if isinstance(value, torch.Generator) else value


def _answer(dtype: Any, before: str) -> Any:
    """What a program reads of a meta tensor: yes to "all of them?", no to other questions, one for a number."""
    import torch

    if dtype is torch.bool:
        return before == "all"
    return 1.0 if dtype.is_floating_point else 1


def _make_mode() -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        """Counts distinct calls, in the order of their first appearance."""

        def __init__(self) -> None:
            super().__init__()
            self.counts: dict[Any, int] = {}
            self.quiet = False
            self.before = ""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if not self.quiet and func.namespace in ("aten", "torchvision"):
                self.note(func, args, kwargs)
            before, self.before = self.before, func._opname
            if func._opname == "_local_scalar_dense":
                return _answer(args[0].dtype, before)
            return func(*args, **kwargs)

        def note(self, func: Any, args: Any, kwargs: Any) -> None:
            overload = "" if func._overloadname == "default" else f".{func._overloadname}"
            name = f"{func.namespace}::{func._opname}{overload}"
            words = {key: _describe(value) for key, value in kwargs.items()}
            call = corpus.Call(name, tuple(_describe(value) for value in args), words)
            self.counts[call] = self.counts.get(call, 0) + 1

    return Recorder()


def _watch_attention(mode: Any) -> None:
    """Attention is recorded as the one call that programs make; a device has kernels for it, meta tensors do not. Its
    backward pass belongs to the call: whoever runs it runs both."""
    import torch

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            ctx.save_for_backward(q, k, v)
            return q.new_empty(*q.shape[:-1], v.shape[-1])

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return tuple(torch.empty_like(x) for x in ctx.saved_tensors)

    def attend(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        words = {"is_causal": is_causal} | ({"scale": scale} if scale is not None else {})
        words |= {"enable_gqa": True} if enable_gqa else {}
        mask = None if attn_mask is None else _describe(attn_mask)
        args = (_describe(query), _describe(key), _describe(value), mask, 0.0)
        call = corpus.Call("aten::scaled_dot_product_attention", args, words)
        mode.counts[call] = mode.counts.get(call, 0) + 1
        mode.quiet = True
        try:
            return Attention.apply(query, key, value)
        finally:
            mode.quiet = False

    def align(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
        kind = {"none": 0, "mean": 1, "sum": 2}[reduction]
        args = (_describe(log_probs), _describe(targets), input_lengths, target_lengths, blank, kind, zero_infinity)
        call = corpus.Call("aten::ctc_loss.IntList", args)
        mode.counts[call] = mode.counts.get(call, 0) + 1
        mode.quiet = True
        try:
            return log_probs.sum()
        finally:
            mode.quiet = False

    torch.nn.functional.scaled_dot_product_attention = attend
    torch.nn.functional.ctc_loss = align


def record(name: str, path: str) -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")  # torchvision's Python, without its kernels
    for schema in VISION:
        with contextlib.suppress(RuntimeError):
            library.define(schema)
    library.impl("roi_align", lambda x, rois, scale, h, w, *_: x.new_empty(len(rois), x.shape[1], h, w), "Meta")
    library.impl("_roi_align_backward", lambda g, r, s, h, w, *sizes: g.new_empty(sizes[:4]), "Meta")
    import model_zoo

    model = next(item for item in model_zoo.MODELS if item.name == name)
    with torch.device("meta"):
        module, inputs, loss = model.build()
    module.train()
    parameters = [p for p in module.parameters() if p.requires_grad]
    kinds = {"sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4})}
    kinds["adamw"] = (torch.optim.AdamW, {"lr": 1e-4})
    make, words = kinds[model.optimizer]
    optimizer = make(parameters, foreach=False, **words)
    mode = _make_mode()
    _watch_attention(mode)
    with torch.device("meta"), mode:
        for step in range(2):  # the first step makes the optimizer's state
            mode.counts = {} if step else mode.counts
            optimizer.zero_grad()
            loss(module, inputs).backward()
            if model.optimizer == "adamw":
                torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)
            optimizer.step()
    about = {"model": name, "family": model.family, "source": model.source, "sizes": model.sizes}
    about["optimizer"] = model.optimizer
    calls = [corpus.Entry(call, count) for call, count in mode.counts.items()]
    corpus.write(corpus.Corpus(name, about, calls), path)


# What the calls become


def _map_vision(call: Any) -> list[Any]:
    """torchvision's regions: nothing of PyTorch calls them, so this is written down by hand."""
    from ditorch.models import corpus

    name, args = call.name.partition("::")[2], call.args
    if name == "roi_align":
        x, rois, scale, height, width, ratio, aligned = args
        out = corpus.Tensor(x.dtype, (rois.shape[0], x.shape[1], height, width))
        return [corpus.Call("diopiRoiAlign", (out, x, rois, scale, height, width, ratio, int(aligned)))]
    if name == "_roi_align_backward":
        grad, rois, scale, height, width, *sizes, ratio, aligned = args
        out = corpus.Tensor(grad.dtype, tuple(sizes))
        words = (out, grad, rois, scale, height, width, *sizes, ratio, int(aligned))
        return [corpus.Call("diopiRoiAlignBackward", words)]
    return []


def map_calls(path: str) -> None:
    """Runs in a process of its own, whose device has libdiopi_observe.so for its operators."""
    import ditorch  # noqa: F401
    import torch
    from ditorch import _C
    from ditorch.models import corpus, shrink
    from ditorch.models import run as calls

    found = corpus._read_lines("", path)
    seen = os.environ["DIT_OBSERVE_FILE"]
    # Views and shape questions touch no data; a call that falls back is noticed at a small size first.
    for entry in found.entries:
        if entry.call.name.startswith("aten::") and calls.is_view(entry.call.name):
            entry.reason = "a view: no data moves"
            continue
        if entry.call.name.startswith("torchvision::"):
            entry.functions = _map_vision(entry.call)
            entry.reason = "" if entry.functions else "an operator of torchvision"
            continue
        if sum(tensor.nbytes for tensor in entry.call.tensors()) > MOST_BYTES:
            entry.reason = "too large to be mapped on the machine that recorded it"
            continue
        for form in [*list(shrink.list_forms(entry.call, 0.02))[:-1], entry.call]:
            _C.ledger_reset()
            with open(seen, "w", encoding="utf-8"):
                pass
            try:
                calls.run(calls.materialize(form, "cuda", torch.empty), gradients=True)
                problem = ""
            except Exception as error:
                problem = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
            with open(seen, encoding="utf-8") as stream:
                lines = stream.read().splitlines()
            back = [row["name"] for row in _C.ledger() if row["fallback"]["calls"]]
            if back:
                entry.reason = f"no function: {', '.join(back)} runs on the CPU"
                break
            entry.functions = [corpus.parse_call(line) for line in lines] if form is entry.call else []
            if form is entry.call and not lines:
                entry.reason = f"no function is called{': ' + problem if problem else ''}"
    corpus.write(found, path)


def _make_environment(folder: str) -> dict[str, str]:
    words = {"DITORCH_DIOPI_LIB": "observe", "DIT_OBSERVE_FILE": os.path.join(folder, "calls"), "DITORCH_BANNER": "0"}
    words |= {"DITORCH_BACKEND": "host", "DITORCH_HOST_MEMORY": "200GiB", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **words, "PYTORCH_CUDA_ALLOC_CONF": "", "PYTHONPATH": os.path.join(ROOT, "python")}


def main(names: list[str]) -> int:
    import model_zoo

    failed = 0
    for model in model_zoo.MODELS:
        if names and model.name not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "corpus.txt")
            for verb, environment in (("record", dict(os.environ)), ("map", _make_environment(folder))):
                words = [sys.executable, "-W", "ignore", os.path.abspath(__file__), f"--{verb}", model.name, path]
                status = subprocess.run(words, env=environment, check=False).returncode
                if status:
                    break
            if status:
                print(f"{model.name}: {verb} failed", flush=True)
                failed += 1
                continue
            found = corpus._read_lines(model.name, path)
            corpus.write(found, os.path.join(corpus.DIRECTORY, f"{model.name}.txt"))
            made = sum(len(entry.functions) for entry in found.entries)
            print(f"{model.name}: {len(found.entries)} calls, {made} of the standard", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(*sys.argv[2:])
    elif sys.argv[1:2] == ["--map"]:
        map_calls(sys.argv[3])
    else:
        raise SystemExit(main(sys.argv[1:]))
