"""`ditorch compare`: two runs, by the logs of their tools, or two checkpoints, tensor by tensor (docs/compare.md).

command.py is the command line; logs.py finds what a run left behind, runs.py puts two runs side by side (the alignment
is libdit's, dit/align.h), captures.py adds the tensors that both runs saved, text.py tells it. checkpoint.py compares
state dicts, which weights.py reads without executing anything.
"""
