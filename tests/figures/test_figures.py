"""The five figures, to the cell.

The expected values are those of the article's one story, worked out on paper and restated here as
a table; nothing below is computed by the code under test. A pool of 4 blocks of 4 slots, the newest
running request is the victim, freed blocks are handed out lowest position first. A has 7 prompt
tokens and 6 outputs, B has 7 and 4; both arrive before step 1, A first. KV lags the history by one:
the token just selected has none until it is processed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch

from kvlab.models.loading import LoadedModel, load_model
from kvlab.runs.run import run_scenario
from kvlab.runs.scenario import load_scenario
from kvlab.trace.document import Trace
from kvlab.trace.ranges import lesson_range

STORY_FIGURES = ("figure-1", "figure-3", "figure-4", "figure-5")
METHODS = ("recompute", "swap")


class Row(NamedTuple):
    """The state after a step: KV positions and blocks of A and B, free blocks, deliveries in it."""

    a_kv: int
    a_blocks: list[int]
    b_kv: int
    b_blocks: list[int]
    free: int
    delivered: list[str]


TABLE = (
    Row(7, [0, 1], 7, [2, 3], 0, ["A x0", "B x0"]),
    Row(8, [0, 1], 8, [2, 3], 0, ["A x1", "B x1"]),
    Row(9, [0, 1, 2], 0, [], 1, ["A x2"]),
    Row(10, [0, 1, 2], 0, [], 1, ["A x3"]),
    Row(11, [0, 1, 2], 0, [], 1, ["A x4"]),
    Row(0, [], 0, [], 4, ["A x5"]),
    Row(0, [], 9, [3, 0, 1], 1, ["B x2"]),
    Row(0, [], 0, [], 4, ["B x3"]),
)

TOTALS = {
    "recompute": {
        "preemptions": 1,
        "tokens_processed": 30,
        "tokens_recomputed": 8,
        "blocks_swapped_out": 0,
        "blocks_swapped_in": 0,
    },
    "swap": {
        "preemptions": 1,
        "tokens_processed": 22,
        "tokens_recomputed": 0,
        "blocks_swapped_out": 2,
        "blocks_swapped_in": 2,
    },
}


@cache
def story_model() -> LoadedModel:
    torch.set_num_threads(1)  # a model this small only loses by a second thread
    return load_model("story", device="cpu")


@cache
def run(figure: str, *settings: str) -> Trace:
    return run_scenario(load_scenario(figure, ["device=cpu", *settings]), model=story_model()).trace


def stand_in_run(method: str) -> Trace:
    """The same lengths without a model: 7 prompt tokens each, given as ids."""
    ids = "[1, 2, 3, 4, 5, 6, 7]"
    prompts = [f"requests.{id}.prompt={ids}" for id in "AB"]
    return run_scenario(
        load_scenario("figure-5", ["model=null", f"engine.method={method}", *prompts])
    ).trace


def cell(id: str, position: int, how: str = "first", *, live: bool = True) -> dict[str, Any]:
    return {"id": id, "position": position, "how": how, "live": live}


def cells(id: str, positions: Sequence[int], how: str = "first", *, live: bool = True) -> list[Any]:
    """A block of four cells: `positions` from slot 0 on, the rest empty."""
    written: list[Any] = [cell(id, position, how, live=live) for position in positions]
    return written + [None] * (4 - len(written))


def drawn(block: Any) -> list[Any]:
    """A block's cells as a figure shows them; which event wrote them is not drawn."""
    return [cell and {k: v for k, v in cell.items() if k != "event"} for cell in block["cells"]]


def of_step(trace: Trace, step: int, kind: str | None = None, id: str | None = None) -> list[Any]:
    return [
        event
        for event in trace.events
        if event["step"] == step and kind in (None, event["kind"]) and id in (None, event.get("id"))
    ]


def delivered(trace: Trace, step: int) -> list[str]:
    return [f"{e['id']} x{e['index']}" for e in of_step(trace, step, "token_delivered")]


def outputs(trace: Trace) -> dict[str, list[int]]:
    return {id: entry["output"] for id, entry in trace.summary["requests"].items()}


