"""Constructors of the tools. Written by tools/gen_keywords.py (make docs) from libdit's list of options."""

import os
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import torch

from .tool import Tool

Condition: TypeAlias = Callable[..., Any] | None
Names: TypeAlias = str | list[str] | tuple[str, ...] | set[str] | frozenset[str]
Ranges: TypeAlias = str | int | range | list[int] | list[str] | tuple[int | str, ...] | set[int]
Flag: TypeAlias = bool | Literal[0, 1]
Size: TypeAlias = int | str
Path: TypeAlias = str | os.PathLike[str]
Casts: TypeAlias = str | dict[torch.dtype, torch.dtype]
Tolerance: TypeAlias = str | tuple[float, float]

class AutocompareKeywords(Tool):
    def __init__(
        self,
        *,
        condition_func: Condition = None,
        list: Names | None = ".*",
        disable_list: Names | None = "",
        include: Names | None = "",
        exclude: Names | None = "",
        modules: Names | None = "",
        module_paths: Flag | None = False,
        steps: Ranges | None = "",
        every: int | None = 1,
        ranks: Ranges | None = "",
        first: int | None = 0,
        numel_min: int | None = 0,
        numel_max: int | None = 0,
        level: Literal["torch", "aten"] | None = "torch",
        cpu: Flag | None = False,
        threads: Literal["current", "all"] | None = "current",
        fork: Flag | None = False,
        compile: Literal["eager", "leave"] | None = "eager",
        console: Literal["short", "full", "off"] | None = "short",
        results: Path | None = "op_tools_results",
        log: Flag | None = True,
        log_pressure: Literal["block", "drop"] | None = "block",
        log_queue: Size | None = "4MiB",
        log_rotate: Size | None = 0,
        print_stack: int | None = 0,
        max_cache_size: int | None = 100,
        backward: Flag | None = True,
        stop: Flag | None = False,
        max_findings: int | None = 100,
        cap_bytes: Size | None = "10GiB",
        cap_calls: int | None = 100000,
        dtype_cast_dict: Casts | None = "torch.float16->torch.float32,torch.bfloat16->torch.float32",
        verdict: Literal["auto", "legacy"] | None = "auto",
        reference: Literal["cpu", "device"] | None = "cpu",
        save: Flag | None = True,
        rows: Literal["all", "wrong", "none"] | None = "all",
        share: int | None = 0,
        max_bytes: Size | None = 0,
        error_tolerance: Tolerance | None = "",
        error_tolerance_float16: Tolerance | None = "",
        error_tolerance_bfloat16: Tolerance | None = "",
        error_tolerance_float32: Tolerance | None = "",
        error_tolerance_float64: Tolerance | None = "",
        **per_operator: Casts | Tolerance | None,
    ) -> None:
        """condition_func: Asked with the arguments of each call; a false answer leaves the call alone.
        list: Operators that the tool handles: names and regular expressions that match the whole name, separated by
            commas; empty: none.
        disable_list: Operators that it leaves alone; wins over the list.
        include: Shell patterns (or re:expression) of operators, separated by commas; empty: all that the list has.
        exclude: Patterns to take out again, after include.
        modules: Patterns of the path of the nn.Module that makes the call, such as GPT.layers.0.*; empty: from
            anywhere.
        module_paths: Note the path of the nn.Module with every record, also without a selection by modules.
        steps: Steps to look at, such as 4-6,9 or 100-; a step ends with step(), the first is 0; empty: all.
        every: Only steps that are a multiple of this number.
        ranks: Ranks of a distributed program, such as 0,4-7; empty: all.
        first: Only the first calls of each operator with the same dtypes and shapes; 0: all.
        numel_min: Only calls whose largest tensor has at least as many elements.
        numel_max: Only calls whose largest tensor has at most as many elements; 0: no limit.
        level: Calls as the program writes them (torch.nn.functional.linear), or the operators below them
            (aten::addmm).
        cpu: Also calls that touch no device but the CPU.
        threads: The thread that starts the tool, or every Python thread of the process.
        fork: Stay on in forked children, such as DataLoader workers.
        compile: Code under torch.compile: run it eagerly while a tool is on, or leave it compiled and unseen.
        console: Findings and a summary; every call in the format of the original; or nothing.
        results: Directory of everything that is written.
        log: Write records to <results>/log.
        log_pressure: When records come faster than the disk takes them: wait, or drop and count.
        log_queue: Memory for records that wait.
        log_rotate: Start a new log file beyond this size; 0: never.
        print_stack: With console=full: 1 or more prints the Python stack of every call.
        max_cache_size: Rows to collect before writing them.
        backward: Follow the backward pass of each call too.
        stop: Raise an exception at the first finding.
        max_findings: Findings to report; 0: all.
        cap_bytes: Most bytes to save per process; 0: no cap.
        cap_calls: Most calls to save per process; 0: no cap.
        dtype_cast_dict: Dtype to compute in, by dtype.
        verdict: What decides whether a result is wrong: the error against float64 measured by the error of the CPU,
            or the tolerances.
        reference: Where an operator runs once more: on the CPU, or first on the device in float64 and only suspects
            on the CPU.
        save: Save the calls whose results are wrong: what the device and the CPU got and gave.
        rows: Comparisons to write to the table: all, those that are not close or wrong, or none.
        share: Most percent of the running time to spend on comparing; calls beyond it are left out; 0: no limit.
        max_bytes: Leave out calls whose tensors are larger together; 0: no limit.
        error_tolerance: Absolute and relative tolerance of all dtypes, such as 1e-3,1e-3.
        error_tolerance_float16: The same for float16; empty: 1e-4,1e-4.
        error_tolerance_bfloat16: The same for bfloat16; empty: 1e-3,1e-3.
        error_tolerance_float32: The same for float32; empty: 1e-5,1e-5.
        error_tolerance_float64: The same for float64; empty: 1e-8,1e-8.
        <operator>_op_dtype_cast_dict: The same for one operator, by the last part of its name in upper case.
        <operator>_op_error_tolerance_float16: The same for one operator, by the last part of its name in upper case.
        <operator>_op_error_tolerance_bfloat16: The same for one operator, by the last part of its name in upper case.
        <operator>_op_error_tolerance_float32: The same for one operator, by the last part of its name in upper case.
        <operator>_op_error_tolerance_float64: The same for one operator, by the last part of its name in upper case.
        """

