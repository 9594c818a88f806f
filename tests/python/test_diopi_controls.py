"""Controls over the operators of the device: forced fallback, comparison with the CPU, lines about calls, waiting; by
option, by environment, by DIPU's names and files, and while a program runs."""

import re

import ditorch
import pytest
import torch
from ditorch import controls


@pytest.fixture(autouse=True)
def all_off():
    torch.ones(1, device="cuda")
    yield
    controls.use(force_fallback="", autocompare="", dump_op_args=-1, launch_blocking=False)


def names(table):
    return {row["operator"] for row in table}


# Forced fallback


def test_a_listed_operator_runs_on_the_cpu_and_back_in_c_afterwards():
    x = torch.randn(3, 4, device="cuda")
    wanted = torch.softmax(x.cpu(), 1)
    for listed in (False, True, False):
        ditorch.reset_counters()
        with controls.use(force_fallback="_softmax" if listed else ""):
            torch.testing.assert_close(torch.softmax(x, 1).cpu(), wanted)
        assert ("aten::_softmax" in names(ditorch.fallbacks())) == listed
        assert ("aten::_softmax" in names(ditorch.operators())) != listed


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("_softmax", {"aten::_softmax"}),
        ("softmax", {"aten::_softmax"}),  # a function stands for the operators that it consists of
        ("torch.nn.functional.softmax", {"aten::_softmax"}),
        ("aten::_softmax", {"aten::_softmax"}),
        ("oftmax", set()),  # the whole name counts
        (".*softmax", {"aten::_softmax"}),
        ("add.Tensor, mm ,", {"aten::add.Tensor", "aten::mm"}),
        ("add", {"aten::add.Tensor"}),
        ("aten::add,F.linear", {"aten::add.Tensor", "aten::mm"}),
        ("torch.matmul", {"aten::mm"}),
        ("torch.ops.aten.mm.default, __add__", {"aten::add.Tensor", "aten::mm"}),
        ("add.out", set()),
        (r"add\.(out|Tensor)", {"aten::add.Tensor"}),
        (".*", {"aten::_softmax", "aten::add.Tensor", "aten::mm"}),
    ],
)
@pytest.mark.filterwarnings("ignore:option 'force_fallback'")
def test_patterns_match_whole_names(patterns, expected):
    x = torch.randn(3, 3, device="cuda")
    ditorch.reset_counters()
    with controls.use(force_fallback=patterns):
        torch.softmax(x, 1)
        x + x
        x @ x
    assert names(ditorch.fallbacks()) == expected


def test_a_bad_pattern_is_an_error_and_changes_nothing():
    controls.use(force_fallback="mm")
    with pytest.raises(ValueError, match=r"option 'force_fallback': '\(' is no regular expression"):
        controls.use(force_fallback="add,(")
    x = torch.randn(3, 3, device="cuda")
    ditorch.reset_counters()
    x @ x
    assert names(ditorch.fallbacks()) == {"aten::mm"}
    with pytest.raises(ValueError, match="dump_op_args"):
        controls.use(dump_op_args=9)


@pytest.mark.parametrize(
    ("option", "pattern", "words"),
    [
        ("autocompare", "sofmax", "'sofmax' matches no operator; the nearest are softmax"),
        ("force_fallback", "aten::native_layer_nrm", "matches no operator; the nearest are native_layer_norm"),
        ("autocompare", "add.outt", "the nearest are add.out"),
        ("autocompare", "view", r"matches aten::view\S*, which the controls do not see"),
        ("force_fallback", "x.*y.*z.*q", r"'x\.\*y\.\*z\.\*q' matches no operator"),
    ],
)
def test_a_pattern_without_an_operator_is_a_warning(option, pattern, words):
    with pytest.warns(UserWarning, match=f"option '{option}': .*{words}"):
        controls.use(**{option: f"mm,{pattern}"})


@pytest.mark.parametrize(
    "pattern", ["softmax", "torch.softmax", "aten::_softmax", "_softmax", "add.out", ".*_backward"]
)
def test_a_pattern_with_an_operator_is_none(pattern, recwarn):
    controls.use(autocompare=pattern, force_fallback=pattern)
    assert not recwarn.list


def test_a_bar_among_blanks_separates_as_a_comma_does():
    with pytest.warns(UserWarning) as told:
        controls.use(force_fallback="add.out,mm | .*sigmoid | nosuchop | (exp|log)")
    assert len(told) == 1 and "'nosuchop' matches no operator" in str(told[0].message)
    x = torch.randn(3, 3, device="cuda")
    ditorch.reset_counters()
    x @ x, x.sigmoid(), x.exp(), x.log(), x.sin()
    assert names(ditorch.fallbacks()) == {"aten::mm", "aten::sigmoid", "aten::exp", "aten::log"}


