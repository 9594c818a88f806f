"""Captured operator calls once more: `ditorch replay` (command.py), and what running a captured call takes."""
