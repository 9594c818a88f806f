"""Every block of docs/vendor.md, in order: C goes into the file that its first line names, shell is run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import child_environment

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(c|sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_the_page_works(tmp_path):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = child_environment(PATH=path, DITORCH_BANNER="0", PYTHON=sys.executable)
    outputs = []
    for language, text in BLOCK.findall((ROOT / "docs" / "vendor.md").read_text()):
        if language == "c":
            (tmp_path / re.match(r"// (\w+\.c):", text)[1]).write_text(text)
        elif language == "text":
            for line in text.splitlines()[1:]:  # the first has figures of its own
                assert line in outputs[-1], outputs[-1]
            assert text.split(" ms,")[0].rsplit(" ", 1)[0] in outputs[-1]
        else:
            run = subprocess.run(["sh", "-ec", text], cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert run.returncode == 0, text + run.stdout + run.stderr
            outputs.append(run.stdout + run.stderr)
    _, step_1, seconds, closed, both, train, train_closed, train_opaque = outputs
    assert "65 checks passed, 0 were not made" in step_1
    assert "1 checks failed (event_get_elapsed)" in seconds
    assert "65 checks passed" in closed and "wrong" not in closed
    assert both.count(" 0 were not made") == 2 and "loss: " in train and "fallback" in train.lower()
    assert "loss: " in train_closed and "loss: " in train_opaque
