/** One axis of steps for lanes, outputs as received, and free blocks. */
import { h, memo } from "../dom.js";
import { icon } from "../icons.js";
import { stepIndex } from "../model.js";
import { MOST_DRAWN } from "../timeline.js";
import { badge, marks, shortened } from "../owners.js";

const MOST_NAMED = 24;
const RAN = new Set(["prefill", "decode", "recompute", "restore"]);

export function time(model, cursor, ui, act) {
  const { trace, timeline, t, ids } = model;
  const steps = trace.steps.length;
  const current = stepIndex(trace, cursor);
  const dense = steps > MOST_NAMED;
  const receivers = ids.filter(
    (id) => ids.length <= 3 || timeline.lanes.get(id).gaps.length > 0,
  );
  const rows = ids.length + receivers.length + 2;
  const parts = [
    h("h3", { key: "corner", class: "k-lab k-corner", style: at(1, 0) }, t("step")),
  ];
  for (let i = 0; i < steps; i += 1) {
    const hidden = ui.veiled && trace.steps[i].end > cursor;
    const deps = [i === current, hidden];
    parts.push(
      memo(model.memory, `step ${i}`, deps, () => stepButton(model, i, current, rows, hidden, act)),
    );
  }
  if (ui.veiled) parts.push(veil(model, current, cursor, rows));
  if (current >= 0) parts.push(playhead(trace.steps[current], current, cursor, rows));
  parts.push(memo(model.memory, "lanes", [], () => lanes(model, receivers, dense, act)));
  return h(
    "section",
    { key: "steps", class: "k-time", "aria-label": t("time") },
    h(
      "div",
      { class: "k-scroll", "data-scroll": "time" },
      h("div", { class: "k-grid", "data-dense": dense, "data-veiled": ui.veiled, style: `--steps:${Math.max(steps, ui.axis)}` }, parts.filter(Boolean)),
    ),
  );
}

/** A long run at a glance: every lane and the free blocks on one canvas; a click goes to a step. */
export function overview(model, cursor, ui, act) {
  const { trace, t, ids } = model;
  const { steps } = trace;
  const current = stepIndex(trace, cursor);
  const part = current < 0 ? 0 : (current + 1) / steps.length;
  const to = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const index = Math.floor(((event.clientX - box.left) / box.width) * steps.length);
    act.goto(steps[Math.max(0, Math.min(steps.length - 1, index))].end);
  };
  return h(
    "section",
    { key: "time", class: "k-time", "aria-label": t("time") },
    h("div", { class: "k-bar" }, h("h3", null, t("overview", { steps: steps.length, requests: ids.length }))),
    h(
      "div",
      { class: "k-overview", style: `--at:${part}` },
      h("canvas", {
        key: "canvas",
        class: "k-dense",
        role: "img",
        "data-dense": "time",
        "aria-label": t("overview_label"),
        onclick: to,
      }),
      h("i", { key: "head", class: "k-overview-head" }),
      ui.veiled && h("span", { key: "veil", class: "k-veil k-overview-veil" }, h("span", null, t("veiled"))),
    ),
  );
}

/** What comes after the cursor is covered while a question about it is open. */
function veil({ trace, t }, current, cursor, rows) {
  const ended = current >= 0 && trace.steps[current].end <= cursor;
  const from = current + (ended ? 1 : 0);
  if (from >= trace.steps.length) return null;
  return h(
    "span",
    {
      key: "veil",
      class: "k-veil",
      style: `grid-row:2/${rows + 1};grid-column:${Math.max(0, from) + 2}/${trace.steps.length + 2}`,
    },
    h("span", null, t("veiled")),
  );
}

/** A column of the picture that takes the reader to its step's end. */
function stepButton({ trace, timeline, t }, i, current, rows, hidden, act) {
  const step = trace.steps[i];
  const label = trace.steps.length <= MOST_NAMED || step.step % 5 === 0 || i === 0;
  return h(
    "button",
    {
      key: `s${i}`,
      type: "button",
      class: "k-step",
      style: `grid-row:1/${rows + 1};grid-column:${i + 2}`,
      "data-goto": step.end,
      "data-now": i === current,
      "aria-current": i === current ? "step" : undefined,
      "aria-label": t(hidden ? "go_to_hidden_step" : "go_to_step", {
        step: step.step,
        free: timeline.free[i],
      }),
      onclick: () => act.goto(step.end),
    },
    h("span", null, label ? step.step : ""),
  );
}

/** Everything that does not depend on the cursor. */
function lanes(model, receivers, dense, act) {
  const { ids } = model;
  return [
    ids.map((id, i) => lane(model, id, i + 2, dense)),
    receivers.map((id, i) => received(model, id, ids.length + i + 2, act)),
    freeRow(model, ids.length + receivers.length + 2, dense),
  ];
}

const at = (row, from, to = from) =>
  `grid-row:${row};grid-column:${from + 1}/${to + 2}`;

