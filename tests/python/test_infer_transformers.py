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
MODELS = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "mistral-window": ("Mistral", {"sliding_window": 5}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
}


def _make(kind: str) -> torch.nn.Module:
    torch.manual_seed(1)
    family, own = MODELS[kind]
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **own})
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
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
    if not padded and not options and kind != "mistral-window":
        assert _count() > before  # the operator computed it, not a detour


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


@pytest.mark.full
def test_continuous_batching():
    model, prompts = _make("llama"), [[5, 9, 20], list(range(1, 30)), [7]]
    expected = [
        model.generate(torch.tensor([p]), max_new_tokens=8, do_sample=False, eos_token_id=None)[0, len(p) :].tolist()
        for p in prompts
    ]
    ours = model.cuda()
    ours.set_attn_implementation("sdpa")  # transformers takes no name from outside here
    config = transformers.GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0)
    results = ours.generate_batch(prompts, generation_config=config, progress_bar=False)
    assert [result.generated_tokens for result in results.values()] == expected
