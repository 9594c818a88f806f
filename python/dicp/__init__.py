"""DICP's package where ditorch is installed: its operator collector (docs/compile.md). Everything else of DICP is
`torch.compile` on the device. A real dicp that stands earlier on the path is found first."""
