"""What a kernel costs: the stages are in their order."""

from __future__ import annotations

import re
import sys

import pytest

from kvlab.cli import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's smaps_rollup")


@pytest.mark.long
def test_a_live_run_costs_more_than_a_page(capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "kernel", "--count", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    started, page, live, server = (int(re.findall(r"\s(\d+)\s", line)[0]) for line in lines)
    assert started < page < live
    assert 0 < server < live