# The story that figures 1, 3, 4 and 5 share.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("figure", [*STORY_FIGURES, "stand-in"])
def test_every_step_of_the_story_is_as_in_the_table(figure: str, method: str) -> None:
    trace = stand_in_run(method) if figure == "stand-in" else run(figure, f"engine.method={method}")
    assert len(trace.steps) == len(trace.summary["per_step"]) == len(TABLE)
    for step, row in enumerate(TABLE, start=1):
        state = trace.state_at(trace.cursor_of(step))
        a, b = state["requests"]["A"], state["requests"]["B"]
        assert (a["kv"], a["table"]) == (row.a_kv, row.a_blocks), f"A after step {step}"
        assert (b["kv"], b["table"]) == (row.b_kv, row.b_blocks), f"B after step {step}"
        assert state["free"] == row.free, f"after step {step}"
        assert state["in_flight"] == 0, f"after step {step}"
        assert delivered(trace, step) == row.delivered, f"in step {step}"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("figure", STORY_FIGURES)
def test_the_summary_tells_the_same_table(figure: str, method: str) -> None:
    per_step = run(figure, f"engine.method={method}").summary["per_step"]
    assert [entry["step"] for entry in per_step] == list(range(1, 9))
    for entry, row in zip(per_step, TABLE, strict=True):
        holds = {"A": row.a_blocks, "B": row.b_blocks}
        kv = {"A": row.a_kv, "B": row.b_kv}
        assert entry["blocks"] == {id: held for id, held in holds.items() if held}
        assert entry["kv"] == {id: kv[id] for id, held in holds.items() if held}
        assert entry["free"] == row.free


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("figure", STORY_FIGURES)
def test_totals_of_the_two_methods(figure: str, method: str) -> None:
    summary = run(figure, f"engine.method={method}").summary
    assert {name: summary[name] for name in TOTALS[method]} == TOTALS[method]


def test_methods_that_the_figures_ship_with() -> None:
    assert {figure: run(figure).summary["blocks_swapped_out"] for figure in STORY_FIGURES} == {
        "figure-1": 0,
        "figure-3": 0,
        "figure-4": 2,
        "figure-5": 0,
    }


@pytest.mark.parametrize("method", METHODS)
def test_a_has_12_positions_before_it_finishes_and_releases_3_blocks(method: str) -> None:
    trace = run("figure-5", f"engine.method={method}")
    before = trace.state_at(trace.cursor_of(6, "token_delivered", id="A"))
    assert (before["requests"]["A"]["kv"], before["free"]) == (12, 1)
    (release,) = of_step(trace, 6, "block_released")
    assert (release["id"], release["blocks"], release["freed"]) == ("A", [0, 1, 2], [0, 1, 2])
    last = trace.state_at(trace.cursor_of(8, "token_delivered", id="B"))
    assert (last["requests"]["B"]["kv"], last["free"]) == (10, 1)


@pytest.mark.parametrize("figure", [*STORY_FIGURES, "figure-2"])
@pytest.mark.parametrize("method", METHODS)
def test_outputs_equal_those_of_a_pool_that_never_runs_out(figure: str, method: str) -> None:
    settings = () if figure == "figure-2" else (f"engine.method={method}",)
    roomy = run("figure-5", "engine.num_blocks=64")
    assert roomy.summary["preemptions"] == 0
    assert roomy.summary["tokens_processed"] == 22  # 7 + 5 of A, 7 + 3 of B
    assert len(roomy.steps) == 6
    assert outputs(run(figure, *settings)) == outputs(roomy)
    assert {id: len(tokens) for id, tokens in outputs(roomy).items()} == {"A": 6, "B": 4}


