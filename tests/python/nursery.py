"""Child processes that need not import torch again, which is nine tenths of what a short one costs.

One interpreter per test process imports torch, and nothing of ours, and forks for every program that it is given. The
child runs the program as `python -W ignore ...` would: as __main__, with its own environment, folder and output, and
to the end of the interpreter. `can_be_born` says which program texts cannot tell the difference: those that come to
torch before anything but the standard library, in an environment that torch was not the reader of. For modules and
scripts the caller decides.

Run as a program this file is that interpreter.
"""

import ast
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

FREE = ("DITORCH_", "DIPU_", "OP_", "PYTEST_")
"""Variables with these beginnings are read by ours, after the import of torch, or by nobody in a child."""


def can_be_born(text, environment, nursery_environment):
    """Whether a program text with this environment behaves the same in a process that has imported torch."""
    names = {name for name, value in environment.items() ^ nursery_environment.items()}
    if any(not name.startswith(FREE) or name.endswith("_AUTOLOAD") for name in names):
        return False
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

    def __init__(self, environment):
        self.environment = environment
        self.lock = threading.Lock()
        self.process = None

    def _connect(self):
        with self.lock:
            if self.process is None:
                listener = socket.socket(socket.AF_UNIX)
                listener.bind("")  # a name of Linux's own, in no folder
                listener.listen(16)
                self.address = listener.getsockname()
                self.process = subprocess.Popen(
                    [sys.executable, "-W", "ignore", os.path.abspath(__file__), str(listener.fileno())],
                    env=self.environment, stdin=subprocess.PIPE, pass_fds=[listener.fileno()],
                )  # fmt: skip
                listener.close()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address)
        return connection

    def run(self, *words, environment=None, cwd=None, timeout=600):
        """As subprocess.run with captured text, for `python -W ignore words`: -c TEXT, -m MODULE or a PATH."""
        order = {"words": words, "cwd": os.path.abspath(cwd or os.getcwd())}
        order["environment"] = self.environment if environment is None else environment
        words = [sys.executable, "-W", "ignore", *words]
        pipes = [os.pipe(), os.pipe()]
        with self._connect() as connection:
            message = json.dumps(order).encode()
            socket.send_fds(connection, [len(message).to_bytes(8, "little")], [end for _, end in pipes])
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
    """An order and the two files of its output."""
    head, files, _, _ = socket.recv_fds(connection, 8, 2)
    with connection.makefile("rb") as stream:
        return json.loads(stream.read(int.from_bytes(head, "little"))), files


def serve(listener):
    """Returns in each child, with its words; ends with the end of the standard input."""
    waker, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    children = {}
    while True:
        ready, _, _ = select.select([0, waker, listener], [], [])
        if 0 in ready:
            os._exit(0)
        if waker in ready:
            os.read(waker, 4096)
            while children:
                child, status = os.waitpid(-1, os.WNOHANG)
                if not child:
                    break
                with children.pop(child) as connection:
                    tell(connection, os.waitstatus_to_exitcode(status))
        if listener in ready:
            connection, _ = listener.accept()
            order, files = receive(connection)
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become(order, files, [waker, wake, listener.detach(), connection.detach()])
                for other in children.values():
                    other.close()
                return order["words"]
            for file in files:
                os.close(file)
            children[child] = connection
            tell(connection, child)


def tell(connection, number):
    try:
        connection.sendall(b"%d\n" % number)
    except OSError:  # nobody waits any more
        pass


def become(order, files, leftovers):
    """What distinguishes a new process: its files, folder, environment and words."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate([nothing, *files]):
        os.dup2(file, number)
        os.close(file)
    for file in leftovers:
        os.close(file)
    os.chdir(order["cwd"])
    for name in set(os.environ) - set(order["environment"]):
        del os.environ[name]
    os.environ.update(order["environment"])
    words = order["words"]
    sys.argv = words if words[0] not in ("-c", "-m") else [words[0], *words[2:]]
    sys.orig_argv = [sys.executable, "-W", "ignore", *words]
    sys.path[0] = {"-c": "", "-m": os.getcwd()}.get(words[0], os.path.dirname(os.path.realpath(words[0])))


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

    words = serve(socket.socket(fileno=int(sys.argv[1])))
    torch.default_generator.seed()  # by chance, as in every process
    main, code = load(words)
    if code is None:
        runpy._run_module_as_main(words[1])
    else:
        exec(code, main.__dict__)
