"""LLM inference operators behind the import name `dlinfer` (docs/dlinfer.md).

`ops.py` is written from standard/dlinfer.tsv; `front.py` brings a vendor's conventions into one form, `operators.py`
defines torch.ops.dlinfer.*, `composed.py` computes them with PyTorch's operators where no C function does.
"""
