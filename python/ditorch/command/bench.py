"""`ditorch bench`: the times of captured operators, side by side on several devices; replay without the judgement.
`ditorch bench infer` (bench_infer.py) measures a language model instead."""

from __future__ import annotations

from .parser import Parser
from .tree import Head


def make_parser() -> Parser:
    parser = Parser(
        "ditorch bench",
        "How long captured operators take, and how much memory, on one device or several side by side. What else "
        "`ditorch replay` takes may follow (--op, --jobs, --json, --resume ...).",
        examples=[
            ("ditorch bench op_tools_results/op_capture_results", "every captured call, 100 timed runs"),
            ("ditorch bench --model resnet50 --scale 0.1", "a model's operators; `bench --model --help`"),
            ("ditorch bench op_tools_results --device cuda --device cpu --run-times 20", "beside the CPU"),
            ("ditorch bench infer", "how fast a language model generates: ditorch bench infer --help"),
        ],
        exits={0: "measured", 2: "wrong use, or no case found", 3: "cases that could not be run"},
    )
    parser.add_argument("path", metavar="PATH", help="capture folder, container (.dpack), one case, or a log (.dlog)")
    parser.add_argument("--memory", action="store_true", help="memory too")
    return parser


def main(words: list[str], head: Head) -> int:
    if words[:1] == ["infer"]:
        from . import bench_infer

        return bench_infer.main(words[1:], head)
    if any(word == "--model" or word.startswith("--model=") for word in words):
        from . import bench_model

        return bench_model.main(words, head)
    options, rest = make_parser().parse_known_args(words)
    from op_tools.replay import command

    parts = ["--speed", *(["--memory"] if options.memory else [])]
    return command.main([options.path, *parts, *rest], head.config, head.options)
