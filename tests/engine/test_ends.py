"""How a request ends: abort in every state, stops, the context, a model run that fails."""

from __future__ import annotations

import pytest

from kvlab.engine.engine import Engine
from kvlab.engine.request import RequestState
from tests.engine.harness import (
    STORY,
    CellRunner,
    Lab,
    act,
    again,
    ask,
    model_runner,
    oracle_outputs,
    own_tokens,
    pool,
    run,
)

# Abort.

SLOW_SWAP = {"method": "swap", "copy_blocks_per_step": 1}


@pytest.mark.parametrize(
    ("state", "settings", "step", "actions"),
    [
        (RequestState.RUNNING, {}, 3, []),
        (RequestState.PREEMPTED, {}, 5, []),
        (RequestState.PAUSED, {"num_blocks": 8}, 3, [act(2, "pause", "B")]),
        (RequestState.SWAPPING_OUT, SLOW_SWAP, 4, []),
        (RequestState.SWAPPED, SLOW_SWAP, 6, []),
        (RequestState.SWAPPING_IN, SLOW_SWAP, 10, []),
        (RequestState.FINISHED, {}, 9, []),
    ],
)
def test_abort_in_every_state(
    state: RequestState, settings: dict[str, object], step: int, actions: list[object]
) -> None:
    """All that B holds is free in that same step; A's tokens are what they would have been."""
    config = pool(**{"num_blocks": 4} | settings)  # type: ignore[arg-type]
    expected = oracle_outputs(config, [*STORY, ask("C", 2, 12)], CellRunner(4))
    requests = [*map(again, STORY), ask("C", 2, 12, arrival_step=7)]
    lab = Lab(config, requests, actions, expected=expected)  # type: ignore[arg-type]
    while lab.engine.steps < step - 1:
        lab.step()
    request = lab.engine.requests["B"]
    assert request.state is state
    held, outputs = set(request.table), list(request.outputs)
    lab.engine.abort("B")
    lab.step()
    assert request.state is RequestState.FINISHED
    if state is not RequestState.FINISHED:
        assert request.finish_reason == "aborted"
        assert request.outputs == outputs
    assert not request.table
    assert not request.host_table
    assert lab.record.states[-1].host_free == 4
    assert held <= {*range(8)}
    record = lab.run()
    assert record.outputs("A") == expected["A"]
    assert record.finish("C") == "length"


def test_abort_before_arrival() -> None:
    record = run(pool(), [ask("A", 3, 4), ask("B", 3, 4, arrival_step=9)], [act(2, "abort", "B")])
    assert record.finish("B") == "aborted"
    assert record.outputs("B") == []
    assert record.steps == 4  # nobody waits for B any more


def test_abort_while_waiting() -> None:
    record = run(pool(), [ask("A", 7, 4), ask("B", 9, 4)], [act(2, "abort", "B")])
    assert record.report(2).finished == ("B",)
    assert record.events("admitted", "B") == []


def test_abort_in_the_middle_of_a_chunked_prefill() -> None:
    record = run(pool(8, chunk_tokens=2), [ask("A", 3, 6), ask("B", 9, 4)], [act(3, "abort", "B")])
    assert record.state(2).kv["B"] == 4
    assert record.state(3).free == 7  # A has 4 positions in one block
    assert record.outputs("B") == []


def test_abort_ends_all_samples() -> None:
    record = run(pool(8), [ask("A", 6, 9, n=3), ask("B", 3, 4)], [act(3, "abort", "A")])
    assert record.report(3).finished == ("A", "A.2", "A.3")
    assert [record.finish(id) for id in ("A", "A.2", "A.3")] == ["aborted"] * 3
    assert record.finish("B") == "length"


def test_abort_ends_the_samples_that_are_left() -> None:
    """The first sample has stopped by itself; aborting its id still ends the others."""
    plain = run(pool(8), [ask("A", 6, 9, n=2)])
    first = plain.outputs("A")[0]
    assert first != plain.outputs("A.2")[0]
    record = run(pool(8), [ask("A", 6, 9, n=2, stop=(first,))], [act(3, "abort", "A")])
    assert record.finish("A") == "stop"
    assert record.finish("A.2") == "aborted"


def test_actions_on_the_ended_are_recorded_and_ignored() -> None:
    verbs = ["abort", "preempt", "pause", "resume"]
    requests = [ask("A", 3, 1), ask("B", 3, 9)]
    record = run(pool(), requests, [act(4, verb, "A") for verb in verbs])
    assert [(e.action, e.why) for e in record.events("action_taken")] == [
        (verb, "ended") for verb in verbs
    ]
    assert record.report(4).scheduled == {"B": 1}
    assert record.finish("A") == "length"


def test_actions_on_who_does_not_run_are_ignored() -> None:
    requests = [ask("A", 7, 4), ask("B", 9, 4)]
    actions = [act(2, verb, "B") for verb in ("preempt", "pause", "resume")]
    actions += [act(2, "resume", "A")]
    record = run(pool(), requests, actions)
    assert [e.why for e in record.events("action_taken")] == ["not_running"] * 4
    assert record.finish("A") == record.finish("B") == "length"


# Stops.


def test_a_stop_token_ends_the_request_and_is_delivered() -> None:
    whole = run(pool(8), [ask("A", 7, 6)]).outputs("A")
    record = run(pool(8), [ask("A", 7, 6, stop=(whole[2],))])
    assert record.outputs("A") == whole[:3]
    assert record.finish("A") == "stop"


