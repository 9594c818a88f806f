"""Stands for the interpreter: `born.py ADDRESS INTERPRETER SELF words` is `INTERPRETER words`, born in the nursery.

The child has this process's files, folder and environment, and a group if this one has; signals are passed on, and
this process ends as the child does. What the nursery cannot do (nursery.is_read_at_start, other options of the
interpreter) the interpreter does itself.
"""

import io
import json
import os
import signal
import socket
import sys


def split(words):
    """Options of the interpreter, and the rest; None for the rest where the options are others."""
    options = []
    while words and words[0] in ("-u", "-W"):
        if words[0] == "-W" and words[1:2] != ["ignore"]:
            return options, None
        options.append(words[0])
        words = words[2 if words[0] == "-W" else 1 :]
    is_program = words and (words[0] in ("-c", "-m") or not words[0].startswith("-"))
    return options, words if is_program else None


def ask(connection, path, options, words):
    """The lines of the nursery's answer: the child's number, 0 where it refuses, and how the child ended."""
    order = {"words": words, "options": options, "cwd": os.getcwd(), "environment": dict(os.environ), "asks": True}
    order["leads"] = os.getpgrp() == os.getpid()
    if words[0] == "-m":  # its workers, ranks and runs
        order["executable"] = path
    message = json.dumps(order).encode()
    socket.send_fds(connection, [len(message).to_bytes(8, "little")], [0, 1, 2])
    connection.sendall(message)
    return connection.makefile("r")


def main():
    address, interpreter, path, *words = sys.argv[1:]
    options, rest = split(words)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(bytes.fromhex(address))
    answers = ask(connection, path, options, rest) if rest else io.StringIO("0\n")
    child = int(answers.readline())
    if not child:
        os.execv(interpreter, [interpreter, *words])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
        # also one that is ignored here (a shell's background job): the child may have a handler
        signal.signal(number, lambda number, _: os.kill(child, number))
    status = int(answers.readline())
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
