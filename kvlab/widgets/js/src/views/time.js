/** One axis of steps for lanes, outputs as received, and free blocks. */
import { h } from "../dom.js";
import { icon } from "../icons.js";
import { stepIndex } from "../model.js";
import { badge, marks } from "../owners.js";

const RAN = new Set(["prefill", "decode", "recompute", "restore"]);

export function time(model, cursor, act) {
  const { trace, timeline, t, ids } = model;
  const steps = trace.steps.length;
  const current = stepIndex(trace, cursor);
  const dense = steps > 24;
  const receivers = ids.filter(
    (id) => ids.length <= 3 || timeline.lanes.get(id).gaps.length > 0,
  );
  let row = 1;
  const parts = [h("span", { key: "corner", class: "k-lab k-corner", style: at(1, 0) }, t("step"))];
  for (let i = 0; i < steps; i += 1) {
    const step = trace.steps[i];
    const label = !dense || step.step % 5 === 0 || step.step === 1 ? step.step : "";
    parts.push(
      h(
        "button",
        {
          key: `s${i}`,
          type: "button",
          class: "k-step",
          style: `grid-row:1/-1;grid-column:${i + 2}`,
          "data-goto": step.end,
          "data-now": i === current,
          "aria-current": i === current ? "step" : undefined,
          "aria-label": t("go_to_step", { step: step.step, free: timeline.free[i] }),
          onclick: () => act.goto(step.end),
        },
        h("span", null, label),
      ),
    );
  }
  if (current >= 0) parts.push(playhead(trace.steps[current], current, cursor));
  for (const id of ids) {
    row += 1;
    parts.push(...lane(model, id, row));
  }
  for (const id of receivers) {
    row += 1;
    parts.push(...received(model, id, row));
  }
  row += 1;
  parts.push(...freeRow(model, row));
  return h(
    "section",
    { class: "k-time", "aria-label": t("time") },
    h("div", { class: "k-bar" }, h("h3", null, t("time"))),
    h(
      "div",
      { class: "k-scroll", "data-scroll": "time" },
      h("div", { class: "k-grid", "data-dense": dense, style: `--steps:${steps}` }, parts),
    ),
  );
}

const at = (row, from, to = from) =>
  `grid-row:${row};grid-column:${from + 1}/${to + 2}`;

function playhead(step, index, cursor) {
  const part = (cursor - step.first) / Math.max(1, step.end - step.first);
  return h(
    "span",
    { key: "head", class: "k-playhead", style: `grid-row:1/-1;grid-column:${index + 2};--part:${part}` },
    h("i"),
  );
}

function lane(model, id, row) {
  const owner = model.owners.get(id);
  const { segments } = model.timeline.lanes.get(id);
  const label = h("span", { key: `l${id}`, class: "k-lab", style: at(row, 0) }, badge(owner));
  const parts = segments.map((segment, i) => {
    const words = phaseWords(model, segment);
    const shown = RAN.has(segment.phase) ? "ran" : "waits";
    return h(
      "span",
      {
        key: `l${id} ${i}`,
        class: "k-segment",
        "data-phase": segment.phase,
        "data-shown": shown,
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
  const end = last ? last.to + 1 : 0;
  if (last && end < model.trace.steps.length) {
    parts.push(
      h("span", { key: `e${id}`, class: "k-ended", style: at(row, end + 1, end + 1) }, model.t("ended")),
    );
  }
  return [label, ...parts];
}

function phaseWords({ t }, segment) {
  return t(`phase_${segment.phase}`, segment);
}

function received(model, id, row) {
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
          style: at(row, delivery.step + 1),
          title: model.trace.tokens?.[delivery.token],
          ...marks(owner),
        },
        h("span", null, `x${delivery.index}`),
      ),
    ),
  ];
}

function freeRow(model, row) {
  const { trace, timeline, t } = model;
  const total = trace.pool.num_blocks;
  return [
    h("span", { key: "f", class: "k-lab", style: at(row, 0) }, t("free_blocks")),
    timeline.free.map((free, i) =>
      h(
        "span",
        { key: `f${i}`, class: "k-freecell", style: at(row, i + 1), "data-free-after": free },
        total <= 8
          ? Array.from({ length: total }, (_, n) => h("i", { "data-on": n < free }))
          : h("i", { class: "k-level", style: `--fill:${free / total}` }),
        h("b", null, free),
      ),
    ),
  ];
}