@pytest.mark.parametrize("figure", [*STORY_FIGURES, "figure-2"])
def test_an_unmet_need_precedes_every_preemption_pause_and_stall(figure: str) -> None:
    for method in METHODS if figure != "figure-2" else ("pause_only",):
        trace = run(figure, f"engine.method={method}")
        followers = 0
        for at, event in enumerate(trace.events):
            if event["kind"] == "stalled":
                in_need = event["id"]
            elif event["kind"] in ("preempted", "paused") and event["need_of"]:
                in_need = event["need_of"]
            else:
                continue
            followers += 1
            assert any(
                earlier["kind"] == "block_needed"
                and (earlier["step"], earlier["id"]) == (event["step"], in_need)
                and earlier["needs"] > earlier["free"]
                for earlier in trace.events[:at]
            ), f"{event} of {figure} comes unannounced"
        assert followers == (2 if figure == "figure-2" else 1)


# Figure 1: running out.


def test_figure_1_after_step_1_each_has_seven_positions_and_one_empty_slot() -> None:
    trace = run("figure-1")
    state = trace.state_at(trace.cursor_of(1))
    assert [drawn(block) for block in state["blocks"]] == [
        cells("A", [0, 1, 2, 3]),
        cells("A", [4, 5, 6]),
        cells("B", [0, 1, 2, 3]),
        cells("B", [4, 5, 6]),
    ]
    assert [block["owners"] for block in state["blocks"]] == [["A"], ["A"], ["B"], ["B"]]
    assert state["free"] == 0


def test_figure_1_after_step_2_every_slot_is_full() -> None:
    trace = run("figure-1")
    state = trace.state_at(trace.cursor_of(2))
    assert [drawn(block) for block in state["blocks"]] == [
        cells("A", [0, 1, 2, 3]),
        cells("A", [4, 5, 6, 7]),
        cells("B", [0, 1, 2, 3]),
        cells("B", [4, 5, 6, 7]),
    ]
    assert state["free"] == 0
    assert [state["requests"][id]["history"] for id in "AB"] == [9, 9]


def test_figure_1_ends_with_the_need_for_a_third_block_unmet() -> None:
    trace = run("figure-1")
    opens, stops = lesson_range(trace)
    assert opens == 0
    last = trace.events[stops - 1]
    assert (last["kind"], last["step"], last["id"]) == ("block_needed", 3, "A")
    assert (last["position"], last["logical"], last["needs"], last["free"]) == (8, 2, 1, 0)
    state = trace.state_at(stops)
    assert state["requests"]["A"]["unmet"] == {"logical": 2, "position": 8, "needs": 1}
    assert state["requests"]["B"]["unmet"] is None
    assert [state["requests"][id]["table"] for id in "AB"] == [[0, 1], [2, 3]]
    assert state["blocks"] == trace.state_at(trace.cursor_of(2))["blocks"]
    assert not [e for e in trace.events[:stops] if e["kind"] == "preempted"]


# Figure 2: skipping is not releasing.


def test_figure_2_free_after_its_nine_steps() -> None:
    per_step = run("figure-2").summary["per_step"]
    assert [entry["free"] for entry in per_step] == [0, 0, 0, 1, 1, 1, 4, 1, 4]


def test_figure_2_scene_a_skips_b_and_frees_nothing() -> None:
    trace = run("figure-2")
    before, after = (trace.state_at(trace.cursor_of(step)) for step in (2, 3))
    assert after["free"] == 0
    assert after["blocks"] == before["blocks"]
    assert [after["requests"][id]["table"] for id in "AB"] == [[0, 1], [2, 3]]
    assert after["requests"]["B"]["state"] == "paused"
    assert [(e["id"], e["needs"], e["free"]) for e in of_step(trace, 3, "stalled")] == [("A", 1, 0)]
    assert of_step(trace, 3, "kv_written") == of_step(trace, 3, "token_delivered") == []
    entry = trace.summary["per_step"][2]
    assert (entry["paused"], entry["scheduled"], entry["preempted"]) == (["B"], {}, [])
    assert [stall["id"] for stall in entry["stalled"]] == ["A"]


def test_figure_2_scene_b_releases_p2_and_p3_with_their_old_values() -> None:
    trace = run("figure-2")
    state = trace.state_at(trace.cursor_of(4, "block_released"))
    assert state["free"] == 2
    assert [block["status"] for block in state["blocks"]] == ["held", "held", "free", "free"]
    ghosts = [cells("B", range(first, first + 4), live=False) for first in (0, 4)]
    assert [drawn(block) for block in state["blocks"][2:]] == ghosts
    assert [block["owners"] for block in state["blocks"][2:]] == [[], []]
    b = state["requests"]["B"]
    assert (b["table"], b["kv"], b["history"], b["state"]) == ([], 0, 9, "preempted")


