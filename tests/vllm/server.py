"""vLLM's OpenAI server on the embedded device, started through `python -m ditorch`: greedy completions of many requests
at a time are the reference's, and the same whole and streamed."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

sys.path.append(str(pathlib.Path(__file__).parents[1] / "lmdeploy"))

import ditorch  # noqa: F401
import models
from engines import PROMPTS, compare

TOKENS, REQUESTS, AT_ONCE = 12, 60, 16


def ask(port: int, prompt: list[int], stream: bool) -> str:
    """The text of a completion."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        json.dumps({**body, "stream": stream}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        if not stream:
            return json.load(answer)["choices"][0]["text"]
        lines = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: {")]
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


def wait(port: int, process: subprocess.Popen, limit: float = 180) -> None:
    end = time.monotonic() + limit
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError("the server did not start")


def main() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        reference = models.make("llama", folder)
        options = "--served-model-name tiny --dtype float32 --max-model-len 512 --gpu-memory-utilization 0.02"
        command = f"-m ditorch -m vllm.entrypoints.cli.main serve {folder} --host 127.0.0.1 --port {port} {options}"
        more = "--kv-cache-memory-bytes 33554432"
        environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen([sys.executable, *command.split(), *more.split()], env=environment)
        try:
            wait(port, process)
            alone = [ask(port, prompt, stream=False) for prompt in PROMPTS]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                jobs = [pool.submit(ask, port, PROMPTS[i % 5], i % 2 == 1) for i in range(REQUESTS)]
                same = sum(job.result() == alone[i % 5] for i, job in enumerate(jobs))
        finally:
            process.terminate()
            process.wait(60)
        letters = {chr(i) if 32 <= i < 127 else chr(256 + i): i for i in range(models.SIZES["vocab_size"])}
        gaps = [compare(reference, p, [letters[x] for x in text])[1] for p, text in zip(PROMPTS, alone, strict=True)]
    right = max(gaps) < 1e-4 and same == REQUESTS and all(len(text) == TOKENS for text in alone)
    print(f"server, {AT_ONCE} requests at a time: {same}/{REQUESTS}: {'right' if right else 'WRONG'}")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
