"""`ditorch test-device`: PyTorch's operator database (OpInfo) on a device, against the CPU.

main.py is the command; arguments.py reads its words, expect.py what a device is expected to do. A pool of processes
(ditorch.worker_pool) runs worker.py, which checks one entry in one dtype at a time (entry.py over samples.py,
compare.py and tolerance.py); report.py tells the result. cases/ runs test files of PyTorch instead, suites/ are such
files over what is in the wheel of torch. docs/test-device.md is the manual.
"""