class CaptureKeywords(Tool):
    def __init__(
        self,
        *,
        condition_func: Condition = None,
        list: Names | None = ".*",
        disable_list: Names | None = "",
        include: Names | None = "",
        exclude: Names | None = "",
        modules: Names | None = "",
        module_paths: Flag | None = False,
        steps: Ranges | None = "",
        every: int | None = 1,
        ranks: Ranges | None = "",
        first: int | None = 0,
        numel_min: int | None = 0,
        numel_max: int | None = 0,
        level: Literal["torch", "aten"] | None = "torch",
        cpu: Flag | None = False,
        threads: Literal["current", "all"] | None = "current",
        fork: Flag | None = False,
        compile: Literal["eager", "leave"] | None = "eager",
        console: Literal["short", "full", "off"] | None = "short",
        results: Path | None = "op_tools_results",
        log: Flag | None = True,
        log_pressure: Literal["block", "drop"] | None = "block",
        log_queue: Size | None = "4MiB",
        log_rotate: Size | None = 0,
        print_stack: int | None = 0,
        backward: Flag | None = True,
        layout: Literal["files", "packed"] | None = "files",
        compress: Literal["off", "auto", "zstd", "zlib"] | None = "off",
        write_ahead: Flag | None = False,
        outputs: Flag | None = True,
        cap_bytes: Size | None = "10GiB",
        cap_calls: int | None = 100000,
        queue_bytes: Size | None = "256MiB",
        pressure: Literal["block", "drop"] | None = "block",
    ) -> None:
        """condition_func: Asked with the arguments of each call; a false answer leaves the call alone.
        list: Operators that the tool handles: names and regular expressions that match the whole name, separated by
            commas; empty: none.
        disable_list: Operators that it leaves alone; wins over the list.
        include: Shell patterns (or re:expression) of operators, separated by commas; empty: all that the list has.
        exclude: Patterns to take out again, after include.
        modules: Patterns of the path of the nn.Module that makes the call, such as GPT.layers.0.*; empty: from
            anywhere.
        module_paths: Note the path of the nn.Module with every record, also without a selection by modules.
        steps: Steps to look at, such as 4-6,9 or 100-; a step ends with step(), the first is 0; empty: all.
        every: Only steps that are a multiple of this number.
        ranks: Ranks of a distributed program, such as 0,4-7; empty: all.
        first: Only the first calls of each operator with the same dtypes and shapes; 0: all.
        numel_min: Only calls whose largest tensor has at least as many elements.
        numel_max: Only calls whose largest tensor has at most as many elements; 0: no limit.
        level: Calls as the program writes them (torch.nn.functional.linear), or the operators below them
            (aten::addmm).
        cpu: Also calls that touch no device but the CPU.
        threads: The thread that starts the tool, or every Python thread of the process.
        fork: Stay on in forked children, such as DataLoader workers.
        compile: Code under torch.compile: run it eagerly while a tool is on, or leave it compiled and unseen.
        console: Findings and a summary; every call in the format of the original; or nothing.
        results: Directory of everything that is written.
        log: Write records to <results>/log.
        log_pressure: When records come faster than the disk takes them: wait, or drop and count.
        log_queue: Memory for records that wait.
        log_rotate: Start a new log file beyond this size; 0: never.
        print_stack: With console=full: 1 or more prints the Python stack of every call.
        backward: Follow the backward pass of each call too.
        layout: A .pth file per tensor group, or one container per process that ditorch export unpacks.
        compress: Compress tensors of the packed layout: never, where that is faster than writing them (measured), or
            all that shrink.
        write_ahead: Have the inputs of a call on disk before it runs, so that a crash leaves them.
        outputs: Save the results too, not only the inputs.
        cap_bytes: Most bytes to save per process; 0: no cap.
        cap_calls: Most calls to save per process; 0: no cap.
        queue_bytes: Memory for tensors that wait.
        pressure: When tensors come faster than the disk takes them: wait, or drop and count.
        """

