"""What a page asks of the engine in its tab. Runs in Pyodide, in a worker; see js/worker.js.

Questions and answers are JSON. A run gives the browser its turn between two steps, so that it can be
stopped; what a stopped run had made is dropped.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kvlab.draw.packed import with_picture
from kvlab.errors import BadInput
from kvlab.export.tab import pairs
from kvlab.export.tab.ground import ground_in_tab
from kvlab.export.tab.runner import Call
from kvlab.files.plain_data import parse
from kvlab.runs.fork import Fork
from kvlab.runs.fork import scenario_of as scenario_of_run
from kvlab.runs.limits import Tally, TooLong, refuse_too_large
from kvlab.runs.run import Ground, Run, RunInSteps
from kvlab.runs.scenario import Scenario, load_scenario, scenario_from, scenario_names
from kvlab.trace.document import FORMAT, Trace

TURN = 0.05
"""Seconds of work after which the browser gets its turn."""

Hear = Callable[[str], bool]
"""Told how far a run has got, as JSON; True when it is to stop."""


class Stopped(BaseException):
    """Whoever asked for the run has asked it to stop."""


class CardLost(BaseException):
    """The graphics card went away in mid-run. No Exception: the engine would end requests for it."""


class Visit:
    """One tab. `call` leads to its model and memory."""

    def __init__(self, call: Callable[[str, str], Any]) -> None:
        """`call` gives an answer at once or, from a graphics card, later (an awaitable)."""

        def answered(method: str, given: str) -> str:
            found = call(method, given)
            return found if isinstance(found, str) else waited_for(found)

        self._call: Call = answered

    async def answer(self, method: str, given: str, hear: Hear) -> str:
        """One question: {found}, or {fault} with a sentence for the person, or {stopped}."""
        methods: dict[str, Callable[..., Awaitable[Any]]] = {
            "run": self.run,
            "open": self.open,
            "offers": self.offers,
            "what_if": self.what_if,
            "compare": self.compare,
        }
        try:
            found = {"found": await methods[method](*json.loads(given), hear)}
        except (BadInput, TooLong) as error:
            found = {"fault": str(error)}
        except Stopped:
            found = {"stopped": True}
        except MemoryError:
            found = {
                "fault": "This run needs more memory than a tab has: fewer blocks or tokens need less."
            }
        finally:
            self._call("end", "[]")
            gc.collect()  # engine and scheduler know each other
        return json.dumps(found, ensure_ascii=False)

    async def run(self, given: Any, hear: Hear) -> dict[str, Any]:
        """A scenario (a name, or what a scenario file holds) to its end: its summary, its trace, that
        trace as the player takes it, and `card_lost`: why it was computed again without the graphics
        card (null: it was not)."""
        made, card_lost = await self._run(scenario_of(given), hear)
        return {"summary": made.summary, "card_lost": card_lost, **with_picture(made.trace)}

    async def open(self, name: str, text: str, hear: Hear) -> dict[str, Any]:
        """A file's scenario and, where it is a trace, the trace. Raises BadInput, naming the file."""
        name = name[:80]
        try:
            data = parse(text, as_json=name.endswith(".json"))
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from None
        if isinstance(data, dict) and data.get("format") == FORMAT:
            trace = Trace.from_json(data, name)
            return {"scenario": trace.document["scenario"], **with_picture(trace)}
        return {"scenario": scenario_from(data, Path(), name).raw}

    async def offers(
        self, document: dict[str, Any], cursor: int, language: str, hear: Hear
    ) -> dict[str, Any]:
        """What could be changed at a cursor of a trace that this lab made: see pairs.offers."""
        return pairs.offers(Trace(document), cursor, language)

    async def what_if(
        self, document: dict[str, Any], fork: list[Any], language: str, hear: Hear
    ) -> dict[str, Any]:
        """The trace's run with one change, (step, setting, value), and both beside each other."""
        old, change = Trace(document), Fork(*fork)
        made, _ = await self._run(change.scenario(scenario_of_run(old)), hear)
        return pairs.forked(old, made.trace, change, language)

    async def compare(self, given: Any, language: str, hear: Hear) -> dict[str, Any]:
        """A scenario by recompute and by swap, beside each other."""
        scenario = scenario_of(given)
        one, _ = await self._run(pairs.by_method(scenario, pairs.WAYS[0]), hear)
        self._call("end", "[]")
        other, _ = await self._run(pairs.by_method(scenario, pairs.WAYS[1]), hear)
        return pairs.by_both(one.trace, other.trace, language)

    async def _run(self, scenario: Scenario, hear: Hear) -> tuple[Run, str | None]:
        refuse_too_large(scenario)
        try:
            return await self._driven(ground_in_tab(scenario, self._call), hear), None
        except CardLost as lost:
            self._call("end", "[]")
            ground = ground_in_tab(scenario, self._call, on_card=False)
            return await self._driven(ground, hear), str(lost)

    async def _driven(self, ground: Ground, hear: Hear) -> Run:
        going, tally = RunInSteps(ground), Tally(ground.scenario)
        turn = time.perf_counter()
        for report in going:
            progress = tally.add(report)
            tally.refuse_too_long()
            if time.perf_counter() - turn > TURN:
                await asyncio.sleep(0)
                if hear(json.dumps(progress.as_json())):
                    raise Stopped
                turn = time.perf_counter()
        return going.run()


def waited_for(later: Any) -> str:
    """What a promise of JavaScript's brings. Raises CardLost where the graphics card went away."""
    from pyodide.ffi import JsException, run_sync  # type: ignore[import-not-found]  # in a tab alone

    try:
        found: str = run_sync(later)
    except JsException as error:
        if error.name == "CardLost":
            raise CardLost(error.message) from None
        raise
    return found


def scenario_of(given: Any) -> Scenario:
    """Raises BadInput for what is no scenario."""
    if isinstance(given, str) and given in scenario_names():
        return load_scenario(given)
    return scenario_from(given, Path(), "scenario")