def test_figure_2_scene_c_gives_a_the_block_p2() -> None:
    trace = run("figure-2")
    _, stops = lesson_range(trace)
    assert (trace.events[stops - 1]["kind"], trace.events[stops - 1]["step"]) == ("kv_written", 4)
    state = trace.state_at(stops)
    a = state["requests"]["A"]
    assert (a["table"], a["kv"]) == ([0, 1, 2], 9)
    assert state["free"] == 1
    assert state["blocks"][3]["status"] == "free"
    assert drawn(state["blocks"][2]) == [
        cell("A", 8),
        *(cell("B", position, live=False) for position in (1, 2, 3)),
    ]
    assert drawn(state["blocks"][3]) == cells("B", [4, 5, 6, 7], live=False)


def test_figure_2_reads_free_0_then_2_then_1() -> None:
    trace = run("figure-2")
    opens, stops = lesson_range(trace)
    seen = [trace.state_at(cursor)["free"] for cursor in range(opens, stops + 1)]
    assert [free for at, free in enumerate(seen) if at == 0 or free != seen[at - 1]] == [0, 2, 1]


def test_figure_2_b_keeps_its_history_of_nine_throughout() -> None:
    trace = run("figure-2")
    first, last = trace.cursor_of(2), trace.cursor_of(8, "kv_written")
    histories = {
        trace.state_at(cursor)["requests"]["B"]["history"] for cursor in range(first, last + 1)
    }
    assert histories == {9}


# Figure 3: recompute.


def test_figure_3_pausing_takes_the_kv_and_leaves_the_history() -> None:
    trace = run("figure-3")
    before = trace.state_at(trace.cursor_of(2))["requests"]["B"]
    assert (before["history"], before["kv"], before["delivered"]) == (9, 8, 2)
    for step in (3, 4, 5, 6):
        paused = trace.state_at(trace.cursor_of(step))["requests"]["B"]
        assert (paused["history"], paused["kv"], paused["delivered"]) == (9, 0, 2)
        assert paused["outputs"] == before["outputs"]
        assert (paused["state"], paused["method"]) == ("preempted", "recompute")


@pytest.mark.parametrize("method", METHODS)
def test_figures_3_and_4_preempt_b_for_a_with_all_its_numbers_apart(method: str) -> None:
    """History 9, KV 8, two outputs delivered, two blocks held, both of them B's alone."""
    (preempted,) = of_step(run("figure-5", f"engine.method={method}"), 3, "preempted")
    expected = {
        "id": "B",
        "need_of": "A",
        "victim": "newest",
        "method": method,
        "fallback": None,
        "history": 9,
        "kv": 8,
        "delivered": 2,
        "held": 2,
        "reclaimable": 2,
    }
    assert {name: preempted[name] for name in expected} == expected


def test_figure_3_resumes_with_one_pass_over_nine_fixed_tokens() -> None:
    trace = run("figure-3")
    (scheduled,) = of_step(trace, 7, "scheduled")
    assert {name: scheduled[name] for name in ("id", "start", "tokens", "again", "samples")} == {
        "id": "B",
        "start": 0,
        "tokens": 9,
        "again": 8,
        "samples": True,
    }
    state = trace.state_at(trace.cursor_of(7))
    assert state["requests"]["B"]["table"] == [3, 0, 1]
    # P1's other three slots still show what A left there.
    assert [drawn(state["blocks"][block]) for block in (3, 0, 1)] == [
        cells("B", [0, 1, 2, 3], "rebuilt"),
        cells("B", [4, 5, 6, 7], "rebuilt"),
        [cell("B", 8), *(cell("A", position, live=False) for position in (5, 6, 7))],
    ]


