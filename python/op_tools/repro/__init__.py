"""A captured call as a folder that runs with torch alone: export.py writes it from the parts in values.py and the text
of template.py."""

from .export import write_repro
from .values import ReproError

__all__ = ["ReproError", "write_repro"]
