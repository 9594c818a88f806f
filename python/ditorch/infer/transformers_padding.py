"""What the queries of a padded batch see, read from transformers' mask: sequences for the paged operator.

A mask (B, 1, q, k) whose row for a query is one run of keys, up to the query's own and from the same key on for its
whole sequence (later in a sliding window), says no more than where each sequence begins and ends among the keys. So
say the masks of batches that are padded on the left, and of static caches, which are longer than what was written. For
one query a row any mask is a list of keys, which the host need not read: graphs and compiled steps have it too.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """Padded queries are a sequence of their own, of length 0: their attention is 0."""

    table: Tensor  # (sequences, most keys): the place of each key in its row of the batch
    rows: Tensor  # (sequences, 1): the row of the batch
    starts: Tensor | None  # (sequences + 1): where the queries begin; None: one each
    lengths: Tensor  # (sequences): keys


def list_keys(mask: Tensor) -> Layout:
    """Of one query a row: the keys that it sees, in their order. The window is in the mask."""
    seen = mask[:, 0, 0]
    table = torch.argsort(~seen, dim=-1, stable=True).int()
    rows = torch.arange(mask.shape[0], device=mask.device).unsqueeze(1)
    return Layout(table, rows, None, seen.sum(-1).int())


def find_layout(mask: Tensor, window: int) -> Layout | None:
    """Of several queries a row, on the CPU; None where the mask says something else."""
    seen = (mask if mask.dtype == torch.bool else mask == 0).squeeze(1).cpu()
    batch, queries, keys = seen.shape
    if not seen.numel() or not bool(seen[:, -1].any(-1).all()):
        return None
    place = torch.arange(keys)
    end = keys - seen[:, -1].flip(-1).int().argmax(-1)  # one behind the last query's own key
    begin = seen.any(1).int().argmax(-1)
    own = (end.unsqueeze(1) - queries + torch.arange(queries)).unsqueeze(2)
    expected = (place <= own) & (place >= begin.view(-1, 1, 1))
    if window > 0:
        expected &= place > own - window
    if not torch.equal(seen, expected) or not _is_float_mask_plain(mask):
        return None
    length = end - begin
    padded = (queries - length).clamp_min(0)
    first = torch.arange(batch) * queries
    starts = torch.stack((first, first + padded), 1).flatten()
    lengths = torch.stack((torch.zeros_like(length), length), 1).flatten()
    table = begin.repeat_interleave(2).unsqueeze(1) + torch.arange(int(length.max()))
    return Layout(
        table.clamp_max(keys - 1).int(),
        torch.arange(batch).repeat_interleave(2).unsqueeze(1),
        torch.cat((starts, torch.tensor([batch * queries]))).int(),
        lengths.int(),
    )


def _is_float_mask_plain(mask: Tensor) -> bool:
    """What a mask of numbers adds is nothing, or so much that the key is not seen."""
    return mask.dtype == torch.bool or bool(((mask == 0) | (mask <= torch.finfo(mask.dtype).min)).all())


def get_layout(mask: Tensor, window: int) -> Layout | None:
    """What the mask says, kept with it: a step of a model has one for all its layers. Masks of several queries are read
    by the host, which a capture and a compiler do not allow."""
    if mask.dim() != 4 or mask.shape[1] != 1:
        return None
    single = mask.shape[2] == 1 and mask.dtype == torch.bool
    if torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing():
        return list_keys(mask) if single else None
    version = None if mask.is_inference() else mask._version
    kept = getattr(mask, "_dlinfer_layout", None)
    if kept is None or version is None or kept[:2] != (version, window):
        kept = (version, window, list_keys(mask) if single else find_layout(mask, window))
        mask._dlinfer_layout = kept
    return kept[2]


def view_tokens(cache: Tensor) -> tuple[Tensor, int] | None:
    """Keys or values (B, Hk, k, D) as blocks of one token (tokens, 1, Hk, D), and how many tokens lie from one row of
    the batch to the next; None where that is no whole number."""
    batch, heads, count, width = cache.shape
    row, head, token, _ = cache.stride()
    if token <= 0 or row % token or cache.stride(-1) != 1:
        return None
    step = row // token
    size = ((batch - 1) * step + count, 1, heads, width)
    return cache.as_strided(size, (token, token, head, 1)), step