class DtypeCastKeywords(Tool):
    def __init__(
        self,
        *,
        condition_func: Condition = None,
        list: Names | None = ".*",
        disable_list: Names | None = "",
        include: Names | None = "",
        exclude: Names | None = "",
        modules: Names | None = "",
        module_paths: Flag | None = False,
        steps: Ranges | None = "",
        every: int | None = 1,
        ranks: Ranges | None = "",
        first: int | None = 0,
        numel_min: int | None = 0,
        numel_max: int | None = 0,
        level: Literal["torch", "aten"] | None = "torch",
        cpu: Flag | None = False,
        threads: Literal["current", "all"] | None = "current",
        fork: Flag | None = False,
        compile: Literal["eager", "leave"] | None = "eager",
        console: Literal["short", "full", "off"] | None = "short",
        results: Path | None = "op_tools_results",
        log: Flag | None = True,
        log_pressure: Literal["block", "drop"] | None = "block",
        log_queue: Size | None = "4MiB",
        log_rotate: Size | None = 0,
        print_stack: int | None = 0,
        dtype_cast_dict: Casts | None = "torch.float16->torch.float32,torch.bfloat16->torch.float32",
        **per_operator: Casts | None,
    ) -> None:
        """condition_func: Asked with the arguments of each call; a false answer leaves the call alone.
        list: Operators that the tool handles: names and regular expressions that match the whole name, separated by
            commas; empty: none.
        disable_list: Operators that it leaves alone; wins over the list.
        include: Shell patterns (or re:expression) of operators, separated by commas; empty: all that the list has.
        exclude: Patterns to take out again, after include.
        modules: Patterns of the path of the nn.Module that makes the call, such as GPT.layers.0.*; empty: from
            anywhere.
        module_paths: Note the path of the nn.Module with every record, also without a selection by modules.
        steps: Steps to look at, such as 4-6,9 or 100-; a step ends with step(), the first is 0; empty: all.
        every: Only steps that are a multiple of this number.
        ranks: Ranks of a distributed program, such as 0,4-7; empty: all.
        first: Only the first calls of each operator with the same dtypes and shapes; 0: all.
        numel_min: Only calls whose largest tensor has at least as many elements.
        numel_max: Only calls whose largest tensor has at most as many elements; 0: no limit.
        level: Calls as the program writes them (torch.nn.functional.linear), or the operators below them
            (aten::addmm).
        cpu: Also calls that touch no device but the CPU.
        threads: The thread that starts the tool, or every Python thread of the process.
        fork: Stay on in forked children, such as DataLoader workers.
        compile: Code under torch.compile: run it eagerly while a tool is on, or leave it compiled and unseen.
        console: Findings and a summary; every call in the format of the original; or nothing.
        results: Directory of everything that is written.
        log: Write records to <results>/log.
        log_pressure: When records come faster than the disk takes them: wait, or drop and count.
        log_queue: Memory for records that wait.
        log_rotate: Start a new log file beyond this size; 0: never.
        print_stack: With console=full: 1 or more prints the Python stack of every call.
        dtype_cast_dict: Dtype to compute in, by dtype.
        <operator>_op_dtype_cast_dict: The same for one operator, by the last part of its name in upper case.
        """

