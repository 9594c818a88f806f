"""References of mmcv's deformable and moving operators: gathers and PyTorch's own products, gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from .base import Call, Result, differentiate, reference


def _sample(planes: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """(C, H, W) at places (...): (C, ...), bilinear on a picture with a border of zeros."""
    height, width = planes.shape[-2:]
    inside = (y > -1) & (x > -1) & (y < height) & (x < width)
    padded = F.pad(planes, (1, 1, 1, 1))
    y, x = torch.where(inside, y, 0.0) + 1, torch.where(inside, x, 0.0) + 1
    top, left = y.detach().floor().long(), x.detach().floor().long()
    dy, dx = y - top, x - left
    above = padded[:, top, left] * (1 - dx) + padded[:, top, left + 1] * dx
    below = padded[:, top + 1, left] * (1 - dx) + padded[:, top + 1, left + 1] * dx
    return torch.where(inside, above * (1 - dy) + below * dy, 0.0)


def _grow(x: torch.Tensor) -> float:
    """The largest element times the extent of the places: rounding a place of size s moves weights by eps s."""
    return float(x.abs().max()) * sum(x.shape[-2:]) if x.numel() else 0.0


# Deformable convolution


def _geometry(call: Call) -> dict[str, Any]:
    if "Modulated" in call.function:
        names = ("kernel_{}", "stride_{}", "pad_{}", "dilation_{}")
        found = [[call[name.format(axis)] for axis in "hw"] for name in names]
        return dict(zip("kspd", found, strict=True), g=call["group"], dg=call["deformable_group"])
    found = [[call[f"{name}{axis}"] for axis in "HW"] for name in ("k", "d", "pad", "dilation")]
    return dict(zip("kspd", found, strict=True), g=call["groups"], dg=call["deform_groups"])


def _convolve(
    geometry: dict[str, Any], x: torch.Tensor, weight: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    kh, kw = geometry["k"]
    n, _, high, wide = offset.shape
    moved = offset.reshape(n, geometry["dg"], kh * kw, 2, high, wide)
    places = []
    for axis, size in ((0, high), (1, wide)):
        start = torch.arange(size, dtype=torch.float64) * geometry["s"][axis] - geometry["p"][axis]
        position = torch.arange(kh * kw) // kw if axis == 0 else torch.arange(kh * kw) % kw
        grid = position[:, None, None] * geometry["d"][axis] + (start[:, None] if axis == 0 else start[None, :])
        places.append(moved[:, :, :, axis] + grid)
    images = []
    for b in range(n):
        groups = x[b].chunk(geometry["dg"])
        taken = [_sample(part, places[0][b, g], places[1][b, g]) for g, part in enumerate(groups)]
        if mask is not None:
            factors = mask[b].reshape(geometry["dg"], kh * kw, high, wide)
            taken = [t * factors[g] for g, t in enumerate(taken)]
        columns = torch.cat(taken).reshape(geometry["g"], -1, high * wide)
        flat = weight.reshape(geometry["g"], weight.shape[0] // geometry["g"], -1)
        images.append((flat @ columns).reshape(weight.shape[0], high, wide))
    return torch.stack(images)


@reference("DeformConvMmcv", "ModulatedDeformConvMmcv")
def run_deform(call: Call) -> dict[str, Result]:
    x, weight, offset, mask = (call.wide(name) for name in ("input", "weight", "offset", "mask"))
    value = _convolve(_geometry(call), x, weight, offset, mask)
    size = _grow(x) * weight.abs().flatten(1).sum(1)[:, None, None] * (1 if mask is None else float(mask.abs().max()))
    if call["with_bias"]:
        bias = call.wide("bias")[:, None, None]
        value, size = value + bias, size + bias.abs()
    return {"output": Result(value, scale=size, terms=weight[0].numel(), ops=8)}


def _pull(call: Call, names: dict[str, str], grad: torch.Tensor) -> dict[str, Result]:
    """Gradients by output name of the inputs that it names."""
    inputs = {name: call.wide(name) for name in ("input", "weight", "offset", "mask")}
    if inputs["weight"] is None:
        inputs["weight"] = torch.zeros(call["gradWeight"].shape, dtype=torch.float64)
    geometry = _geometry(call)
    chosen = list(names.values())

    def run(*given: torch.Tensor) -> torch.Tensor:
        return _convolve(geometry, **_rename({**inputs, **dict(zip(chosen, given, strict=True))}))

    values = differentiate(run, [inputs[name] for name in chosen], grad)
    factor = _grow(inputs["input"]) * _grow(grad) * max(1.0, float(inputs["weight"].abs().sum()))
    terms = max(grad.numel(), 1)
    return {
        out: Result(value, scale=torch.tensor(factor), terms=terms, ops=16)
        for out, value in zip(names, values, strict=True)
    }


def _rename(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"x" if name == "input" else name: value for name, value in inputs.items()}


@reference("DeformConvBackwardInputMmcv")
def run_deform_backward(call: Call) -> dict[str, Result]:
    return _pull(call, {"gradInput": "input", "gradOffset": "offset"}, call.wide("gradOutput"))


@reference("DeformConvBackwardParametersMmcv")
def run_deform_parameters(call: Call) -> dict[str, Result]:
    found = _pull(call, {"gradWeight": "weight"}, call.wide("gradOutput"))
    found["gradWeight"].value = call.wide("gradWeight") + call["scale"] * found["gradWeight"].value
    return found


@reference("ModulatedDeformConvBackwardMmcv")
def run_modulated_backward(call: Call) -> dict[str, Result]:
    grad = call.wide("grad_output")
    names = {f"grad_{name}": name for name in ("input", "weight", "offset", "mask")}
    found = _pull(call, names, grad)
    if call["with_bias"]:
        sums = grad.transpose(0, 1).flatten(1)
        found["grad_bias"] = Result(sums.sum(1), scale=sums.abs().sum(1), terms=max(sums.shape[1], 1))
    return found


# Deformable attention


def _attend(call: Call, value: torch.Tensor, places: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    shapes, starts = call["spatial_shapes"].tolist(), call["level_start_index"].tolist()
    batch, _, heads, size = value.shape
    rows = []
    for b in range(batch):
        columns = []
        for h in range(heads):
            total = torch.zeros(size, places.shape[1], dtype=torch.float64)
            for level, ((high, wide), start) in enumerate(zip(shapes, starts, strict=True)):
                planes = value[b, start : start + high * wide, h].T.reshape(size, high, wide)
                at = places[b, :, h, level]
                taken = _sample(planes, at[..., 1] * high - 0.5, at[..., 0] * wide - 0.5)
                total = total + (taken * weight[b, :, h, level]).sum(-1)
            columns.append(total.T)
        rows.append(torch.cat(columns, 1))
    return torch.stack(rows)


_ATTENTION = ("value", "sampling_loc", "attn_weight")


@reference("MsDeformAttnMmcv")
def run_attention(call: Call) -> dict[str, Result]:
    inputs = [call.wide(name) for name in _ATTENTION]
    extent = float(call["spatial_shapes"].max()) * 4
    size = inputs[0].abs().max() * inputs[2].abs().flatten(3).sum(-1).max() * extent
    terms = inputs[2][0, 0, 0].numel() * 4
    return {"out": Result(_attend(call, *inputs), scale=size, terms=terms, ops=8, required=True)}


@reference("MsDeformAttnBackwardMmcv")
def run_attention_backward(call: Call) -> dict[str, Result]:
    inputs, grad = [call.wide(name) for name in _ATTENTION], call.wide("grad_output")
    values = differentiate(lambda *x: _attend(call, *x), inputs, grad)
    extent = float(call["spatial_shapes"].max()) * 4
    size = grad.abs().max() * extent * max(1.0, float(inputs[2].abs().max()))
    size = torch.stack([size, size * inputs[0].abs().max() * extent]).max() * inputs[0].shape[3]
    return {
        f"grad_{name}": Result(value, scale=size, terms=max(grad.numel(), 1), ops=16)
        for name, value in zip(_ATTENTION, values, strict=True)
    }


# Content-aware upsampling and correlation


def _carafe(call: Call, x: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Neighbourhoods by unfold, each repeated for its scale^2 places."""
    k, groups, scale = call["kernel_size"], call["group_size"], call["scale_factor"]
    n, c, high, wide = x.shape
    parts = F.unfold(x, k, padding=(k - 1) // 2).reshape(n, c, k * k, high, wide)
    parts = parts.repeat_interleave(scale, 3).repeat_interleave(scale, 4)
    share = -(-c // groups)
    weights = masks.reshape(n, groups, k * k, *masks.shape[2:]).repeat_interleave(share, 1)[:, :c]
    return (parts * weights).sum(2)


@reference("CarafeMmcv", "CarafeNaiveMmcv")
def run_carafe(call: Call) -> dict[str, Result]:
    x, masks = call.wide("features"), call.wide("masks")
    value, size = _carafe(call, x, masks), _carafe(call, x.abs(), masks.abs())
    terms = call["kernel_size"] ** 2
    found = {"output": Result(value, scale=size, terms=terms)}
    if "Naive" not in call.function:
        found["rfeatures"] = Result(x.permute(0, 2, 3, 1).contiguous(), exact=True)
        found["rmasks"] = Result(masks.permute(0, 2, 3, 1).contiguous(), exact=True)
        found["routput"] = Result(value.permute(0, 2, 3, 1), scale=size.permute(0, 2, 3, 1), terms=terms)
    return found


@reference("CarafeBackwardMmcv", "CarafeNaiveBackwardMmcv")
def run_carafe_backward(call: Call) -> dict[str, Result]:
    masks, grad = call.wide("masks"), call.wide("top_grad")
    x = call.wide("features") if "Naive" in call.function else call.wide("rfeatures").permute(0, 3, 1, 2)
    values = differentiate(lambda a, b: _carafe(call, a, b), [x, masks], grad)
    sizes = differentiate(lambda a, b: _carafe(call, a, b), [x.abs(), masks.abs()], grad.abs())
    terms = max(grad.numel(), 1)
    return {
        name: Result(value, scale=size, terms=terms)
        for name, value, size in zip(("bottom_grad", "mask_grad"), values, sizes, strict=True)
    }


def _correlate(call: Call, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """For every shift: the product of the pictures, summed over channels and by a window of ones."""
    high, wide = a.shape[2:]
    ones = torch.ones(1, 1, call["kH"], call["kW"], dtype=torch.float64)
    rows = []
    for i in range(call["patchH"]):
        for j in range(call["patchW"]):
            dy = (i - (call["patchH"] - 1) // 2) * call["dilation_patchH"]
            dx = (j - (call["patchW"] - 1) // 2) * call["dilation_patchW"]
            padded = F.pad(b, (abs(dx), abs(dx), abs(dy), abs(dy)))
            moved = padded[:, :, abs(dy) + dy : abs(dy) + dy + high, abs(dx) + dx : abs(dx) + dx + wide]
            product = (a * moved).sum(1, keepdim=True)
            stride, pad = (call["dH"], call["dW"]), (call["padH"], call["padW"])
            rows.append(F.conv2d(product, ones, None, stride, pad, (call["dilationH"], call["dilationW"])))
    out = torch.cat(rows, 1)
    return out.reshape(out.shape[0], call["patchH"], call["patchW"], *out.shape[2:])


@reference("CorrelationMmcv")
def run_correlation(call: Call) -> dict[str, Result]:
    a, b = call.wide("input1"), call.wide("input2")
    terms = a.shape[1] * call["kH"] * call["kW"]
    return {"output": Result(_correlate(call, a, b), scale=_correlate(call, a.abs(), b.abs()), terms=terms)}


@reference("CorrelationBackwardMmcv")
def run_correlation_backward(call: Call) -> dict[str, Result]:
    a, b, grad = call.wide("input1"), call.wide("input2"), call.wide("grad_output")
    values = differentiate(lambda x, y: _correlate(call, x, y), [a, b], grad)
    sizes = differentiate(lambda x, y: _correlate(call, x, y), [a.abs(), b.abs()], grad.abs())
    return {
        f"grad_input{i + 1}": Result(v, scale=s, terms=max(grad.numel(), 1))
        for i, (v, s) in enumerate(zip(values, sizes, strict=True))
    }


# Elements that move


def _move(call: Call, name: str, source: torch.Tensor, shape: Any, function: Callable[..., Any]) -> dict[str, Result]:
    """The gradient of a function that only moves elements."""
    value = differentiate(function, [torch.zeros(shape, dtype=torch.float64)], source)[0]
    size = differentiate(function, [torch.zeros(shape, dtype=torch.float64)], source.abs())[0]
    return {name: Result(value, scale=size, terms=max(source.numel(), 1))}


def _psa(call: Call, masks: torch.Tensor) -> torch.Tensor:
    high, wide = call["h_feature"], call["w_feature"]
    n = masks.shape[0]
    full = torch.zeros(n, high, wide, high, wide, dtype=torch.float64)
    by_place = masks.reshape(n, call["h_mask"], call["w_mask"], high, wide)
    for y in range(high):
        for x in range(wide):
            top, left = y - call["half_h_mask"], x - call["half_w_mask"]
            rows = slice(max(top, 0), min(top + call["h_mask"], high))
            columns = slice(max(left, 0), min(left + call["w_mask"], wide))
            part = by_place[:, rows.start - top : rows.stop - top, columns.start - left : columns.stop - left, y, x]
            if call["psa_type"] == 0:
                full[:, rows, columns, y, x] = part
            else:
                full[:, y, x, rows, columns] = part
    return full.reshape(n, high * wide, high, wide)


@reference("PsamaskMmcv")
def run_psa(call: Call) -> dict[str, Result]:
    return {"output": Result(_psa(call, call.wide("input")), exact=True)}


@reference("PsamaskBackwardMmcv")
def run_psa_backward(call: Call) -> dict[str, Result]:
    shape = (call["num_"], call["h_mask"] * call["w_mask"], call["h_feature"], call["w_feature"])
    return _move(call, "grad_input", call.wide("grad_output"), shape, lambda x: _psa(call, x))


def _shift(call: Call, x: torch.Tensor) -> torch.Tensor:
    shifts, times = call["shift"].to(torch.int64), x.shape[1]
    by_channel = shifts.repeat_interleave(x.shape[2] // shifts.shape[1], 1)
    source = torch.arange(times)[None, :, None] - by_channel[:, None]
    inside = (source >= 0) & (source < times)
    index = source.clamp(0, times - 1)[..., None].expand(x.shape)
    return torch.where(inside[..., None], x.gather(1, index), 0.0)


@reference("TinShiftMmcv")
def run_shift(call: Call) -> dict[str, Result]:
    return {"output": Result(_shift(call, call.wide("input")), exact=True)}


@reference("TinShiftBackwardMmcv")
def run_shift_backward(call: Call) -> dict[str, Result]:
    grad = call.wide("grad_output")
    return _move(call, "grad_input", grad, grad.shape, lambda x: _shift(call, x))


def _rotate(call: Call, x: torch.Tensor) -> torch.Tensor:
    """(O, I, T, H, W) to (O R, I T, H, W); rotation r puts entry e at indices[e, r] - 1."""
    indices = call["indices"].to(torch.int64).flatten(0, 2) - 1
    o, i, t, high, wide = x.shape
    flat, turned = x.reshape(o, i, -1), []
    for r in range(indices.shape[1]):
        turned.append(flat[:, :, indices[:, r].argsort()])
    return torch.stack(turned, 1).reshape(o * indices.shape[1], i * t, high, wide)


def _permute_indices(call: Call) -> None:
    """Every rotation is a permutation of the entries."""
    flat = call["indices"].reshape(-1, call["indices"].shape[-1])
    call["indices"].copy_((flat.argsort(dim=0, stable=True) + 1).reshape(call["indices"].shape))


@reference("ActiveRotatedFilterMmcv")
def run_rotate(call: Call) -> dict[str, Result]:
    _permute_indices(call)
    return {"output": Result(_rotate(call, call.wide("input")), exact=True)}


@reference("ActiveRotatedFilterBackwardMmcv")
def run_rotate_backward(call: Call) -> dict[str, Result]:
    _permute_indices(call)
    grad, (t, high, wide, r) = call.wide("grad_out"), call["indices"].shape
    shape = (grad.shape[0] // r, grad.shape[1] // t, t, high, wide)
    return _move(call, "grad_in", grad, shape, lambda x: _rotate(call, x))


@reference("MaskedIm2colMmcv")
def run_windows(call: Call) -> dict[str, Result]:
    x, size = call.wide("im"), (call["kernel_h"], call["kernel_w"])
    reach = max(*size, call["pad_h"], call["pad_w"])
    padded = F.pad(x, (reach, reach, reach, reach))[0]
    ys, xs = (call[name].to(torch.int64) + reach for name in ("mask_h_idx", "mask_w_idx"))
    rows = []
    for i in range(size[0]):
        for j in range(size[1]):
            rows.append(padded[:, ys - call["pad_h"] + i, xs - call["pad_w"] + j])
    value = torch.stack(rows, 1).flatten(0, 1)
    return {"col": Result(value, exact=True)}


@reference("MaskedCol2imMmcv")
def run_places(call: Call) -> dict[str, Result]:
    value = torch.zeros(1, call["channels"], call["height"], call["width"], dtype=torch.float64)
    value[0][:, call["mask_h_idx"].to(torch.int64), call["mask_w_idx"].to(torch.int64)] = call.wide("col")
    return {"im": Result(value, exact=True)}


# StyleGAN


@reference("Upfirdn2dOpMmcv")
def run_resample(call: Call) -> dict[str, Result]:
    """A transposed convolution with a single one spreads the elements; then padding and a turned convolution."""
    x, kernel = call.wide("input").permute(0, 3, 1, 2), call.wide("kernel")
    n, c, high, wide = x.shape
    spread = torch.zeros(n, c, high, call["up_y"], wide, call["up_x"], dtype=torch.float64)
    spread[:, :, :, 0, :, 0] = x
    pads = (call["pad_x0"], call["pad_x1"], call["pad_y0"], call["pad_y1"])

    def run(t: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        padded = F.pad(t.reshape(n * c, 1, high * call["up_y"], wide * call["up_x"]), pads)
        out = F.conv2d(padded, w.flip(0, 1)[None, None])[:, :, :: call["down_y"], :: call["down_x"]]
        return out.reshape(n, c, *out.shape[2:]).permute(0, 2, 3, 1)

    size = run(spread.abs(), kernel.abs())
    return {"out": Result(run(spread, kernel), scale=size, terms=kernel.numel(), required=True)}


@reference("FusedBiasLeakyreluMmcv")
def run_leaky(call: Call) -> dict[str, Result]:
    x, bias, refer = call.wide("input"), call.wide("bias"), call.wide("refer")
    size = x.abs()
    if bias is not None and bias.numel():
        shape = [1, -1, *[1] * (x.dim() - 2)]
        x, size = x + bias.reshape(shape), size + bias.abs().reshape(shape)
    slope = call["alpha"] if call["act"] == 3 else 1.0
    by = x if call["grad"] == 0 else (refer if refer is not None and refer.numel() else torch.zeros_like(x))
    value = torch.where(by > 0, x, x * slope) if call["grad"] < 2 else torch.zeros_like(x)
    return {"out": Result(value * call["scale"], scale=size * abs(call["scale"]), required=True)}
