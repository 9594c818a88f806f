"""LMDeploy's OpenAI server as a process of its own, and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import aiohttp
from faulty import child_environment


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Server:
    """A running server."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, model: str, log: pathlib.Path) -> None:
        self.process, self.port, self.model, self.log = process, port, model, log
        self.url = f"http://127.0.0.1:{port}"

    def processes(self) -> list[int]:
        """The server and all its children."""
        found, waiting = [], [self.process.pid]
        while waiting:
            number = waiting.pop()
            found.append(number)
            for file in pathlib.Path(f"/proc/{number}/task").glob("*/children"):
                waiting += map(int, file.read_text().split())
        return found

    def resident_bytes(self) -> int:
        """Memory of all processes; the embedded device's is host memory too."""
        return sum(int(pathlib.Path(f"/proc/{n}/statm").read_text().split()[1]) * 4096 for n in self.processes())

    def foreign_addresses(self) -> list[str]:
        """Addresses but loopback on which a process listens or to which it is connected."""
        mine = {str(link.readlink()) for n in self.processes() for link in _links(n)}
        wrong = []
        for table in ("tcp", "tcp6"):
            for line in pathlib.Path(f"/proc/{self.process.pid}/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                hosts = {word.split(":")[0] for word in words[1:3]} - {"0" * len(words[2].split(":")[0])}
                listens_everywhere = words[3] == "0A" and set(words[1].split(":")[0]) == {"0"}
                outside = any(not host.endswith(("7F", "01000000")) for host in hosts)
                if f"socket:[{words[9]}]" in mine and (listens_everywhere or outside):
                    wrong.append(f"{words[1]} {words[2]}")
        return wrong


def _links(process: int) -> Iterator[pathlib.Path]:
    for link in pathlib.Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith("socket:"):
                yield link


@contextlib.contextmanager
def run(command: list[str], port: int, model: str, limit: float = 240, **process: Any) -> Iterator[Server]:
    """The command's server, from when it answers until the block ends."""
    log = pathlib.Path(tempfile.mkdtemp(prefix="lmdeploy-server-")) / "log"
    with log.open("wb") as file:
        started = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **process)
    server = Server(started, port, model, log)
    try:
        asyncio.run(_wait_healthy(server, limit))
        yield server
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextlib.contextmanager
def start(folder: str, device: str, graph: bool, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """`python -m ditorch -m lmdeploy serve api_server`, until the block ends."""
    port = free_port()
    command = [sys.executable, "-m", "ditorch", "-m", "lmdeploy", "serve", "api_server", folder, "--backend", "pytorch"]
    command += ["--device", device, "--server-name", "127.0.0.1", "--server-port", str(port), "--dtype", "float16"]
    command += ["--session-len", "512", "--max-batch-size", "32", "--cache-block-seq-len", "16", "--log-level", "ERROR"]
    command += ["--cache-max-entry-count", "0.0005", *([] if graph else ["--eager-mode"])]
    with run(command, port, folder, env={**child_environment(), **(environment or {})}) as server:
        yield server


async def _wait_healthy(server: Server, limit: float) -> None:
    end = time.monotonic() + limit
    async with aiohttp.ClientSession() as session:
        while time.monotonic() < end:
            if server.process.poll() is not None:
                raise RuntimeError(f"the server ended: {server.log.read_text()[-2000:]}")
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(server.url + "/health") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.5)
    raise TimeoutError(f"the server did not start: {server.log.read_text()[-2000:]}")


async def complete(session: aiohttp.ClientSession, server: Server, **body: Any) -> tuple[int, str, str]:
    """Status, text and reason of one completion, streamed where `stream` says so."""
    body = {"model": server.model, "ignore_eos": True, **body}
    async with session.post(server.url + "/v1/completions", json=body) as answer:
        if answer.status != 200 or not body.get("stream"):
            found = await answer.json()
            if answer.status != 200:
                return answer.status, str(found), "error"
            return 200, found["choices"][0]["text"], found["choices"][0]["finish_reason"]
        text, reason = "", ""
        async for line in answer.content:
            if line.startswith(b"data: {"):
                choice = json.loads(line[6:])["choices"][0]
                text, reason = text + choice["text"], choice.get("finish_reason") or reason
        return 200, text, reason


async def chat(session: aiohttp.ClientSession, server: Server, text: str, **body: Any) -> tuple[int, str, str]:
    """The same over /v1/chat/completions."""
    body = {"model": server.model, "ignore_eos": True, "messages": [{"role": "user", "content": text}], **body}
    async with session.post(server.url + "/v1/chat/completions", json=body) as answer:
        found = await answer.json()
        if answer.status != 200:
            return answer.status, str(found), "error"
        return 200, found["choices"][0]["message"]["content"], found["choices"][0]["finish_reason"]
