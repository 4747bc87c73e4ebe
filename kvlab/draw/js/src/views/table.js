/** The picture as tables: blocks, CPU blocks and requests, for readers of tables and screen readers. */
import { h } from "../dom.js";
import { shortened } from "../owners.js";
import { stateWords } from "./state_words.js";

const MOST_ROWS = 256;

export function asTables(model, state) {
  const { t, ids } = model;
  return h(
    "section",
    { key: "as tables", class: "k-as-tables", "aria-label": t("table_view") },
    table(
      t,
      t("caption_pool", { free: state.free, total: state.blocks.length }),
      ["block", "status", "requests", "contents"],
      state.blocks.slice(0, MOST_ROWS).map((block, id) => [`P${id}`, status(t, block), names(block.owners), contents(t, block.cells)]),
      state.blocks.length,
    ),
    state.host_blocks.length > 0 &&
      table(
        t,
        t("caption_host", { free: state.host_free, total: state.host_blocks.length }),
        ["block", "status", "requests", "contents"],
        state.host_blocks.slice(0, MOST_ROWS).map((block, id) => [
          `H${id}`,
          t(block.status === "free" ? "free" : "value_stored"),
          block.owner ?? "–",
          contents(t, block.cells),
        ]),
        state.host_blocks.length,
      ),
    table(
      t,
      t("requests"),
      ["request", "state", "history", "kv", "blocks", "sent", "table"],
      ids.slice(0, MOST_ROWS).map((id) => {
        const request = state.requests[id];
        return [
          shortened(id),
          stateWords(model, request),
          ...(request
            ? [
                request.history,
                request.kv,
                request.table.length,
                request.delivered,
                places(request) || "–",
              ]
            : [0, 0, 0, 0, "–"]),
        ];
      }),
      ids.length,
    ),
  );
}

/** The first cell of a row names it. */
function table(t, caption, columns, rows, total) {
  return h(
    "div",
    { class: "k-wide", role: "region", tabindex: "0", "aria-label": caption },
    h(
      "table",
      { class: "k-table" },
      h("caption", null, caption),
      h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, t(`table_${name}`))))),
      h(
        "tbody",
        null,
        rows.map(([first, ...rest]) =>
          h(
            "tr",
            { key: first },
            h("th", { scope: "row", dir: "auto" }, first),
            rest.map((value) => h("td", { dir: "auto" }, value)),
          ),
        ),
      ),
    ),
    total > rows.length && h("p", { class: "k-none" }, t("more_rows", { rows: total - rows.length })),
  );
}

function status(t, block) {
  if (block.status === "free") return t(block.cached ? "free_cached" : "free");
  if (block.status === "in_flight") return t("in_flight");
  const words = block.owners.length > 1 ? "status_shared" : "status_held";
  return block.damaged ? `${t(words)} ⚡ ${t("status_damaged")}` : t(words);
}

const names = (list) => list.map((id) => shortened(id)).join(", ") || "–";

const places = (request) =>
  [...request.table.map((id) => `P${id}`), ...request.host_table.map((id) => `H${id}`)].slice(0, 64).join(" ");

/** Ranges of positions with what they are, in the order of the slots. */
function contents(t, cells) {
  const runs = [];
  for (const cell of cells) {
    const last = runs.at(-1);
    const how = cell ? (cell.live ? cell.how : "ghost") : "none";
    if (last?.how === how && last.id === cell?.id && (!cell || cell.position === last.to + 1)) {
      last.to = cell?.position;
    } else runs.push({ how, id: cell?.id, from: cell?.position, to: cell?.position });
  }
  return runs
    .map(({ how, id, from, to }) =>
      how === "none" ? t("value_none") : `${shortened(id)} ${from === to ? from : `${from}–${to}`} ${t(`value_${how}`)}`,
    )
    .join("; ");
}