def test_entries_that_meant_nothing_that_ran_are_named(python, recwarn):
    x = torch.randn(3, device="cuda")
    idle = "option 'force_fallback': 'mm' matched none of the operators that ran"
    with pytest.warns(UserWarning, match=idle), controls.use(force_fallback="softmax,mm"):
        controls.use(autocompare="exp")
        x.softmax(0)
        controls.use(autocompare="")  # another list: what softmax and mm have met stays known
    with controls.use(force_fallback="mm"):
        pass  # nothing ran
    assert not recwarn.list
    program = 'import torch, ditorch\ntorch.ones(3, device="cuda").exp()\n'
    told = python(program, DITORCH_FORCE_FALLBACK="mm,exp").stderr
    assert f"ditorch: {idle}" in told and "'exp'" not in told


def test_backward_operators_are_operators_too():
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    ditorch.reset_counters()
    with controls.use(force_fallback="native_layer_norm_backward"):
        torch.nn.functional.layer_norm(x, [8]).sum().backward()
    assert "aten::native_layer_norm_backward" in names(ditorch.fallbacks())
    assert "aten::native_layer_norm" not in names(ditorch.fallbacks())


PROGRAM = """
    import torch, ditorch
    x = torch.arange(6.0, device="cuda").reshape(2, 3).requires_grad_()
    (torch.nn.functional.layer_norm(x, [3]) * torch.randn(2, 3, device="cuda")).sum().backward()
    x.detach() @ torch.ones(3, 2, device="cuda")
    print("fallbacks", sorted(row["operator"] for row in ditorch.fallbacks()))
"""


def work():
    """A layer norm, its gradient, and a product."""
    x = torch.arange(6.0, device="cuda").reshape(2, 3).requires_grad_()
    (torch.nn.functional.layer_norm(x, [3]) * torch.randn(2, 3, device="cuda")).sum().backward()
    x.detach() @ torch.ones(3, 2, device="cuda")


def test_dipus_names_and_files_set_the_lists(python, tmp_path):
    (tmp_path / ".dipu_force_fallback_op_list.config").write_text("mul.Tensor\nbmm,\n")
    (tmp_path / ".specified_autocompare_op_list.config").write_text("native_layer_norm_backward")
    text = python(
        PROGRAM,
        cwd=tmp_path,
        DIPU_FORCE_FALLBACK_OPS_LIST="mm,bmm",
        DIPU_AUTOCOMPARE_OPS_LIST="native_layer_norm",
        DIPU_DUMP_OP_ARGS="1",
        DIPU_SYNC_EXEC_MODE="1",
    ).stdout
    assert "fallbacks ['aten::mm', 'aten::mul.Tensor']" in text
    assert {key[0] for key in blocks(text)} == {"aten::native_layer_norm", "aten::native_layer_norm_backward"}
    assert "--[aten::native_layer_norm]: diopiLayerNorm\n" in text and "fallback to cpu, name=aten::mm\n" in text


def test_a_bad_pattern_in_the_environment_stops_the_import(python):
    answer = python("import ditorch\nprint('on')\n", check=False, DIPU_AUTOCOMPARE_OPS_LIST="*")
    assert answer.returncode != 0
    assert "option 'autocompare': '*' is no regular expression" in answer.stderr


# Comparison


def blocks(text):
    """{(operator, tensor): verdict}"""
    return {(m[1], m[2]): m[3] for m in re.finditer(r"^autocompare:(\S+) ([^:\n]+): (.*)$", text, re.MULTILINE)}


@pytest.fixture
def said(capfd):
    """said(call, **controls): what the call prints under these controls."""

    def run(call, **given):
        capfd.readouterr()
        with controls.use(**given):
            call()
        return capfd.readouterr().out

    return run


def test_every_call_is_compared_backward_included(said):
    found = blocks(said(work, autocompare="native_layer_norm.*,mm", dump_op_args=1))
    for operator in ("aten::native_layer_norm", "aten::native_layer_norm_backward"):
        for tensor in ("result 0", "input"):
            assert found[operator, tensor] == "allclose"
    assert found["aten::mm", "result 0"] == "allclose" and found["aten::mm", "self"] == "allclose"
    assert set(found.values()) == {"allclose"}
    assert not said(work)


