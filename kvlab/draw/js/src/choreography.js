/**
 * How each kind of beat moves. Of an event is known what it touched. A function is called before the picture is the new one, to see where
 * things are, and returns what sets them in motion afterwards, in `ms` milliseconds.
 */
import { middle } from "./fly.js";

const MOST_TOKENS = 12;

const around = ({ x, y, w, h }) => ({ x: x - 8, y: y - 8, w: w + 16, h: h + 16 });

const of = (events, ...kinds) => events.filter(({ kind }) => kinds.includes(kind));

/** A request's card comes in. */
const arrival = (events, air) => (ms) => {
  for (const { id } of of(events, "arrived")) step(air, id, "arrival", 40, ms);
};

/** The block's frame takes the colour, a row grows in the table. */
function allocation(events, air, model) {
  return (ms) => {
    const given = of(events, "block_allocated", "block_shared", "block_copied").flatMap(({ id, blocks }) =>
      [...blocks].map((block) => ({ id, block })),
    );
    const places = given.map(({ block, id }) => ({
      box: air.blockBox("block", block),
      entry: air.boxOf(air.at.entry(id, block)),
    }));
    given.forEach(({ id, block }, i) => {
      const start = (0.25 * i) / given.length;
      const el = air.at.block(block);
      air.mark(air.at.card(id), "allocation"); // whose table grows
      const { box, entry } = places[i];
      air.holdBack(el, "allocation", ms * (start + 0.35));
      // The frame closes around the block; its name goes over into the table.
      air.fly({
        id, model, kind: "allocation", ms, frame: true,
        places: [box && around(box), box], at: [start, start + 0.35],
      });
      if (!entry) return;
      air.fly({
        label: `P${block}`, id, model, kind: "allocation", ms,
        places: [box && middle(box, 30), entry], at: [start + 0.3, start + 0.75],
      });
      air.holdBack(air.at.entry(id, block), "allocation", ms * (start + 0.75));
    });
    for (const { id } of of(events, "admitted", "resumed")) step(air, id, "allocation", 14, ms);
  };
}

/** A card moves sideways into its place: towards the batch, or out of it. */
function step(air, id, kind, by, ms) {
  const card = air.at.card(id);
  if (!card) return;
  air.mark(card, kind);
  air.animate(card, { opacity: [0.3, 1], transform: [`translateX(${by}px)`, "none"] }, { duration: ms });
}

/** The request steps out of the batch. */
const preemption = (events, air) => (ms) => {
  for (const { id } of of(events, "preempted", "paused")) step(air, id, "preemption", -20, ms);
};

/** Cells travel along the link, one block after the other. */
function copy(events, air, model) {
  return (ms) => {
    const moved = of(events, "swap_out_advanced", "swap_in_advanced").flatMap((event) => {
      const hosts = [...event.hosts];
      return [...event.blocks].map((block, i) => ({ event, block, host: hosts[i] }));
    });
    const link = air.at.link();
    const way = middle(air.boxOf(link));
    const each = 0.9 / Math.max(1, moved.length);
    const flights = moved.flatMap(({ event, block, host }, turn) => {
      const out = event.kind === "swap_out_advanced";
      const [from, to] = out ? [["block", block], ["host", host]] : [["host", host], ["block", block]];
      const cells = [...(air.at[to[0]](to[1])?.querySelectorAll(".k-cell") ?? [])];
      const numbered = cells.filter((cell) => cell.dataset.cell === "filled" && cell.textContent);
      const window = [turn * each, (turn + 1) * each];
      if (!numbered.length || numbered.length * moved.length > 48) {
        // Too many to see one by one: a block travels as one.
        return [{ event, window, label: `${out ? "P" : "H"}${from[1]}`, held: [], places: [from, to].map((p) => middle(air.blockBox(...p), 24)) }];
      }
      return numbered.map((cell, i) => {
        const slot = cells.indexOf(cell);
        const lead = (0.45 * i * each) / numbered.length;
        return {
          event, label: cell.textContent, held: [cell], window: [window[0] + lead, window[0] + lead + each * 0.55],
          places: [air.at.cell(...from, slot), cell].map(air.boxOf),
        };
      });
    });
    air.mark(link, "copy");
    for (const { event, label, held, window, places } of flights) {
      const [from, to] = places;
      const through = from && to && way ? [from, { ...way, w: to.w, h: to.h, x: way.x + (from.x - way.x) * 0.35, y: way.y }, to] : places;
      const at = through.length === 3 ? [window[0], (window[0] + window[1]) / 2, window[1]] : window;
      air.fly({ label, id: event.id, model, kind: "copy", ms, places: through, at });
      for (const cell of held) air.holdBack(cell, "copy", ms * window[1]);
    }
  };
}

