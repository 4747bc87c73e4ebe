/** A card per request: what it has, knows and still needs, and its block table. */
import { h, memo } from "../dom.js";
import { icon } from "../icons.js";
import { badge, marks, shortened } from "../owners.js";
import { MANY, list } from "./many.js";
import { stateWords } from "./state_words.js";

const MOST_ENTRIES = 64;

/** What a request's row and card show: all of its state, and the event when it is its own. */
const dependsOn = (request, id, now) => [
  ...(request ? Object.values(request) : []),
  now.id === id || now.unmet === id ? now : null,
];

/** The blocks of a request that a copy under way holds, in logical order: they are in nobody's table. */
function flightOf(state, id) {
  if (!state.in_flight) return [];
  return state.blocks
    .flatMap(({ status, copy }, block) => (status === "in_flight" && copy?.id === id ? [{ block, ...copy }] : []))
    .sort((one, other) => one.logical - other.logical);
}

/** Logical index to physical block; an unmet need is an empty slot with "?". */
function tableRow(model, request, id, now, first, flight) {
  const { owners, t } = model;
  const owner = owners.get(id);
  const ringed = (logical) =>
    now.id === id && now.entries && logical >= now.entries[0] && logical <= now.entries[1];
  const missing = request?.unmet ? Math.min(request.unmet.needs, 4) : 0;
  const entry = (logical, name, data) =>
    h(
      "span",
      { class: "k-entry", role: "img", "aria-label": `${logical} → ${name}`, ...data },
      h("small", null, logical),
      h("b", null, name),
    );
  return h(
    "div",
    {
      key: id,
      class: "k-row",
      role: "group",
      tabindex: first ? "0" : "-1",
      "data-table": id,
      "aria-label": t("table_of", { id }),
      ...marks(owner),
    },
    h("span", { class: "k-label", "aria-hidden": "true" }, t("table")),
    h(
      "div",
      { class: "k-entries" },
      request?.table.slice(0, MOST_ENTRIES).map((block, logical) =>
        entry(logical, `P${block}`, { "data-now": ringed(logical), "data-entry": block }),
      ),
      Array.from({ length: missing }, (_, i) =>
        entry(request.unmet.logical + i, "?", {
          "data-unmet": "true",
          "data-now": now.unmet === id,
          "aria-label": t("unmet", { logical: request.unmet.logical + i }),
        }),
      ),
      flight.slice(0, MOST_ENTRIES).map(({ block, logical, way }) =>
        entry(logical, `P${block}`, { "data-entry": block, "data-flight": way, "aria-label": `${logical} → P${block}, ${t("in_flight")}` }),
      ),
      request?.host_table.slice(0, MOST_ENTRIES).map((block, logical) =>
        entry(logical, `H${block}`, { "data-host-entry": block, "data-flight": request.state === "swapping_out" }),
      ),
      request?.table.length > MOST_ENTRIES &&
        h("span", { class: "k-none" }, t("more_entries", { more: request.table.length - MOST_ENTRIES })),
      (!request || request.table.length + missing + flight.length + request.host_table.length === 0) &&
        h("span", { class: "k-none" }, noBlocks(model, request)),
    ),
  );
}

function noBlocks({ t }, request) {
  if (!request) return t("not_arrived");
  if (request.state === "waiting") return t("no_blocks_yet");
  if (request.state === "finished") return t("no_blocks_finished");
  if (request.state === "running") return t("no_blocks_yet");
  return t("no_blocks_kept", { history: request.history });
}

/** A card per request: state in words, the four numbers that people confuse, the history strip. */
export function requests(model, state, now, ids, ui, act) {
  const { t } = model;
  return h(
    "section",
    { class: "k-requests", "aria-label": t("requests") },
    h("div", { class: "k-bar" }, h("h3", null, t("requests"))),
    h(
      "div",
      { class: "k-cards" },
      ids.map((id, place) => {
        const opened = ui.unfolded.has(id);
        const deps = [...dependsOn(state.requests[id], id, now), state.in_flight, opened, place === 0];
        return memo(model.memory, `card ${id}`, deps, () => card(model, state, id, now, opened, place === 0, act));
      }),
      ids.length === 0 && h("p", { class: "k-none" }, t("no_request_yet")),
    ),
    model.ids.length > MANY && list(model, state, ui, act),
  );
}

