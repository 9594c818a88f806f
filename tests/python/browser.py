"""Headless Chromium for tests, driven over its pipe (NUL-terminated JSON on two descriptors): no socket, no package."""

import json
import os
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
    "--window-size=1280,900",
)


def find():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """One page. `errors` is what came to its console, was thrown, or was refused by its policy."""

    def __init__(self, program):
        self.folder = tempfile.mkdtemp(prefix="ditorch-browser-")
        read_end, self.sending = os.pipe()
        self.receiving, write_end = os.pipe()
        words = [program, *FLAGS, f"--user-data-dir={self.folder}", "about:blank"]
        # the browser takes commands from descriptor 3 and answers on 4
        script = f'exec "$@" 3<&{read_end} 4>&{write_end}'
        command = ["bash", "-c", script, "bash", *words]
        self.child = subprocess.Popen(command, pass_fds=(read_end, write_end), stderr=subprocess.DEVNULL)
        os.close(read_end)
        os.close(write_end)
        self.number, self.rest, self.session, self.errors = 0, b"", None, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.sending, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _receive(self, timeout=120):
        end = time.monotonic() + timeout
        while b"\0" not in self.rest:
            left = end - time.monotonic()
            ready = select.select([self.receiving], [], [], max(left, 0))[0]
            data = os.read(self.receiving, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(parameters["args"])[:500])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])

    def run(self, expression):
        """The value of an expression in the page; a promise is waited for."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression, timeout=30):
        end = time.monotonic() + timeout
        while not self.run(f"Boolean({expression})"):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def open(self, path):
        self.errors.clear()
        self.ask("Page.navigate", url=f"file://{path}")
        self.wait("document.readyState == 'complete' && document.documentElement.dataset.ready == '1'")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def close(self):
        self.child.kill()
        self.child.wait()
        os.close(self.sending)
        os.close(self.receiving)
        shutil.rmtree(self.folder, ignore_errors=True)