class FallbackKeywords(Tool):
    def __init__(
        self,
        *,
        condition_func: Condition = None,
        list: Names | None = ".*",
        disable_list: Names | None = "",
        include: Names | None = "",
        exclude: Names | None = "",
        modules: Names | None = "",
        module_paths: Flag | None = False,
        steps: Ranges | None = "",
        every: int | None = 1,
        ranks: Ranges | None = "",
        first: int | None = 0,
        numel_min: int | None = 0,
        numel_max: int | None = 0,
        level: Literal["torch", "aten"] | None = "torch",
        cpu: Flag | None = False,
        threads: Literal["current", "all"] | None = "current",
        fork: Flag | None = False,
        compile: Literal["eager", "leave"] | None = "eager",
        console: Literal["short", "full", "off"] | None = "short",
        results: Path | None = "op_tools_results",
        log: Flag | None = True,
        log_pressure: Literal["block", "drop"] | None = "block",
        log_queue: Size | None = "4MiB",
        log_rotate: Size | None = 0,
        print_stack: int | None = 0,
    ) -> None:
        """condition_func: Asked with the arguments of each call; a false answer leaves the call alone.
        list: Operators that the tool handles: names and regular expressions that match the whole name, separated by
            commas; empty: none.
        disable_list: Operators that it leaves alone; wins over the list.
        include: Shell patterns (or re:expression) of operators, separated by commas; empty: all that the list has.
        exclude: Patterns to take out again, after include.
        modules: Patterns of the path of the nn.Module that makes the call, such as GPT.layers.0.*; empty: from
            anywhere.
        module_paths: Note the path of the nn.Module with every record, also without a selection by modules.
        steps: Steps to look at, such as 4-6,9 or 100-; a step ends with step(), the first is 0; empty: all.
        every: Only steps that are a multiple of this number.
        ranks: Ranks of a distributed program, such as 0,4-7; empty: all.
        first: Only the first calls of each operator with the same dtypes and shapes; 0: all.
        numel_min: Only calls whose largest tensor has at least as many elements.
        numel_max: Only calls whose largest tensor has at most as many elements; 0: no limit.
        level: Calls as the program writes them (torch.nn.functional.linear), or the operators below them
            (aten::addmm).
        cpu: Also calls that touch no device but the CPU.
        threads: The thread that starts the tool, or every Python thread of the process.
        fork: Stay on in forked children, such as DataLoader workers.
        compile: Code under torch.compile: run it eagerly while a tool is on, or leave it compiled and unseen.
        console: Findings and a summary; every call in the format of the original; or nothing.
        results: Directory of everything that is written.
        log: Write records to <results>/log.
        log_pressure: When records come faster than the disk takes them: wait, or drop and count.
        log_queue: Memory for records that wait.
        log_rotate: Start a new log file beyond this size; 0: never.
        print_stack: With console=full: 1 or more prints the Python stack of every call.
        """

