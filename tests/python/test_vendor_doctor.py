"""`ditorch doctor --vendor`: right vendors are clean, each of a hundred wrong ones is caught at the right slot."""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ditorch.library
import pytest
from conftest import child_environment
from cuda_emulator import EMULATOR, needs_emulator
from ditorch import cli, vendor_report

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "c" / "vendors" / "wrong"

# The slot that each defect of tests/c/vendors/wrong is to be found at.
DEFECTS = {
    "abi_version": "old_abi new_abi",
    "struct_size": "small_struct odd_struct",
    "name": "bad_name null_name",
    "version": "null_version",
    "collectives": "half_collectives collective_average_sums collective_counts_bytes collective_root_ignored "
    "collective_parts_swapped collective_first_part collective_reads_early collective_writes_everywhere "
    "collective_offsets_ignored collective_narrow collective_any_dtype collective_same_id collective_any_rank "
    "collective_false_alarm collective_hangs",
    "dit_vendor_get_kernels": "old_kernels kernel_strides_ignored kernel_moves_bytes kernel_default_stream "
    "kernel_writes_and_refuses kernel_fails_on_nothing",
    "library": "exit_waits",
    "init": "init_fails init_hangs init_crashes init_exits init_prints",
    "finalize": "finalize_for_ever",
    "get_driver_version": "version_unset",
    "describe": "describe_overrun",
    "count": "count_early count_changes count_negative",
    "get_properties": "properties_unset properties_unterminated same_uuid claims_access",
    "get_memory": "memory_swapped",
    "bind_thread": "bind_refuses",
    "reset": "reset_for_ever",
    "synchronize": "synchronize_default_only",
    "check_last_error": "last_error_stays",
    "memory_alloc": "alloc_misaligned alloc_overlaps nomem_as_device nomem_as_number nomem_touches nomem_silent "
    "nomem_endless needs_error_struct zero_refused alloc_one_thread",
    "memory_free": "null_required free_leaks free_aborts free_refuses_null",
    "memory_set": "set_words set_too_far set_value_cut",
    "host_alloc": "host_misaligned host_never_fails",
    "host_free": "host_free_aborts",
    "host_register": "register_only_once",
    "host_unregister": "half_register unregister_refuses",
    "copy": "copy_short copy_rounds_up copy_aligned_only copy_not_to_peers copy_not_on_device copy_at_most_4mib "
    "copy_out_of_order",
    "copy_async": "null_two async_at_once async_drops async_not_to_peers async_refuses_empty",
    "stream_create": "stream_null stream_same stream_few",
    "stream_destroy": "destroy_early",
    "stream_synchronize": "synchronize_early synchronize_hangs",
    "stream_query": "query_idle query_unset",
    "stream_wait_event": "wait_ignored wait_not_across wait_misses",
    "stream_launch_host": "launch_lost launch_never launch_twice launch_swapped launch_one_thread",
    "stream_get_priority_range": "priority_swapped",
    "event_create": "event_same",
    "event_destroy": "destroy_pending_aborts",
    "event_record": "record_first_only",
    "event_query": "event_always_done event_never_done",
    "event_synchronize": "event_wait_early event_wait_unrecorded",
    "event_get_elapsed": "elapsed_seconds elapsed_zero elapsed_backwards elapsed_touches elapsed_never_fails",
    "memory_export": "export_counts export_anything",
    "memory_import": "half_share import_copies import_anything",
    "memory_close": "close_refuses",
}
SLOTS = {defect: slot for slot, defects in DEFECTS.items() for defect in defects.split()}
RIGHT = ("none", "right_collectives", "right_kernels")
NOT_WRONG = ("no_devices", "errors", *RIGHT[1:])  # for other tests
SAMPLE = (
    "new_abi",
    "null_two",
    "init_hangs",
    "init_exits",
    "count_changes",
    "properties_unset",
    "nomem_touches",
    "free_leaks",
    "copy_aligned_only",
    "async_at_once",
    "synchronize_early",
    "launch_swapped",
    "wait_ignored",
    "elapsed_seconds",
    "record_first_only",
    "import_copies",
    "collective_root_ignored",
    "collective_reads_early",
    "kernel_strides_ignored",
    "kernel_default_stream",
)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """The library of wrong vendors, built with cc alone."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("wrong") / "wrong.so"
    libraries = ditorch.library.DIRECTORY
    words = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"]
    words += [f"-I{ditorch.library.find_headers()}", *map(str, sorted(SOURCES.glob("*.c")))]
    words += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ldit", "-ldl", "-o", str(path)]
    subprocess.run(["cc", *words], check=True)
    return path


def examine(library, defect, *options):
    environment = child_environment(WRONG_DEFECT=defect, DITORCH_HOST_DEVICES="2")
    words = [vendor_report.PROGRAM, *options, str(library)]
    answer = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600)
    assert answer.stdout, answer.stderr
    return answer.returncode, [json.loads(line) for line in answer.stdout.splitlines()]


def check_defect(library, defect):
    """What is not as it should be; "" when the defect was found, and nothing else."""
    slot = SLOTS[defect]
    hangs = defect in ("init_hangs", "synchronize_hangs", "wait_misses", "exit_waits", "collective_hangs")
    status, rows = examine(library, defect, "--timeout", "8" if hangs else "60")
    wrong = {row["slot"] for row in rows if row.get("state") == "wrong"}
    if wrong != {slot} or status != (2 if slot in ("abi_version", "struct_size") else 1):
        return f"{defect}: status {status}, found at {sorted(wrong)}, expected at {slot}"
    if not all(row["seen"] and row["expected"] and row["look"] for row in rows if row.get("state") == "wrong"):
        return f"{defect}: a finding without words"
    return ""


def check_defects(library, defects):
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda defect: check_defect(library, defect), defects)
        assert [text for text in found if text] == []


@pytest.mark.parametrize("vendor", ["host", "opaque"])
def test_right_vendors_are_clean(vendor):
    report = vendor_report.collect(vendor)
    wrong = [row for row in report["checks"] if row["state"] in ("wrong", "skipped")]
    assert report["status"] == 0 and wrong == [] and report["name"] == vendor
    assert set(report["slots"].values()) == {"ok", "missing (optional)"}
    assert len(report["checks"]) > 70 and report["queued"]


@needs_emulator
@pytest.mark.parametrize("nccl", ["libnccl_emulated.so", "none"])
def test_the_cuda_vendor_is_clean_over_the_emulated_driver(nccl):
    """With and without a library for its collectives."""
    settings = {"LD_LIBRARY_PATH": EMULATOR[-1].parent, "EMULATED_CUDA_EAGER": "1"}
    settings["DITORCH_CUDA_NCCL"] = nccl if nccl == "none" else EMULATOR[-1].with_name(nccl)
    words = [vendor_report.PROGRAM, "cuda"]
    answer = subprocess.run(words, capture_output=True, text=True, env=child_environment(**settings), timeout=600)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert answer.returncode == 0, [row for row in rows if row.get("state") == "wrong"] or answer.stderr
    assert [row["slot"] for row in rows if row.get("state") in ("skipped", "missing")] == ["finalize"]
    assert rows[-1]["devices"] == 2 and rows[-1]["queued"]


def test_every_defect_is_expected_somewhere(wrong, python):
    program = f"""
        import ctypes
        text = ctypes.create_string_buffer(65536)
        ctypes.CDLL({str(wrong)!r}).dit_wrong_list(text, len(text))
        print(text.value.decode())
    """
    names = python(program).stdout.split()
    assert len(names) == len(set(names)) >= 100 and set(names) == {*SLOTS, *NOT_WRONG}


@pytest.mark.parametrize("defect", RIGHT)
def test_a_wrapped_vendor_without_a_defect_is_clean(wrong, defect):
    status, rows = examine(wrong, defect)
    assert status == 0, [row for row in rows if row.get("state") == "wrong"]


def test_a_sample_of_wrong_vendors(wrong):
    check_defects(wrong, SAMPLE)


@pytest.mark.full
def test_all_wrong_vendors(wrong):
    check_defects(wrong, sorted(SLOTS))


def test_words_and_json(wrong, monkeypatch, capsys):
    monkeypatch.setenv("WRONG_DEFECT", "elapsed_seconds")
    only = ["--only", "event_get_elapsed"]
    assert vendor_report.main(str(wrong), only, as_json=False) == 1
    text = capsys.readouterr().out
    for words in (
        "event_get_elapsed: wrong: a created stream",
        "expected: milliseconds",
        "look at: units",
        "1 checks failed",
    ):
        assert words in text, text
    assert vendor_report.main(str(wrong), only, as_json=True) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["slots"]["event_get_elapsed"] == "wrong" and report["slots"]["profiler_start"] == "missing (optional)"
    assert report["status"] == 1 and report["slots"]["copy"] == "not tested"


def test_wrong_use_and_no_library(capsys, tmp_path):
    text = tmp_path / "text.so"
    text.write_text("hello")
    cases = [
        (["--vendor", "nothing"], "'nothing' not found"),
        ([f"--vendor={text}"], "not an ELF"),
        (["--vendor", "host", "--only", "no_slot"], "there is no slot 'no_slot'; valid: "),
        (["--timeout", "soon", "--vendor", "host"], "takes seconds"),
        (["--vendor", "host", "--more"], "unrecognized arguments: --more"),
        (["--vendor"], "expected one argument"),
        (["--diopi", "host", "--more"], "unrecognized arguments: --more"),
    ]
    for words, expected in cases:
        assert cli.main(["doctor", *words]) == 2, words
        output = capsys.readouterr()
        assert expected in output.out + output.err, output


def test_no_device(wrong):
    status, rows = examine(wrong, "no_devices")
    assert status == 3 and rows[-1]["devices"] == 0
    assert not [row for row in rows if row.get("state") == "wrong"]