def test_metadata_and_first_values_are_printed(said):
    text = said(lambda: torch.arange(40.0, device="cuda").mul(2), autocompare="mul.Tensor", dump_op_args=1)
    assert "autocompare:aten::mul.Tensor result 0: allclose" in text
    assert text.count("sizes: [40], stride: [1]") >= 4
    assert re.search(r"\[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, \.\.\.\]", text)


@pytest.mark.parametrize(
    ("rule", "tensor"),
    [("value:diopiLayerNorm", "result 0"), ("nan:diopiLayerNorm", "result 0"), ("input:diopiLayerNorm", "input")],
)
def test_a_lying_library_is_found(python, rule, tensor):
    """Red: the library that breaks another one is not close, and only where it lies."""
    options = {"DITORCH_DIOPI_LIB": "faulty", "DITORCH_FAULTY": rule, "DITORCH_AUTOCOMPARE": "native_layer_norm,mm"}
    text = python(PROGRAM, **options).stdout
    found = blocks(text)
    assert found["aten::native_layer_norm", tensor].startswith("not_close"), found
    if rule.startswith("value"):
        assert re.search(r"not_close, 1 of 6 values, error: \S+, allowed: \S+, the CPU's own error: \S+, index: ", text)
    assert "autocompare: aten::mm: allclose\n" in text and "autocompare: aten::native_layer_norm:" not in text


def test_in_place_and_list_arguments(said):
    def call():
        a = torch.ones(3, device="cuda")
        a.add_(1)
        torch.cat([a, a])
        a[1:].mul_(a[:1])

    found = blocks(said(call, autocompare="add_.*,cat,mul_.*", dump_op_args=1))
    assert found["aten::add_.Tensor", "result 0"] == "allclose" == found["aten::add_.Tensor", "self"]
    assert found["aten::cat", "tensors[0]"] == "allclose" == found["aten::mul_.Tensor", "self"]


def test_values_beyond_finite_ones_compare_as_equal(said):
    def call():
        torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0], device="cuda").mul(2)
        torch.empty(0, device="cuda").mul(2)

    assert set(blocks(said(call, autocompare="mul.Tensor", dump_op_args=1)).values()) == {"allclose"}


def test_random_operators_are_left_alone(said):
    controls.reset_report()
    text = said(lambda: torch.rand(3, device="cuda"), autocompare="uniform_")
    assert text == "autocompare: aten::uniform_: not compared, it draws random numbers\n"


# Lines


def test_levels_of_lines(said):
    def call():
        work()
        torch.linalg.eigvals(torch.rand(2, 2, device="cuda"))

    for level in (-1, 0, 1, 2, 3):
        text = said(call, dump_op_args=level)
        assert ("fallback to cpu, name=aten::_linalg_eigvals\n" in text) == (level >= 0)
        assert ("--[aten::native_layer_norm]: diopiLayerNorm\n" in text) == (level >= 1)
        argument = re.search(
            r"^\t\[aten::native_layer_norm\]: input: numel: 6, sizes: \[2, 3\], .*$", text, re.MULTILINE
        )
        assert (argument is not None) == (level >= 2)
        assert (re.search(r"\t\[aten::native_layer_norm\]: eps: 1(\.0*1?)?e-05", text) is not None) == (level >= 2)
        assert ("\n\t\t[0, 1, 2, 3, 4, 5]\n" in text) == (level >= 3)
        assert text or level == -1


# Waiting, threads, composition


def test_synchronous_mode_waits_for_every_operator():
    x = torch.randn(3, 3, device="cuda")
    with controls.use(launch_blocking=True), torch.cuda.stream(torch.cuda.Stream()):
        y = x @ x
        assert torch.cuda.current_stream().query()
    torch.testing.assert_close(y.cpu(), x.cpu() @ x.cpu())


def test_other_threads_take_up_a_change():
    import threading

    x, found = torch.randn(3, 3, device="cuda"), []

    def work():
        x @ x
        found.append(names(ditorch.fallbacks()))

    for patterns in ("", "mm", ""):
        ditorch.reset_counters()
        with controls.use(force_fallback=patterns):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert found == [set(), {"aten::mm"}, set()]


def test_all_controls_at_once(said):
    text = said(work, force_fallback="mm", autocompare="native_layer_norm", dump_op_args=1, launch_blocking=True)
    assert "fallback to cpu, name=aten::mm" in text
    assert "autocompare:aten::native_layer_norm result 0: allclose" in text
    assert "--[aten::native_layer_norm]: diopiLayerNorm" in text
