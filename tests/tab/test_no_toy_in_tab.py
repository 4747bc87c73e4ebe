"""In the tab, too, words come from what lies in the blocks that a table names, and from nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvlab.engine.engine import Engine
from kvlab.export.tab.ground import ground_in_tab
from kvlab.export.tab.runner import TabRunner
from kvlab.runs.run import RunInSteps
from kvlab.runs.scenario import load_scenario
from tests.tab.tabs import Tab

Between = Callable[[int, Engine, TabRunner], None]


def outputs(tab: Tab, between: Between, name: str = "figure-5") -> dict[str, list[int]]:
    """Of a shipped run, with `between(step, engine, runner)` after each of its steps."""
    ground = ground_in_tab(load_scenario(name), tab.call)
    assert isinstance(ground.runner, TabRunner)
    going = RunInSteps(ground)
    for report in going:
        between(report.step, going.engine, ground.runner)
    return {id: one["output"] for id, one in going.run().summary["requests"].items()}


def nothing(step: int, engine: Engine, runner: TabRunner) -> None:
    pass


def test_another_value_in_a_held_slot_changes_the_words(tab: Tab) -> None:
    def overwrite(step: int, engine: Engine, runner: TabRunner) -> None:
        if step == 1:
            runner.ask("fill", engine.requests["A"].table[0], 1, 3.0)

    changed = outputs(tab, overwrite)
    before = outputs(tab, nothing)
    assert changed["A"] != before["A"]
    assert changed["B"] == before["B"], "B reads other blocks"


@pytest.mark.parametrize("name", ["figure-5", "figure-4", "victims"])
def test_what_lies_in_free_blocks_changes_nothing(name: str, tab: Tab) -> None:
    filled = 0

    def spoil(step: int, engine: Engine, runner: TabRunner) -> None:
        nonlocal filled
        held = {block for request in engine.requests.values() for block in request.table}
        for block in range(engine.config.num_blocks):
            if block not in held:
                filled += 1
                for slot in range(engine.config.block_size):
                    runner.ask("fill", block, slot, None)  # NaN

    assert outputs(tab, spoil, name) == outputs(tab, nothing, name)
    assert filled


def test_what_comes_back_from_the_host_pool_is_what_left(tab: Tab) -> None:
    scenario = load_scenario("figure-5", ["engine.method=swap"])
    going = RunInSteps(ground_in_tab(scenario, tab.call))
    for _ in going:
        pass
    document = going.run().trace.document
    copies: dict[str, list[str]] = {}
    for entry in document["measurements"]:
        kind = document["events"][entry["event"]]["kind"]
        copies.setdefault(kind, []).append(entry["checksum"])
    assert copies["swap_out_started"] == copies["swap_in_finished"]
    assert len(set(copies["swap_out_started"])) == len(copies["swap_out_started"]) > 1