/** The owner's frame lets go; values fade to ghosts. */
function release(events, air, model) {
  const each = (name, list, kind) =>
    of(events, name).flatMap((event) => [...event[list]].map((block) => ({ id: event.id, kind, block })));
  const all = [...each("block_released", "blocks", "block"), ...each("host_block_released", "hosts", "host")];
  // The old look of cells and entries, before they are ghosts.
  const before = all.map(({ id, kind, block }) => ({
    box: air.blockBox(kind, block),
    entry: air.boxOf(kind === "block" ? air.at.entry(id, block) : air.at.stored(id, block)),
    cells: all.length > 8 ? [] : [...(air.at[kind](block)?.querySelectorAll('[data-cell="filled"]') ?? [])].map((cell) => ({ label: cell.textContent, box: air.boxOf(cell) })),
  }));
  return (ms) => {
    all.forEach(({ id, kind, block }, i) => {
      const { box, entry, cells } = before[i];
      const look = { id, model, kind: "release", ms };
      air.mark(air.at[kind](block), "release");
      air.fly({ ...look, frame: true, places: [box, box && around(box)], at: [0, 0.75] });
      for (const cell of cells) air.fade({ ...look, label: cell.label, place: cell.box });
      if (entry) air.fade({ ...look, label: `${kind === "host" ? "H" : "P"}${block}`, place: entry, by: 16 });
    });
  };
}

/** Tokens go through the model as one bundle into their slots; what comes out goes to its reader. */
function pass(kind) {
  return (events, air, model) => {
    const written = of(events, "kv_written");
    const starts = new Map();
    for (const { id, positions: [first, last], slots } of written) {
      for (let position = first; position <= last; position += 1) {
        air.remember(air.at.cell("block", slots.block, slots.from + position - first));
        const chip = starts.size < 64 && air.boxOf(air.at.chip(id, position));
        starts.set(`${position} ${id}`, chip || middle(air.boxOf(air.at.card(id)), 22));
      }
    }
    return (ms) => {
      const through = middle(air.boxOf(air.at.model()), 22);
      const flights = written.flatMap((event) => {
        const { slots, positions: [first, last] } = event;
        const count = last - first + 1;
        const every = Math.ceil(count / MOST_TOKENS);
        return Array.from({ length: Math.ceil(count / every) }, (_, i) => i * every).map((i) => {
          const cell = air.at.cell("block", slots.block, slots.from + i);
          const to = air.boxOf(cell) ?? middle(air.blockBox("block", slots.block), 10);
          return { id: event.id, position: first + i, cell, to };
        });
      });
      const sampled = of(events, "token_sampled").map((event) => {
        const [position] = event.positions;
        const index = position - (model.prompts.get(event.id)?.length ?? 0);
        const chip = air.at.chip(event.id, position);
        return { id: event.id, index, chip, box: air.boxOf(chip), out: air.at.output(event.id, index) };
      });
      const readers = sampled.map(({ out }) => air.boxOf(out));
      const ends = sampled.length ? 0.62 : 0.95;
      air.mark(air.at.model(), kind);
      flights.forEach(({ id, position, cell, to }, i) => {
        const late = flights.length > 1 ? (0.12 * i) / (flights.length - 1) : 0;
        const at = [0, ends * 0.42, ends * (0.52 + late), ends * (0.88 + late)];
        const start = starts.get(`${position} ${id}`) ?? through;
        const places = through ? [start, through, through, to] : [start, to];
        air.fly({ label: position, id, model, kind, ms, places, at: through ? at : [0, at[3]] });
        air.holdBack(cell, kind, ms * at[3]);
      });
      sampled.forEach(({ id, index, chip, box, out }, i) => {
        const label = `x${index}`;
        const reader = readers[i];
        if (box && through) air.fly({ label, id, model, kind, ms, places: [through, box], at: [ends, ends + 0.18] });
        air.holdBack(chip, kind, ms * (ends + 0.18));
        if (!reader || !(box ?? through)) return;
        air.fly({ label, id, model, kind, ms, places: [box ?? through, reader], at: [ends + 0.18, 0.98] });
        air.holdBack(out, kind, ms * 0.98);
      });
    };
  };
}

export const perform = {
  arrival,
  allocation,
  preemption,
  copy,
  release,
  prefill: pass("prefill"),
  recompute: pass("recompute"),
  decode: pass("decode"),
};
