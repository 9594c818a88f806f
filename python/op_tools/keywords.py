"""Bases of the tools' classes. What editors and mypy see of them is keywords.pyi: each option as a keyword parameter.

That file is written by tools/gen_keywords.py (make docs); what help() shows is made by constructors.py.
"""

from __future__ import annotations

from .tool import Tool

AutocompareKeywords = Tool
CaptureKeywords = Tool
DtypeCastKeywords = Tool
FallbackKeywords = Tool
ObserveKeywords = Tool
OverflowCheckKeywords = Tool
TimeMeasureKeywords = Tool
