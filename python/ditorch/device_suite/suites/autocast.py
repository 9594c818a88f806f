"""PyTorch's lists of operators that autocast to half precision, to float32, or to the widest type; its own helper runs
each under autocast, looks at the dtype, and compares with the same cast by hand, bit for bit."""

from __future__ import annotations

import os

import torch
from torch.testing._internal import autocast_test_lists

DEVICE = os.environ.get("PYTORCH_TESTING_DEVICE_ONLY_FOR", "cuda")
HALF = torch.bfloat16 if DEVICE == "cpu" else torch.float16
FAMILIES = {
    # list of PyTorch's class: (module of the function, dtype it runs in)
    "torch_fp16": (torch, HALF),
    "torch_fp32": (torch, torch.float32),
    "torch_need_autocast_promote": (torch, torch.float32),
    "torch_expect_builtin_promote": (torch, torch.float32),
    "nn_fp16": (torch._C._nn, HALF),
    "nn_fp32": (torch._C._nn, torch.float32),
    "linalg_fp16": (torch._C._linalg, HALF),
    "methods_fp16": (None, HALF),
    "methods_fp32": (None, torch.float32),
    "methods_expect_builtin_promote": (None, torch.float32),
}


class TestAutocastLists(autocast_test_lists.TestAutocast):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.manual_seed(1)
        cls.lists = autocast_test_lists.AutocastTestLists(torch.device(DEVICE))

    def _run(self, family, index):
        module, dtype = FAMILIES[family]
        name, args, *rest = getattr(self.lists, family)[index]
        options = {"out_type": rest[0]} if family.endswith("builtin_promote") else {}
        if "fp32" in family and rest:
            options["add_kwargs"] = rest[0]
        elif "fp16" in family and rest and rest[0]:
            self.skipTest("PyTorch's list leaves it out")
        self._run_autocast_outofplace(name, args, dtype, device=DEVICE, module=module, amp_dtype=HALF, **options)

    def test_banned(self):
        with torch.autocast(DEVICE):
            for name, args, module in self.lists.banned:
                with self.assertRaisesRegex(RuntimeError, "unsafe to autocast"):
                    getattr(module, name)(*args)


def _add_tests():
    lists = autocast_test_lists.AutocastTestLists(torch.device("cpu"))
    for family in FAMILIES:
        for index, row in enumerate(getattr(lists, family, [])):
            name = f"test_{family}_{index}_{row[0]}"
            setattr(TestAutocastLists, name, lambda self, f=family, i=index: self._run(f, i))


_add_tests()
