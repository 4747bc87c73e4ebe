/** Moving through the run: buttons, and the slider with its marks. */
import { h, memo } from "../dom.js";
import { icon } from "../icons.js";
import { nextPreemption, stepIndex } from "../model.js";

export const SPEEDS = [0.25, 0.5, 1, 2, 4];

export function transport(model, cursor, ui, act) {
  const { trace, t } = model;
  const { low, high } = ui;
  const ranged = !ui.lifted && (low > 0 || high < trace.events.length);
  const key = (name, title, iconName, off, run, extra = {}) =>
    h(
      "button",
      {
        key: name,
        type: "button",
        class: `k-button k-${name}`,
        "aria-label": title,
        title,
        "data-act": name,
        // Not `disabled`: a button that loses its use must not lose the focus with it.
        "aria-disabled": off ? "true" : undefined,
        onclick: off ? null : run,
        ...extra,
      },
      icon(iconName),
    );
  const start = cursor <= low;
  const end = cursor >= high;
  return h(
    "div",
    { class: "k-transport", role: "group", "aria-label": t("controls") },
    h(
      "div",
      { class: "k-keys" },
      key("first", t("act_first"), "first", start, act.first),
      key("stepback", t("act_step_back"), "stepBack", start, act.stepBack),
      key("back", t("act_back"), "back", start, act.back),
      key("forward", t("act_forward"), "forward", end, act.forward, { "data-main": "true" }),
      key("stepforward", t("act_step_forward"), "stepForward", end, act.stepForward),
      key("last", t("act_last"), "last", end, act.last),
      key("play", t(ui.playing ? "act_pause" : "act_play"), ui.playing ? "pause" : "play", false, act.play),
    ),
    slider(model, cursor, ui, act),
    h(
      "div",
      { class: "k-more" },
      h(
        "select",
        {
          key: "speed",
          class: "k-button k-speed",
          "aria-label": t("speed"),
          value: String(ui.speed),
          onchange: (event) => act.speed(Number(event.target.value)),
        },
        SPEEDS.map((speed) => h("option", { value: String(speed) }, `${speed}×`)),
      ),
      h(
        "button",
        {
          key: "preemption",
          type: "button",
          class: "k-button",
          "data-act": "preemption",
          "aria-disabled": act.within(nextPreemption(model, cursor)) === null ? "true" : undefined,
          onclick: act.preemption,
        },
        t("next_preemption"),
      ),
      ranged &&
        h(
          "button",
          { key: "lift", type: "button", class: "k-button", "data-act": "lift", onclick: act.lift },
          t("whole_run"),
        ),
      asks(model) &&
        h(
          "button",
          {
            key: "predict",
            type: "button",
            class: "k-button",
            "data-act": "predict",
            "aria-pressed": String(ui.predict),
            onclick: act.predict,
          },
          t(ui.predict ? "predict_on" : "predict_off"),
        ),
      sheetButton(t("legend"), "legend", ui, act),
      sheetButton(t("more"), "more", ui, act),
      sheetButton("?", "help", ui, act, t("help"), "k-wide-only"),
    ),
  );
}

/** Whether there is anything to predict. */
const asks = (model) => model.preemptions.length > 0 || model.trace.scenario.lesson?.questions;

function sheetButton(text, name, ui, act, label, className = "") {
  return h(
    "button",
    {
      key: name,
      type: "button",
      class: `k-button ${className}`,
      "data-act": name,
      "aria-label": label,
      title: label,
      "aria-expanded": ui.sheet === name ? "true" : "false",
      onclick: () => act.sheet(name),
    },
    text,
  );
}

function slider(model, cursor, ui, act) {
  const { trace, t } = model;
  const { low, high } = ui;
  const span = Math.max(1, high - low);
  return h(
    "div",
    { class: "k-slider", style: `--at:${(cursor - low) / span}` },
    h("i", { class: "k-track" }),
    memo(model.memory, "marks", [low, high, ui.predict], () => marks(model, low, high, span, ui)),
    h("input", {
      key: "input",
      type: "range",
      min: low,
      max: high,
      step: 1,
      value: cursor,
      "aria-label": t("position_in_run"),
      "aria-valuetext": t("slider_value", {
        event: cursor,
        events: trace.events.length,
        step: stepIndex(trace, cursor) + 1,
        steps: trace.steps.length,
      }),
      oninput: (event) => act.goto(Number(event.target.value)),
    }),
  );
}

/** What happens where, and where a question is put. */
function marks(model, low, high, span, ui) {
  const place = (cursor) => `--at:${(cursor - low) / span}`;
  const events = model.marks
    .filter(({ cursor }) => cursor > low && cursor <= high)
    .map(({ cursor, mark }) =>
      h("i", { key: cursor, class: "k-mark", "data-mark": mark, style: place(cursor) }),
    );
  // Two that would lie on each other are one.
  const apart = ({ at }, i, all) => i === 0 || at - all[i - 1].at > span / 50;
  const asked = ui.predict
    ? model.questions.filter(({ at }) => at >= low && at < high).filter(apart)
    : [];
  return h(
    "span",
    { key: "marks", "aria-hidden": "true" },
    events,
    asked.map(({ at, key }) =>
      h("i", { key, class: "k-mark", "data-mark": "asked", style: place(at) }, "?"),
    ),
  );
}
