"""What the lessons say by themselves: the first check, a refused run."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kvlab.course import compare
from kvlab.course.cost import own_machine
from kvlab.course.measured import on_this_machine
from kvlab.course.record import recorded
from kvlab.errors import BadInput
from kvlab.lab import notebook as lab
from kvlab.lab import ready
from kvlab.lab.notebook import crossovers, model_or_story, try_run


def test_one_part_that_is_wrong_hides_nothing_of_the_others(monkeypatch):
    def broken():
        raise BadInput("this part is broken.")

    def crashed():
        raise ZeroDivisionError("oh")

    parts = {"kernel": ready.kernel, "one": broken, "other": crashed, "packages": ready.packages}
    monkeypatch.setattr(ready, "PARTS", parts)
    table = ready.all_well()
    assert [mark for _, mark, _ in table.rows] == [ready.WELL, ready.LOOK, ready.LOOK, ready.WELL]
    assert table.rows[1][2] == "this part is broken."
    assert "ZeroDivisionError: oh" in table.rows[2][2]
    assert table.note == "2 of 4 need a look."


def test_a_refusal_is_one_sentence_in_a_notebook(capsys):
    """IPython shows no way through our code for what a person got wrong."""
    shell = InteractiveShell()
    shell.run_cell("from kvlab.lab.notebook import run\nrun('figure-5', 'engine.block_sise=4')")
    shown = capsys.readouterr().out
    assert "BadInput: scenario figure-5: engine.block_sise is not a known key" in shown
    assert "Traceback" not in shown
    assert "run_lesson" not in shown


def test_an_attempt_says_how_it_went():
    assert try_run("figure-5").right is True
    refused = try_run("figure-5", "engine.num_blocks=few")
    assert refused.right is False
    assert "engine.num_blocks" in str(refused)


def test_a_model_that_is_not_here_is_replaced_and_named():
    choice = model_or_story("acme/none")
    assert str(choice) == "story"
    assert "kvlab model get acme/none" in choice.text
    assert str(model_or_story("story")) == "story"


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), "fast", True, None])
def test_own_numbers_are_above_zero(wrong):
    with pytest.raises(BadInput, match="link_gb"):
        own_machine("mine", tflops=1, memory_gb=1, link_gb=wrong)


def test_more_copies_never_shrink_the_stretch_of_recompute():
    table = crossovers(own_machine("mine", tflops=1000, memory_gb=3000, link_gb=60))
    rows = [row[2] for row in table.table().rows]
    assert rows[0].startswith("from ")
    assert rows[-1] == "at no length"
    with pytest.raises(BadInput, match="choose H100"):
        crossovers("a toaster")


@pytest.mark.parametrize("lengths", [(), (0,), (4_096,)])
def test_lengths_beyond_the_context_are_refused(lengths):
    with pytest.raises(BadInput, match="from 1 to 2,048"):
        on_this_machine(lengths=lengths)


def test_only_a_clear_difference_decides():
    slow, quick = (compare.Spread(s, 0.9 * s, 1.1 * s, 5) for s in (0.100, 0.010))
    assert compare.clearly_quicker(slow, quick) == "swap"
    assert compare.clearly_quicker(quick, slow) == "recompute"
    near = compare.Spread(0.013, 0.0125, 0.014, 5)
    assert compare.clearly_quicker(near, quick) is None  # apart, but not by much
    wide = compare.Spread(0.100, 0.005, 0.2, 5)
    assert compare.clearly_quicker(wide, quick) is None


LAB: Any = lab
"""The same, to be called with what it does not take."""


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: LAB.player("figure-1"),
            "this takes a run and got 'figure-1': run a scenario first",
        ),
        (lambda: LAB.memory(None), "this takes a run and got None"),
        (lambda: LAB.delays({}), "this takes a run and got {}"),
        (lambda: LAB.what_if("x"), "this takes a run and got 'x'"),
        (lambda: LAB.run("figure-1", 3), "3: write a setting as text"),
        (lambda: LAB.methods(["a=b"]), "write a setting as text"),
        (lambda: LAB.methods(repeats="x"), "repeats 'x': choose 2 to 100"),
        (lambda: LAB.costs([]), "machine []: choose"),
        (lambda: LAB.fits(length=-1), "--length -1: give a number of tokens from 1 on"),
        (lambda: LAB.fits(length="x"), "--length 'x': give a number"),
    ],
)
def test_what_a_learner_mixes_up_gets_one_sentence(call, says):
    with pytest.raises(BadInput) as told:
        call()
    assert says in str(told.value)
    assert "\n" not in str(told.value)


def test_settings_that_are_no_text_are_a_verdict_of_try_run():
    assert "write a setting as text" in LAB.try_run("figure-1", 3).text


def test_the_time_of_a_method_has_both_directions_of_its_copies() -> None:
    """Figure 4: B is preempted in step 3, where swap copies out, and comes back in step 7."""
    trace = recorded("figure-4")
    seconds = {step["step"]: step["seconds"] for step in trace.steps}
    assert compare.two_steps(trace) == seconds[3] + seconds[7]
