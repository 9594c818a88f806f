"""The binary device alias of ditorch._C: parsing, printing, restoring, refusing; every case in its own process.

The extension is loaded from its file, without the package ditorch, so that nothing else is patched. Most cases need no
device: an unregistered PrivateUse1 has a name and a number, which is all the alias deals with.
"""

import glob
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap

import nursery
import pytest

torch = pytest.importorskip("torch", reason="the alias patches PyTorch, which is not installed")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def find_package():
    """The folder of the package ditorch, found without importing it."""
    spec = importlib.util.find_spec("ditorch")
    return spec.submodule_search_locations[0] if spec else None


def find_extension():
    package = find_package()
    if package:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = os.path.join(package, "_C" + suffix)
            if os.path.exists(path):
                return path
    return None


EXTENSION = find_extension()
ADAPTER = next(iter(glob.glob(os.path.join(find_package() or "", "lib", "torch-*", "libdit_torch.so"))), "")
needs_adapter = pytest.mark.skipif(not os.path.exists(ADAPTER), reason="the adapter (libdit_torch.so) is not built")
pytestmark = pytest.mark.skipif(EXTENSION is None, reason="the extension ditorch._C is not built")

PRELUDE = f"""
import importlib.util, pickle, sys, threading
import torch
spec = importlib.util.spec_from_file_location("ditorch._C", {EXTENSION!r})
_C = importlib.util.module_from_spec(spec)
spec.loader.exec_module(_C)
TARGET = 20

def raises(kind, text, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        assert text in str(error), str(error)
        assert type(error) is kind, type(error)
        return str(error)
    raise AssertionError(f"no {{kind.__name__}}")
"""

DEVICE_PRELUDE = f"""
torch.utils.rename_privateuse1_backend("dit") if torch._C._get_privateuse1_backend_name() != "dit" else None
_C.init("host")
torch.ops.load_library({ADAPTER!r})
import types
torch.cuda._lazy_init = lambda: None
sys.modules["torch.dit"] = torch.dit = types.ModuleType("torch.dit")
torch.dit._lazy_init = lambda: None
"""


