"""`ditorch completion`: scripts for bash, zsh and fish, made from the parsers."""

from __future__ import annotations

import argparse

from .parser import Parser
from .tree import COMMANDS, Command, Head

HEAD = ("--backend", "--alias", "--config", "--set", "--help", "--version")


def make_parser() -> Parser:
    parser = Parser(
        "ditorch completion",
        "A script that completes commands and options, for the shell to read.",
        examples=[
            ('eval "$(ditorch completion bash)"', "in ~/.bashrc; zsh the same with zsh"),
            ("ditorch completion fish > ~/.config/fish/completions/ditorch.fish", "for fish"),
        ],
        exits={0: "told", 2: "wrong use"},
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    return parser


def list_flags(command: Command) -> list[str]:
    return sorted({flag for flag in command.make_parser().list_flags() if flag.startswith("--")})


def list_choices(command: Command) -> list[str]:
    """Words that the first place of a command takes."""
    for action in command.make_parser()._actions:
        if not action.option_strings and action.choices and action.nargs != argparse.SUPPRESS:
            return list(action.choices)
    return []


def _make_bash() -> str:
    cases = []
    for command in COMMANDS.values():
        words = " ".join([*list_choices(command), *list_flags(command)])
        cases.append(f"    {command.name}) words='{words}' ;;")
    return "\n".join(
        [
            "_ditorch() {",
            "  local word=${COMP_WORDS[COMP_CWORD]} verb='' words i",
            "  for ((i = 1; i < COMP_CWORD; i++)); do",
            f"    case ${{COMP_WORDS[i]}} in {'|'.join(COMMANDS)}) verb=${{COMP_WORDS[i]}}; break ;; esac",
            "  done",
            "  case $verb in",
            *cases,
            f"    *) words='{' '.join([*COMMANDS, *HEAD])}' ;;",
            "  esac",
            '  COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))',
            "}",
            "complete -o filenames -F _ditorch ditorch",
        ]
    )


def _make_fish() -> str:
    lines = []
    for command in COMMANDS.values():
        lines.append(f"complete -c ditorch -n __fish_use_subcommand -a {command.name} -d {_quote(command.summary)}")
        seen = f"'__fish_seen_subcommand_from {command.name}'"
        for flag in list_flags(command):
            lines.append(f"complete -c ditorch -n {seen} -l {flag[2:]}")
        for word in list_choices(command):
            lines.append(f"complete -c ditorch -n {seen} -a {word}")
    return "\n".join(lines)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def main(words: list[str], head: Head) -> int:
    shell = make_parser().parse_args(words).shell
    if shell == "fish":
        print(_make_fish())
    elif shell == "bash":
        print(_make_bash())
    else:
        print(f"autoload -U +X bashcompinit && bashcompinit\n{_make_bash()}")
    return 0
