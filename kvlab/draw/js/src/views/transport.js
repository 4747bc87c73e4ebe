/** Moving through the run: buttons that stay where they are, and the slider with its marks. */
import { h, memo } from "../dom.js";
import { icon } from "../icons.js";
import { stepIndex } from "../model.js";

export const SPEEDS = [0.25, 0.5, 1, 2, 4];

export function transport(model, cursor, ui, act) {
  const { trace, t } = model;
  const { low, high } = ui;
  const key = (name, title, iconName, off, extra = {}) =>
    h(
      "button",
      {
        key: name,
        type: "button",
        class: "k-button",
        "aria-label": title,
        title,
        "data-control": name,
        disabled: off,
        onclick: act[name],
        ...extra,
      },
      icon(iconName),
    );
  const start = cursor <= low;
  const end = cursor >= high;
  const step = stepIndex(trace, cursor);
  const known = { step: step + 1, steps: trace.steps.length, event: cursor, events: trace.events.length };
  return h(
    "div",
    { key: "transport", class: "k-transport", role: "group", "aria-label": t("controls") },
    h(
      "div",
      { class: "k-keys" },
      key("first", t("act_first"), "first", start),
      key("back", t("act_back"), "back", start),
      key("forward", t("act_forward"), "forward", end, { "data-main": "true" }),
      key("play", t("act_play"), ui.playing ? "pause" : "play", false, { "aria-pressed": String(ui.playing) }),
      key("last", t("act_last"), "last", end, { class: "k-button k-optional" }),
    ),
    key("event", t("act_event"), "event", end),
    slider(model, cursor, ui, act, known),
    h(
      "span",
      { class: "k-where", "data-step": step + 1, "data-event": cursor },
      h("span", null, step < 0 ? t("before_step") : t(ui.ahead ? "step_of" : "step_at", known)),
      h("span", null, t(ui.ahead ? "event_of" : "event_at", known)),
    ),
    h(
      "div",
      { class: "k-more" },
      h(
        "select",
        {
          key: "speed",
          class: "k-button k-optional",
          "aria-label": t("speed"),
          value: String(ui.speed),
          onchange: (event) => act.speed(Number(event.target.value)),
        },
        SPEEDS.map((speed) => h("option", { value: String(speed) }, `${speed}×`)),
      ),
      sheetButton(t("more"), "more", ui, act),
      sheetButton("?", "help", ui, act, t("help"), "k-optional"),
    ),
  );
}

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

function slider(model, cursor, ui, act, known) {
  const { t } = model;
  const { low, high } = ui;
  const span = Math.max(1, high - low);
  const seen = ui.ahead ? high : cursor;
  return h(
    "div",
    { class: "k-slider", style: `--at:${(cursor - low) / span}` },
    h("i", { class: "k-track" }),
    memo(model.memory, "marks", [low, high, seen, ui.predict], () => marks(model, low, seen, span, ui)),
    h("input", {
      key: "input",
      type: "range",
      min: low,
      max: high,
      step: 1,
      value: cursor,
      "aria-label": t("position_in_run"),
      "aria-valuetext": t(ui.ahead ? "slider_value" : "slider_at", known),
      oninput: (event) => act.goto(Number(event.target.value)),
    }),
  );
}

/** What happened where, and where a question is put; of what is not reached nothing. */
function marks(model, low, seen, span, ui) {
  const place = (cursor) => `--at:${(cursor - low) / span}`;
  const events = model.trace.marks
    .filter(([cursor]) => cursor > low && cursor <= seen)
    .map(([cursor, mark]) =>
      h("i", { key: cursor, class: "k-mark", "data-mark": mark, style: place(cursor) }),
    );
  // Two that would lie on each other are one.
  const apart = ({ at }, i, all) => i === 0 || at - all[i - 1].at > span / 50;
  const asked = ui.predict
    ? model.questions.filter(({ at }) => at >= low && at <= seen && at < ui.high).filter(apart)
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