@pytest.fixture(scope="module")
def born():
    """Every case is a process of its own that has imported torch."""
    made = nursery.Nursery({**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    yield made
    made.close()


@pytest.fixture
def run(born):
    """Function that runs a program text in a process of its own and returns what it printed."""

    def run_case(code):
        result = born.run("-c", PRELUDE + textwrap.dedent(code))
        assert result.returncode == 0, f"status {result.returncode}\n" + result.stdout + result.stderr
        return result.stdout + result.stderr

    return run_case


def run_alone(code):
    """The same in a process that is not forked: from the start of the interpreter to its end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


# Parsing and printing


def test_cuda_is_the_target(run):
    run("""
    assert torch.device("cuda") != torch.device("privateuseone")
    status = _C.alias_install(TARGET, True, None)
    for text in ("cuda", "cuda:0", "cuda:3"):
        device = torch.device(text)
        assert device == torch.device(text.replace("cuda", "privateuseone"))
        assert str(device) == text and device.type == "cuda", device
    assert repr(torch.device("cuda:1")) == "device(type='cuda', index=1)"
    assert torch.device("cuda", 2) == torch.device("privateuseone", 2)
    assert hash(torch.device("cuda:1")) == hash(torch.device("privateuseone:1"))
    assert len({torch.device("cuda:1"), torch.device("privateuseone:1"), torch.device("cuda:2")}) == 2
    for text in ("cpu", "meta", "xpu:1", "mps"):
        assert str(torch.device(text)) == text
    assert torch.device("cpu") != torch.device("cuda")
    assert f"{torch.device('cuda:0')}" == "cuda:0"
    """)


def test_every_symbol_is_patched_in_both_libraries(run):
    run("""
    status = _C.alias_install(TARGET, True)
    assert status == _C.alias_status()
    assert status["installed"] and status["show"] and status["device_type"] == TARGET
    python, cpu = status["libraries"]["libtorch_python.so"], status["libraries"]["libtorch_cpu.so"]
    five = {"Device(string)", "DeviceTypeName", "operator<<(DeviceType)", "operator<<(Device)", "Device::str"}
    four = {f"autocast::{name}_autocast_{what}" for name, what in
            (("is", "enabled"), ("set", "enabled"), ("get", "dtype"), ("set", "dtype"))}
    four.add("parseDispatchKey")
    assert five | four <= set(python), python
    assert five <= set(cpu) and not four & set(cpu), cpu
    assert status["slots"] == sum(python.values()) + sum(cpu.values())
    """)


def test_the_real_name_keeps_parsing_after_a_rename(run):
    run("""
    _C.alias_install(TARGET, True)
    torch.utils.rename_privateuse1_backend("dit")
    assert torch.device("dit:1") == torch.device("cuda:1") == torch.device("privateuseone:1")
    assert str(torch.device("dit:1")) == "cuda:1"
    """)


@pytest.mark.parametrize("name", ["dit", "a_backend_with_a_long_name"])
def test_show_off_prints_the_real_name(run, name):
    run(f"""
    torch.utils.rename_privateuse1_backend({name!r})
    _C.alias_install(TARGET, show=False)
    assert torch.device("cuda:1") == torch.device("{name}:1")
    assert str(torch.device("cuda:1")) == "{name}:1", torch.device("cuda:1")
    assert torch.device("cuda").type == {name!r}
    assert _C.alias_status()["show"] is False
    """)


def test_show_can_be_switched_while_installed(run):
    run("""
    _C.alias_install(TARGET, True)
    _C.alias_install(TARGET, False)
    assert str(torch.device("cuda")) == "privateuseone" and not _C.alias_status()["show"]
    _C.alias_install(TARGET, True)
    assert str(torch.device("cuda")) == "cuda" and _C.alias_status()["show"]
    """)


def test_pickle_interchanges_with_a_process_without_alias(run):
    result = run("""
    _C.alias_install(TARGET, True)
    device = torch.device("cuda:2")
    assert pickle.loads(pickle.dumps(device)) == device
    import copy
    assert copy.deepcopy(device) == device
    print(pickle.dumps(device).hex())
    """)
    run(f"""
    device = pickle.loads(bytes.fromhex({result.strip()!r}))
    assert str(device) == "cuda:2" and device != torch.device("privateuseone:2")
    """)


def test_error_texts_are_torchs_own(run):
    code = """
    for text in ("cuda:foo", "cuda:-1", "cuda:01", "", "cudax", ":1", "cuda:999999"):
        try:
            torch.device(text)
        except RuntimeError as error:
            print(text, "|", str(error).splitlines()[0])
        else:
            print(text, "| accepted")
    """
    plain = run(code)
    assert "Invalid device string: 'cuda:foo'" in plain
    aliased = run("\n    _C.alias_install(TARGET, True)\n" + code)
    assert aliased == plain


def test_exceptions_pass_through_the_hook_many_times(run):
    run("""
    _C.alias_install(TARGET, True)
    for i in range(2000):
        raises(RuntimeError, f"Invalid device string: 'cuda:x{i}'", torch.device, f"cuda:x{i}")
    """)


def test_threads_see_one_alias(run):
    run("""
    failures = []
    def work(n):
        for i in range(300):
            same = torch.device(f"cuda:{i % 8}") == torch.device(f"privateuseone:{i % 8}")
            if not same or str(torch.device("cuda")) != "cuda":
                failures.append(n)
            try:
                torch.device("cuda:y")
                failures.append(n)
            except RuntimeError:
                pass
    _C.alias_install(TARGET, True)
    pool = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    [t.start() for t in pool]; [t.join() for t in pool]
    assert not failures
    """)


def test_install_and_restore_while_other_threads_parse(run):
    run("""
    stop = threading.Event()
    failures = []
    def work():
        while not stop.is_set():
            # Taken out between parsing and printing, the alias shows the real name.
            text = str(torch.device("cuda:1")), str(torch.device("cpu"))
            if text not in (("cuda:1", "cpu"), ("privateuseone:1", "cpu")):
                failures.append(text)
    pool = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in pool]
    for _ in range(40):
        _C.alias_install(TARGET, True)
        _C.alias_restore()
    stop.set(); [t.join() for t in pool]
    assert not failures, failures[0]
    """)


# Restore, idempotence, refusal


MAPS = """
def protections():
    rows = []
    for line in open("/proc/self/maps"):
        words = line.split()
        if len(words) > 5 and "libtorch" in words[5]:
            rows.append((words[0], words[1], words[5]))
    return rows
"""


def test_restore_puts_everything_back(run):
    run(
        MAPS
        + """
before = protections()
for round in range(3):
    _C.alias_install(TARGET, True)
    assert protections() == before, "page protections changed by install"
    assert torch.device("cuda") == torch.device("privateuseone")
    _C.alias_restore()
    assert protections() == before, "page protections changed by restore"
    assert torch.device("cuda") != torch.device("privateuseone")
    assert str(torch.device("privateuseone:1")) == "privateuseone:1"
    status = _C.alias_status()
    assert status == {"installed": False, "device_type": None, "show": False, "slots": 0, "libraries": {},
        "paths": {}}, status
_C.alias_restore()
"""
    )


def test_install_is_idempotent(run):
    run("""
    first = _C.alias_install(TARGET, True)
    assert _C.alias_install(TARGET, True) == first
    _C.alias_restore()
    assert torch.device("cuda") != torch.device("privateuseone")
    """)


def test_another_target_is_refused_while_installed(run):
    run("""
    _C.alias_install(TARGET, True)
    raises(ValueError, "already stands for device type 20", _C.alias_install, 12, True)
    raises(ValueError, "already installed in 2 other libraries", _C.alias_install, TARGET, True, ["libtorch_python.so"])
    assert torch.device("cuda") == torch.device("privateuseone")
    """)


def test_every_valid_target_works(run):
    run("""
    for number, name in {8: "maia", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 16: "ve", 18: "ipu", 19: "mtia"}.items():
        _C.alias_install(number, True)
        assert torch.device("cuda:1") == torch.device(f"{name}:1"), name
        assert str(torch.device(f"{name}:1")) == "cuda:1"
        _C.alias_restore()
        assert str(torch.device(f"{name}:1")) == f"{name}:1"
    """)


def test_wrong_device_type_is_refused(run):
    run("""
    for number in (-129, -1, 0, 1, 2, 11, 14, 21, 22, 255, 276):
        raises(ValueError, f"device type {number} cannot stand behind 'cuda'; valid: 8 (maia)", _C.alias_install,
            number, True)
        assert not _C.alias_status()["installed"] and torch.device("cuda") != torch.device("privateuseone")
    raises(OverflowError, "", _C.alias_install, 1 << 40, True)
    raises(TypeError, "", _C.alias_install, "cuda", True)
    """)


def test_failure_leaves_nothing_patched(run):
    run(
        MAPS
        + """
before = protections()
for stage in ("symbol", "layout", "slot", "protect", "write", "probe"):
    _C._alias_set_failure(stage)
    try:
        _C.alias_install(TARGET, True)
        raise SystemExit(f"installed in spite of the injected failure at {stage}")
    except NotImplementedError as error:
        assert len(str(error)) > 20, error
    assert not _C.alias_status()["installed"] and _C.alias_status()["slots"] == 0
    assert torch.device("cuda") != torch.device("privateuseone"), stage
    assert str(torch.device("privateuseone")) == "privateuseone", stage
    assert protections() == before, stage
    _C.alias_install(TARGET, True)  # the failure strikes once
    assert torch.device("cuda") == torch.device("privateuseone")
    _C.alias_restore()
raises(ValueError, "valid: symbol, layout", _C._alias_set_failure, "nonsense")
"""
    )


def test_bad_libraries_are_refused(run):
    run("""
    raises(NotImplementedError, "'libnothere.so' is not loaded", _C.alias_install, TARGET, True, ["libnothere.so"])
    raises(NotImplementedError, "imports none of the device functions", _C.alias_install, TARGET, True,
           ["libtorch_python.so", "libgomp.so.1"])
    raises(ValueError, "never patched", _C.alias_install, TARGET, True, ["libtorch_python.so", "libtorch_cuda.so"])
    raises(ValueError, "never patched", _C.alias_install, TARGET, True, ["libc10_cuda.so"])
    raises(ValueError, "is given twice", _C.alias_install, TARGET, True, ["libtorch_cpu.so", "libtorch_cpu.so"])
    raises(ValueError, "is not the file name", _C.alias_install, TARGET, True, ["lib/libtorch_cpu.so"])
    raises(ValueError, "0 entries", _C.alias_install, TARGET, True, [])
    raises(ValueError, "9 entries", _C.alias_install, TARGET, True, ["x"] * 9)
    raises(TypeError, "list of str", _C.alias_install, TARGET, True, "libtorch_cpu.so")
    raises(TypeError, "must be a str", _C.alias_install, TARGET, True, [1])
    assert not _C.alias_status()["installed"] and torch.device("cuda") != torch.device("privateuseone")
    """)


def test_one_library_alone(run):
    run("""
    status = _C.alias_install(TARGET, True, ["libtorch_python.so"])
    assert list(status["libraries"]) == ["libtorch_python.so"]
    assert torch.device("cuda") == torch.device("privateuseone")
    """)


def test_without_torch_the_reason_is_said():
    code = PRELUDE.replace("import torch\n", "") + textwrap.dedent("""
    raises(NotImplementedError, "import torch first", _C.alias_install, TARGET, True)
    assert "torch" not in sys.modules
    """)
    run_alone(code)


def test_a_process_ends_cleanly_with_the_alias_in_place():
    run_alone(
        PRELUDE
        + """
_C.alias_install(TARGET, True)
_C.is_cuda_install(torch._C.TensorBase, TARGET)
keep = torch.device("cuda:1"), torch.ones(1)
"""
    )


def test_fork_keeps_the_alias(run):
    run("""
    import os
    _C.alias_install(TARGET, True)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.device("cuda") == torch.device("privateuseone") else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)


