"""The perplexity of a fixed text in float16 and bfloat16: that of transformers in float32 on the CPU, within 0.5 %."""

from __future__ import annotations

import copy

import ditorch
import dlinfer
import pytest
import torch

transformers = pytest.importorskip("transformers")
from ditorch.infer.paged import PagedModel  # noqa: E402

LIMIT, LENGTH = 0.005, 192


def _make() -> torch.nn.Module:
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:  # layers that matter: see tests/lmdeploy/models.py
            parameter.data.normal_(0, 1.0 if "embed" in name else 1.7 / parameter.shape[-1] ** 0.5)
    return model


@pytest.fixture(scope="module")
def case() -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """A model, texts that it wrote itself (another one would find them unlikely), and their perplexity."""
    model = _make()
    torch.manual_seed(3)
    text = model.generate(
        torch.tensor([[5, 9, 20], [7, 1, 33]]), max_new_tokens=LENGTH - 3, do_sample=True, top_k=0, pad_token_id=0
    )
    with torch.no_grad():
        return model, text, _perplexity(_score(model(text).logits, text))


def _score(logits: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    chances = logits.float().log_softmax(-1)[:, :-1]
    return chances.gather(2, text[:, 1:].unsqueeze(2)).squeeze(2)


def _perplexity(scores: torch.Tensor) -> torch.Tensor:
    return scores.double().mean().neg().exp()


def _measure(model: torch.nn.Module, text: torch.Tensor, dtype: torch.dtype, way: str) -> torch.Tensor:
    ours = copy.deepcopy(model).to(dtype).cuda()
    if way == "transformers":
        with torch.no_grad():
            logits = dlinfer.use(ours)(text.cuda()).logits
        return _perplexity(_score(logits.cpu(), text))
    engine = PagedModel(ours, len(text), LENGTH)
    if way == "graph":
        engine.prefill(text[:, :1].cuda())
        engine.capture()
    return _perplexity(engine.score(text.cuda(), known=1 if way == "graph" else 64).cpu())


def _reference(case: tuple, way: str) -> torch.Tensor:
    model, text, whole = case
    if way != "eager":
        return whole
    with torch.no_grad():
        return _perplexity(_score(model(text).logits, text)[:, 63:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("way", ["eager", "graph", "transformers"])
def test_perplexity(case, dtype, way):
    expected = _reference(case, way)
    assert abs(_measure(*case[:2], dtype, way) / expected - 1) < LIMIT


PARTS = (
    *("rms_norm", "add_rms_norm", "silu_and_mul", "apply_rotary_pos_emb"),
    *("fill_kv_cache", "paged_decode_attention"),
)


@pytest.mark.parametrize(
    ("rule", "way"),
    [
        *((f"value:dlinfer::{name},scale=4", way) for name in PARTS for way in ("eager", "graph")),
        ("nan:dlinfer::prefill_attention", "eager"),
        ("precision:dlinfer::paged_prefill_attention,bits=1", "transformers"),
    ],
    ids=str,
)
def test_a_broken_operator_is_noticed(case, rule, way):
    expected = _reference(case, way)
    with ditorch.fault(rule) as fault:
        found = _measure(*case[:2], torch.float16, way)
    assert fault.count > 0
    assert not abs(found / expected - 1) < LIMIT, found


def test_score_says_what_it_takes(case):
    engine = PagedModel(copy.deepcopy(case[0]).cuda(), 2, 32)
    with pytest.raises(ValueError, match="'known' is 0 of 9 tokens; valid: 1 to 8"):
        engine.score(case[1][:, :9].cuda(), known=0)
