"""Child processes that need not import torch again, which is nine tenths of what a short one costs.

One interpreter per test process imports torch, and nothing of ours, and forks for every program that it is given. The
child runs the program as `python -W ignore ...` would: as __main__, with its own environment, folder and output, and
to the end of the interpreter. `can_be_born` says which programs cannot tell the difference, in an environment that
torch was not the reader of: texts that come to torch before anything but the standard library, and the commands of
`-m ditorch`. For other modules and scripts the caller decides.

Run as a program this file is that interpreter; born.py stands in for it where a program path is asked for: for ranks
of a launcher, and for workers.
"""

import ast
import contextlib
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import types
import warnings

INTERPRETER = sys.executable
"""Itself, also where a test has put a stand-in into sys.executable."""
FREE = ("DITORCH_", "DIPU_", "OP_", "PYTEST_", "COLUMNS")
"""Variables with these beginnings are read by ours, after the import of torch, or by nobody in a child."""

EARLY = ("PYTHON", "LD_", "TORCH", "OMP_", "MKL", "ONEDNN_", "DNNL_", "KMP_", "MALLOC_", "LC_", "LANG")


def can_be_born(words, environment, nursery_environment):
    """Whether `python words` with this environment behaves the same in a process that has imported torch."""
    names = differing(environment, nursery_environment)
    if any(not name.startswith(FREE) or name.endswith("_AUTOLOAD") for name in names):
        return False
    return words[:2] == ["-m", "ditorch"] or (words[0] == "-c" and comes_to_torch(words[1]))


def is_read_at_start(name):
    """Whether the interpreter, torch or a library of its reads this variable when it is loaded."""
    if name.startswith(("TORCHELASTIC_", "TORCH_NCCL_")) or name == "PYTHON_EXEC":
        return False
    return name.startswith(EARLY) or name.endswith("_AUTOLOAD")


def comes_to_torch(text):
    """Whether a program imports nothing but the standard library before torch, and does nothing before."""
    try:
        statements = ast.parse(text).body
    except SyntaxError:
        return False
    for statement in statements:
        if isinstance(statement, ast.Import):
            modules = [alias.name.partition(".")[0] for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level:
            modules = [statement.module.partition(".")[0]]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):  # a docstring
            continue
        else:
            return False
        foreign = [name for name in modules if name not in sys.stdlib_module_names]
        if foreign:
            return foreign[0] == "torch"
    return False


class Nursery:
    """The interpreter that forks, started by its first use; `run` may be called from several threads."""

    def __init__(self, environment, *modules):
        """`modules` of torch are imported as well."""
        self.environment, self.modules = environment, modules
        self.lock = threading.Lock()
        self.process = None

    def start(self):
        with self.lock:
            if self.process is None:
                listener = socket.socket(socket.AF_UNIX)
                listener.bind("")  # a name of Linux's own, in no folder
                listener.listen(16)
                self.address = listener.getsockname()
                self.process = subprocess.Popen(
                    [INTERPRETER, "-W", "ignore", os.path.abspath(__file__), str(listener.fileno()), *self.modules],
                    env=self.environment, stdin=subprocess.PIPE, pass_fds=[listener.fileno()],
                )  # fmt: skip
                listener.close()
        return self.address

    def _connect(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.start())
        return connection

    def run(self, *words, environment=None, cwd=None, timeout=600, executable=INTERPRETER):
        """As subprocess.run with captured text, for `python -W ignore words`: -c TEXT, -m MODULE or a PATH.
        `executable` is what the program finds as sys.executable."""
        order = {"words": words, "cwd": os.path.abspath(cwd or os.getcwd()), "executable": executable}
        order["environment"] = self.environment if environment is None else environment
        words = [INTERPRETER, "-W", "ignore", *words]
        pipes = [os.pipe(), os.pipe()]
        with self._connect() as connection, open(os.devnull) as nothing:
            message = json.dumps(order).encode()
            files = [nothing.fileno(), *(end for _, end in pipes)]
            socket.send_fds(connection, [len(message).to_bytes(8, "little")], files)
            for _, end in pipes:
                os.close(end)
            connection.sendall(message)
            said = ["", ""]
            readers = [threading.Thread(target=_read, args=(pipe, said, at)) for at, (pipe, _) in enumerate(pipes)]
            for reader in readers:
                reader.start()
            answers = connection.makefile("r")
            child = int(answers.readline())
            connection.settimeout(timeout)
            try:
                status = int(answers.readline())
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout, *said) from None
            for reader in readers:
                reader.join()
        return subprocess.CompletedProcess(words, status, *said)

    def close(self):
        if self.process is not None:
            self.process.stdin.close()  # the end of its input is the end of it
            self.process.wait()