# What hangs on it: TorchScript, autocast, is_cuda

SCRIPTED = """
import io, os, tempfile, importlib.util as util
source = tempfile.mkdtemp() + "/scripted.py"
open(source, "w").write('''
import torch
@torch.jit.script
def literal():
    return torch.device("cuda:1")
class Model(torch.nn.Module):
    def forward(self, x):
        return x, torch.device("cuda:1")
''')
module_spec = util.spec_from_file_location("scripted", source)
scripted = util.module_from_spec(module_spec)
"""


def test_torchscript_literals_and_files(run):
    run(
        SCRIPTED
        + """
_C.alias_install(TARGET, True)
module_spec.loader.exec_module(scripted)
assert scripted.literal() == torch.device("privateuseone:1")
assert "cuda:1" in str(scripted.literal.graph) and "privateuse" not in str(scripted.literal.graph)
model = torch.jit.script(scripted.Model())
assert model(torch.ones(1))[1] == torch.device("cuda:1")
buffer = io.BytesIO()
torch.jit.save(model, buffer)
assert b"cuda:1" in buffer.getvalue() or "cuda:1" in model.code
buffer.seek(0)
assert torch.jit.load(buffer)(torch.ones(1))[1] == torch.device("privateuseone:1")
"""
    )


def test_autocast_questions_about_cuda_reach_the_target(run):
    run("""
    import warnings; warnings.simplefilter("ignore")
    _C.alias_install(TARGET, True)
    for form in (lambda on: torch.set_autocast_enabled(on), lambda on: torch.set_autocast_enabled("cuda", on)):
        form(True)
        assert torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda")
        assert torch.is_autocast_enabled("privateuseone")
        assert not torch.is_autocast_enabled("cpu")
        form(False)
        assert not torch.is_autocast_enabled() and not torch.is_autocast_enabled("privateuseone")
    torch.set_autocast_gpu_dtype(torch.bfloat16)
    assert torch.get_autocast_dtype("privateuseone") == torch.bfloat16 == torch.get_autocast_gpu_dtype()
    torch.set_autocast_dtype("cuda", torch.float16)
    assert torch.get_autocast_gpu_dtype() == torch.float16
    torch.set_autocast_enabled(True)
    _C.alias_restore()
    assert not torch.is_autocast_enabled() and torch.is_autocast_enabled("privateuseone")
    """)


