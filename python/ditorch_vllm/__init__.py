"""vLLM's entry point (vllm.platform_plugins): ditorch's device as a platform, where the program imported ditorch.

Every vLLM on the machine calls `platform`; nothing of ditorch is imported here (docs/vllm.md).
"""

import sys


def platform() -> "str | None":
    """The platform's class, or None where the device is not ditorch's."""
    ditorch = sys.modules.get("ditorch")
    if ditorch is None:
        return None
    from ditorch.infer import operators

    return "ditorch.infer.vllm_platform.DitorchPlatform" if operators.is_ours() else None