function playhead(step, index, cursor, rows) {
  const part = (cursor - step.first) / Math.max(1, step.end - step.first);
  return h(
    "span",
    {
      key: "head",
      class: "k-playhead",
      style: `grid-row:1/${rows + 1};grid-column:${index + 2};--part:${part}`,
    },
    h("i"),
  );
}

function lane(model, id, row, dense) {
  const owner = model.owners.get(id);
  const { segments, end } = model.timeline.lanes.get(id);
  const label = h(
    "span",
    {
      key: `l${id}`,
      class: "k-lab",
      style: at(row, 0),
      tabindex: row === 2 ? "0" : "-1",
      role: "img",
      "aria-label": model.t("lane", { id }),
      "data-lane": id,
    },
    badge(owner),
  );
  const parts = segments.map((segment, i) => {
    const words = phaseWords(model, segment);
    const shown = RAN.has(segment.phase) ? "ran" : "waits";
    return h(
      "span",
      {
        key: `l${id} ${i}`,
        class: "k-segment",
        "data-lane": id,
        "data-phase": segment.phase,
        "data-shown": shown,
        // One column has no room for a sentence; of many columns, none at all for a word.
        "data-short": segment.from === segment.to ? (dense ? "mute" : "brief") : undefined,
        style: at(row, segment.from + 1, segment.to + 1),
        title: words,
        ...marks(owner),
      },
      segment.phase === "restore" && icon("in"),
      segment.phase === "swapped" && icon("out"),
      segment.phase === "recompute" && icon("rebuilt"),
      h("span", { class: "k-long" }, words),
      h("span", { class: "k-brief" }, model.t(`brief_${segment.phase}`, segment)),
    );
  });
  const last = segments.at(-1);
  const after = last ? last.to + 1 : (end?.step ?? 0);
  const steps = model.trace.steps.length;
  if (end && after + (dense ? 2 : 0) < steps) {
    const words = model.t(`state_finished_${end.why}`);
    const to = Math.min(after + Math.max(3, Math.ceil(steps / 6)), steps); // columns may be narrow
    const style = at(row, after + 1, to);
    parts.push(h("span", { key: `e${id}`, class: "k-ended", style }, words));
  }
  return [label, ...parts];
}

function phaseWords({ t }, segment) {
  return t(`phase_${segment.phase}`, segment);
}

function received(model, id, row, act) {
  const { t } = model;
  const owner = model.owners.get(id);
  const { deliveries, gaps } = model.timeline.lanes.get(id);
  return [
    h(
      "span",
      { key: `r${id}`, class: "k-lab", style: at(row, 0) },
      badge(owner),
      h("span", { class: "k-long" }, t("receives")),
    ),
    gaps.map((gap, i) =>
      h(
        "span",
        {
          key: `g${id} ${i}`,
          class: "k-gap",
          style: `${at(row, gap.from + 1, gap.to + 1)};--cols:${gap.steps + 1}`,
          ...marks(owner),
        },
        h("i"),
        h(
          "span",
          null,
          gap.recovery === null
            ? t("gap", gap)
            : t("gap_split", { ...gap, waiting: gap.steps - gap.recovery }),
        ),
      ),
    ),
    deliveries.map((delivery) =>
      h(
        "span",
        {
          key: `d${id} ${delivery.index}`,
          class: "k-output",
          "data-lane": id,
          "data-output": delivery.index,
          style: at(row, delivery.step + 1),
          title: model.trace.tokens?.[delivery.token],
          ...marks(owner),
        },
        h(
          "span",
          { onclick: () => act.goto(model.trace.steps[delivery.step].end) },
          `x${delivery.index}`,
          outputText(model, delivery.token),
        ),
      ),
    ),
  ];
}

/** The token's text beside its name, where there is room for it. */
function outputText({ trace }, token) {
  const text = trace.model.stand_in ? "" : (trace.tokens?.[token] ?? "").trim();
  return text && h("i", { class: "k-text", dir: "auto" }, shortened(text, 10));
}

/** The pool after each step, block by block in its place, and how many of them are free. */
function freeRow(model, row, dense) {
  const { trace, timeline, t } = model;
  const total = trace.pool.num_blocks;
  const owner = (id) => model.owners.get(id);
  return [
    h("span", { key: "f", class: "k-lab", style: at(row, 0) }, t("pool_after")),
    timeline.free.map((free, i) =>
      h(
        "span",
        { key: `f${i}`, class: "k-freecell", style: at(row, i + 1), "data-free-after": free },
        total <= MOST_DRAWN
          ? timeline.pools[i].map((id) => h("i", marks(owner(id)), id && h("span", null, owner(id)?.short)))
          : h("i", { class: "k-level", style: `--fill:${free / total}` }),
        (total < 100 || !dense || i % 4 === 0) &&
          h("b", null, free, h("span", { class: "k-long" }, ` ${t("free")}`)),
      ),
    ),
  ];
}
