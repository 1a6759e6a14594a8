"""Marks of tests that cannot run on every operating system."""

import os

import pytest

posix_only = pytest.mark.skipif(
    os.name != "posix", reason="needs signals, forks, resource limits, pipes or file permissions of POSIX systems"
)