def test_the_end_of_text_counts_only_when_asked() -> None:
    whole = run(pool(8), [ask("A", 7, 6)]).outputs("A")
    runner = CellRunner(4, eos_ids=[whole[1]])
    assert run(pool(8), [ask("A", 7, 6)], runner=runner).outputs("A") == whole
    runner = CellRunner(4, eos_ids=[whole[1]])
    record = run(pool(8), [ask("A", 7, 6, ignore_eos=False)], runner=runner)
    assert record.outputs("A") == whole[:2]
    assert record.finish("A") == "stop"


def test_a_stop_string_ends_the_text_before_it() -> None:
    """Without a tokenizer the model's text of token 7 is `[7]`: a stop string may lie across two."""
    config = pool(8)
    whole = run(config, [ask("A", 7, 6)], runner=model_runner(config)).outputs("A")
    stop = f"{str(whole[2])[-1]}][{str(whole[3])[0]}"
    record = run(config, [ask("A", 7, 6, stop=(stop,))], runner=model_runner(config))
    request = record.request("A")
    assert request.finish_reason == "stop"
    text = "".join(f"[{token}]" for token in whole)
    assert record.text("A") == text[: text.index(stop)]
    assert request.outputs == whole[: len(request.outputs)]


def test_joined_pieces_are_the_text() -> None:
    config = pool(method="swap")
    engine = Engine(config, model_runner(config))
    for request in STORY:
        engine.add_request(again(request))
    pieces: dict[str, str] = {}
    for delivered in engine.stream():
        pieces[delivered.id] = pieces.get(delivered.id, "") + delivered.text
    for id, request in engine.requests.items():
        assert pieces[id] == "".join(f"[{token}]" for token in request.outputs)


def test_stopping_in_a_recovery_frees_everything() -> None:
    whole = run(pool(), STORY).outputs("B")
    requests = [again(STORY[0]), ask("B", 7, 4, stop=(whole[2],))]
    record = run(pool(), requests)
    assert record.report(7).finished == ("B",)
    assert record.state(7).free == 4


# The context.


def test_a_history_longer_than_the_context_ends_with_length() -> None:
    """Context 10: A(7) delivers until its history is 11 tokens, 4 outputs."""
    record = run(pool(8), [ask("A", 7, 9), ask("B", 3, 4)], runner=CellRunner(4, context=10))
    assert record.finish("A") == "length"
    assert len(record.outputs("A")) == 4
    message = record.request("A").message
    assert message is not None
    assert "11" in message
    assert "10" in message
    assert record.request("B").message is None


def test_a_prompt_longer_than_the_context_ends_at_once() -> None:
    record = run(pool(8), [ask("A", 11, 9), ask("B", 3, 4)], runner=CellRunner(4, context=10))
    assert record.finish("A") == "length"
    assert record.outputs("A") == []
    assert "10" in (record.request("A").message or "")
    assert record.finish("B") == "length"
    assert len(record.outputs("B")) == 4


def test_a_prompt_as_long_as_the_context_gives_one_token() -> None:
    record = run(pool(8), [ask("A", 10, 9)], runner=CellRunner(4, context=10))
    assert len(record.outputs("A")) == 1


# A model run that fails.


@pytest.mark.parametrize(
    "error",
    [RuntimeError("out of memory"), MemoryError("no"), IndexError("index"), ValueError("shape")],
)
def test_a_failed_run_ends_its_batch_and_nobody_else(error: Exception) -> None:
    """The second execution fails: A was in it, C arrives later and goes on."""
    runner = CellRunner(4, fail_execute=[1], error=error)
    record = run(pool(), [ask("A", 5, 4), ask("C", 3, 2, arrival_step=3)], runner=runner)
    assert record.finish("A") == "error"
    assert "the model run failed" in (record.request("A").message or "")
    assert len(record.outputs("A")) == 1
    assert record.state(2).free == 4
    assert record.finish("C") == "length"


def test_a_failed_run_spares_who_waits_or_is_parked() -> None:
    runner = CellRunner(4, fail_execute=[4])
    record = run(pool(method="swap"), STORY, runner=runner)
    assert record.finish("A") == "error"
    assert record.finish("B") == "length"
    assert record.states[-1].host_free == 4


def test_blocks_of_a_failed_run_are_never_shared() -> None:
    """A's two full blocks were to be written by the run that failed: B, with the same prompt, must
    not find them."""
    prompt = own_tokens("same", 9)
    runner = CellRunner(4, fail_execute=[0])
    record = run(
        pool(8, prefix_cache=True),
        [ask("A", prompt, 4), ask("B", prompt, 4, arrival_step=2)],
        runner=runner,
    )
    assert record.finish("A") == "error"
    assert record.state(1).cached == 0
    assert record.from_cache("B") == 0
    assert record.finish("B") == "length"


def test_blocks_written_before_a_failed_run_stay_shareable() -> None:
    """A's first block is complete after step 1; step 2 fails while it fills the second."""
    prompt = own_tokens("same", 9)
    runner = CellRunner(4, fail_execute=[1])
    record = run(
        pool(8, prefix_cache=True, chunk_tokens=4),
        [ask("A", prompt, 4), ask("B", prompt, 4, arrival_step=2)],
        runner=runner,
    )
    assert record.state(2).cached == 1
    assert record.from_cache("B") == 4
    assert record.finish("B") == "length"