def test_is_cuda_without_a_device(run):
    run("""
    before = torch.UntypedStorage.__dict__.get("is_cuda")
    _C.is_cuda_install(torch._C.TensorBase, TARGET)
    _C.is_cuda_install(torch._C.TensorBase, TARGET)
    raises(ValueError, "already answers for device type 20", _C.is_cuda_install, torch._C.TensorBase, 12)
    assert torch.ones(1).is_cuda is False and torch.empty(1, device="meta").is_cuda is False
    assert torch.ones(1).untyped_storage().is_cuda is False
    assert torch.nn.Parameter(torch.ones(1)).is_cuda is False
    raises(AttributeError, "not writable", setattr, torch.ones(1), "is_cuda", True)
    _C.is_cuda_restore(); _C.is_cuda_restore()
    assert torch.UntypedStorage.__dict__.get("is_cuda") is before
    assert torch.ones(1).is_cuda is False and torch.ones(1).untyped_storage().is_cuda is False
    for number in (0, 1, 14, 21, 276):
        raises(ValueError, f"device type {number} cannot stand", _C.is_cuda_install, torch._C.TensorBase, number)
    raises(TypeError, "must be type", _C.is_cuda_install, torch.ones(1), TARGET)
    raises(AttributeError, "device", _C.is_cuda_install, int, TARGET)
    raises(NotImplementedError, "getset_descriptor was expected", _C.is_cuda_install,
           type("T", (), {"device": 1, "is_cuda": 2}), TARGET)
    assert torch.ones(1).is_cuda is False
    """)


