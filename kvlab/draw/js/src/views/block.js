/** One block, opened: what lies in its slots at the cursor, and what was measured of it. */
import { h } from "../dom.js";
import { shortened } from "../owners.js";

export function openBlock(model, state, cursor, { block, host, slot }) {
  const { t } = model;
  const onHost = host !== undefined;
  const { cells } = onHost ? state.host_blocks[host] : state.blocks[block];
  const writes = writesIn(model, cells);
  const damaged = !onHost && state.blocks[block].damaged;
  const restored = cells.some((cell) => cell?.live && cell.how === "restored");
  return [
    h("p", null, holders(model, state, { block, host })),
    damaged && h("p", null, "⚡ ", t("damaged_layers", damaged)),
    slots(model, cells, slot),
    writes.length > 0 && h("h4", null, t("stored_values")),
    writes.map((write) => measurement(model, write)),
    restored && !onHost && h("p", { class: "k-claim" }, t(`same_bytes_${sameBytes(model.trace, block, cursor)}`)),
    h("p", { class: "k-none" }, t("measured_note")),
  ];
}

/**
 * The writes whose values lie in a block: {event, id, first, last, how, now, before}; now and before
 * are measurements or undefined, before only for what was rebuilt and measured alike.
 */
function writesIn({ trace }, cells) {
  const { entries, before } = trace.measured;
  const at = new Set(cells.filter(Boolean).map(({ event }) => event));
  const earlier = new Map(before);
  const measured = (event) => entries.find((entry) => entry.event === event);
  return [...at]
    .map((event) => {
      const { id, changes } = trace.events[event];
      const write = changes.find(([operation]) => trace.names[operation] === "write");
      const [, , , , first, count, how] = write;
      const [now, then] = [event, earlier.get(event)].map(measured);
      return { event, id, first, last: first + count - 1, how, now, before: then };
    })
    .sort((a, b) => a.first - b.first);
}

/** Whether a restored block has the bytes that were copied out: true, false, or null: not measured. */
const sameBytes = ({ measured }, block, cursor) =>
  measured.same.findLast(([event, which]) => event < cursor && which === block)?.[2] ?? null;

/** The block's name for a heading. */
export const blockName = ({ block, host }) => (host === undefined ? `P${block}` : `H${host}`);

function holders({ t }, state, { block, host }) {
  if (host !== undefined) {
    const { owner } = state.host_blocks[host];
    return owner === null ? t("free") : t("stored_for", { owners: [owner] });
  }
  const { status, owners, cached } = state.blocks[block];
  if (status === "free") return t(cached ? "free_cached" : "free");
  if (status === "in_flight") return t("in_flight");
  return t("held_by", { owners, refs: owners.length });
}

function slots({ t, trace, prompts }, cells, chosen) {
  const text = (cell) => {
    const prompt = prompts.get(cell.id) ?? [];
    const output = cell.position - prompt.length;
    const name = output < 0 ? `p${cell.position}` : `x${output}`;
    const known = output < 0 && !trace.model.stand_in ? trace.tokens?.[prompt[cell.position]] : undefined;
    return known === undefined ? name : `${name} ${shortened(known.trim(), 14)}`;
  };
  return h(
    "table",
    { class: "k-table" },
    h(
      "thead",
      null,
      h("tr", null, ["slot", "owner", "position", "token", "value"].map((name) => h("th", { scope: "col" }, t(`column_${name}`)))),
    ),
    h(
      "tbody",
      null,
      cells.map((cell, i) =>
        h(
          "tr",
          { "data-chosen": i === chosen },
          h("th", { scope: "row" }, i),
          cell
            ? [
                h("td", { dir: "auto" }, shortened(cell.id)),
                h("td", null, cell.position),
                h("td", { dir: "auto" }, text(cell)),
                h("td", null, t(cell.live ? `value_${cell.how}` : "value_ghost")),
              ]
            : [h("td", null, "–"), h("td"), h("td"), h("td", null, t("value_none"))],
        ),
      ),
    ),
  );
}

const few = (value) =>
  value && Math.abs(value) < 1e-3 ? value.toExponential(1) : value.toPrecision(4);

/** Norms per layer of what one event wrote, beside those before the release where there are any. */
function measurement(model, write) {
  const { t } = model;
  const { now, before } = write;
  const columns = ["layer", "k_norm", "v_norm", ...(before ? ["k_before", "v_before"] : [])];
  return h(
    "div",
    { key: `write ${write.event}`, class: "k-measured" },
    h("p", { dir: "auto" }, t(`written_${write.how === "rebuilt" ? "rebuilt" : "first"}`, { ...write, event: write.event + 1 })),
    now
      ? h(
          "table",
          { class: "k-table k-numbers-table" },
          h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, t(`column_${name}`))))),
          h(
            "tbody",
            null,
            now.k_norm.map((k, layer) =>
              h(
                "tr",
                null,
                h("th", { scope: "row" }, layer),
                h("td", null, few(k)),
                h("td", null, few(now.v_norm[layer])),
                before && [h("td", null, few(before.k_norm[layer])), h("td", null, few(before.v_norm[layer]))],
              ),
            ),
          ),
        )
      : h("p", { class: "k-none" }, t("not_measured")),
    now && h("p", { class: "k-none" }, t("checksum", { checksum: now.checksum })),
    write.how === "rebuilt" && h("p", { class: "k-claim" }, rebuilt(t, now, before)),
  );
}

function rebuilt(t, now, before) {
  if (now?.max_diff) {
    const { k, v } = now.max_diff;
    return k || v ? t("rebuilt_difference", { k: few(k), v: few(v) }) : t("rebuilt_same");
  }
  if (!now || !before) return t("rebuilt_not_measured");
  const difference = Math.max(
    largestDifference(now.k_norm, before.k_norm),
    largestDifference(now.v_norm, before.v_norm),
  );
  return difference
    ? t("rebuilt_norms", { difference: difference.toExponential(1) })
    : t("rebuilt_equal");
}

/** The largest difference between two lists of numbers. */
const largestDifference = (one, other) =>
  Math.max(0, ...one.map((value, i) => Math.abs(value - (other[i] ?? value))));
