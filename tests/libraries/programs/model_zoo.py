"""x-transformers, and einops through it: decoder, encoder-decoder and vision models."""

from __future__ import annotations

import torch
from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper, ViTransformerWrapper

from . import DEVICE, case, rows, seed_all, summary, variants

VOCABULARY = 64


def train(model, batches) -> list[float]:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    found = []
    for batch in batches:
        loss = model(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss))
    return found


FLAVOURS = {
    "plain": {},
    "flash": {"attn_flash": True},
    "rotary": {"rotary_pos_emb": True, "attn_flash": True},
    "modern": {"use_rmsnorm": True, "ff_glu": True, "ff_swish": True, "attn_kv_heads": 2, "rotary_pos_emb": True},
    "alibi": {"alibi_pos_bias": True, "alibi_num_heads": 2},
}


@variants("Decoder: train and generate", {name: {"options": options} for name, options in FLAVOURS.items()})
def x_decoder(folder, options):
    """Train a decoder, then generate greedily from it."""
    seed_all()
    net = TransformerWrapper(
        num_tokens=VOCABULARY, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
    )
    model = AutoregressiveWrapper(net).to(DEVICE)
    tokens = rows(24, 16, VOCABULARY).to(DEVICE)
    losses = train(model, tokens.split(4))
    created = model.generate(tokens[:2, :5], 8, temperature=0.0)
    assert created.device.type == DEVICE
    return {"losses": losses, "weights": summary(model), "tokens": created.tolist()}


@case("ViTransformerWrapper: train")
def x_vision(folder):
    seed_all()
    layers = Encoder(dim=32, depth=2, heads=4, attn_dim_head=8)
    net = ViTransformerWrapper(image_size=16, patch_size=4, num_classes=5, attn_layers=layers).to(DEVICE)
    images = torch.randn(12, 3, 16, 16).to(DEVICE)
    labels = torch.arange(12, device=DEVICE) % 5
    losses = []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return {"losses": losses, "weights": summary(net)}