def test_is_cuda_asks_overrides_exactly_what_they_were_asked_before(run):
    code = """
    class Watched(torch.Tensor):
        log = []
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            cls.log.append(function.__self__.__name__ if hasattr(function, "__self__") else str(function))
            return super().__torch_function__(function, types, args, kwargs or {})
    from torch.overrides import TorchFunctionMode
    class Mode(TorchFunctionMode):
        count = 0
        def __torch_function__(self, function, types, args=(), kwargs=None):
            Mode.count += 1
            return function(*args, **(kwargs or {}))
    tensor = torch.ones(1).as_subclass(Watched)
    plain = torch.ones(1)
    Watched.log.clear()
    answers = [tensor.is_cuda]
    with Mode(), Mode():
        answers.append(plain.is_cuda)
    print(answers, Watched.log, Mode.count)
    """
    assert run(code) == run("\n    _C.is_cuda_install(torch._C.TensorBase, TARGET)\n" + code)


@needs_adapter
@pytest.mark.parametrize("show", [True, False])
def test_is_cuda_on_the_device(run, show):
    run(
        DEVICE_PRELUDE
        + f"""
_C.alias_install(TARGET, {show})
_C.is_cuda_install(torch._C.TensorBase, TARGET)
x = torch.ones(3, device="cuda")
assert x.is_cuda is True and x.untyped_storage().is_cuda is True and torch.nn.Parameter(x).is_cuda is True
assert x.cpu().is_cuda is False
class Sub(torch.Tensor): pass
assert x.as_subclass(Sub).is_cuda is True and x.cpu().as_subclass(Sub).is_cuda is False
_C.is_cuda_restore()
assert x.is_cuda is False
"""
    )


@needs_adapter
def test_device_tensors_print_and_save_as_cuda(run):
    run(
        DEVICE_PRELUDE
        + """
import io
_C.alias_install(TARGET, True)
x = torch.ones(2, device="cuda")
assert str(x.device) == "cuda:0" and "device='cuda:0'" in repr(x)
buffer = io.BytesIO()
torch.save(x, buffer)
assert b"cuda:0" in buffer.getvalue()
"""
    )


# The same code against a stand-in for PyTorch, on this machine and, emulated, on aarch64

