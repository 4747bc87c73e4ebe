/** The GPU pool, the CPU pool and the link between: blocks keep their place, owners come and go. */
import { h, memo } from "../dom.js";
import { isDense } from "../canvas.js";
import { icon } from "../icons.js";
import { badge, marks } from "../owners.js";

/** How much of a block can be drawn: numbered cells, plain cells, or a field of a canvas. */
export function density({ num_blocks, block_size }) {
  if (num_blocks <= 16 && block_size <= 16) return "full";
  return isDense(num_blocks, block_size) ? "dense" : "small";
}

/** A pool on a canvas; what is in a block is told when it is opened. */
function canvas(model, kind, blocks, free, act) {
  const words = { pool: "gpu_pool", host: "host_pool" };
  const held = blocks.length - free;
  return h("canvas", {
    key: "canvas",
    class: "k-dense",
    role: "img",
    "data-dense": kind,
    "aria-label": model.t("dense", { pool: model.t(words[kind]), held, blocks: blocks.length }),
    onclick: (event) => act.openAt(event, kind),
    onpointermove: (event) => act.nameAt(event, kind),
  });
}

/** Both pools, with what tells how large their blocks can be drawn. */
export function memory(model, state, now, act) {
  const { trace, t } = model;
  const { num_blocks: total, host_blocks: stored } = trace.pool;
  const across = acrossOf(trace.pool);
  const rows = Math.ceil(total / across) + (model.trace.swaps ? Math.ceil(stored / across) : 0);
  return h(
    "div",
    {
      key: "memory",
      class: "k-memory",
      role: "region",
      "aria-label": t("memory"),
      style: `--across:${across};--rows:${rows};--pools:${model.trace.swaps ? 2 : 1};--slots:${slotsAcross(trace.pool)}`,
    },
    pool(model, state, now, act),
    model.trace.swaps && link(model, state),
    model.trace.swaps && hostPool(model, state, now, act),
  );
}

/** Four blocks are two by two, also where there is room for three. */
const acrossOf = ({ num_blocks }) => (num_blocks <= 4 ? 2 : num_blocks <= 9 ? 3 : 4);

const slotsAcross = (pool) => Math.min(pool.block_size, density(pool) === "full" ? 8 : 16);

/** What travels between the pools goes this way. */
function link({ t, owners }, state) {
  const [id, request] =
    Object.entries(state.requests).find(([, one]) => COPYING.has(one.state)) ?? [];
  const way = request && (request.state === "swapping_out" ? "out" : "in");
  return h(
    "div",
    { key: "link", class: "k-link", "data-way": way, ...marks(owners.get(id)) },
    way && icon(way),
    h("span", null, t(way ? `link_${way}` : "link", { id })),
  );
}

function pool(model, state, now, act) {
  const { trace, t } = model;
  const total = trace.pool.num_blocks;
  const size = density(trace.pool);
  const recovered = size === "full" ? recoveredIds(state) : new Set();
  return h(
    "div",
    { class: "k-pool", role: "group", "aria-label": t("gpu_pool") },
    h(
      "div",
      { class: "k-bar" },
      h("h3", null, t("gpu_pool")),
      h(
        "span",
        { class: "k-free", "data-free": state.free },
        h("b", null, t("free_of", { free: state.free, total })),
        state.in_flight > 0 && t("and_in_flight", { blocks: state.in_flight }),
      ),
    ),
    size === "dense"
      ? canvas(model, "pool", state.blocks, state.free, act)
      : h(
          "div",
          { class: "k-blocks", "data-size": size },
          state.blocks.map((block, id) => {
            const touched = now.blocks.has(id) || now.slots?.block === id;
            const deps = [...Object.values(block), recovered.size, touched && now];
            return memo(model.memory, `P${id}`, deps, () =>
              gpuBlock(model, recovered, block, id, now, size, act),
            );
          }),
        ),
  );
}

/** Requests that have rebuilt or restored KV on the GPU. */
function recoveredIds(state) {
  const found = new Set();
  for (const { cells } of state.blocks) {
    for (const cell of cells) if (cell?.live && cell.how !== "first") found.add(cell.id);
  }
  return found;
}

function gpuBlock(model, recovered, block, id, now, size, act) {
  const { owners, t } = model;
  const { copy } = block;
  const holders = block.status === "in_flight" ? [copy?.id] : block.owners;
  const owner = owners.get(holders[0]);
  const filled = block.cells.filter((cell) => cell?.live).length;
  const reserved = block.status === "held" && filled === 0;
  return h(
    "div",
    {
      key: id,
      class: "k-block",
      onclick: opens({ block: id }, act),
      "data-block": id,
      "data-status": block.status,
      "data-reserved": reserved,
      "data-damaged": block.damaged && block.status !== "free",
      "data-now": now.blocks.has(id),
      ...marks(owner),
    },
    h(
      "div",
      { class: "k-name" },
      opener(`P${id}`, id === 0, describe(model, block, id, filled)),
      block.damaged && block.status !== "free" && icon("damaged", "k-damaged"),
      size !== "full" && block.cached && block.status === "free" && h("i", { class: "k-cached" }),
      copy && block.status === "in_flight" && icon(copy.way, "k-way"),
      block.status === "free"
        ? size === "full" && h("span", { class: "k-word" }, t(block.cached ? "free_cached" : "free"))
        : [
            size === "full" &&
              block.status === "in_flight" &&
              h("span", { class: "k-word" }, t("in_flight")),
            h(
              "span",
              { class: "k-holders" },
              holders
                .slice(0, 2)
                .filter((holder) => owners.has(holder))
                .map((holder) => badge(owners.get(holder))),
              holders.length > 1 && h("span", { class: "k-refs" }, `×${holders.length}`),
            ),
          ],
    ),
    h(
      "div",
      { class: "k-cells", "aria-hidden": "true" },
      block.cells.map((cell, slot) =>
        gpuCell(model, recovered, cell, slot, isNow(now, id, slot), size),
      ),
    ),
  );
}

