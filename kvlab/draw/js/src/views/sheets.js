/** What opens over the picture: keys, legend, glossary, results, more, and one block. */
import { h } from "../dom.js";
import { icon } from "../icons.js";
import { LISTED } from "../keys.js";
import { lastOf, nextEventOf, nextOf } from "../model.js";
import { badge } from "../owners.js";
import { glossary } from "../terms.js";
import { results } from "./ask.js";
import { blockName, openBlock } from "./block.js";

export function sheet(model, state, cursor, ui, act) {
  const { t } = model;
  const name = ui.sheet;
  if (!name) return null;
  const inside = {
    help: () => keys(t),
    legend: () => legend(t),
    terms: () => glossary(model),
    results: () => results(model, ui, act),
    more: () => more(model, cursor, ui, act),
    block: () => openBlock(model, state, cursor, ui.open),
  }[name];
  const title = name === "block" ? t("block", { block: blockName(ui.open) }) : t(name);
  return h(
    "section",
    { key: `sheet ${name}`, class: "k-sheet", "data-sheet": name, "aria-label": title },
    h(
      "div",
      { class: "k-bar" },
      h("h3", null, title),
      h(
        "button",
        { type: "button", class: "k-button k-close", "aria-label": t("close"), onclick: act.close },
        "×",
      ),
    ),
    inside(),
  );
}

function keys(t) {
  return h(
    "dl",
    { class: "k-list" },
    LISTED.map(([name, what]) => [
      h("dt", null, h("kbd", null, name.startsWith("key_") ? t(name) : name)),
      h("dd", null, t(what)),
    ]),
  );
}

/** Places to go to, how the picture is shown, and other sheets. */
function more(model, cursor, ui, act) {
  const { t, ids, owners } = model;
  const button = (name, words, run, extra = {}, children = []) =>
    h(
      "button",
      { key: name, type: "button", class: "k-button", "data-act": name, onclick: run, ...extra },
      children,
      t(words),
    );
  const off = (found) => ({ "aria-disabled": act.within(found) === null ? "true" : undefined });
  const switched = (name, words) =>
    button(name, words, act[name], { role: "switch", "aria-checked": String(Boolean(ui[name])) }, [
      h("span", { class: "k-switch" }),
    ]);
  const named = ids.slice(0, 12);
  return [
    h(
      "div",
      { class: "k-row-of-buttons" },
      button("preemption", "next_preemption", act.preemption, off(nextOf(model.trace.pauses, cursor))),
      button("preemptionBack", "preemption_back", act.preemptionBack, off(lastOf(model.trace.pauses, cursor))),
      button("full", "next_full", act.full, off(nextOf(model.trace.full, cursor))),
      !ui.lifted && (ui.low > 0 || ui.high < model.trace.events.length) && button("lift", "whole_run", act.lift),
    ),
    h("h4", null, t("next_event_of")),
    h(
      "div",
      { class: "k-row-of-buttons" },
      named.map((id) =>
        h(
          "button",
          {
            key: id,
            type: "button",
            class: "k-button",
            "data-event-of": id,
            "aria-label": `${t("next_event_of")} ${id}`,
            onclick: () => act.eventOf(id),
            ...off(nextEventOf(model.trace, cursor, id)),
          },
          badge(owners.get(id)),
        ),
      ),
    ),
    h("h4", null, t("view")),
    h(
      "div",
      { class: "k-row-of-buttons" },
      asks(model) && switched("predict", "predict_first"),
      switched("pauses", "pause_at_key_moments"),
      switched("table", "table_view"),
      switched("projector", "projector"),
      switched("presenter", "presenter"),
    ),
    h(
      "div",
      { class: "k-row-of-buttons" },
      button("openLegend", "legend", () => act.sheet("legend")),
      button("openKeys", "help", () => act.sheet("help")),
      button("terms", "terms", () => act.sheet("terms")),
      button("results", "results", () => act.sheet("results")),
    ),
    h("h4", null, t("take_along")),
    h(
      "div",
      { class: "k-row-of-buttons" },
      ui.link && button("copyLink", "copy_link", act.copyLink),
      ui.file && button("saveRun", "save_run", act.saveRun),
      button("savePicture", "save_picture", act.savePicture),
    ),
    ui.copied &&
      h("p", { role: "status" }, t(ui.copied.done ? "link_copied" : "link_shown")),
    ui.copied &&
      !ui.copied.done &&
      h("input", {
        key: "address",
        class: "k-input k-address",
        readonly: true,
        "aria-label": t("copy_link"),
        value: ui.copied.address,
      }),
  ];
}

/** Whether there is anything to predict. */
const asks = ({ questions }) => questions.length > 0;

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
