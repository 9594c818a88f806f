"""The command line: `python -m ditorch` and the `ditorch` command."""

from __future__ import annotations

import sys

from . import install, launch

USAGE = """\
usage: python -m ditorch [options] script.py [arguments ...]
       python -m ditorch [options] -m module [arguments ...]
       python -m ditorch [options] -c code [arguments ...]   (or - for standard input)
       python -m ditorch [options] run|doctor|new-vendor|export|replay|conform|options|version ...

Run a PyTorch program written for CUDA, unchanged, on the device that is there.

options:
  --backend NAME     auto, cuda, nvidia, npu, mlu, biren, dipu, musa, host or none (default auto)
  --alias NAME       binary, python or off (default binary)
  --config FILE      TOML file with a [ditorch] table
  --set NAME=VALUE   any option; `python -m ditorch options` lists them
  -h, --help         this text
  --version          the version

verbs:
  run                run a program (also without the word)
  doctor [--json]    what is installed, what was chosen and why, and a self-check
  doctor --diopi LIB which functions of the DIOPI standard an operator library has (a name or a file)
  doctor --vendor LIB [--only SLOT] [--timeout S] [--gentle]   is a vendor library's device right? Every slot, in words
  new-vendor NAME [--out DIR]   a vendor library to start from: C, a build, a test (docs/vendor.md)
  export FILES ...   record logs as JSONL, CSV, trace or text; captures as files (export --help)
  replay PATH ...    captured operators once more: right, fast, small? (replay --help)
  options [TOOL]     every option (of a tool: observe, capture ...) with its value and where it came from
  compare-modules DIR [REAL]   layers of two runs that CompLayerAcc saved (compare-modules --help)
  test-device [...]  PyTorch's operator database, its test files and suites on the device (test-device --help)
  conform run|list|show|pack|device ...   is an operator library (DIOPI) right? (conform --help)
  merge DIR ...      one summary of the tools' results of all ranks (merge --help)
  include            folder of the C headers (dit/, diopi/): cc -I$(ditorch include) ...
  version            the version
"""

VERBS = (
    "run",
    "doctor",
    "new-vendor",
    "export",
    "replay",
    "options",
    "compare-modules",
    "test-device",
    "conform",
    "merge",
    "include",
    "version",
    "help",
)


class UsageError(Exception):
    """Wrong use of the command line."""


class Arguments:
    """What stands before the program or the verb."""

    def __init__(self) -> None:
        self.config: str | None = None
        self.options: dict[str, str] = {}
        self.verb = "run"
        self.rest: list[str] = []


def _set(arguments: Arguments, text: str) -> None:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--set {text!r}: expected NAME=VALUE, such as --set host_devices=2")
    arguments.options[name.strip()] = value.strip()


def parse(words: list[str]) -> Arguments:
    """Options end at the first word that is none; from there on everything belongs to the program or the verb."""
    arguments = Arguments()
    words = list(words)
    while words and words[0].startswith("-") and words[0] not in ("-m", "-c", "-"):
        word, equals, value = words.pop(0).partition("=")
        if word in ("-h", "--help"):
            arguments.verb = "help"
            return arguments
        if word in ("-V", "--version"):
            arguments.verb = "version"
            return arguments
        if word not in ("--backend", "--alias", "--config", "--set"):
            raise UsageError(f"unknown option {word!r}; valid: --backend, --alias, --config, --set, --help, --version")
        if not equals:
            if not words:
                raise UsageError(f"{word} needs a value")
            value = words.pop(0)
        if word == "--set":
            _set(arguments, value)
        elif word == "--config":
            arguments.config = value
        else:
            arguments.options[word[2:]] = value
    if words and words[0] in VERBS:
        arguments.verb = words.pop(0)
    arguments.rest = words
    if arguments.verb == "run":
        _check_program(words)
    return arguments


def _check_program(words: list[str]) -> None:
    if not words:
        raise UsageError("nothing to run: give a script, -m module or -c code")
    if words[0] in ("-m", "-c") and len(words) < 2:
        raise UsageError(f"argument expected for the {words[0]} option")


def main(words: list[str] | None = None) -> int:
    """Entry point; returns the exit status. A program's own exit passes through."""
    try:
        arguments = parse(sys.argv[1:] if words is None else words)
        if arguments.verb == "run":
            problem = launch.check(arguments.rest)
            if problem:
                print(problem, file=sys.stderr)
                return 2 if "can't open" in problem else 1
            _install(arguments)
            return launch.run(arguments.rest)
        return _run_verb(arguments)
    except UsageError as error:
        print(f"ditorch: {error}\n\n{USAGE}", file=sys.stderr)
        return 2


def _install(arguments: Arguments) -> None:
    try:
        install(arguments.config, **arguments.options)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"ditorch: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _run_verb(arguments: Arguments) -> int:
    if arguments.verb == "help":
        print(USAGE)
        return 0
    if arguments.verb == "version":
        from . import _C

        print(f"ditorch {_C.version()}")
        return 0
    if arguments.verb == "include":
        from . import library

        print(library.find_headers())
        return 0
    if arguments.verb == "new-vendor":
        from . import new_vendor

        return new_vendor.main(arguments.rest)
    if arguments.verb == "export":
        from . import export

        return export.main(arguments.rest)
    if arguments.verb == "replay":
        from op_tools.replay import command

        return command.main(arguments.rest, arguments.config, arguments.options)
    if arguments.verb == "compare-modules":
        from module_tools import compare

        return compare.main(arguments.rest)
    if arguments.verb == "test-device":
        from .device_suite import main as device_suite

        return device_suite.main(arguments.rest, arguments.config, arguments.options)
    if arguments.verb == "conform":
        from .conform import cli as conform

        return conform.main(arguments.rest)
    if arguments.verb == "merge":
        from op_tools import merge

        return merge.main(arguments.rest)
    if arguments.verb == "options":
        return _show_options(arguments)
    return _run_doctor(arguments)


def _run_doctor(arguments: Arguments) -> int:
    words = [word for word in arguments.rest if word != "--json"]
    as_json = len(words) != len(arguments.rest)
    if not words:
        from . import doctor

        return doctor.main(arguments.config, arguments.options, as_json)
    kind, name, rest = _take_library(words)
    if kind == "--vendor" and name:
        from . import vendor_report

        return vendor_report.main(name, rest, as_json)
    if kind != "--diopi" or not name or rest:
        raise UsageError(f"doctor takes --json and --diopi LIBRARY or --vendor LIBRARY, got {' '.join(arguments.rest)}")
    from . import diopi_report

    return diopi_report.main(name, as_json)


def _take_library(words: list[str]) -> tuple[str, str, list[str]]:
    """Which library is looked at: the option's name, the library, the words that are left."""
    for i, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in ("--diopi", "--vendor"):
            rest = words[:i] + words[i + (1 if equals else 2) :]
            return option, value if equals else "".join(words[i + 1 : i + 2]), rest
    return "", "", words


def _show_options(arguments: Arguments) -> int:
    from . import settings

    try:
        settings.load(arguments.config, arguments.options)
        for tool in arguments.rest:
            print(settings.tool_options(tool))
    except (ValueError, OSError, RuntimeError) as error:
        print(f"ditorch: {error}", file=sys.stderr)
        return 2
    if not arguments.rest:
        print(settings.options())
        print(f"\nof a tool: python -m ditorch options {'|'.join(settings.tool_names())}")
    return 0
