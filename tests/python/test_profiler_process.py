"""The profiler and the process: what is printed, other backends, uninstall, several devices, fork, other modes."""

PROFILE = """
import torch, ditorch
from torch.profiler import ProfilerActivity, profile
x = torch.ones(8, 8, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as run:
    torch.sort(x @ x)
"""


def strip_torch_lines(text: str) -> str:
    """Without the start and stop lines that torch's own library prints for every profile, on any device."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("USDT:"))


def test_profiler_prints_nothing(python):
    program = f"""
{PROFILE}
run.key_averages().table(sort_by="cuda_time_total")
with torch.autograd.profiler.profile(use_device="cuda") as run:
    x @ x
run.key_averages().table(sort_by="cuda_time_total")
with torch.autograd.profiler.emit_nvtx():
    x @ x
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as run:
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("r"))
assert "r" in [event.key for event in run.key_averages()]
"""
    answer = python(program, DITORCH_BANNER="0")
    assert answer.stdout == "" and strip_torch_lines(answer.stderr) == ""


def test_backend_none_is_untouched(python):
    answer = python(
        """
        import torch, torch.autograd.profiler as module
        parse, activities = module.profile._parse_kineto_results, module._supported_activities
        end = module._run_on_profiler_stop
        import ditorch
        assert module.profile._parse_kineto_results is parse and module._supported_activities is activities
        assert module._run_on_profiler_stop is end
        print(torch.profiler.supported_activities())
        """,
        DITORCH_BACKEND="none",
    )
    assert "CUDA" not in answer.stdout


def test_import_and_uninstall_between_profiles(python):
    """Kineto is initialised as for a CPU; then the device comes, goes, and comes again."""
    answer = python(
        """
        import torch, torch.autograd.profiler as module
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU]) as run:
            torch.ones(3) + 1
        names = "_supported_activities", "_toggle_collection_dynamic", "_run_on_profiler_stop"
        before = [getattr(module, name) for name in names], module.profile._parse_kineto_results
        import ditorch
        x = torch.ones(8, 8, device="cuda")
        with profile() as run:
            x @ x
        assert "diopiMm" in [event.key for event in run.key_averages()]
        ditorch.uninstall()
        assert before == ([getattr(module, name) for name in names], module.profile._parse_kineto_results)
        assert ProfilerActivity.CUDA not in torch.profiler.supported_activities()
        with profile(activities=[ProfilerActivity.CPU]) as run:
            x @ x
        assert "diopiMm" not in [event.key for event in run.key_averages()]
        ditorch.install()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as run:
            x @ x
        assert "diopiMm" in [event.key for event in run.key_averages()]
        print("done")
        """
    )
    assert answer.stdout.strip() == "done"


def test_several_devices_have_their_own_tracks(python, tmp_path):
    python(
        """
        import json, torch, ditorch
        from torch.profiler import ProfilerActivity, profile
        a, b = torch.ones(8, 8, device="cuda:0"), torch.ones(8, 8, device="cuda:1")
        big = torch.ones(500, 500, device="cuda:1")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as run:
            a @ a
            b + b
            torch.digamma(b)
            with torch.cuda.stream(torch.cuda.Stream(device=1)):  # still running at the end, and not the current device
                big @ big
        seen = {(e.name, e.device_index) for e in run.events() if e.device_type == torch.autograd.DeviceType.CUDA}
        assert seen == {("diopiMm", 0), ("diopiMm", 1), ("diopiAdd", 1), ("cpu_fallback::digamma", 1)}, seen
        run.export_chrome_trace("trace.json")
        content = json.load(open("trace.json"))
        labels = [e["args"]["labels"] for e in content["traceEvents"] if e.get("name") == "process_labels"]
        assert sorted(labels) == ["CPU", "GPU 0", "GPU 1"], labels
        assert [d["id"] for d in content["deviceProperties"]] == [0, 1]
        """,
        DITORCH_HOST_DEVICES="2",
        cwd=tmp_path,
    )


def test_under_the_python_redirect(python):
    text = 'print("diopiMm" in [e.key for e in run.key_averages()], "Self CUDA" in run.key_averages().table())'
    assert python(PROFILE + text, DITORCH_ALIAS="python").stdout.split() == ["True", "True"]


def test_under_the_real_name(python):
    """alias=off: the device's own activity."""
    answer = python(
        """
        import torch, ditorch
        from torch.profiler import ProfilerActivity, profile
        x = torch.ones(8, 8, device="dit")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as run:
            x @ x
        with torch.autograd.profiler.profile(use_device="dit") as old:
            x @ x
        rows = {event.key: event for event in old.key_averages()}
        print("diopiMm" in [event.key for event in run.key_averages()], rows["aten::mm"].device_time_total > 0)
        """,
        DITORCH_ALIAS="off",
    )
    assert answer.stdout.split() == ["True", "True"]


def test_fork_during_a_trace(python):
    """The child cannot use the device and must not hang on the parent's recorder."""
    answer = python(
        PROFILE
        + """
import os
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as run:
    x @ x
    child = os.fork()
    if child == 0:
        try:
            x @ x
        except RuntimeError as error:
            os._exit(7 if "forked subprocess" in str(error) else 8)
        os._exit(9)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("diopiMm" in [event.key for event in run.key_averages()])
"""
    )
    assert answer.stdout.split() == ["7", "True"]


def test_kernel_table_is_traced_completely():
    """A slot of the vendor's kernel table that the recorder does not know would be missing in traces."""
    import re
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    header = (root / "include/dit/kernel.h").read_text()
    slots = set(re.findall(r"enum dit_status \(\*(\w+)\)\(void \*stream", header))
    traced = set(re.findall(r"&T::(\w+)", (root / "adapter/torch/ProfilerKernels.cpp").read_text()))
    assert slots and traced == slots
