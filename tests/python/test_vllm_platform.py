"""The entry point that vLLM asks for a device; vLLM itself is in tests/vllm."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def test_the_entry_point_answers_only_where_ditorch_is_the_device(python):
    code = """
        import sys, ditorch_vllm
        print(ditorch_vllm.platform(), 'torch' in sys.modules, 'ditorch' in sys.modules)
    """
    assert python(code, warm=False).stdout.split() == ["None", "False", "False"]
    answer = python("import ditorch, ditorch_vllm\nprint(ditorch_vllm.platform())").stdout.split()[-1]
    module, name = answer.rsplit(".", 1)
    assert f"class {name}(" in (ROOT / "python" / (module.replace(".", "/") + ".py")).read_text()


def test_the_entry_point_is_declared():
    text = (ROOT / "pyproject.toml").read_text()
    assert re.search(r'\[project\.entry-points\."vllm\.platform_plugins"\]\nditorch = "ditorch_vllm:platform"', text)
    assert '"python/ditorch_vllm"' in text