function card(model, state, id, now, opened, first, act) {
  const { owners, t } = model;
  const request = state.requests[id];
  const owner = owners.get(id);
  const flight = flightOf(state, id);
  // What a copy carries out is still there; what it brings in is there when all of it has arrived.
  const leaving = flight.filter(({ way }) => way === "out").length > 0 ? inFlight(state, id).size : 0;
  const numbers = {
    history: request?.history ?? 0,
    kv: (request?.kv ?? 0) + leaving,
    blocks: (request?.table.length ?? 0) + flight.length,
    sent: request?.delivered ?? 0,
  };
  return h(
    "article",
    {
      key: id,
      class: "k-card",
      "data-request": id,
      "data-state": request?.state,
      "data-open": opened,
      ...marks(owner),
    },
    h("button", {
      type: "button",
      class: "k-unfold",
      "aria-expanded": String(opened),
      "aria-label": t("unfold", { id }),
      onclick: () => act.unfold(id),
    }),
    h(
      "div",
      { class: "k-line" },
      badge(owner),
      h("strong", { class: "k-state" }, stateWords(model, request)),
      owner.short !== id && h("span", { class: "k-id", title: id, dir: "auto" }, shortened(id)),
      h(
        "span",
        { class: "k-numbers" },
        Object.entries(numbers).map(([name, value]) =>
          h("span", { [`data-${name}`]: value }, t(`number_${name}`), " ", h("b", null, value)),
        ),
      ),
    ),
    strip(model, state, id, now, first),
    tableRow(model, request, id, now, first, flight),
  );
}

/** Positions of a request whose KV is in blocks that a copy holds. */
function inFlight(state, id) {
  const found = new Set();
  if (!state.in_flight) return found;
  for (const block of state.blocks) {
    if (block.status !== "in_flight") continue;
    for (const cell of block.cells) if (cell?.live && cell.id === id) found.add(cell.position);
  }
  return found;
}

/** A longer history is drawn as one bar and its newest tokens. */
const MOST_CHIPS = 60;
const NEWEST_CHIPS = 12;

function strip(model, state, id, now, first) {
  const { trace, prompts, t } = model;
  const request = state.requests[id];
  const prompt = prompts.get(id) ?? [];
  const history = request ? request.history : 0;
  const flying = request ? inFlight(state, id) : new Set();
  const done = Math.max(request?.kv ?? 0, request?.host_kv ?? 0);
  const from = history > MOST_CHIPS ? history - NEWEST_CHIPS : 0;
  const outputs = request ? request.outputs.length : 0;
  const chips = [];
  for (let position = from; position < history; position += 1) {
    const output = position - prompt.length;
    const token = output < 0 ? prompt[position] : request.outputs[output];
    const name = output < 0 ? `p${position}` : `x${output}`;
    const where =
      position < request.kv
        ? "gpu"
        : flying.has(position)
          ? "flight"
          : position < request.host_kv
            ? "host"
            : "none";
    const text = trace.model.stand_in ? undefined : trace.tokens?.[token];
    const open = request.state !== "finished" && where === "none" && position >= done;
    // The newest token of a request that has given output never had KV; after a release the others had.
    const again = request.preemptions > 0 && output >= 0 ? position < history - 1 : outputs > 0;
    const next = open && (request.preemptions > 0 && again ? "again" : "new");
    const sent = output >= 0 && output < request.delivered;
    chips.push(
      h(
        "span",
        {
          key: position,
          class: "k-chip",
          role: "listitem",
          tabindex: first && position === from ? "0" : "-1",
          "data-position": position,
          "data-kv": where,
          "data-next": next,
          "data-output": output >= 0,
          "data-now":
            now.id === id &&
            now.positions !== null &&
            position >= now.positions[0] &&
            position <= now.positions[1],
          "aria-label": [
            name,
            text === undefined ? null : quote(model, text),
            t(`kv_${where}`),
            sent && t("delivered"),
            next && t(`next_${next}`),
          ]
            .filter(Boolean)
            .join(", "),
          "data-tip": `${name} ${text === undefined ? "" : quote(model, text) + " "}· ${t(`kv_${where}`)}`,
        },
        h("span", { class: "k-token" }, h("small", null, name), text !== undefined && h("span", { dir: "auto" }, visible(text))),
        h("i", { class: "k-kv" }),
        h("span", { class: "k-sent" }, sent && icon("tick")),
      ),
    );
  }
  return h(
    "div",
    {
      class: "k-strip",
      ...(chips.length ? { role: "list", "aria-label": t("history_of", { id }) } : {}),
    },
    from > 0 && longBar(model, request, history, prompt.length),
    from > 0 && h("span", { key: "more", class: "k-none k-before" }, t("earlier", { tokens: from })),
    chips.length ? chips : h("span", { key: "none", class: "k-none" }, t("no_history")),
  );
}

/** How much of a long history has KV on the GPU or in the host pool; the notch ends the prompt. */
function longBar(model, request, history, prompt) {
  const part = (count) => Math.round((1000 * count) / history) / 10;
  return h("span", {
    key: "bar",
    class: "k-long-bar",
    role: "img",
    "aria-label": model.t("long_history", request),
    style: `--gpu:${part(request.kv)}%;--host:${part(request.host_kv)}%;--prompt:${part(prompt)}%`,
  });
}

const quote = ({ words }, text) => words.grammar.quote.replace("{text}", () => text);

/** A token's text in a chip: what cannot be seen gets a sign. */
function visible(text) {
  const shown = text.replaceAll("\n", "↵").replaceAll("\t", "⇥").trim();
  return shown === "" ? (text === "" ? "∅" : "␣") : shortened(shown, 12);
}
