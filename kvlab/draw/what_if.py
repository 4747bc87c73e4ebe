"""What if: change one thing at the player's cursor, run it live, and see both runs side by side."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets

from kvlab.draw.controls import bounded, button, flow, menu, show_if, stack
from kvlab.draw.guard import guarded
from kvlab.draw.notebook_still import Bundle, Kept, with_still
from kvlab.draw.pair import Pair
from kvlab.draw.player import Player
from kvlab.runs.fork import (
    NEXT_VICTIM,
    NUM_BLOCKS,
    SETTINGS,
    Departure,
    Fork,
    checked_size,
    choices,
    departure,
    scenario_of,
    step_of,
)
from kvlab.runs.limits import Progress
from kvlab.runs.live import LiveRun
from kvlab.runs.run import Run
from kvlab.runs.scenario import Scenario
from kvlab.trace.document import Trace
from kvlab.trace.narration import fill
from kvlab.trace.ranges import lesson_range
from kvlab.trace.speech import Speech

if TYPE_CHECKING:
    from kvlab.models.loading import LoadedModel

MOST_SECONDS = 300.0
LEAST_STEPS, TIMES_AS_LONG = 1_000, 20
"""A forked run may take so many steps, or so many times those of the first run."""


class WhatIf(Kept, ipywidgets.VBox):
    """Controls for a fork, and the two runs once one has been made.

        WhatIf(run)                    # with a player of its own, to choose the cursor in
        WhatIf(trace, player=player)   # beside a player that is there; follows its cursor and trace

    `load` brings the model the first time that one is needed (default: the scenario's own). Raises
    BadInput for a trace whose scenario cannot be run.
    """

    def __init__(
        self,
        made: Run | Trace,
        *,
        player: Player | None = None,
        load: Callable[[], LoadedModel | None] | None = None,
        language: str = "en",
    ) -> None:
        self.language = language
        self.speech = Speech(language)
        self.words = self.speech.words
        self.load = load
        self.model: LoadedModel | None = None
        self.live: LiveRun | None = None
        self.pair: Pair | None = None
        self.fork: Fork | None = None  # of the pair
        self.silent = False
        self.step = 0
        self.player = player or player_of(made.trace if isinstance(made, Run) else made, language)
        own = [] if player else [self.player]
        self.build()
        super().__init__([*own, self.panel])
        self.take(made)
        self.player.observe(self.cursor_moved, "cursor")
        self.player.observe(self.trace_changed, "trace")

    def build(self) -> None:
        """Every widget once; the step and the setting change what is in them."""
        self.heading = ipywidgets.HTML(f"<h3>{escape(self.t('title'))}</h3>")
        self.where = ipywidgets.HTML()
        self.what = menu([self.t("num_blocks")], self.t("change"))
        self.value = menu(["–"], self.t("to"))
        self.blocks = ipywidgets.BoundedIntText(
            value=1,
            min=1,
            max=1_000_000,
            description=self.t("blocks"),
            style={"description_width": "auto"},
            layout={"width": "auto"},
        )
        self.run_button = button(self.t("run"), primary=True)
        self.stop_button = button(self.t("stop"))
        self.status = ipywidgets.HTML()
        self.card = ipywidgets.HTML()
        self.result = ipywidgets.VBox()
        self.file = ipywidgets.HTML()
        self.panel = stack(
            self.heading,
            self.where,
            flow(self.what, self.value, self.blocks, self.run_button, self.stop_button),
            self.status,
            self.card,
            self.result,
            self.file,
        ).add_class("kvlab-what-if")
        self.what.observe(self.setting_chosen, "index")
        self.run_button.on_click(self.run_pressed)
        self.stop_button.on_click(self.stop_pressed)

    def t(self, key: str, **values: Any) -> str:
        """A text of the catalogue."""
        return fill(self.words["what_if"][key], values, self.words)

    # What is there to choose.

    def take(self, made: Run | Trace) -> None:
        """Another run to fork. A run that is still going on for the one before is dropped."""
        self.drop()
        self.trace = made.trace if isinstance(made, Run) else made
        self.scenario: Scenario = scenario_of(made)
        self.blocks.value = self.trace.document["pool"]["num_blocks"] + 1
        self.step = 0
        self.offer()
        self.idle()

    def offer(self) -> None:
        """The settings that make sense at the cursor's step."""
        step = step_of(self.trace, self.player.cursor)
        if step == self.step:
            return
        self.step = step
        found = choices(self.trace, step)
        self.settings = [name for name in SETTINGS if name in found or name == NUM_BLOCKS]
        self.values = found
        self.silent = True
        try:
            self.what.options = [self.t(name) for name in self.settings]
            self.what.index = 0
        finally:
            self.silent = False
        self.show_values()

    def show_values(self) -> None:
        """The values of the chosen setting."""
        setting = self.settings[bounded(self.what.index, self.settings)]
        sized = setting == NUM_BLOCKS
        if not sized:
            self.value.options = [self.name_of(setting, value) for value in self.values[setting]]
            self.value.index = 0
        show_if(self.value, not sized)
        show_if(self.blocks, sized)
        nothing = not {"victim", NEXT_VICTIM, "method"} & set(self.settings)
        texts = [self.t("from_start") if sized else self.t("from_step", step=self.step)]
        texts += [self.t("nothing", step=self.step)] if nothing else []
        self.where.value = paragraph(" ".join(texts))

    def name_of(self, setting: str, value: str) -> str:
        """A value in words: a request's id stays as it is."""
        if setting == NEXT_VICTIM:
            return value
        return fill(f"{{value:{setting}}}", {"value": value}, self.words)

    def chosen(self) -> Fork:
        """What the controls say. Raises BadInput for anything that is not on offer."""
        setting = self.settings[bounded(self.what.index, self.settings)]
        if setting == NUM_BLOCKS:
            return Fork(self.step, setting, checked_size(self.blocks.value))
        values = self.values[setting]
        return Fork(self.step, setting, values[bounded(self.value.index, values)])

    # What widgets call.

    @guarded
    def cursor_moved(self, _: object) -> None:
        self.offer()

    @guarded
    def trace_changed(self, _: object) -> None:
        self.clear()
        self.take(Trace(self.player.trace))

    @guarded
    def setting_chosen(self, _: object) -> None:
        if not self.silent:
            self.show_values()

    @guarded
    def run_pressed(self, _: object) -> None:
        if self.live is None:
            self.start(self.chosen())

    @guarded
    def stop_pressed(self, _: object) -> None:
        if self.live is not None:
            self.say("stopping")
            self.live.stop()

    def fail(self, message: str) -> None:
        """Show a card; take it away with an empty message."""
        style = "border:1px solid currentColor;border-radius:6px;padding:8px 14px;line-height:1.5"
        card = f'<div role="alert" style="{style}">{escape(message)}</div>'
        self.card.value = card if message else ""

    def clear(self) -> None:
        """Take away the two runs: the player beside them shows another one."""
        old, self.result.children = self.result.children, ()
        for widget in old:
            widget.close()
        self.pair = self.fork = None
        self.status.value = self.file.value = ""
        self.fail("")

    # Running.

    def start(self, fork: Fork) -> None:
        """Run the fork in a thread; what is shown stays until there is something else."""
        scenario = fork.scenario(self.scenario)
        self.fail("")
        live = LiveRun(
            scenario,
            on_done=lambda run: self.hear(live, lambda: self.show(fork, run)),
            on_error=lambda text: self.hear(live, lambda: self.tell_failed(text)),
            on_stopped=lambda: self.hear(live, lambda: self.say("stopped")),
            on_progress=lambda progress: self.progressed(live, progress),
            model=self.model,
            load=self.load,
            most_seconds=MOST_SECONDS,
            most_steps=max(LEAST_STEPS, TIMES_AS_LONG * len(self.trace.steps)),
        )
        self.live = live
        self.busy()
        if scenario.model is not None and self.model is None:
            self.say("loading")
        live.start()

    def progressed(self, live: LiveRun, progress: Progress) -> None:
        if live is self.live and live.state == "running":
            self.say(
                "progress",
                step=progress.step,
                finished=progress.finished,
                requests=progress.requests,
                tokens=progress.tokens,
                seconds=f"{progress.seconds:.1f}",
            )

    def hear(self, live: LiveRun, tell: Callable[[], None]) -> None:
        """The end of a run, unless it was dropped meanwhile."""
        self.model = live.model or self.model
        if live is not self.live:
            return
        tell()  # where that fails, the run tells of it by `on_error`, and this is called once more
        self.live = None
        self.idle()

    def drop(self) -> None:
        """Forget the run that is going on."""
        live, self.live = self.live, None
        if live is not None:
            live.stop()

    def tell_failed(self, text: str) -> None:
        self.say("failed")
        self.fail(text)

    def show(self, fork: Fork, run: Run) -> None:
        """Both runs side by side."""
        left = departure(self.trace, run.trace, fork)
        pair = Pair(
            self.trace,
            run.trace,
            fork=1 if fork.from_start else fork.step,
            title=self.change_text(fork),
            note=self.warning(left, run.trace) if left else "",
            language=self.language,
        )
        old, self.result.children = self.result.children, (pair,)
        for widget in old:
            widget.close()
        self.pair, self.fork = pair, fork
        self.say("done", change=self.change_text(fork))
        if left is None and not fork.from_start:
            before = sum(event["step"] < fork.step for event in self.trace.events)
            self.status.value += paragraph(self.t("repeated", events=before))
        self.file.value = download(run.scenario, self.t("file"), self.t("save"))

    def change_text(self, fork: Fork) -> str:
        return self.t(f"change_{fork.setting}", step=fork.step, value=fork.value)

    def warning(self, left: Departure, now: Trace) -> str:
        """In plain words: the runs parted before the fork, and what may be behind it."""
        was_run, now_run = self.trace.document["run"], now.document["run"]
        return self.t(
            "departed",
            event=left.event + 1,
            step=left.step,
            was_device=was_run["device"],
            was_dtype=was_run["dtype"],
            now_device=now_run["device"],
            now_dtype=now_run["dtype"],
        )

    def say(self, key: str, **values: Any) -> None:
        self.status.value = f'<div role="status">{escape(self.t(key, **values))}</div>'

    def busy(self) -> None:
        for control in (self.what, self.value, self.blocks, self.run_button):
            control.disabled = True
        self.stop_button.disabled = False

    def idle(self) -> None:
        for control in (self.what, self.value, self.blocks, self.run_button):
            control.disabled = False
        self.stop_button.disabled = True

    def speak(self, speech: Speech) -> None:
        """The same in another language; two runs that are shown are spoken of anew."""
        self.language, self.speech, self.words = speech.language, speech, speech.words
        self.heading.value = f"<h3>{escape(self.t('title'))}</h3>"
        labels = {self.what: "change", self.value: "to", self.blocks: "blocks"}
        labels |= {self.run_button: "run", self.stop_button: "stop"}
        for control, key in labels.items():
            control.description = self.t(key)
        if self.player in self.children:
            self.player.speak(speech)
        self.step = 0
        self.offer()
        if self.pair is not None and self.fork is not None:
            self.pair.title = self.change_text(self.fork)
            self.pair.speak(speech)
            self.say("done", change=self.pair.title)

    def _repr_mimebundle_(self, **kwargs: Any) -> Bundle:
        """The widget, and what it has found so far for readers without a kernel."""
        if self.pair is None or self.fork is None:
            title = self.t("title")
            return with_still(self, f"<p>{escape(title)}</p>", title)
        table = self.pair.differences
        text = self.change_text(self.fork)
        return with_still(
            self, f"<p>{escape(text)}</p>{table.as_html()}", f"{text}\n\n{table.as_markdown()}"
        )

    def close(self) -> None:
        """Close the widget; a run that is going on is stopped."""
        self.drop()
        super().close()


def player_of(trace: Trace, language: str) -> Player:
    """A player to choose the cursor in, opened on the lesson's part."""
    start, stop = lesson_range(trace)
    return Player(trace=trace, start=start, stop=stop, language=language)


def paragraph(text: str) -> str:
    return f'<p style="margin:0;max-width:75ch;line-height:1.5">{escape(text)}</p>'


def download(scenario: Scenario, text: str, label: str) -> str:
    """The scenario as a link that saves it, and to be read."""
    written = json.dumps(scenario.raw, ensure_ascii=False, indent=2) + "\n"
    data = base64.b64encode(written.encode()).decode()
    link = f"data:application/json;base64,{data}"
    return (
        f"{paragraph(text)}"
        f'<a download="{escape(scenario.name)}.json" href="{link}">{escape(label)}</a>'
        f"<details><summary>{escape(scenario.name)}.json</summary>"
        f'<pre style="white-space:pre-wrap">{escape(written)}</pre></details>'
    )
