"""References of the functions that lmdeploy needs: layers in place, attention with caches, tokens, penalties, criteria.

Sampling is judged where only one token can be drawn: k = 1, or one token whose probability reaches p.
"""

from __future__ import annotations

import math

import torch

from .base import Call, Result, reference


def _work(call: Call) -> torch.dtype | None:
    """Half types: results on the way may be rounded to their dtype."""
    return call.dtype if call.dtype in (torch.float16, torch.bfloat16) else None


# Layers


@reference("RootMeanSquareNormInp")
def run_rms(call: Call) -> dict[str, Result]:
    x, weight = call.wide("inoutput"), call.wide("scale")
    value = x / torch.sqrt((x**2).mean(-1, keepdim=True) + call["eps"]) * weight
    return {"inoutput": Result(value, ops=8)}


@reference("FusedAddRootMeanSquareNormInp")
def run_add_rms(call: Call) -> dict[str, Result]:
    x, residual, bias, weight = (call.wide(name) for name in ("inoutput", "residual", "bias", "scale"))
    bias = torch.zeros(x.shape[-1], dtype=torch.float64) if bias is None else bias
    total, size = residual + x + bias, residual.abs() + x.abs() + bias.abs()
    factor = 1 / torch.sqrt((total**2).mean(-1, keepdim=True) + call["eps"])
    return {
        "inoutput": Result(total * factor * weight, scale=size * factor * weight.abs(), ops=8, compute=_work(call)),
        "residual": Result(total, scale=size),
    }


@reference("FusedSiluFfnInp")
def run_ffn(call: Call) -> dict[str, Result]:
    x, first, second, third = (call.wide(name) for name in ("inoutput", "weight1", "weight2", "weight3"))
    a, b = x @ first, x @ third
    gate = a * torch.sigmoid(a)
    # the gate's slope is at most 1.1
    size = 1.1 * (x.abs() @ first.abs()) * b.abs() + gate.abs() * (x.abs() @ third.abs())
    terms = max(first.shape)
    return {"inoutput": Result((gate * b) @ second, scale=size @ second.abs(), terms=terms, ops=8, compute=_work(call))}


# Attention


