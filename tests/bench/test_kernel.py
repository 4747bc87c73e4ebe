"""What a kernel costs: the memory is what psutil says too, and the stages are in their order."""

from __future__ import annotations

import os
import re
import sys

import psutil
import pytest

from kvlab.bench.kernel import pss
from kvlab.cli import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's smaps_rollup")


def test_memory_is_what_psutil_counts():
    assert pss(os.getpid()) == pytest.approx(psutil.Process().memory_full_info().pss, rel=0.1)


@pytest.mark.full
def test_a_live_run_costs_more_than_a_page(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "kernel", "--count", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    started, page, live, server = (int(re.findall(r"\s(\d+)\s", line)[0]) for line in lines)
    assert started < page < live
    assert 0 < server < live
