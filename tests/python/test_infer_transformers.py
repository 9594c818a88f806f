"""transformers with attn_implementation="dlinfer": the tokens of the same model on the CPU, with its own attention."""

from __future__ import annotations

import copy

import ditorch
import pytest
import torch

transformers = pytest.importorskip("transformers")
import dlinfer  # noqa: E402

SIZES = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "eos_token_id": None,
    "bos_token_id": None,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "head_dim": 16,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
MODELS = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "mistral-window": ("Mistral", {"sliding_window": 5}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2-moe": ("Qwen2Moe", {**EXPERTS, "shared_expert_intermediate_size": 48}),
    "qwen3-moe": ("Qwen3Moe", {**EXPERTS, "head_dim": 32}),
    "deepseek-v2": ("DeepseekV2", LATENT),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 5, "attn_logit_softcapping": 2.0}),
    "gpt-oss": ("GptOss", {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5}),
}
"""InternLM2 and InternLM3 have no class in transformers: their checkpoints bring code of their own, which knows no
attention by name."""
OWN = {"gemma2": "eager", "gpt-oss": "eager"}
"""Whose soft limits and sinks SDPA leaves out: the reference is transformers' own form."""


def _make(kind: str) -> torch.nn.Module:
    torch.manual_seed(1)
    family, own = MODELS[kind]
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **own})
    config._attn_implementation = OWN.get(kind)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    for name, parameter in model.named_parameters():
        if "sinks" in name:
            parameter.data.normal_(0, 2)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:  # layers that matter: see tests/lmdeploy/models.py
            parameter.data.normal_(0, 1.0 if "embed" in name else 1.7 / parameter.shape[-1] ** 0.5)
    return model


def _generate(model: torch.nn.Module, device: str, padded: bool, **options) -> list[list[int]]:
    torch.manual_seed(2)
    ids, mask = torch.randint(1, 128, (3, 11)), torch.ones(3, 11, dtype=torch.int64)
    if padded:
        mask[0, :4], mask[1, :7] = 0, 0
        ids = ids * mask
    out = model.generate(
        ids.to(device), attention_mask=mask.to(device), max_new_tokens=8, do_sample=False, pad_token_id=0, **options
    )
    return out[:, 11:].tolist()


def _count(operator: str = "paged_prefill_attention") -> int:
    rows = ditorch.ledger.operators()
    return sum(row["calls"] for row in rows if row["operator"] == f"dlinfer::{operator}")


@pytest.mark.parametrize("kind", ["llama", *(pytest.param(k, marks=pytest.mark.full) for k in list(MODELS)[1:])])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}], ids=["dynamic", "static"])
def test_generate(kind, padded, options):
    model = _make(kind)
    ours, before = dlinfer.use(copy.deepcopy(model).cuda()), _count()
    expected, got = _generate(model, "cpu", padded, **options), _generate(ours, "cuda", padded, **options)
    assert got == expected
    assert _count() >= before + 8 * len(ours.model.layers)  # the operator computed every step, not a detour


@pytest.mark.parametrize("kind", ["gemma2", "gpt-oss"])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_soft_limits_and_sinks(kind, padded):
    """They count with a mask and without one."""
    model, prompt = _make(kind), torch.randint(1, 128, (2, 9))
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[0, :4] = 0 if padded else 1
    ours = dlinfer.use(copy.deepcopy(model).cuda())
    with torch.no_grad():
        expected = model(prompt, attention_mask=mask).logits
        got = ours(prompt.cuda(), attention_mask=mask.cuda()).logits.cpu()
    seen = mask.bool()
    torch.testing.assert_close(got[seen], expected[seen], rtol=2e-3, atol=2e-3)


def test_training_has_gradients():
    model, prompt = _make("llama"), torch.randint(1, 128, (2, 9))
    ours = dlinfer.use(copy.deepcopy(model).cuda())
    for each, where in ((model, "cpu"), (ours, "cuda")):
        each(prompt.to(where)).logits.square().mean().backward()
    for (name, a), b in zip(model.named_parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-3, atol=1e-3, msg=lambda text, name=name: name + text)


def test_experts_run_as_one_operator():
    model = _make("mixtral")
    ours, prompt = dlinfer.use(copy.deepcopy(model).cuda()), torch.randint(1, 128, (2, 7))
    before = _count("fused_moe")
    with torch.no_grad():
        expected, got = model(prompt).logits, ours(prompt.cuda()).logits
    assert _count("fused_moe") == before + model.config.num_hidden_layers
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-3)
    ours(prompt.cuda()).logits.sum().backward()  # training has its gradients all the same
    assert all(p.grad is not None for name, p in ours.named_parameters() if "experts" in name)


