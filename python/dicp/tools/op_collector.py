"""DICP's collector of the operators that a model needs, by ditorch."""

from ditorch.graph.op_collector import InnerCompilerOpCollectorContext

__all__ = ["InnerCompilerOpCollectorContext"]
