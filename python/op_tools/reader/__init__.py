"""Captured operator calls of every age, read without executing anything in them (docs/tools/case-files.md).

case.py finds and loads calls; source.py knows where their parts are: folders, files, containers (pack.py). A file goes
through torch_file.py (over archive.py), the instructions of its pickle through pickle.py, which makes values by
tensors.py and values.py within limits.py; tagged.py then gives back what torch.load has no form for.
"""

from .case import Case, CaseError, CaseRef, Limits, find_cases, load_case, load_item

__all__ = ["Case", "CaseError", "CaseRef", "Limits", "find_cases", "load_case", "load_item"]
