"""A small inference engine over the operators: a transformers model of the Llama family with a paged cache, ten
operators for each layer and token. `ditorch bench infer` measures it; it also shows how the operators fit together.

    engine = PagedModel(model, batch=8, length=512)
    tokens = engine.generate(prompts, 32)       # (8, n) int64 -> (8, 32), greedy

Sequences have equal lengths; each has its own row of blocks. Weights of one input (q, k, v; gate, up) are laid
together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import operators  # noqa: F401  defines them

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
BLOCK = 64

F = torch.nn.functional
_ops = torch.ops.dlinfer


def _join(layers: list[Any]) -> tuple[Tensor, Tensor | None]:
    """Weights and biases of linear layers with one input, as those of one."""
    weight = torch.cat([layer.weight.detach() for layer in layers])
    return weight, None if layers[0].bias is None else torch.cat([layer.bias.detach() for layer in layers])


class _Layer:
    """The weights of one decoder layer, and its part of the cache."""

    def __init__(self, layer: Any, blocks: int) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.qkv = _join([attention.q_proj, attention.k_proj, attention.v_proj])
        self.out = _join([attention.o_proj])
        self.gate_up, self.down = _join([mlp.gate_proj, mlp.up_proj]), _join([mlp.down_proj])
        self.before, self.after = layer.input_layernorm, layer.post_attention_layernorm
        self.norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
        self.scale = float(attention.scaling)
        own = attention if hasattr(attention, "sliding_window") else attention.config
        self.window = getattr(own, "sliding_window", None) or -1
        width = attention.head_dim
        self.heads, self.key_heads = (p.out_features // width for p in (attention.q_proj, attention.k_proj))
        shape = (blocks, BLOCK, self.key_heads, width)
        weight = self.qkv[0]
        self.cache = [torch.zeros(shape, dtype=weight.dtype, device=weight.device) for _ in range(2)]


def _norm(x: Tensor, norm: Any) -> Tensor:
    return _ops.rms_norm(x, norm.weight, norm.variance_epsilon)


class PagedModel:
    """The model with caches for `batch` sequences of `length` tokens."""

    def __init__(self, model: Any, batch: int, length: int) -> None:
        kind = model.config.model_type
        if kind not in FAMILIES or getattr(model.config, "hidden_act", "silu") != "silu":
            raise ValueError(f"the paged engine knows models of {', '.join(FAMILIES)} with silu; this one is {kind!r}")
        weight = model.lm_head.weight
        device, columns = weight.device, -(-length // BLOCK)
        self.model, self.batch, self.length = model, batch, length
        with torch.no_grad():
            self.layers = [_Layer(layer, batch * columns) for layer in model.model.layers]
            places = torch.arange(columns * BLOCK, device=device).unsqueeze(0)
            tables = model.model.rotary_emb(weight[:1].unsqueeze(0), places)
        self.cos, self.sin = (table[0].contiguous() for table in tables)
        self.table = torch.arange(batch * columns, dtype=torch.int32, device=device).view(batch, columns)
        self.first_slot = torch.arange(batch, device=device) * (columns * BLOCK)
        self.position = torch.zeros(batch, dtype=torch.int64, device=device)  # of the token that comes next
        self.token = torch.zeros(batch, dtype=torch.int64, device=device)
        self.logits = weight.new_zeros(batch, weight.shape[0])  # of the last step
        self.graph: torch.cuda.CUDAGraph | None = None

    def _attend(self, layer: _Layer, x: Tensor, cos: Tensor, sin: Tensor, slots: Tensor, run: Callable) -> Tensor:
        heads, keys = layer.heads, layer.key_heads
        q, k, v = F.linear(x, *layer.qkv).view(x.shape[0], heads + 2 * keys, -1).split((heads, keys, keys), 1)
        if layer.norms[0] is not None:
            q, k = (_norm(part, norm) for part, norm in zip((q, k), layer.norms, strict=True))
        q, k = _ops.apply_rotary_pos_emb(q, k, cos, sin)
        _ops.fill_kv_cache(k, v, *layer.cache, slots, None, None, None, None, 0)
        return F.linear(run(layer, q, k, v).view(x.shape[0], -1), *layer.out)

    def _forward(self, tokens: Tensor, positions: Tensor, slots: Tensor, run: Callable) -> Tensor:
        """Hidden states of packed tokens, normed for the head."""
        model = self.model.model
        cos, sin = self.cos[positions], self.sin[positions]
        hidden = residual = F.embedding(tokens, model.embed_tokens.weight)
        for number, layer in enumerate(self.layers):
            norm = layer.before
            if number == 0:
                x = _norm(hidden, norm)
            else:
                x, residual = _ops.add_rms_norm(hidden, residual, norm.weight, norm.variance_epsilon)
            hidden = self._attend(layer, x, cos, sin, slots, run)
            x, residual = _ops.add_rms_norm(hidden, residual, layer.after.weight, layer.after.variance_epsilon)
            hidden = F.linear(_ops.silu_and_mul(F.linear(x, *layer.gate_up)), *layer.down)
        return _ops.add_rms_norm(hidden, residual, model.norm.weight, model.norm.variance_epsilon)[0]

    def _choose(self, hidden: Tensor) -> None:
        self.logits.copy_(F.linear(hidden, self.model.lm_head.weight))
        self.token.copy_(self.logits.argmax(-1))

    @torch.no_grad()
    def prefill(self, prompts: Tensor) -> Tensor:
        """prompts (batch, n) -> the first new token of each sequence; forgets what was there."""
        batch, count = prompts.shape
        if batch != self.batch or not 0 < count <= self.length:
            raise ValueError(f"prompts are {batch} x {count}; valid: {self.batch} x 1 to {self.length}")
        places = torch.arange(count, device=prompts.device).expand(batch, count)
        starts = torch.arange(batch + 1, dtype=torch.int32, device=prompts.device) * count
        slots = (self.first_slot.unsqueeze(1) + places).flatten()

        def run(layer: _Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            _ops.prefill_attention(q, k, v, starts, True, layer.scale, None, None, layer.window, 0.0, q)
            return q

        hidden = self._forward(prompts.flatten(), places.flatten(), slots, run)
        self._choose(hidden.view(batch, count, -1)[:, -1])
        self.position.fill_(count)
        return self.token

    @torch.no_grad()
    def decode(self) -> Tensor:
        """One more token for each sequence. All that changes from step to step lies in tensors of the engine."""
        lengths = self.position + 1

        def run(layer: _Layer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            _ops.paged_decode_attention(
                q, *layer.cache, self.table, None, lengths, layer.scale, None, None, layer.window, 0.0, None, None, 0, q
            )
            return q

        self._choose(self._forward(self.token, self.position, self.first_slot + self.position, run))
        self.position.copy_(lengths)
        return self.token

    def capture(self) -> None:
        """Decoding steps are replayed from now on."""
        kept = self.position.clone(), self.token.clone()
        self.decode()  # once as it is: what is made at the first call is not for the graph
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.decode()
        self.position.copy_(kept[0])
        self.token.copy_(kept[1])

    def step(self) -> Tensor:
        """decode(), or its replay."""
        if self.graph is None:
            return self.decode()
        self.graph.replay()
        return self.token

    def generate(self, prompts: Tensor, count: int) -> Tensor:
        """`count` new tokens of each sequence, the most probable ones."""
        if prompts.shape[1] + count > self.length:
            raise ValueError(f"{prompts.shape[1]} and {count} tokens do not fit a cache of {self.length}")
        tokens = [self.prefill(prompts).clone()]
        tokens += [self.step().clone() for _ in range(count - 1)]
        return torch.stack(tokens, 1)

    @torch.no_grad()
    def score(self, text: Tensor, known: int = 1) -> Tensor:
        """text (batch, n) -> (batch, n - known) float32: the logarithm of the probability of each token after the first
        `known` ones, each in a decoding step."""
        if not 0 < known < text.shape[1] <= self.length:
            raise ValueError(f"'known' is {known} of {text.shape[1]} tokens; valid: 1 to {text.shape[1] - 1}")
        self.prefill(text[:, :known])
        found = []
        for place in range(known, text.shape[1]):
            if found:
                self.token.copy_(text[:, place - 1])
                self.step()
            found.append(self.logits.float().log_softmax(-1).gather(1, text[:, place : place + 1]))
        return torch.cat(found, 1)