def _read(pipe, said, at):
    with open(pipe, encoding="utf-8", errors="replace") as file:
        said[at] = file.read()


# The interpreter that forks


def receive(connection):
    """An order and its three files."""
    head, files, _, _ = socket.recv_fds(connection, 8, 3)
    with connection.makefile("rb") as stream:
        return json.loads(stream.read(int.from_bytes(head, "little"))), files


def serve(listener):
    """Returns in each child, with its order; ends with the end of the standard input."""
    waker, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    children, own = {}, dict(os.environ)
    while True:
        ready, _, _ = select.select([0, waker, listener, *children.values()], [], [])
        if 0 in ready:
            os._exit(0)
        for child in [child for child, connection in children.items() if connection in ready]:
            children.pop(child).close()  # who asked for it is gone, and so is it
            stop(child)
        if waker in ready:
            os.read(waker, 4096)
            collect(children)
        if listener in ready:
            connection, _ = listener.accept()
            try:
                order, files = receive(connection)
            except (OSError, ValueError):  # who asked was killed while it did
                connection.close()
                continue
            if order.get("asks") and any(map(is_read_at_start, differing(order["environment"], own))):
                tell(connection, 0)
                connection.close()
                list(map(os.close, files))
                continue
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become(order, files, [waker, wake, listener.detach(), connection.detach()])
                for other in children.values():
                    other.close()
                return order
            list(map(os.close, files))
            children[child] = connection
            tell(connection, child)


def stop(child):
    """With its group, if it has one."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(child) == child:
            os.killpg(child, signal.SIGKILL)
        else:
            os.kill(child, signal.SIGKILL)


def collect(children):
    """Tell how those that ended ended."""
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not child:
            return
        connection = children.pop(child, None)
        if connection:
            with connection:
                tell(connection, os.waitstatus_to_exitcode(status))


def differing(one, other):
    return {name for name, _ in one.items() ^ other.items()}


def tell(connection, number):
    try:
        connection.sendall(b"%d\n" % number)
    except OSError:  # nobody waits any more
        pass


def become(order, files, leftovers):
    """What distinguishes a new process: its files, folder, environment and words."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    for file in leftovers:
        os.close(file)
    if order.get("leads"):
        os.setsid()
    os.chdir(order["cwd"])
    for name in set(os.environ) - set(order["environment"]):
        del os.environ[name]
    os.environ.update(order["environment"])
    words = order["words"]
    sys.argv = words if words[0] not in ("-c", "-m") else [words[0], *words[2:]]
    sys.orig_argv = [sys.executable, "-W", "ignore", *words]
    sys.executable = order.get("executable", sys.executable)
    sys.path[0] = {"-c": "", "-m": os.getcwd()}.get(words[0], os.path.dirname(os.path.realpath(words[0])))


def apply_options(options):
    """Those of the interpreter: -u, and the warnings of one that was not told to be silent."""
    if "-u" in options:
        for name, number in (("stdout", 1), ("stderr", 2)):
            raw = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115 - it stays
            setattr(sys, name, io.TextIOWrapper(raw, write_through=True))
            setattr(sys, f"__{name}__", getattr(sys, name))
    if "-W" not in options:
        sys.warnoptions.remove("ignore")
        warnings.filters.remove(("ignore", None, Warning, None, 0))
        warnings._filters_mutated()


def load(words):
    """A new __main__, and the code to run in it: none for a module, which runpy runs as the interpreter does."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={})
    if words[0] == "-m":
        return main, None
    if words[0] == "-c":
        return main, compile(words[1], "<string>", "exec")
    main.__file__ = words[0]
    with open(words[0], "rb") as file:
        return main, compile(file.read(), words[0], "exec")


if __name__ == "__main__":
    import torch

    for name in sys.argv[2:]:
        importlib.import_module(name)
    order = serve(socket.socket(fileno=int(sys.argv[1])))
    words = order["words"]
    if "options" in order:
        apply_options(order["options"])
    torch.default_generator.seed()  # by chance, as in every process
    main, code = load(words)
    if code is None:
        runpy._run_module_as_main(words[1])
    else:
        exec(code, main.__dict__)