/** A block opens where it is clicked, or by the button that is its name. */
const opens = (what, act) => (event) => {
  const cell = event.target.closest(".k-cell");
  const slot = cell ? [...cell.parentNode.children].indexOf(cell) : undefined;
  act.open({ ...what, slot });
};

/** A block's name. The up and down keys go from one to the next, so that only the first is a tab stop. */
const opener = (name, first, label) =>
  h(
    "button",
    { type: "button", class: "k-open", tabindex: first ? "0" : "-1", "aria-label": label },
    name,
  );

const isNow = (now, block, slot) =>
  now.slots?.block === block && slot >= now.slots.from && slot <= now.slots.to;

function gpuCell(model, recovered, cell, slot, written, size) {
  // Every first write is a "first time": the sign matters only beside positions that are not.
  const how =
    cell?.live && (cell.how !== "first" || recovered.has(cell.id)) ? cell.how : undefined;
  return h(
    "span",
    {
      class: "k-cell",
      "data-cell": cell ? (cell.live ? "filled" : "ghost") : "empty",
      "data-how": how,
      "data-now": written,
      "data-was": cell && !cell.live ? model.owners.get(cell.id)?.short : undefined,
      title: cell ? tip(model, cell, slot) : undefined,
      ...(cell ? marks(model.owners.get(cell.id)) : {}),
    },
    size === "full" && cell && h("span", { class: "k-number" }, cell.position),
    size === "full" && how && howSign(how),
  );
}

function howSign(how) {
  if (how === "first") return h("i", { class: "k-sign k-dot" });
  return icon(how === "restored" ? "in" : how, "k-sign");
}

function tip(model, cell, slot) {
  return model.t(cell.live ? `cell_${cell.how}` : "cell_ghost", {
    id: cell.id,
    position: cell.position,
    slot,
  });
}

function describe(model, block, id, filled) {
  const { t } = model;
  const { copy } = block;
  const values = {
    block: `P${id}`,
    owners: block.owners,
    id: copy?.id,
    filled,
    slots: block.cells.length,
    ghosts: block.cells.filter((cell) => cell && !cell.live).length,
  };
  if (block.damaged && block.status === "held") {
    return t("block_damaged", { ...values, layers: block.damaged.layers });
  }
  if (block.status === "free") return t(values.ghosts ? "block_ghosts" : "block_free", values);
  if (block.status === "in_flight") return t(`block_${copy?.way ?? "out"}`, values);
  return t(block.owners.length > 1 ? "block_shared" : "block_held", values);
}

/** States in which a copy of a request is under way. */
const COPYING = new Set(["swapping_out", "swapping_in"]);

/** What is stored for whom, in blocks as large as those of the GPU. */
function hostPool(model, state, now, act) {
  const { trace, t } = model;
  const { host_blocks: total, block_size } = trace.pool;
  const plain = total > 16 || block_size > 16;
  return h(
    "div",
    { class: "k-pool k-host", role: "group", "aria-label": t("host_pool") },
    h(
      "div",
      { class: "k-bar" },
      h("h3", null, t("host_pool")),
      h(
        "span",
        { class: "k-free", "data-host-free": state.host_free },
        h("b", null, t("free_of", { free: state.host_free, total })),
      ),
    ),
    isDense(total, block_size)
      ? canvas(model, "host", state.host_blocks, state.host_free, act)
      : h(
          "div",
          { class: "k-blocks", "data-size": plain ? "small" : "full" },
          state.host_blocks.map((block, id) => hostBlock(model, state, block, id, now, plain, act)),
        ),
  );
}

function hostBlock(model, state, block, id, now, plain, act) {
  const { owners, t } = model;
  const owner = owners.get(block.owner);
  const filled = block.cells.filter((cell) => cell?.live).length;
  const values = { block: `H${id}`, owners: [block.owner], filled, slots: block.cells.length };
  return h(
    "div",
    {
      key: id,
      class: "k-block",
      onclick: opens({ host: id }, act),
      "data-host": id,
      "data-flight": COPYING.has(state.requests[block.owner]?.state),
      "data-status": block.status,
      "data-now": now.hosts.has(id),
      ...marks(owner),
    },
    h(
      "div",
      { class: "k-name" },
      opener(
        `H${id}`,
        id === 0,
        t(block.status === "free" ? "block_free" : "block_stored", values),
      ),
      owner ? badge(owner) : h("span", { class: "k-word" }, t("free")),
    ),
    h(
      "div",
      { class: "k-cells", "aria-hidden": "true" },
      block.cells.map((cell, slot) =>
        h(
          "span",
          {
            class: "k-cell",
            "data-cell": cell ? (cell.live ? "filled" : "ghost") : "empty",
            "data-was": cell && !cell.live ? owners.get(cell.id)?.short : undefined,
            title: cell ? tip(model, cell, slot) : undefined,
            ...(cell ? marks(owners.get(cell.id)) : {}),
          },
          cell && h("span", { class: "k-number" }, cell.position),
        ),
      ),
    ),
  );
}
