/** One axis of steps for lanes, outputs as received, and free blocks. */
import { h, memo } from "../dom.js";
import { icon } from "../icons.js";
import { stepIndex } from "../model.js";
import { badge, marks, shortened } from "../owners.js";

const MOST_NAMED = 24;
const RAN = new Set(["prefill", "decode", "recompute", "restore"]);

/** Columns that a picture has at least, so that its width does not tell how long the run is. */
const FEWEST = 8;

export function time(model, cursor, ui, act) {
  const { trace, timeline, t, ids } = model;
  const current = stepIndex(trace, cursor);
  const ended = trace.steps.filter((step) => step.end <= cursor).length;
  // What is not reached is not in the page: lanes, outputs and pools of ended steps only.
  const known = ui.ahead ? trace.steps.length : ended;
  const steps = ui.ahead ? trace.steps.length : Math.max(FEWEST, current + 1);
  const dense = steps > MOST_NAMED;
  const come = ids.filter((id) => ui.ahead || timeline.lanes.get(id).segments[0]?.from < ended);
  const waits = (id) => timeline.lanes.get(id).gaps.some((gap) => gap.from < known - 1);
  const receivers = come.filter((id) => come.length <= 3 || waits(id));
  const parts = [
    h("h3", { key: "corner", class: "k-lab k-corner", style: at(1, 0) }, t("step")),
  ];
  for (let i = 0; i <= (ui.ahead ? steps - 1 : current); i += 1) {
    const deps = [i === current, i < known, i === Math.max(0, current), dense];
    parts.push(memo(model.memory, `step ${i}`, deps, () => stepButton(model, i, current, i < known, dense, act)));
  }
  if (current >= 0) parts.push(playhead(trace.steps[current], current, cursor));
  parts.push(memo(model.memory, "lanes", [known, dense], () => lanes(model, come, receivers, known, dense, act)));
  return h(
    "section",
    { key: "steps", class: "k-time", "aria-label": t("time") },
    h(
      "div",
      { class: "k-scroll", "data-scroll": "time" },
      h("div", { class: "k-grid", "data-dense": dense, style: `--steps:${Math.max(steps, ui.axis)};--lanes:${come.length};--others:${receivers.length + 1}` }, parts.filter(Boolean)),
    ),
  );
}

/** A long run at a glance: every lane and the free blocks on one canvas; a click goes to a step. */
export function overview(model, cursor, ui, act) {
  const { trace, t, ids } = model;
  const { steps } = trace;
  const current = stepIndex(trace, cursor);
  const known = ui.ahead ? steps.length : steps[current]?.end <= cursor ? current + 1 : Math.max(0, current);
  // The width of a step does not tell how many there are.
  const span = ui.ahead ? steps.length : 2 ** Math.ceil(Math.log2(Math.max(64, current + 2)));
  const to = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const index = Math.floor(((event.clientX - box.left) / box.width) * span);
    act.goto(steps[Math.max(0, Math.min(steps.length - 1, index))].end);
  };
  return h(
    "section",
    { key: "time", class: "k-time", "aria-label": t("time") },
    ui.ahead && h("div", { class: "k-bar" }, h("h3", null, t("overview", { steps: steps.length, requests: ids.length }))),
    h(
      "div",
      { class: "k-overview", style: `--at:${(current + 1) / span}` },
      h("canvas", {
        key: "canvas",
        class: "k-dense",
        role: "img",
        "data-dense": "time",
        "data-known": known,
        "data-span": span,
        "aria-label": t("overview_label"),
        onclick: to,
      }),
      h("i", { key: "head", class: "k-overview-head" }),
    ),
  );
}

/** A column of the picture that takes the reader to its step's end. */
function stepButton({ trace, timeline, t }, i, current, known, dense, act) {
  const step = trace.steps[i];
  const label = !dense || step.step % 5 === 0 || i === 0;
  return h(
    "button",
    {
      key: `s${i}`,
      type: "button",
      class: "k-step",
      style: `grid-row:1/-1;grid-column:${i + 2}`,
      "data-goto": step.end,
      "data-now": i === current,
      "aria-current": i === current ? "step" : undefined,
      // One of them is a tab stop; the arrow keys belong to the run.
      tabindex: i === Math.max(0, current) ? "0" : "-1",
      "aria-label": t(known ? "go_to_step" : "go_to_hidden_step", {
        step: step.step,
        free: timeline.free[i],
      }),
      onclick: () => act.goto(step.end),
    },
    h("span", null, label ? step.step : ""),
  );
}