class ObserveKeywords(Tool):
    def __init__(
        self,
        *,
        condition_func: Condition = None,
        list: Names | None = ".*",
        disable_list: Names | None = "",
        include: Names | None = "",
        exclude: Names | None = "",
        modules: Names | None = "",
        module_paths: Flag | None = False,
        steps: Ranges | None = "",
        every: int | None = 1,
        ranks: Ranges | None = "",
        first: int | None = 0,
        numel_min: int | None = 0,
        numel_max: int | None = 0,
        level: Literal["torch", "aten"] | None = "torch",
        cpu: Flag | None = False,
        threads: Literal["current", "all"] | None = "current",
        fork: Flag | None = False,
        compile: Literal["eager", "leave"] | None = "eager",
        console: Literal["short", "full", "off"] | None = "short",
        results: Path | None = "op_tools_results",
        log: Flag | None = True,
        log_pressure: Literal["block", "drop"] | None = "block",
        log_queue: Size | None = "4MiB",
        log_rotate: Size | None = 0,
        print_stack: int | None = 0,
        view: Literal["off", "text", "table", "jsonl"] | None = "off",
        view_rows: int | None = 200,
        stats: Flag | None = False,
    ) -> None:
        """condition_func: Asked with the arguments of each call; a false answer leaves the call alone.
        list: Operators that the tool handles: names and regular expressions that match the whole name, separated by
            commas; empty: none.
        disable_list: Operators that it leaves alone; wins over the list.
        include: Shell patterns (or re:expression) of operators, separated by commas; empty: all that the list has.
        exclude: Patterns to take out again, after include.
        modules: Patterns of the path of the nn.Module that makes the call, such as GPT.layers.0.*; empty: from
            anywhere.
        module_paths: Note the path of the nn.Module with every record, also without a selection by modules.
        steps: Steps to look at, such as 4-6,9 or 100-; a step ends with step(), the first is 0; empty: all.
        every: Only steps that are a multiple of this number.
        ranks: Ranks of a distributed program, such as 0,4-7; empty: all.
        first: Only the first calls of each operator with the same dtypes and shapes; 0: all.
        numel_min: Only calls whose largest tensor has at least as many elements.
        numel_max: Only calls whose largest tensor has at most as many elements; 0: no limit.
        level: Calls as the program writes them (torch.nn.functional.linear), or the operators below them
            (aten::addmm).
        cpu: Also calls that touch no device but the CPU.
        threads: The thread that starts the tool, or every Python thread of the process.
        fork: Stay on in forked children, such as DataLoader workers.
        compile: Code under torch.compile: run it eagerly while a tool is on, or leave it compiled and unseen.
        console: Findings and a summary; every call in the format of the original; or nothing.
        results: Directory of everything that is written.
        log: Write records to <results>/log.
        log_pressure: When records come faster than the disk takes them: wait, or drop and count.
        log_queue: Memory for records that wait.
        log_rotate: Start a new log file beyond this size; 0: never.
        print_stack: With console=full: 1 or more prints the Python stack of every call.
        view: What stop() prints of the calls it saw, from the log.
        view_rows: Most calls of that view; 0: all.
        stats: Statistics and a hash of every result and of every gradient, for ditorch compare.
        """

class OverflowCheckKeywords(Tool):
    def __init__(
        self,
        *,
        condition_func: Condition = None,
        list: Names | None = ".*",
        disable_list: Names | None = "",
        include: Names | None = "",
        exclude: Names | None = "",
        modules: Names | None = "",
        module_paths: Flag | None = False,
        steps: Ranges | None = "",
        every: int | None = 1,
        ranks: Ranges | None = "",
        first: int | None = 0,
        numel_min: int | None = 0,
        numel_max: int | None = 0,
        level: Literal["torch", "aten"] | None = "torch",
        cpu: Flag | None = False,
        threads: Literal["current", "all"] | None = "current",
        fork: Flag | None = False,
        compile: Literal["eager", "leave"] | None = "eager",
        console: Literal["short", "full", "off"] | None = "short",
        results: Path | None = "op_tools_results",
        log: Flag | None = True,
        log_pressure: Literal["block", "drop"] | None = "block",
        log_queue: Size | None = "4MiB",
        log_rotate: Size | None = 0,
        print_stack: int | None = 0,
        backward: Flag | None = True,
        stop: Flag | None = False,
        save: Flag | None = False,
        allow_list: Names | None = "",
        stats: Flag | None = True,
        read_every: int | None = 4096,
        max_findings: int | None = 100,
        cap_calls: int | None = 100000,
    ) -> None:
        """condition_func: Asked with the arguments of each call; a false answer leaves the call alone.
        list: Operators that the tool handles: names and regular expressions that match the whole name, separated by
            commas; empty: none.
        disable_list: Operators that it leaves alone; wins over the list.
        include: Shell patterns (or re:expression) of operators, separated by commas; empty: all that the list has.
        exclude: Patterns to take out again, after include.
        modules: Patterns of the path of the nn.Module that makes the call, such as GPT.layers.0.*; empty: from
            anywhere.
        module_paths: Note the path of the nn.Module with every record, also without a selection by modules.
        steps: Steps to look at, such as 4-6,9 or 100-; a step ends with step(), the first is 0; empty: all.
        every: Only steps that are a multiple of this number.
        ranks: Ranks of a distributed program, such as 0,4-7; empty: all.
        first: Only the first calls of each operator with the same dtypes and shapes; 0: all.
        numel_min: Only calls whose largest tensor has at least as many elements.
        numel_max: Only calls whose largest tensor has at most as many elements; 0: no limit.
        level: Calls as the program writes them (torch.nn.functional.linear), or the operators below them
            (aten::addmm).
        cpu: Also calls that touch no device but the CPU.
        threads: The thread that starts the tool, or every Python thread of the process.
        fork: Stay on in forked children, such as DataLoader workers.
        compile: Code under torch.compile: run it eagerly while a tool is on, or leave it compiled and unseen.
        console: Findings and a summary; every call in the format of the original; or nothing.
        results: Directory of everything that is written.
        log: Write records to <results>/log.
        log_pressure: When records come faster than the disk takes them: wait, or drop and count.
        log_queue: Memory for records that wait.
        log_rotate: Start a new log file beyond this size; 0: never.
        print_stack: With console=full: 1 or more prints the Python stack of every call.
        backward: Follow the backward pass of each call too.
        stop: Raise an exception at the first finding.
        save: Save the arguments of the operators that are reported.
        allow_list: Operators whose NaN and infinities are intended, such as masks.
        stats: Statistics of the tensors with each finding.
        read_every: Calls after which the device is asked at the latest; otherwise once per step.
        max_findings: Findings to report; 0: all.
        cap_calls: Most calls to save per process; 0: no cap.
        """