def _turn(call: Call, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Neighbouring pairs of x (tokens, heads, width) by their angles."""
    count = call["rotary_embedding"]
    if count == 0:
        return x
    pairs = torch.arange(count // 2, dtype=torch.float64)
    angle = positions.reshape(-1, 1, 1) / call["rope_theta"] ** (2 * pairs / count)
    a, b = x[..., 0:count:2], x[..., 1:count:2]
    turned = torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)
    return torch.cat([turned, x[..., count:]], -1)


def _pairs(call: Call, x: torch.Tensor) -> torch.Tensor:
    """The size of what enters a rotated element: both of its pair."""
    count = call["rotary_embedding"]
    both = x[..., 0:count:2] + x[..., 1:count:2]
    return torch.cat([torch.stack([both, both], -1).flatten(-2), x[..., count:]], -1) if count else x


def _share(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.repeat_interleave(heads // x.shape[1], 1)


class _Layer:
    """One call of fused attention: projections, and the caches as they will be."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.heads, self.kv, self.width = call["local_head_num"], call["local_kv_head_num"], call["size_per_head"]
        x, weight, bias = call.wide("inoutput"), call.wide("qkv_weight"), call.wide("qkv_bias")
        self.value, self.scale = x.clone(), x.abs()
        made, size = x @ weight, x.abs() @ weight.abs()
        if bias is not None:
            made, size = made + bias.reshape(-1), size + bias.reshape(-1).abs()
        self.made = made.unflatten(-1, (-1, self.width))
        self.size = size.unflatten(-1, (-1, self.width))
        self.caches = [call.wide("key_cache"), call.wide("value_cache")]
        self.sizes = [cache.abs() for cache in self.caches]

    def run(self, batch: int, rows: slice, place: int, position: int, causal: bool) -> None:
        """Tokens `rows` of sequence `batch`, from `place` of the cache on."""
        call, heads, kv = self.call, self.heads, self.kv
        made, size, count = self.made[rows], self.size[rows], rows.stop - rows.start
        positions = torch.arange(position, position + count, dtype=torch.float64)
        q, q_size = _turn(call, made[:, :heads], positions), _pairs(call, size[:, :heads])
        new = (_turn(call, made[:, heads : heads + kv], positions), made[:, heads + kv :])
        sizes = (_pairs(call, size[:, heads : heads + kv]), size[:, heads + kv :])
        longest = self.caches[0].shape[3]
        places = (torch.arange(place, place + count)) % longest
        seen, keys = [], min(place + count, longest)
        for cache, known, value, one in zip(self.caches, self.sizes, new, sizes, strict=True):
            cache[call["layer_id"], batch][:, places] = value.transpose(0, 1)
            known[call["layer_id"], batch][:, places] = one.transpose(0, 1)
            seen += [c[call["layer_id"], batch, :, :keys].transpose(0, 1) for c in (cache, known)]
        k, k_size, v, v_size = (_share(x, heads) for x in seen)
        root = 1 / math.sqrt(self.width)
        scores = torch.einsum("qhd,khd->hqk", q, k) * root
        if causal:
            scores = scores.masked_fill(torch.ones(count, keys).triu(keys - count + 1).to(torch.bool), -math.inf)
        weights = torch.softmax(scores, -1)
        spread = 1 + 2 * float(torch.einsum("qhd,khd->hqk", q_size, k_size).max()) * root
        self.value[rows] = torch.einsum("hqk,khd->qhd", weights, v).flatten(1)
        self.scale[rows] = torch.einsum("hqk,khd->qhd", weights, v_size).flatten(1) * spread

    def results(self) -> dict[str, Result]:
        terms = max(self.made.shape[0], self.caches[0].shape[3], self.value.shape[1])
        found = {"inoutput": Result(self.value, scale=self.scale, terms=terms, ops=8, compute=_work(self.call))}
        for name, cache, size in zip(("key_cache", "value_cache"), self.caches, self.sizes, strict=True):
            found[name] = Result(cache, scale=size, terms=self.value.shape[1], ops=8)
        return found


@reference("FusedContextAttentionInp")
def run_context(call: Call) -> dict[str, Result]:
    layer, tokens = _Layer(call), call["inoutput"].shape[0]
    longest, before = call["max_q_len"], call["max_kv_len"] - call["max_q_len"]
    count = tokens // longest
    lengths = [[longest] * count, [before] * count] if call["pre_work"] is None else call["pre_work"].tolist()
    start = 0
    for number, (length, history) in enumerate(zip(*lengths, strict=True)):
        if length:
            layer.run(number, slice(start, start + length), history, history, True)
        start += length
    return layer.results()


@reference("FusedDecoderAttentionInp")
def run_decoder(call: Call) -> dict[str, Result]:
    layer = _Layer(call)
    for number, length in enumerate(call["sequence_lengths"].tolist()):
        if call["finished"] is not None and bool(call["finished"][number]):
            continue
        padding = 0 if call["total_padding_tokens"] is None else int(call["total_padding_tokens"][number])
        layer.run(number, slice(number, number + 1), length, length - padding, False)
    return layer.results()


# Tokens


@reference("PlusScalarInp")
def run_plus(call: Call) -> dict[str, Result]:
    value = call.wide("inoutput").flatten()
    value[: call["size"]] += call["val"]
    return {"inoutput": Result(value.reshape(call["inoutput"].shape), exact=True)}


@reference("UpdatePaddingCount")
def run_padding(call: Call) -> dict[str, Result]:
    value, count = call.wide("total_padding_count"), call["batch_size"]
    value[:count] += call["max_input_length"] - call.wide("input_lengths")[:count]
    return {"total_padding_count": Result(value, exact=True)}


@reference("TransposeAxis01")
def run_transpose(call: Call) -> dict[str, Result]:
    return {"output": Result(call.wide("input").transpose(0, 1).contiguous(), exact=True)}


@reference("EmbeddingLookupPosEncoding", "InputIdsEmbeddingLookupPosEncoding")
def run_lookup(call: Call) -> dict[str, Result]:
    if "Input" in call.function:
        ids = call["input_ids"].flatten()[: call["input_lengths"]]
    else:
        ids = call["all_ids"][call["step"]]
    return {
        "from_tensor": Result(
            call.wide("embedding_table")[ids.to(torch.int64)], call["embedding_table"].dtype, exact=True
        )
    }


@reference("GatherOutput")
def run_gather(call: Call) -> dict[str, Result]:
    value, ids = call.wide("output_ids").clone(), call["ids"]
    for number, length in enumerate(call["context_length"].tolist()):
        steps = [*range(length), *range(call["max_context_len"], max(call["max_gen_step"], call["max_context_len"]))]
        steps = [step for step in steps if step < call["max_gen_step"]][: call["max_output_len"]]
        value[number, : len(steps)] = ids[steps, number].to(value.dtype)
    return {"output_ids": Result(value, exact=True)}


# Criteria and penalties


def _words(table: torch.Tensor) -> list[list[int]]:
    tokens, ends, found, start = table[0].tolist(), table[1].tolist(), [], 0
    for end in ends:
        if start <= end and end - start > 0:
            found.append(tokens[start:end])
        start = end
    return found


@reference("BanBadWordsInp")
def run_ban(call: Call) -> dict[str, Result]:
    value = call.wide("logits").clone()
    ids = call["output_ids"].flatten()[call["id_offset"] :]
    for number in range(call["batch_size"]):
        used = [int(ids[t * call["batch_size"] + number]) for t in range(call["step"])]
        for word in _words(call["bad_words"] if call["share_words"] else call["bad_words"][number]):
            rest = word[:-1]
            if used[len(used) - len(rest) :] == rest and len(used) >= len(rest) and 0 <= word[-1] < call["vocab_size"]:
                value[number, word[-1]] = -math.inf
    return {"logits": Result(value, exact=True)}


@reference("StopWordsCriterion")
def run_stop(call: Call) -> dict[str, Result]:
    value = call["finished"].clone()
    ids = call["output_ids"].flatten()[call["id_offset"] :]
    for number in range(call["batch_size"]):
        used = [int(ids[t * call["batch_size"] + number]) for t in range(call["step"] + 1)]
        words = _words(call["stop_words"][number])
        value[number] |= any(len(used) >= len(word) and used[-len(word) :] == word for word in words)
    return {"finished": Result(value, torch.bool, exact=True)}


@reference("LengthCriterion")
def run_length(call: Call) -> dict[str, Result]:
    value = call["finished"] | (call["step"] >= call["sequence_limit_length"])
    count = int(value.sum())
    return {
        "finished": Result(value, torch.bool, exact=True),
        "finished_sum": Result(torch.tensor([count]), torch.int32, exact=True),
        "should_stop": Result(torch.tensor([count == call["batch_size"]]), torch.bool, exact=True),
    }


@reference("BatchApplyRepetitionPenaltyInp")
def run_repetition(call: Call) -> dict[str, Result]:
    logits, penalties, kind = call.wide("logits"), call.wide("penalties"), call["penalty_type"]
    value, scale = logits.clone(), logits.abs()
    for number, length in enumerate(call["input_lengths"].tolist()):
        steps = [t for t in range(call["step"]) if not length <= t < call["max_input_length"]]
        for token in {int(call["output_ids"][t, number]) for t in steps}:
            x, penalty = logits[number, token], penalties[number]
            changed = [x, x - penalty, x * penalty if x < 0 else x / penalty][kind]
            value[number, token] = changed
            scale[number, token] = x.abs() + penalty.abs() if kind == 1 else changed.abs()
    return {"logits": Result(value, scale=scale)}


@reference("BatchApplyTemperaturePenaltyInp")
def run_temperature(call: Call) -> dict[str, Result]:
    logits, bias, count = call.wide("logits"), call.wide("bias"), call["vocab_size"]
    value, scale = logits.clone(), logits.abs()
    temperature = call.wide("temperatures").reshape(-1, 1)
    bias = torch.zeros(count, dtype=torch.float64) if bias is None else bias[:count]
    value[:, :count] = (logits[:, :count] + bias) / temperature
    scale[:, :count] = (logits[:, :count].abs() + bias.abs()) / temperature
    value[:, count : call["vocab_size_padd"]] = torch.finfo(call.dtype).min
    return {"logits": Result(value, scale=scale)}


# Sampling


def _setup(call: Call, by_k: bool) -> tuple[list[int], list[float]]:
    ks, ps = [], []
    for number in range(call["batch_size"]):
        k = int(call["top_ks"][number]) if call["top_ks_size"] > 0 else call["top_k"]
        p = float(call["top_ps"][number]) if call["top_ps_size"] > 0 else call["top_p"]
        k = 1 if k == 0 and p == 0 else k
        if by_k:
            p, k = (1.0 if k > 0 and p == 0 else p), min(k, 1024)
        ks.append(k)
        ps.append(min(max(p, 0.0), 1.0))
    return ks, ps


@reference("SetupTopkRuntimeArgsInp", "SetupToppRuntimeArgsInp")
def run_setup(call: Call) -> dict[str, Result]:
    by_k = "Topk" in call.function
    ks, ps = _setup(call, by_k)
    skip = [k == 0 for k in ks] if by_k else [k > 0 for k in ks]
    found = {
        "top_ks": Result(torch.tensor(ks), exact=True),
        "top_ps": Result(torch.tensor(ps, dtype=torch.float64), exact=True),
        "skip_decode": Result(torch.tensor(skip), exact=True),
    }
    if not by_k:
        decay, least = call["top_p_decay"], call["top_p_min"]
        one = torch.ones(len(ks), dtype=torch.float64)
        found["initial_top_p_buf"] = Result(torch.tensor(ps, dtype=torch.float64), torch.float32, exact=True)
        found["top_p_decay_buf"] = Result(one * (decay if 0 < decay <= 1 else 1.0), torch.float32, exact=True)
        found["top_p_min_buf"] = Result(one * (least if 0 < least <= 1 else 0.5), torch.float32, exact=True)
        found["top_p_reset_ids_buf"] = Result(torch.full((len(ks),), call["top_p_reset_ids"]), torch.int64, exact=True)
    return found


@reference("TopKSampling", "TopPSampling")
def run_sampling(call: Call) -> dict[str, Result]:
    """One token of each sequence can be drawn: the likeliest."""
    logits = call.wide("logits")[:, : call["vocab_size_padded"]]
    ids, finished, lengths = (
        call.wide("output_ids").clone(),
        call["finished"].clone(),
        call.wide("sequence_lengths").clone(),
    )
    probable = torch.log_softmax(logits, -1)
    cum, own = call.wide("cum_log_probs"), call.wide("output_log_probs")
    for number in range(call["batch_size"]):
        if call["skip_decode"] is not None and bool(call["skip_decode"][number]):
            continue
        end, token = int(call["end_ids"][number]), int(logits[number].argmax())
        ids[call["step"], number] = end if finished[number] else token
        if finished[number]:
            continue
        lengths[number] += 1
        finished[number] = token == end
        if cum is not None:
            cum[number] += probable[number, token]
        if own is not None:
            own[number] = 0.0 if "TopK" in call.function else probable[number, token]
    found = {
        "output_ids": Result(ids, exact=True),
        "finished": Result(finished, torch.bool, exact=True),
        "sequence_lengths": Result(lengths, exact=True),
    }
    size = 1 + float(logits.abs().max())
    for name, value in (("cum_log_probs", cum), ("output_log_probs", own)):
        if value is not None:
            found[name] = Result(value, torch.float32, scale=value.abs() + size, terms=logits.shape[1])
    return found