/** What the first `known` steps brought. */
function lanes(model, ids, receivers, known, dense, act) {
  return [
    ids.map((id, i) => lane(model, id, i + 2, known, dense)),
    receivers.map((id, i) => received(model, id, ids.length + i + 2, known, act)),
    freeRow(model, ids.length + receivers.length + 2, known, dense),
  ];
}

const at = (row, from, to = from) =>
  `grid-row:${row};grid-column:${from + 1}/${to + 2}`;

function playhead(step, index, cursor) {
  const part = (cursor - step.first) / Math.max(1, step.end - step.first);
  return h(
    "span",
    {
      key: "head",
      class: "k-playhead",
      style: `grid-row:1/-1;grid-column:${index + 2};--part:${part}`,
    },
    h("i"),
  );
}

function lane(model, id, row, known, dense) {
  const owner = model.owners.get(id);
  const { segments, end } = upTo(known, model.timeline.lanes.get(id));
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
  const steps = Math.max(FEWEST, known);
  if (end && after + (dense ? 2 : 0) < steps) {
    const words = model.t(`state_finished_${end.why}`);
    const to = Math.min(after + Math.max(3, Math.ceil(steps / 6)), steps); // columns may be narrow
    const style = at(row, after + 1, to);
    parts.push(h("span", { key: `e${id}`, class: "k-ended", style }, words));
  }
  return [label, ...parts];
}

/** A lane as it was after the first `known` steps; `waiting`: the step whose output is the last so far. */
function upTo(known, { segments, deliveries, gaps, end }) {
  const before = ({ step }) => step < known;
  const sent = deliveries.filter(before);
  const last = sent.at(-1)?.step;
  const over = end && before(end) ? end : null;
  return {
    segments: segments
      .filter(({ from }) => from < known)
      .map((segment) => (segment.to < known ? segment : { ...segment, to: known - 1, short: true })),
    deliveries: sent,
    gaps: gaps.filter(({ to }) => to < known),
    end: over,
    waiting: last !== undefined && last < known - 1 && !over ? last : null,
  };
}

function phaseWords({ t }, segment) {
  return t(`phase_${segment.phase}`, segment);
}

function received(model, id, row, known, act) {
  const { t } = model;
  const owner = model.owners.get(id);
  const { deliveries, gaps, waiting } = upTo(known, model.timeline.lanes.get(id));
  return [
    h(
      "span",
      { key: `r${id}`, class: "k-lab k-other", style: at(row, 0) },
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
          t(gap.recovery ? "gap_split" : gap.waiting ? "gap_waiting" : "gap", gap),
        ),
      ),
    ),
    waiting !== null &&
      h(
        "span",
        {
          key: `w${id}`,
          class: "k-gap",
          "data-open": "true",
          style: `${at(row, waiting + 1, known)};--cols:${known - waiting}`,
          ...marks(owner),
        },
        h("i"),
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
function freeRow(model, row, known, dense) {
  const { trace, timeline, t } = model;
  const total = trace.pool.num_blocks;
  const owner = (id) => model.owners.get(id);
  return [
    h("span", { key: "f", class: "k-lab k-other", style: at(row, 0) }, h("span", { class: "k-long" }, t("pool_after"))),
    timeline.free.slice(0, known).map((free, i) =>
      h(
        "span",
        { key: `f${i}`, class: "k-freecell", style: at(row, i + 1), "data-free-after": free },
        timeline.pools.length > 0
          ? timeline.pools[i].map((id) => h("i", marks(owner(id)), id && h("span", null, owner(id)?.short)))
          : h("i", { class: "k-level", style: `--fill:${free / total}` }),
        (total < 100 || !dense || i % 4 === 0) &&
          h("b", null, free, h("span", { class: "k-long" }, ` ${t("free")}`)),
      ),
    ),
  ];
}
