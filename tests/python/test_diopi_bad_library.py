"""Operator libraries that fail: every error code of the standard, and codes that are none, reach the program in words
or lead to the CPU; the data stay as they were."""

import shutil
import subprocess

import ditorch.library
import pytest

SOURCE = """
#include <stdlib.h>
#include "diopi/functions.h"
const char *diopiGetVendorName(void) { return "bad"; }
const char *diopiGetLastErrorString(void) { return getenv("BAD_SILENT") ? NULL : "the chip says no"; }
diopiError_t diopiRelu(diopiContextHandle_t ctx, diopiTensorHandle_t out, diopiConstTensorHandle_t input) {
  (void)ctx, (void)out, (void)input;
  return (diopiError_t)atoi(getenv("BAD_CODE"));
}
"""

PROGRAM = """
import os
import ditorch, torch
x = torch.tensor([-1.0, 2.0], device="cuda")
for silent in (False, True):
    os.environ["BAD_SILENT"] = "1"
    if not silent:
        del os.environ["BAD_SILENT"]
    for code in [*range(1, 15), 77, -5, 1000]:
        os.environ["BAD_CODE"] = str(code)
        try:
            answer = torch.relu(x).tolist()
            assert answer == [0.0, 2.0], answer
            print(code, "cpu")
        except RuntimeError as error:
            print(code, str(error).splitlines()[0])
assert x.tolist() == [-1.0, 2.0]
print((x + 1).tolist(), "missing functions run on the CPU")
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_every_error_code(python, tmp_path):
    (tmp_path / "bad.c").write_text(SOURCE)
    library = tmp_path / "bad.so"
    include = ditorch.library.find_headers()
    words = ["-std=c11", "-fPIC", "-shared", f"-I{include}", str(tmp_path / "bad.c"), "-o", str(library)]
    subprocess.run(["cc", *words], check=True)
    lines = python(PROGRAM, DITORCH_DIOPI_LIB=str(library), DITORCH_BANNER="0").stdout.splitlines()
    assert lines.pop() == "[0.0, 3.0] missing functions run on the CPU"
    half = len(lines) // 2
    for silent, rows in ((False, lines[:half]), (True, lines[half:])):
        for row in rows:
            code, text = row.split(" ", 1)
            if code in ("12", "13", "14", "1000"):
                assert text == "cpu", row
            else:
                assert "diopiRelu failed: " in text and ("the chip says no" in text) != silent, row