@pytest.mark.parametrize("figure", [*STORY_FIGURES, "figure-2"])
def test_no_output_is_sampled_or_sent_a_second_time(figure: str) -> None:
    trace = run(figure)
    for kind in ("token_sampled", "token_delivered"):
        seen = [(e["id"], e["index"]) for e in trace.events if e["kind"] == kind]
        assert sorted(seen) == [("A", i) for i in range(6)] + [("B", i) for i in range(4)]
    again = [e["index"] for e in of_step(trace, 7, "token_sampled", "B")]
    assert again == ([] if figure == "figure-2" else [2])  # figure 2 resumes B in step 8


# Figure 4: swap.


def test_figure_4_releases_only_after_the_copy_is_complete() -> None:
    trace = run("figure-4")
    order = [
        event["kind"]
        for event in of_step(trace, 3)
        if event["kind"].startswith("swap") or event["kind"].startswith("block")
    ]
    assert order[0] == "block_needed"
    assert order[1] == "swap_out_started"
    assert set(order[2:-3]) == {"swap_out_advanced"}
    assert order[-3:] == ["swap_out_finished", "block_released", "block_allocated"]
    started = trace.cursor_of(3, "swap_out_started")
    released = trace.cursor_of(3, "block_released")
    for cursor in range(started, released):
        state = trace.state_at(cursor)
        assert state["free"] == 0
        assert [block["status"] for block in state["blocks"][2:]] == ["in_flight"] * 2


def test_figure_4_copies_eight_positions_in_two_blocks() -> None:
    trace = run("figure-4")
    (started,) = of_step(trace, 3, "swap_out_started")
    assert (started["blocks"], started["kv"], len(started["host_blocks"])) == ([2, 3], 8, 2)
    (finished,) = of_step(trace, 3, "swap_out_finished")
    assert finished["kv"] == 8
    for step in (3, 4, 5, 6):
        state = trace.state_at(trace.cursor_of(step))
        b = state["requests"]["B"]
        assert (b["state"], b["kv"], b["host_kv"], b["history"]) == ("swapped", 0, 8, 9)
        assert state["host_free"] == 2
        stored = [drawn(state["host_blocks"][host]) for host in b["host_table"]]
        assert stored == [cells("B", range(first, first + 4), "stored") for first in (0, 4)]


def test_figure_4_restores_eight_positions_and_computes_the_ninth() -> None:
    trace = run("figure-4")
    order = [(e["kind"], e.get("blocks")) for e in of_step(trace, 7) if e["kind"] != "step_started"]
    kinds = [kind for kind, _ in order]
    allocations = [blocks for kind, blocks in order if kind == "block_allocated"]
    assert allocations == [[3, 0], [1]]  # two for the stored KV, a third for x1
    assert kinds.index("swap_in_finished") < kinds.index("scheduled") < kinds.index("kv_written")
    state = trace.state_at(trace.cursor_of(7))
    assert state["requests"]["B"]["table"] == [3, 0, 1]
    assert state["requests"]["B"]["kv"] == 9
    assert [drawn(state["blocks"][block]) for block in (3, 0)] == [
        cells("B", [0, 1, 2, 3], "restored"),
        cells("B", [4, 5, 6, 7], "restored"),
    ]
    assert drawn(state["blocks"][1])[0] == cell("B", 8)
    assert state["host_free"] == 4
    assert delivered(trace, 7) == ["B x2"]


def test_figure_4_swap_replaces_recompute() -> None:
    trace = run("figure-4")
    assert {e["why"] for e in trace.events if e["kind"] == "kv_written"} == {"first"}
    assert {e["again"] for e in trace.events if e["kind"] == "scheduled"} == {0}
    (scheduled,) = of_step(trace, 7, "scheduled")
    assert (scheduled["start"], scheduled["tokens"]) == (8, 1)


# Figure 5: delay.


@pytest.mark.parametrize("method", METHODS)
def test_figure_5_gap_of_b_is_four_steps_waiting_and_one_of_recovery(method: str) -> None:
    requests = run("figure-5", f"engine.method={method}").summary["requests"]
    assert requests["B"]["gaps_steps"] == [1, 5, 1]
    assert (requests["B"]["waiting_steps"], requests["B"]["recovery_steps"]) == (4, 1)
    assert requests["A"]["gaps_steps"] == [1, 1, 1, 1, 1]
    assert (requests["A"]["waiting_steps"], requests["A"]["recovery_steps"]) == (0, 0)
    assert [requests[id]["ttft_steps"] for id in "AB"] == [1, 1]
    assert [requests[id]["preemptions"] for id in "AB"] == [0, 1]


