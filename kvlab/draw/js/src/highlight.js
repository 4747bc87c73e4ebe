/**
 * Linked highlighting: what the pointer or the focus is on, and its counterparts in the pool, the block
 * tables, the token strips and the lanes. Marks lie on the elements themselves (`data-lit`): moving
 * the pointer draws nothing anew.
 */

const SUBJECTS = [
  "[data-position]",
  "[data-output]",
  ".k-cell",
  "[data-entry]",
  "[data-host-entry]",
  "[data-block]",
  "[data-host]",
  "[data-lane]",
  "[data-table]",
  "[data-request]",
].join();

const nothing = () => ({ blocks: new Set(), hosts: new Set(), ids: new Set(), tokens: new Set() });
const tokenKey = (id, position) => `${position} ${id}`;

/** What belongs to an element: {blocks, hosts, ids, tokens}, or null. */
function counterparts(target, model, state) {
  const el = target.closest(SUBJECTS);
  if (!el) return null;
  const found = nothing();
  const { position, output, entry, hostEntry, block, host, lane } = el.dataset;
  const owner = (where) => el.closest(`[data-${where}]`)?.dataset[where];
  const request = (id) => state.requests[id];
  const addToken = (id, at) => {
    if (request(id) === undefined) return;
    found.tokens.add(tokenKey(id, at));
    found.ids.add(id);
    const size = model.trace.pool.block_size;
    const { table, host_table: stored, kv, host_kv: hostKv } = request(id);
    if (at < kv && table.length) found.blocks.add(table[Math.floor(at / size)]);
    if (at < hostKv && stored.length) found.hosts.add(stored[Math.floor(at / size)]);
  };
  const addCells = (cells) => {
    for (const cell of cells) if (cell?.live) found.tokens.add(tokenKey(cell.id, cell.position));
  };
  const addBlock = (id) => {
    found.blocks.add(id);
    for (const name of state.blocks[id].owners) found.ids.add(name);
    addCells(state.blocks[id].cells);
  };
  const addHost = (id) => {
    found.hosts.add(id);
    if (state.host_blocks[id].owner !== null) found.ids.add(state.host_blocks[id].owner);
    addCells(state.host_blocks[id].cells);
  };
  if (position !== undefined) addToken(owner("request"), Number(position));
  else if (output !== undefined) addToken(lane, (model.prompts.get(lane)?.length ?? 0) + Number(output));
  else if (el.classList.contains("k-cell")) {
    const place = [...el.parentNode.children].indexOf(el);
    const on = owner("block");
    const cells = on === undefined ? state.host_blocks[owner("host")]?.cells : state.blocks[on]?.cells;
    const cell = cells?.[place];
    if (cell?.live) addToken(cell.id, cell.position);
    else if (on !== undefined) addBlock(Number(on));
    else addHost(Number(owner("host")));
  } else if (entry !== undefined) addBlock(Number(entry));
  else if (hostEntry !== undefined) addHost(Number(hostEntry));
  else if (block !== undefined) addBlock(Number(block));
  else if (host !== undefined) addHost(Number(host));
  else {
    const id = lane ?? el.dataset.table ?? el.dataset.request;
    found.ids.add(id);
    for (const one of request(id)?.table ?? []) found.blocks.add(one);
    for (const one of request(id)?.host_table ?? []) found.hosts.add(one);
  }
  return found;
}

/** The lane of the time picture at a height, so that its columns can stay buttons. */
function laneAt(target, y) {
  const labels = target.closest(".k-step")?.parentNode.querySelectorAll(".k-lab[data-lane]") ?? [];
  return [...labels].find((label) => {
    const box = label.getBoundingClientRect();
    return y >= box.top && y < box.bottom;
  });
}

export function highlighter(element, model, stateNow, changed = () => {}) {
  let subject = null;
  let marked = [];

  function apply() {
    for (const el of marked) el.removeAttribute("data-lit");
    marked = [];
    const found = subject?.isConnected ? counterparts(subject, model, stateNow()) : null;
    if (!found) return;
    const state = stateNow();
    const mark = (el) => {
      el.setAttribute("data-lit", "");
      marked.push(el);
    };
    const all = (selector) => element.querySelectorAll(selector);
    for (const el of all(".k-memory [data-block]")) {
      const id = Number(el.dataset.block);
      if (found.blocks.has(id)) mark(el);
      if (found.tokens.size && el.querySelector(".k-cell")) markCells(el, state.blocks[id], found, mark);
    }
    for (const el of all(".k-memory [data-host]")) {
      const id = Number(el.dataset.host);
      if (found.hosts.has(id)) mark(el);
      if (found.tokens.size) markCells(el, state.host_blocks[id], found, mark);
    }
    for (const el of all("[data-entry]")) if (found.blocks.has(Number(el.dataset.entry))) mark(el);
    for (const el of all("[data-host-entry]")) {
      if (found.hosts.has(Number(el.dataset.hostEntry))) mark(el);
    }
    for (const el of all(".k-lab[data-lane], .k-segment[data-lane], [data-table], [data-request]")) {
      const id = el.dataset.lane ?? el.dataset.table ?? el.dataset.request;
      if (found.ids.has(id)) mark(el);
    }
    for (const el of all("[data-position]")) {
      const id = el.closest("[data-request]").dataset.request;
      if (found.tokens.has(tokenKey(id, el.dataset.position))) mark(el);
    }
    for (const el of all("[data-output]")) {
      const at = (model.prompts.get(el.dataset.lane)?.length ?? 0) + Number(el.dataset.output);
      if (found.tokens.has(tokenKey(el.dataset.lane, at))) mark(el);
    }
  }

  const look = (el) => {
    if (el === subject) return;
    subject = el;
    apply();
    changed();
  };
  const subjectOf = (event) =>
    event.target.closest?.(SUBJECTS) ?? laneAt(event.target, event.clientY) ?? null;
  const focused = () => {
    const el = element.getRootNode().activeElement;
    return element.contains(el) ? el.closest(SUBJECTS) : null;
  };
  for (const kind of ["pointerover", "pointermove"]) {
    element.addEventListener(kind, (event) => look(subjectOf(event) ?? focused()));
  }
  element.addEventListener("pointerleave", () => look(focused()));
  element.addEventListener("focusin", (event) => look(event.target.closest(SUBJECTS)));
  element.addEventListener("focusout", () => look(null));
  return { again: () => subject && apply() };
}

function markCells(el, { cells }, { tokens }, mark) {
  el.querySelectorAll(".k-cell").forEach((node, slot) => {
    const cell = cells[slot];
    if (cell?.live && tokens.has(tokenKey(cell.id, cell.position))) mark(node);
  });
}
