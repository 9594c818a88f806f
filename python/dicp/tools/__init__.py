"""See dicp.tools.op_collector."""