STAND_IN_C10 = r"""
#include <cstdint>
#include <ostream>
#include <stdexcept>
#include <string>
namespace c10 {
enum class DeviceType : int8_t {};
enum class ScalarType : int8_t {};
struct Device { DeviceType type; int8_t index; explicit Device(const std::string &); std::string str() const; };
std::string DeviceTypeName(DeviceType, bool lower);
std::ostream &operator<<(std::ostream &, DeviceType);
std::ostream &operator<<(std::ostream &, const Device &);
enum class DispatchKey : uint16_t {};
DispatchKey parseDispatchKey(const std::string &);
}
namespace at { namespace autocast {
bool is_autocast_enabled(c10::DeviceType); void set_autocast_enabled(c10::DeviceType, bool);
c10::ScalarType get_autocast_dtype(c10::DeviceType); void set_autocast_dtype(c10::DeviceType, c10::ScalarType);
} }
#ifdef BUILD_C10
namespace c10 {
static const char *const kLong = "a_backend_whose_name_is_long";
Device::Device(const std::string &s) : type{0}, index(-1) {
  std::string name = s.substr(0, s.find(':'));
  if (name == "cpu") type = DeviceType(0); else if (name == "cuda") type = DeviceType(1);
    else if (name == "meta") type = DeviceType(14);
  else if (name == kLong) type = DeviceType(20); else if (name == "xpu") type = DeviceType(12);
  else throw std::runtime_error("Invalid device string: '" + s + "'");
  if (s.find(':') != s.npos) index = (int8_t)std::stoi(s.substr(s.find(':') + 1));
}
std::string DeviceTypeName(DeviceType t, bool lower) {
  switch ((int)t) { case 0: return lower ? "cpu" : "CPU"; case 1: return lower ? "cuda" : "CUDA";
    case 12: return lower ? "xpu" : "XPU";
    case 20: return kLong; default: throw std::runtime_error("Unknown device: " + std::to_string((int)t)); }
}
std::ostream &operator<<(std::ostream &o, DeviceType t) { return o << DeviceTypeName(t, true); }
std::string Device::str() const { std::string s = DeviceTypeName(type, true);
  return index < 0 ? s : s + ":" + std::to_string((int)index); }
std::ostream &operator<<(std::ostream &o, const Device &d) { return o << d.str(); }
DispatchKey parseDispatchKey(const std::string &s) {
  static const char *const names[] = {"Undefined", "CPU", "CUDA", "PrivateUse1", "AutocastCUDA", "AutocastPrivateUse1",
                                      "NestedTensorPrivateUse1", "XPU"};
  for (int i = 0; i < 8; i++) { if (s == names[i]) return DispatchKey(i); }
  throw std::runtime_error("could not parse dispatch key '" + s + "'");
}
}
#endif
#ifdef BUILD_CPU
namespace at { namespace autocast {
static bool on[32]; static int8_t kind[32];
bool is_autocast_enabled(c10::DeviceType t) { return on[(int)t]; }
  void set_autocast_enabled(c10::DeviceType t, bool b) { on[(int)t] = b; }
c10::ScalarType get_autocast_dtype(c10::DeviceType t) { return (c10::ScalarType)kind[(int)t]; }
void set_autocast_dtype(c10::DeviceType t, c10::ScalarType k) { kind[(int)t] = (int8_t)k; }
} }
#endif
#if defined(BUILD_CPU) || defined(BUILD_PYTHON) || defined(BUILD_CUDA)
#include <sstream>
#if defined(BUILD_CPU)
#define NAME(x) cpu_##x
#elif defined(BUILD_CUDA)
#define NAME(x) cuda_##x
#else
#define NAME(x) python_##x
#endif
static std::string last;
extern "C" int NAME(parse)(const char *text) {
  try { c10::Device d{std::string(text)}; return (int)d.type * 1000 + d.index; }
    catch (const std::exception &e) { last = e.what(); return -5000; }
}
extern "C" const char *NAME(last)() { return last.c_str(); }
extern "C" const char *NAME(name)(int t, bool lower) { last = c10::DeviceTypeName((c10::DeviceType)t, lower);
  return last.c_str(); }
extern "C" const char *NAME(str)(int t, int i) { c10::Device d("cpu"); d.type = (c10::DeviceType)t;
  d.index = (int8_t)i; last = d.str(); return last.c_str(); }
extern "C" const char *NAME(print)(int t, int i) { c10::Device d("cpu"); d.type = (c10::DeviceType)t;
  d.index = (int8_t)i;
  std::ostringstream o; o << d << "/" << d.type; last = o.str(); return last.c_str(); }
#endif
#ifdef BUILD_PYTHON
using namespace at::autocast;
extern "C" int python_key(const char *text) {
  try { return (int)c10::parseDispatchKey(text); } catch (const std::exception &e) { last = e.what(); return -1; }
}
extern "C" int python_autocast(int set) { auto cuda = c10::DeviceType(1);
  if (set) { set_autocast_enabled(cuda, true); set_autocast_dtype(cuda, c10::ScalarType(15)); }
  return is_autocast_enabled(cuda) * 100 + (int)get_autocast_dtype(cuda); }
#endif
"""

