"""accelerate: the loop a user writes around Accelerator, its state files, and placing of large models."""

from __future__ import annotations

import gc

import accelerate
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import nn

from . import DEVICE, case, summary, variants

STEPS = 8


def fresh(**arguments) -> accelerate.Accelerator:
    """An Accelerator as in a new process."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    accelerator = accelerate.Accelerator(cpu=DEVICE == "cpu", **arguments)
    assert accelerator.device.type == DEVICE
    return accelerator


class Tied(nn.Module):
    """An embedding whose weight is the output layer's too, a normalisation with running statistics, and a layer."""

    def __init__(self, tokens: int = 32, width: int = 16):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.layer = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.output = nn.Linear(width, tokens, bias=False)
        self.output.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.1)  # small gradients: GradScaler's first scale does not overflow

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.layer(self.embedding(tokens)))
        return self.output(self.norm(hidden.transpose(1, 2)).transpose(1, 2))


def data(count: int = 40, seed: int = 3) -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 32, (count, 6), generator=generator)
    return torch.utils.data.TensorDataset(tokens, (tokens * 5 + 2) % 32)


def build(accelerator: accelerate.Accelerator, shuffle: bool = True):
    torch.manual_seed(5)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    generator = torch.Generator().manual_seed(1)
    loader = torch.utils.data.DataLoader(data(), batch_size=8, shuffle=shuffle, generator=generator)
    return accelerator.prepare(model, optimizer, loader, schedule)


def train(accelerator, model, optimizer, loader, schedule, steps: int = STEPS) -> list[float]:
    found = []
    model.train()
    while len(found) < steps:
        for tokens, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), labels.flatten())
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            found.append(float(loss))
            if len(found) == steps:
                break
    return found


MODES = {
    "float32": {},
    "bf16": {"mixed_precision": "bf16"},
    "fp16": {"mixed_precision": "fp16" if DEVICE == "cuda" else "no"},
    "accumulation": {"gradient_accumulation_steps": 2},
}


@variants("Accelerator: training loop", {name: {"arguments": arguments} for name, arguments in MODES.items()})
def accelerator_loop(folder, arguments):
    accelerator = fresh(**arguments)
    parts = build(accelerator)
    losses = train(accelerator, *parts)
    assert (accelerator.scaler is not None) == (arguments.get("mixed_precision") == "fp16")
    model = accelerator.unwrap_model(parts[0])
    return {
        "losses": losses,
        "weights": summary(model),
        "tied": model.output.weight is model.embedding.weight,
    }


@case("Accelerator: gather_for_metrics, reduce, pad")
def accelerator_metrics(folder):
    """gather_for_metrics drops what the last batch repeats; gather, reduce and pad on one process."""
    accelerator = fresh()
    model, _, _, _ = build(accelerator)
    loader = accelerator.prepare(torch.utils.data.DataLoader(data(21), batch_size=8))
    model.eval()
    found, wanted = [], []
    for tokens, labels in loader:
        with torch.no_grad():
            answers = model(tokens).argmax(-1)
        answers, labels = accelerator.gather_for_metrics((answers, labels))
        assert answers.device.type == DEVICE
        found.append(answers)
        wanted.append(labels)
    total = accelerator.reduce(torch.ones(3, device=accelerator.device), "mean")
    padded = accelerator.pad_across_processes(torch.ones(2, 3, device=accelerator.device), dim=1)
    return {
        "tokens": torch.cat(found).tolist(),
        "rows": len(torch.cat(wanted)),
        "values": [*total.tolist(), float(padded.sum())],
    }


@case("Accelerator: save_state and load_state")
def accelerator_state(folder):
    """save_state in the middle, load_state into fresh objects: the rest is the same, to the last bit on one device."""
    accelerator = fresh()
    parts = build(accelerator, shuffle=False)
    train(accelerator, *parts, steps=5)
    accelerator.save_state(str(folder / "state"))
    noise = torch.rand(4, device=accelerator.device)
    first = train(accelerator, *parts, steps=5)
    again = fresh()
    others = build(again, shuffle=False)
    again.load_state(str(folder / "state"))
    same_noise = torch.equal(noise, torch.rand(4, device=again.device))
    second = train(again, *others, steps=5)
    files = sorted(path.name for path in (folder / "state").iterdir())
    return {"losses": second, "same": first == second, "same_noise": same_noise, "files": files}


