"""`ditorch bisect`: the smallest set of operators that must leave the device for a run to be right.

metric.py reads numbers from what a program says and judges them; search.py finds the set; runner.py runs the program
once; state.py remembers finished runs; hunt.py asks the questions in their order; answer.py tells. Nothing here imports
torch: the program's own processes do the work on operators (op_tools/probe.py).
"""
