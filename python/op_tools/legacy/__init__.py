"""The console of the original, byte for byte (OP_TOOLS_CONSOLE=full): a module per kind of tool."""
