"""The pytest plugin under the package's name: `pytest -p ditorch.pytest_plugin`, where no entry point is installed."""

from ditorch_pytest import pytest_addoption, pytest_configure, pytest_runtest_call

__all__ = ["pytest_addoption", "pytest_configure", "pytest_runtest_call"]