@pytest.mark.parametrize("method", METHODS)
def test_figure_5_outputs_of_b_as_its_user_receives_them(method: str) -> None:
    trace = run("figure-5", f"engine.method={method}")
    received = [
        (e["index"], e["step"], e["gap"])
        for e in trace.events
        if e["kind"] == "token_delivered" and e["id"] == "B"
    ]
    assert received == [(0, 1, None), (1, 2, 1), (2, 7, 5), (3, 8, 1)]


@pytest.mark.parametrize("method", METHODS)
def test_figure_5_phases_of_the_two_lanes(method: str) -> None:
    trace = run("figure-5", f"engine.method={method}")
    lanes = {
        id: [
            event["why"]
            for step in range(1, 9)
            for event in of_step(trace, step, "scheduled", id) or [{"why": "-"}]
        ]
        for id in "AB"
    }
    # A finishes in step 6. B is paused in 3 and back in 7, which is where the methods differ.
    assert lanes["A"] == ["prefill", *["decode"] * 5, "-", "-"]
    assert [*lanes["B"][:6], lanes["B"][7]] == ["prefill", "decode", *"----", "decode"]
    assert (lanes["B"][6] == "recompute") is (method == "recompute")
    waiting = [entry["waiting"] for entry in trace.summary["per_step"]]
    assert waiting == [[], [], ["B"], ["B"], ["B"], ["B"], [], []]


@pytest.mark.parametrize("method", METHODS)
def test_figure_5_b_comes_back_in_p3_p0_p1_once_a_has_finished(method: str) -> None:
    trace = run("figure-5", f"engine.method={method}")
    assert [entry["free"] for entry in trace.summary["per_step"]] == [0, 0, 1, 1, 1, 4, 1, 4]
    assert trace.summary["per_step"][6]["blocks"] == {"B": [3, 0, 1]}
    (release,) = of_step(trace, 6, "block_released")
    assert (release["next_id"], release["next_needs"], release["free"]) == ("B", 3, 4)
    kept = [(e["step"], e["needs"], e["free"]) for e in trace.events if e["kind"] == "kept_waiting"]
    assert kept == [(3, 3, 1), (4, 3, 1), (5, 3, 1), (6, 3, 1)]  # one free, three needed


# Both.


@pytest.mark.parametrize("figure", [*STORY_FIGURES, "figure-2"])
def test_the_lesson_opens_and_stops_inside_its_run(figure: str) -> None:
    trace = run(figure)
    opens, stops = lesson_range(trace)
    assert 0 <= opens < stops <= len(trace.events)
    first_step = {"figure-1": 1, "figure-5": 1}.get(figure, 3)
    last_step = {"figure-1": 3, "figure-2": 4, "figure-5": 8}.get(figure, 7)
    assert trace.events[opens]["step"] == first_step
    assert trace.events[opens]["kind"] == "step_started"
    assert trace.events[stops - 1]["step"] == last_step


@pytest.mark.parametrize("figure", [*STORY_FIGURES, "figure-2"])
def test_every_token_of_the_run_has_its_text(figure: str) -> None:
    trace = run(figure)
    tokens = {token for request in trace.document["requests"] for token in request["prompt"]}
    tokens |= {e["token"] for e in trace.events if e["kind"] == "token_sampled"}
    assert {str(token) for token in tokens} == set(trace.document["tokens"])
    # The model's vocabulary is byte-level: the texts of a prompt's tokens join to the prompt.
    prompts = {"A": "Ana and Ben share a small room", "B": "Mia keeps her books on one shelf"}
    for request in trace.document["requests"]:
        assert len(request["prompt"]) == 7
        joined = "".join(trace.document["tokens"][str(token)] for token in request["prompt"])
        assert joined == prompts[request["id"]]