class TimeMeasureKeywords(Tool):
    def __init__(
        self,
        *,
        condition_func: Condition = None,
        list: Names | None = ".*",
        disable_list: Names | None = "",
        include: Names | None = "",
        exclude: Names | None = "",
        modules: Names | None = "",
        module_paths: Flag | None = False,
        steps: Ranges | None = "",
        every: int | None = 1,
        ranks: Ranges | None = "",
        first: int | None = 0,
        numel_min: int | None = 0,
        numel_max: int | None = 0,
        level: Literal["torch", "aten"] | None = "torch",
        cpu: Flag | None = False,
        threads: Literal["current", "all"] | None = "current",
        fork: Flag | None = False,
        compile: Literal["eager", "leave"] | None = "eager",
        console: Literal["short", "full", "off"] | None = "short",
        results: Path | None = "op_tools_results",
        log: Flag | None = True,
        log_pressure: Literal["block", "drop"] | None = "block",
        log_queue: Size | None = "4MiB",
        log_rotate: Size | None = 0,
        print_stack: int | None = 0,
        max_cache_size: int | None = 5000,
        backward: Flag | None = True,
        sync: Flag | None = False,
        sort: Literal["total", "count", "mean", "median", "p90", "p99", "max", "name"] | None = "total",
        top: int | None = 20,
        rows: int | None = 20000,
        pending: int | None = 4096,
        leaves: Flag | None = True,
        trace: Flag | None = False,
    ) -> None:
        """condition_func: Asked with the arguments of each call; a false answer leaves the call alone.
        list: Operators that the tool handles: names and regular expressions that match the whole name, separated by
            commas; empty: none.
        disable_list: Operators that it leaves alone; wins over the list.
        include: Shell patterns (or re:expression) of operators, separated by commas; empty: all that the list has.
        exclude: Patterns to take out again, after include.
        modules: Patterns of the path of the nn.Module that makes the call, such as GPT.layers.0.*; empty: from
            anywhere.
        module_paths: Note the path of the nn.Module with every record, also without a selection by modules.
        steps: Steps to look at, such as 4-6,9 or 100-; a step ends with step(), the first is 0; empty: all.
        every: Only steps that are a multiple of this number.
        ranks: Ranks of a distributed program, such as 0,4-7; empty: all.
        first: Only the first calls of each operator with the same dtypes and shapes; 0: all.
        numel_min: Only calls whose largest tensor has at least as many elements.
        numel_max: Only calls whose largest tensor has at most as many elements; 0: no limit.
        level: Calls as the program writes them (torch.nn.functional.linear), or the operators below them
            (aten::addmm).
        cpu: Also calls that touch no device but the CPU.
        threads: The thread that starts the tool, or every Python thread of the process.
        fork: Stay on in forked children, such as DataLoader workers.
        compile: Code under torch.compile: run it eagerly while a tool is on, or leave it compiled and unseen.
        console: Findings and a summary; every call in the format of the original; or nothing.
        results: Directory of everything that is written.
        log: Write records to <results>/log.
        log_pressure: When records come faster than the disk takes them: wait, or drop and count.
        log_queue: Memory for records that wait.
        log_rotate: Start a new log file beyond this size; 0: never.
        print_stack: With console=full: 1 or more prints the Python stack of every call.
        max_cache_size: Rows to collect before writing them.
        backward: Follow the backward pass of each call too.
        sync: Wait for the device before and after every call, as the original does.
        sort: Order of the summary table.
        top: Rows of the summary table that is printed; 0: all.
        rows: Signatures to keep apart; more share a row.
        pending: Measurements to hold before waiting for the device.
        leaves: Write the arguments with every time to the log.
        trace: Write a Chrome trace at stop().
        """
