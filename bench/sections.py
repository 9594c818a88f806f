"""What `make bench` measures: the sections of docs/measurements.md, in their order there.

With `arguments` alone a program measures the long form (`make bench FULL=1`); `default` keeps the whole run within
fifteen minutes on two idle cores; `quick` only shows that it runs.
"""

import difflib
import os
from typing import NamedTuple

import common


class Section(NamedTuple):
    name: str
    file: str  # below bench/, or a program of build/dev/bench/c
    seconds: int  # of the default form on two idle cores: a first estimate, until a run tells
    arguments: tuple = ()
    default: tuple = ()
    quick: tuple = ()

    @property
    def is_c(self):
        return self.file.startswith("c/")

    def command(self, form):
        words = [*self.arguments, *{"default": self.default, "quick": self.quick, "full": ()}[form]]
        if self.is_c:
            return [os.path.join("build", "dev", "bench", self.file), *words]
        return ["python", f"bench/{self.file}.py", *words]


SECTIONS = [
    Section("alias", "bench_alias", 30, (), (), ("--rounds", "3", "--calls", "500")),
    Section("small_ops", "bench_small_ops", 30, (), ("--rounds", "21"), ("--rounds", "9", "--calls", "300")),
    Section("fallback", "bench_fallback", 10, (), (), ("--rounds", "5")),
    Section("training", "bench_step", 20, (), (), ("--rounds", "3")),
    Section("import", "bench_import", 45, (), (), ("--rounds", "3")),
    Section("operators", "ops/run", 180, (), ("--rounds", "9"), ("--rounds", "3", "--dtype", "float32")),
    Section("detection", "ops/detection", 20, (), ("--rounds", "9"), ("--rounds", "3")),
    Section("step", "step", 25, (), (), ("--quick",)),
    Section("step_llama", "step", 25, ("--model", "llama"), (), ("--quick",)),
    Section("act", "act", 30, (), (), ("--quick",)),
    Section(
        "compile", "compile", 90, (), ("--rounds", "5"),
        ("--rounds", "3", "--sides", "aot_eager,dit", "--only", "heavy_64x128,softmax,one_token"),
    ),
    Section(
        "false_alarms", "false_alarms", 120, ("--only", "training", "--report"), ("--seeds", "2"), ("--seeds", "1"),
    ),
    Section("faultlab", "faultlab/run", 90, ("--fresh",), (), ("--faults", "24", "--clean", "8")),
    Section("c_adapt", "c/bench_adapt", 5),
    Section("c_allocator", "c/bench_allocator", 20, (), (), ("5",)),
    Section("c_kernels", "c/bench_kernels", 30),
    Section("c_numerics", "c/bench_numerics", 20),
    Section("c_record", "c/bench_record", 10),
    Section("c_store", "c/bench_store", 30),
]  # fmt: skip


def choose(words):
    """The sections of these names (separated by blanks or commas), in the file's order; all of them for none."""
    known = {section.name: section for section in SECTIONS}
    names = words.replace(",", " ").split()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.4)
            guess = f"; did you mean {near[0]}?" if near else ""
            raise SystemExit(f"no section of this name: {name}{guess} The sections: {', '.join(known)}")
    return [section for section in SECTIONS if not names or section.name in names]


def find_missing_programs(chosen):
    """C programs that are not built."""
    paths = {section.name: os.path.join(common.ROOT, section.command("full")[0]) for section in chosen if section.is_c}
    return [name for name, path in paths.items() if not os.access(path, os.X_OK)]