def _gaps(model: torch.nn.Module, prompt: list[int], tokens: list[int]) -> float:
    """How far the worst token is from the likeliest one of the model over the same text, as a part of the spread."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    gaps = logits.amax(-1) - logits.gather(1, torch.tensor(tokens).unsqueeze(1)).squeeze(1)
    return (gaps / logits.std(-1)).max().item()


@pytest.mark.parametrize(
    "kind", ["llama", *(pytest.param(k, marks=pytest.mark.full) for k in ("mistral-window", "gpt-oss"))]
)
@pytest.mark.parametrize("options", [{}, {"cache_implementation": "static"}], ids=["dynamic", "static"])
def test_padded_batches_of_half_precision(kind, options):
    """Each sequence's tokens are those of float32 on the CPU over its text alone, but for ties of float16."""
    model = _make(kind)
    ours, before = dlinfer.use(copy.deepcopy(model).half().cuda()), _count()
    prompts = [[5, 9, 20], list(range(1, 30)), [7], [3, 1, 4, 1, 5, 9, 2, 6]]
    ids = torch.tensor([[0] * (29 - len(p)) + p for p in prompts])
    out = ours.generate(
        ids.cuda(), attention_mask=(ids > 0).long().cuda(), max_new_tokens=12, do_sample=False, **options
    )
    assert _count() >= before + 12 * len(ours.model.layers)
    for prompt, row in zip(prompts, out[:, 29:].tolist(), strict=True):
        assert len(row) == 12 and _gaps(model, prompt, row) < 0.008


def test_a_mask_of_the_callers_own_goes_another_way():
    """One that hides a key in the middle is no padding, and keeps its meaning."""
    model, prompt = _make("llama"), torch.randint(1, 128, (2, 9))
    ours, before = dlinfer.use(copy.deepcopy(model).cuda()), _count()
    mask = torch.ones(2, 1, 9, 9, dtype=torch.bool).tril()
    mask[:, :, 5:, 3] = False
    with torch.no_grad():
        expected, got = (
            model(prompt, attention_mask=mask).logits,
            ours(prompt.cuda(), attention_mask=mask.cuda()).logits,
        )
        assert _count() == before
        torch.testing.assert_close(got.cpu(), expected, rtol=2e-3, atol=2e-3)
        mask[:, :, 5:, 3] = True
        again = ours(prompt.cuda(), attention_mask=mask.cuda()).logits  # causal, as it comes
    assert _count() == before + 2
    torch.testing.assert_close(again.cpu(), model(prompt).logits, rtol=2e-3, atol=2e-3)


def _batch(model: torch.nn.Module, prompts: list[list[int]], **options) -> list[list[int]]:
    config = transformers.GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0)
    settings = transformers.ContinuousBatchingConfig(num_blocks=16, **options)
    results = model.generate_batch(
        prompts, generation_config=config, continuous_batching_config=settings, progress_bar=False
    )
    return [result.generated_tokens for result in results.values()]


PROMPTS = [[5, 9, 20], list(range(1, 30)), [7]]


def _alone(model: torch.nn.Module) -> list[list[int]]:
    return [
        model.generate(torch.tensor([p]), max_new_tokens=8, do_sample=False, eos_token_id=None)[0, len(p) :].tolist()
        for p in PROMPTS
    ]


@pytest.mark.full
@pytest.mark.parametrize("attention", ["dlinfer_flash2", "sdpa"])
@pytest.mark.parametrize("kind", ["llama", "mistral-window"])
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_continuous_batching(kind, attention, graph):
    """By name: transformers takes sdpa, and what has flash in it."""
    model = _make(kind)
    expected = _alone(model)
    before = _count(), _count("paged_decode_attention")
    assert _batch(dlinfer.use(model.cuda(), attention), PROMPTS, use_cuda_graph=graph) == expected
    if attention != "sdpa":
        assert _count() > before[0]
        assert kind != "llama" or _count("paged_decode_attention") > before[1]  # windows have no pages there


def test_flash_functions_without_a_page():
    """The same name serves a padded batch of `generate`."""
    model = _make("llama")
    ours, before = dlinfer.use(copy.deepcopy(model).cuda(), "dlinfer_flash2"), _count()
    assert _generate(ours, "cuda", True) == _generate(model, "cpu", True)
    assert _count() > before
    with pytest.raises(NotImplementedError, match="no gradients"):
        ours(torch.tensor([[1, 2]]).cuda())
