"""`ditorch test-device --pytorch DIR` and `--suite NAME`: test cases that PyTorch wrote, run for a device.

sources.py says which files there are, expect.py what a device is expected to do; worker.py is the process that imports
a file and runs its cases one by one, run.py leads the workers, report.py tells the result (console, CSV, JSON, JUnit).
The suites themselves, which instantiate what is in the wheel of torch, are in ../suites.
"""
