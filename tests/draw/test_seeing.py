"""Seeing what happened: counterparts light up, what moved flies, blocks open."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import scenario_from

pytestmark = pytest.mark.browser

Document = dict[str, Any]


def after(trace: Document, kind: str, **fields: Any) -> int:
    for at, event in enumerate(trace["events"]):
        if event["kind"] == kind and fields.items() <= event.items():
            return at + 1
    raise AssertionError(f"no {kind} with {fields}")


LIT = """
() => [...document.querySelectorAll("[data-lit]")].map((el) => {
  const { block, host, entry, hostEntry, table, request, position, lane, output, phase } = el.dataset;
  const owner = el.closest("[data-request]")?.dataset.request;
  if (el.classList.contains("k-cell")) {
    const place = [...el.parentNode.children].indexOf(el);
    const at = el.closest("[data-block]")?.dataset.block ?? "H" + el.closest("[data-host]").dataset.host;
    return `cell ${at}/${place}`;
  }
  if (block) return `P${block}`;
  if (host) return `H${host}`;
  if (entry) return `entry P${entry}`;
  if (hostEntry) return `entry H${hostEntry}`;
  if (position) return `token ${owner}${position}`;
  if (output) return `output ${lane}${output}`;
  if (phase) return `segment ${lane}`;
  return table ? `table ${table}` : request ? `card ${request}` : `lane ${lane}`;
})
"""


def lit(page: Any) -> set[str]:
    return set(page.evaluate(LIT))


def test_a_token_lights_up_its_cell_block_and_row(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace, cursor=after(trace, "kv_written", id="A", block=2))
    page.locator('[data-request="A"] [data-position="8"]').hover()
    own = {"table A", "card A", "lane A", "segment A"}
    found = {"token A8", "cell 2/0", "P2", "entry P2", "output A1"} | own
    assert lit(page) == found
    page.keyboard.press("End")
    page.mouse.move(1, 1)
    assert lit(page) == set()


def test_a_cell_lights_up_its_token(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace, cursor=after(trace, "block_needed"))
    page.locator('[data-block="3"] .k-cell').nth(1).hover()
    assert {"token B5", "cell 3/1", "P3", "entry P3", "table B"} <= lit(page)
    assert "token B4" not in lit(page)


def test_a_row_and_a_lane_light_up_their_blocks(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace, cursor=after(trace, "block_needed"))
    page.locator('[data-table="B"]').focus()
    blocks = {"P2", "P3", "entry P2", "entry P3", "table B", "card B", "lane B", "segment B"}
    assert lit(page) == blocks
    page.keyboard.press("ArrowUp")
    assert "P0" in lit(page)
    page.evaluate("document.activeElement.blur()")
    box = page.locator('.k-segment[data-lane="B"]').first.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 8)
    assert lit(page) == blocks


def test_a_block_lights_up_by_focus_and_follows_the_cursor(
    open_player: Any, trace_named: Any
) -> None:
    trace = trace_named("figure-4")
    page = open_player(trace, cursor=after(trace, "swap_out_finished"))
    page.locator('[data-host="0"] .k-open').focus()
    assert {"H0", "entry H0", "token B0", "token B3", "cell H0/3"} <= lit(page)
    page.locator('[data-block="0"] .k-open').focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.innerText") == "P1"
    assert {"P1", "entry P1", "token A4"} <= lit(page)
    page.keyboard.press("Home")
    assert lit(page) == {"P1"}


def test_nothing_moves_when_the_reader_wants_it_calm(open_player: Any, trace_named: Any) -> None:
    trace = trace_named("figure-5")
    page = open_player(trace)
    found = page.evaluate(
        """(events) => {
            let moving = 0;
            for (let at = 0; at <= events; at += 1) {
                player.goto(at);
                moving += document.querySelectorAll(".k-fly, [data-moving]").length;
                moving += document.getAnimations().length;
            }
            return moving;
        }""",
        len(trace["events"]),
    )
    assert found == 0


def measured_less(trace: Document, *names: str) -> Document:
    """A trace of a run that measured less: entries keep `event`, `block` and what is not named."""
    changed = copy.deepcopy(trace)
    for entry in changed["measurements"]:
        for name in names:
            entry.pop(name, None)
    return changed


def test_a_cell_opens_with_its_norms(open_player: Any, trace_named: Any) -> None:
    trace = measured_less(trace_named("figure-5"), "max_diff")
    at = after(trace, "kv_written", id="B", why="rebuilt")
    page = open_player(trace, cursor=at)
    page.locator('[data-block="3"] .k-cell').nth(2).click()
    sheet = page.locator("[data-sheet=block]")
    assert sheet.get_attribute("aria-label") == "Block P3"
    chosen = sheet.locator("tr[data-chosen]").inner_text().split()
    assert chosen[:3] == ["2", "B", "2"]
    layers = sheet.locator(".k-numbers-table tbody tr")
    assert layers.count() == trace["model"]["layers"]
    measured = {entry["event"]: entry for entry in trace["measurements"]}
    now = measured[at - 1]
    before = measured[after(trace, "kv_written", id="B", first=0) - 1]
    norms = [float(text) for text in layers.first.locator("td").all_inner_texts()]
    assert norms == pytest.approx(
        [now["k_norm"][0], now["v_norm"][0], before["k_norm"][0], before["v_norm"][0]], rel=1e-3
    )
    assert "Rebuilt: the norms" in sheet.inner_text()
    assert "Measured in this run, not modelled" in sheet.inner_text()
    page.keyboard.press("Escape")
    assert sheet.count() == 0


def test_a_block_opens_with_a_key(open_player: Any, trace_named: Any) -> None:
    page = open_player(trace_named("figure-4"), cursor=30)
    page.locator('[data-block="0"] .k-open').focus()
    page.keyboard.press("Enter")
    assert page.locator("[data-sheet=block]").get_attribute("aria-label") == "Block P0"
    page.keyboard.press("Escape")
    page.locator('[data-host="0"] .k-open').focus()
    page.keyboard.press(" ")
    assert page.locator("[data-sheet=block]").get_attribute("aria-label") == "Block H0"


@pytest.mark.parametrize("said", ["yes.", "no.", "not measured in this run."])
def test_the_same_bytes_as_before_the_swap(open_player: Any, trace_named: Any, said: str) -> None:
    """Said only where both sums were taken."""
    trace = copy.deepcopy(trace_named("figure-4"))
    back = after(trace, "swap_in_finished") - 1
    entry = next(m for m in trace["measurements"] if m["event"] == back and m["block"] == 3)
    if said == "no.":
        entry["checksum"] = "0"
    elif said != "yes.":
        trace["measurements"].remove(entry)
    page = open_player(trace, cursor=back + 1)
    page.locator('[data-block="3"]').click()
    text = page.locator("[data-sheet=block]").inner_text()
    assert f"Same bytes as before the swap: {said}" in text


def test_a_measured_difference_of_rebuilt_values(open_player: Any, trace_named: Any) -> None:
    trace = copy.deepcopy(trace_named("figure-5"))
    at = after(trace, "kv_written", id="B", why="rebuilt")
    entry = next(m for m in trace["measurements"] if m["event"] == at - 1)
    for difference, said in (
        ({"k": 0.00012, "v": 0.0}, "max difference to the released values 1.2e-4 in K, 0.000 in V"),
        ({"k": 0.0, "v": 0.0}, "max difference to the released values 0, in K and in V"),
    ):
        entry["max_diff"] = difference
        page = open_player(trace, cursor=at)
        page.locator('[data-block="3"]').click()
        assert said in page.locator("[data-sheet=block]").inner_text()


def test_damage_is_marked(open_player: Any, trace_named: Any) -> None:
    trace = copy.deepcopy(trace_named("figure-4"))
    at = after(trace, "swap_in_finished")
    trace["measurements"] = []
    damage = {
        "kind": "damage_found", "step": 7, "id": "B", "why": "reuse_before_copied", "block": 3,
        "logical": 0, "layers": [0, 2], "restored": True, "say": "damage_found.restored",
    }  # fmt: skip
    trace["events"].insert(at, damage)
    for step in trace["steps"]:
        step["first"] += step["first"] > at
        step["end"] += step["end"] > at
    page = open_player(trace, cursor=at + 1)
    block = page.locator('[data-block="3"]')
    assert block.locator(".k-damaged").is_visible()
    assert "in layers 0 and 2" in block.locator(".k-open").get_attribute("aria-label")
    block.click()
    sheet = page.locator("[data-sheet=block]").inner_text()
    assert "layers 0 and 2" in sheet
    assert "Same bytes as before the swap: no." in sheet


def forked_run(reserve: bool = False) -> Document:
    document = {
        "name": "forked",
        "model": None,
        "engine": {"num_blocks": 8, "block_size": 4, "prefix_cache": not reserve}
        | ({"allocation": "reserve_max"} if reserve else {}),
        "requests": [
            {"id": "A", "prompt": [1, 2, 3, 4, 5, 6], "max_tokens": 6, "n": 1 if reserve else 2}
        ],
    }
    return run_scenario(scenario_from(document, Path(), "a forked run")).trace.document


def test_shared_and_cached_blocks(open_player: Any) -> None:
    trace = forked_run()
    page = open_player(trace, cursor=after(trace, "forked"))
    shared = page.locator(".k-block", has=page.locator(".k-refs")).first
    assert shared.locator(".k-badge").count() == 2
    assert shared.locator(".k-refs").inner_text() == "×2"
    page.keyboard.press("End")
    page.evaluate("(at) => player.goto(at)", len(trace["events"]))
    assert "free · cached" in page.locator(".k-blocks").inner_text()


def test_reserved_blocks_are_dotted(open_player: Any) -> None:
    trace = forked_run(reserve=True)
    page = open_player(trace, cursor=after(trace, "kv_written"))
    block = page.locator(".k-block[data-reserved]").first
    assert block.evaluate("(el) => getComputedStyle(el).borderTopStyle") == "dotted"
