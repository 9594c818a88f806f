"""Test cases over what PyTorch ships in its wheel: databases of modules and optimizers, lists, whole test classes.

One file per suite; each is a file of unittest cases, as PyTorch's own test files are, and is run by ../cases. The names
of classes and tests are those that PyTorch's databases know, so that the skips and tolerances written there hold.
"""