STAND_IN_MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "alias.h"
#define DECLARE(p) int p##_parse(const char *); const char *p##_last(void); const char *p##_name(int, _Bool); \
  const char *p##_str(int, int); const char *p##_print(int, int);
DECLARE(cpu) DECLARE(python) DECLARE(cuda)
int python_autocast(int set);
int python_key(const char *text);
#define LONG_NAME "a_backend_whose_name_is_long"
static struct dit_error err;
static void fail(int line, const char *what) { fprintf(stderr, "line %d: %s; %s\n", line, what, err.message); exit(1); }
#define CHECK(x) ((x) ? (void)0 : fail(__LINE__, #x))
#define SAME(a, b) CHECK(strcmp((a), (b)) == 0)
static void check_on(int t, const char *real) {
  char text[64];
#define CHECK_LIBRARY(p) \
  CHECK(p##_parse("cuda:3") == t * 1000 + 3); CHECK(p##_parse("cpu") == -1); CHECK(p##_parse(real) == t * 1000 - 1); \
  CHECK(p##_parse("nope") == -5000); SAME(p##_last(), "Invalid device string: 'nope'"); \
  SAME(p##_name(t, 1), "cuda"); SAME(p##_name(t, 0), "CUDA"); SAME(p##_name(0, 1), "cpu"); \
  SAME(p##_str(t, 5), "cuda:5"); SAME(p##_str(t, -1), "cuda"); SAME(p##_str(t, 127), "cuda:127"); \
    SAME(p##_str(0, -1), "cpu"); \
  SAME(p##_print(t, 2), "cuda:2/cuda"); SAME(p##_print(0, -1), "cpu/cpu");
  CHECK_LIBRARY(cpu) CHECK_LIBRARY(python)
  CHECK(cuda_parse("cuda:3") == 1003); SAME(cuda_name(1, 1), "cuda"); SAME(cuda_str(t, -1), real);  // never touched
  CHECK(dit_alias_get_real_name(text, sizeof text, &err) == DIT_OK); SAME(text, real);
}
static void check_off(void) {
  CHECK(cpu_parse("cuda:3") == 1003 && python_parse("cuda:3") == 1003);
  SAME(cpu_str(20, 2), LONG_NAME ":2"); SAME(python_name(20, 1), LONG_NAME); SAME(python_print(12, 2), "xpu:2/xpu");
}
static char *read_maps(char *text, size_t size) {
  char line[4096]; size_t used = 0;
  FILE *file = fopen("/proc/self/maps", "r");
  while (file && fgets(line, sizeof line, file)) {
    if (strstr(line, "/libtorch")) { used += (size_t)snprintf(text + used, size - used, "%.80s\n", line); }
  }
  CHECK(file && used > 0 && used < size);
  fclose(file);
  return text;
}
static char before[65536], now[65536];
int main(int argc, char **argv) {
  read_maps(before, sizeof before);
  if (argc > 1 && argv[1][0] == 'b') { check_off(); }  // slots bound before the installation
  for (int round = 0; round < 3; round++) {
    CHECK(dit_alias_install(20, true, NULL, 0, &err) == DIT_OK); CHECK(dit_alias_get_status()->slot_count == 15);
    check_on(20, LONG_NAME); SAME(before, read_maps(now, sizeof now));
    CHECK(python_autocast(1) == 115);
    CHECK(python_key("CUDA") == 3 && python_key("AutocastCUDA") == 5 && python_key("NestedTensorCUDA") == 6);
    CHECK(python_key("CPU") == 1 && python_key("XCUDA") == -1 && python_key("") == -1);
    CHECK(dit_alias_install(20, false, NULL, 0, &err) == DIT_OK);
    SAME(cpu_str(20, 2), LONG_NAME ":2"); SAME(python_name(20, 1), LONG_NAME); CHECK(python_parse("cuda:1") == 20001);
    CHECK(dit_alias_restore(&err) == DIT_OK); check_off(); CHECK(python_autocast(0) == 0);
    CHECK(python_key("CUDA") == 2);
    SAME(before, read_maps(now, sizeof now));
    CHECK(dit_alias_install(12, true, NULL, 0, &err) == DIT_OK); check_on(12, "xpu");
    CHECK(python_key("CUDA") == 7 && python_key("AutocastCUDA") == -1);
    CHECK(dit_alias_restore(&err) == DIT_OK);
    for (int stage = 1; stage < DIT_ALIAS_STAGE_PROBE; stage++) {
      dit_alias_set_failure((enum dit_alias_stage)stage);
      CHECK(dit_alias_install(20, true, NULL, 0, &err) == DIT_ERR_UNSUPPORTED);
        CHECK(!dit_alias_get_status()->installed); check_off();
    }
  }
  puts("good");
  return 0;
}
"""


def build_stand_in(folder, prefix, flags):
    cxx, cc = shutil.which(prefix + "g++"), shutil.which(prefix + "gcc")
    if not cxx or not cc:
        pytest.skip(f"no compiler {prefix}g++")
    if not os.path.exists(os.path.join(ROOT, "python", "ext", "alias.c")):
        pytest.skip("the C sources are not beside the tests")
    (folder / "c10.cpp").write_text(STAND_IN_C10)
    (folder / "main.c").write_text(STAND_IN_MAIN)

    def command(*words):
        subprocess.run(words, cwd=folder, check=True, timeout=900)

    shared = [cxx, "-std=c++17", "-O1", "-fPIC", "-shared", "c10.cpp", *flags, "-Wl,-rpath,$ORIGIN", "-L."]
    command(*shared, "-DBUILD_C10", "-o", "libc10.so")
    command(*shared, "-DBUILD_CPU", "-o", "libtorch_cpu.so", "-lc10")
    command(*shared, "-DBUILD_PYTHON", "-o", "libtorch_python.so", "-ltorch_cpu", "-lc10")
    command(*shared, "-DBUILD_CUDA", "-o", "libtorch_cuda.so", "-ltorch_cpu", "-lc10")
    include = ["-I" + os.path.join(ROOT, *parts) for parts in (("include",), ("src",), ("python", "ext"))]
    sources = [os.path.join(ROOT, "python", "ext", name) for name in ("alias.c", "alias_hooks.c", "elf_slot.c")]
    sources += [os.path.join(ROOT, "src", "core", name) for name in ("error.c", "status.c")]
    command(
        cc, "-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fexceptions", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
        *include, "main.c", *sources, "-o", "main", "-L.", "-Wl,--no-as-needed", "-ltorch_python", "-ltorch_cpu",
        "-ltorch_cuda", "-lc10", "-ldl", "-Wl,-rpath,$ORIGIN",
    )  # fmt: skip


LINKING = {"lazy": ["-Wl,-z,lazy"], "now": ["-Wl,-z,now", "-Wl,-z,relro"], "no-plt": ["-fno-plt"]}


@pytest.mark.parametrize("linking", LINKING)
def test_stand_in_on_this_machine(tmp_path, linking):
    build_stand_in(tmp_path, "", LINKING[linking])
    for mode in ("a", "b"):
        result = subprocess.run([str(tmp_path / "main"), mode], capture_output=True, text=True, timeout=600)
        assert (result.returncode, result.stdout) == (0, "good\n"), result.stderr


@pytest.mark.parametrize("linking", LINKING)
def test_stand_in_on_emulated_aarch64(tmp_path, linking):
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if not emulator:
        pytest.skip("no qemu-aarch64")
    build_stand_in(tmp_path, "aarch64-linux-gnu-", LINKING[linking])
    for mode in ("a", "b"):
        command = [emulator, "-L", "/usr/aarch64-linux-gnu", str(tmp_path / "main"), mode]
        result = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert (result.returncode, result.stdout) == (0, "good\n"), result.stderr
