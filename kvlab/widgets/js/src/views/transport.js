/** Moving through the run: buttons, the slider with its marks, and the sheets. */
import { h } from "../dom.js";
import { icon } from "../icons.js";
import { nextPreemption, stepIndex } from "../model.js";

export const SPEEDS = [0.5, 1, 2, 4];

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
          "aria-disabled": reachable(trace, cursor, high) ? undefined : "true",
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
      sheetButton(t("legend"), "legend", ui, act),
      sheetButton("?", "help", ui, act, t("help")),
    ),
  );
}

const reachable = (trace, cursor, high) => {
  const found = nextPreemption(trace, cursor);
  return found !== null && found <= high;
};

function sheetButton(text, name, ui, act, label) {
  return h(
    "button",
    {
      key: name,
      type: "button",
      class: "k-button",
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
    model.marks
      .filter((mark) => mark.cursor > low && mark.cursor <= high)
      .map((mark) =>
        h("i", {
          key: mark.cursor,
          class: "k-mark",
          "data-mark": mark.mark,
          style: `--at:${(mark.cursor - low) / span}`,
        }),
      ),
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

/** The legend or the list of keys, when asked for. */
export function sheet(model, ui, act) {
  const { t } = model;
  if (!ui.sheet) return null;
  return h(
    "section",
    { class: "k-sheet", "data-sheet": ui.sheet, "aria-label": t(ui.sheet) },
    h(
      "div",
      { class: "k-bar" },
      h("h3", null, t(ui.sheet)),
      h(
        "button",
        { type: "button", class: "k-button k-close", "aria-label": t("close"), onclick: act.close },
        "×",
      ),
    ),
    ui.sheet === "help" ? keys(t) : legend(t),
  );
}

function keys(t) {
  const rows = [
    ["→", "act_forward"],
    ["←", "act_back"],
    [t("key_page_down"), "act_step_forward"],
    [t("key_page_up"), "act_step_back"],
    ["Home", "act_first"],
    ["End", "act_last"],
    [t("key_space"), "act_play_pause"],
    ["N", "next_preemption"],
    ["↑ ↓", "act_tokens"],
    ["?", "act_help"],
    ["Esc", "act_close"],
  ];
  return h(
    "dl",
    { class: "k-list" },
    rows.map(([name, what]) => [h("dt", null, h("kbd", null, name)), h("dd", null, t(what))]),
  );
}

function legend(t) {
  const own = { "data-hue": 0, "data-pattern": 0 };
  const cell = (data, number, sign) =>
    h(
      "span",
      { class: "k-cell", ...own, ...data },
      number !== undefined && h("span", { class: "k-number" }, number),
      sign,
    );
  const chip = (data, tick) =>
    h(
      "span",
      { class: "k-chip", ...data, ...own },
      h("span", { class: "k-token" }, h("small", null, "x1")),
      h("i", { class: "k-kv" }),
      h("span", { class: "k-sent" }, tick && icon("tick")),
    );
  const mark = (name) => h("i", { class: "k-mark", "data-mark": name });
  const rows = [
    [cell({ "data-cell": "filled" }, 4), "legend_filled"],
    [cell({ "data-cell": "empty" }), "legend_empty"],
    [cell({ "data-cell": "ghost" }, 4), "legend_ghost"],
    [cell({ "data-cell": "filled", "data-now": "true" }, 8), "legend_now"],
    [cell({ "data-cell": "filled" }, 3, icon("rebuilt", "k-sign")), "legend_rebuilt"],
    [cell({ "data-cell": "filled" }, 8, h("i", { class: "k-sign k-dot" })), "legend_first"],
    [cell({ "data-cell": "filled" }, 3, icon("in", "k-sign")), "legend_restored"],
    [icon("damaged", "k-damaged"), "legend_damaged"],
    [chip({ "data-kv": "gpu" }, true), "legend_chip_gpu"],
    [chip({ "data-kv": "host" }), "legend_chip_host"],
    [chip({ "data-kv": "none", "data-next": "new" }), "legend_chip_new"],
    [chip({ "data-kv": "none", "data-next": "again" }), "legend_chip_again"],
    [mark("allocated"), "legend_allocated"],
    [mark("preempted"), "legend_preempted"],
    [mark("copied"), "legend_copied"],
    [mark("resumed"), "legend_resumed"],
    [mark("finished"), "legend_finished"],
  ];
  return h(
    "dl",
    { class: "k-list k-legend" },
    rows.map(([sign, what]) => [
      h("dt", { "aria-hidden": "true" }, h("span", { class: "k-own" }, sign)),
      h("dd", null, t(what)),
    ]),
  );
}