@case("Accelerator: save_model")
def accelerator_save_model(folder):
    """save_model writes safetensors that load on the CPU, tied weights once."""
    from safetensors.torch import load_file

    accelerator = fresh()
    parts = build(accelerator)
    losses = train(accelerator, *parts, steps=3)
    accelerator.save_model(parts[0], str(folder / "model"))
    tensors = load_file(str(folder / "model" / "model.safetensors"))
    state = accelerator.get_state_dict(parts[0])
    return {
        "losses": losses,
        "names": sorted(tensors),
        "same": all(torch.equal(value, state[name].cpu()) for name, value in tensors.items()),
        "on_cpu": {value.device.type for value in tensors.values()} == {"cpu"},
    }


@case("safetensors straight to the device")
def safetensors_direct(folder):
    """safe_open and load_file straight to the device, by name and by index."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    path = str(folder / "direct.safetensors")
    kinds = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
    whole = {str(kind): (torch.arange(24).reshape(4, 6) % 5).to(kind).to(DEVICE) for kind in kinds}
    whole["empty"] = torch.empty(0, 3, device=DEVICE)
    save_file(whole, path)
    places = [DEVICE, f"{DEVICE}:0", 0] if DEVICE == "cuda" else ["cpu"]
    good = []
    for place in places:
        loaded = load_file(path, device=place)
        good += [
            torch.equal(loaded[name], value) and loaded[name].device == value.device for name, value in whole.items()
        ]
        with safe_open(path, framework="pt", device=place) as file:
            part = file.get_slice("torch.float32")[1:3]
        good.append(torch.equal(part, whole["torch.float32"][1:3]) and part.device.type == DEVICE)
    return {"good": all(good)}


@variants("dispatch_model with offloading", {"cpu": {"place": "cpu"}, "disk": {"place": "disk"}})
def big_model(folder, place):
    """dispatch_model with hooks: part of the weights elsewhere, memory freed again after the forward pass."""
    torch.manual_seed(2)
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]).eval()
    if DEVICE == "cuda":
        table = {"0": 0, "1": place, "2": place, "3": 0}
        model = accelerate.dispatch_model(model, table, main_device=0, offload_dir=str(folder / "off"))
    with torch.no_grad():
        values = model(torch.ones(2, 64).to(DEVICE))
    assert values.device.type == DEVICE
    return {"values": values.tolist(), "offloaded": [p.device.type for p in model.parameters()].count("meta") in (0, 4)}


@case("infer_auto_device_map, load_checkpoint_and_dispatch")
def big_model_map(folder):
    """infer_auto_device_map and init_empty_weights with a limit of device memory; load_checkpoint_and_dispatch."""
    torch.manual_seed(2)
    source = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    accelerate.Accelerator().save_model(source, str(folder / "source"))
    with accelerate.init_empty_weights():
        empty = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    assert all(value.is_meta for value in empty.parameters())
    limits = {0: "60KB", "cpu": "1GB"} if DEVICE == "cuda" else {"cpu": "1GB"}
    table = accelerate.infer_auto_device_map(empty, max_memory=limits)
    model = accelerate.load_checkpoint_and_dispatch(
        empty, str(folder / "source" / "model.safetensors"), device_map=table, offload_folder=str(folder / "off")
    )
    with torch.no_grad():
        values = model(torch.ones(2, 64).to(DEVICE))
    split = len({str(place) for place in table.values()}) == (2 if DEVICE == "cuda" else 1)
    return {"values": values.tolist(), "split": split}


@case("find_executable_batch_size when memory runs out")
def find_batch_size(folder):
    """The batch size shrinks as long as device memory really runs out; afterwards the memory is free again."""
    tried = []
    unit = 1 << 20

    @accelerate.utils.find_executable_batch_size(starting_batch_size=24)
    def run(batch_size):
        tried.append(batch_size)
        if DEVICE == "cpu" and batch_size > 16:
            raise RuntimeError("CUDA out of memory.")
        return len(torch.empty(batch_size, unit, dtype=torch.uint8, device=DEVICE))

    if DEVICE == "cpu":
        return {"fits": 8 < run() < 24, "several": len(tried) > 1, "freed": True}
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    limit = torch.cuda.memory_reserved() + 16.5 * unit
    torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.get_device_properties(0).total_memory)
    try:
        chosen = run()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    return {
        "fits": 8 < chosen < 24,
        "several": len(tried) > 1,
        "freed": torch.cuda.memory_allocated() == before,
    }
