/**
 * What was measured of the values in a block. A trace's `measurements` are {event, block, …}:
 *
 *   of kv_written         checksum, k_norm and v_norm of the written slots (one number a layer);
 *                         max_diff {k, v}: largest difference to the values before the release
 *   of swap_out_started   checksum of each block, before the copy
 *   of swap_in_finished   checksum of each block, after the return
 *
 * What a trace does not have is said to be not measured.
 */

/** Measurements by event, each a list. */
export function measuredBy(trace) {
  const found = new Map();
  for (const entry of Array.isArray(trace.measurements) ? trace.measurements : []) {
    found.set(entry.event, [...(found.get(entry.event) ?? []), entry]);
  }
  return found;
}

/** Index of the last event before `cursor` that fits, or -1. */
function lastBefore(events, cursor, fits) {
  for (let i = Math.min(cursor, events.length) - 1; i >= 0; i -= 1) if (fits(events[i])) return i;
  return -1;
}

const wrote = (id, position) => (event) =>
  event.kind === "kv_written" && event.id === id && event.first <= position && position <= event.last;

/**
 * The writes whose values lie in a block at a cursor: {event, id, first, last, how, now, before}; now
 * and before are measurements or undefined, before only for what was rebuilt and measured alike.
 */
export function writesIn({ trace, measured }, cells, cursor) {
  const found = new Map();
  for (const cell of cells) {
    if (!cell) continue;
    const at = lastBefore(trace.events, cursor, wrote(cell.id, cell.position));
    if (at < 0 || found.has(at)) continue;
    const event = trace.events[at];
    const { id, first, last, block } = event;
    const then = lastBefore(trace.events, at, wrote(id, first));
    const earlier = trace.events[then];
    const alike = earlier?.first === first && earlier.last === last;
    found.set(at, {
      event: at,
      id,
      first,
      last,
      how: event.why,
      now: measured.get(at)?.find((entry) => entry.block === block),
      before:
        event.why === "rebuilt" && alike
          ? measured.get(then)?.find((entry) => entry.block === earlier.block)
          : undefined,
    });
  }
  return [...found.values()].sort((a, b) => a.first - b.first);
}

/** Whether a restored block has the bytes that were copied out: true, false, or null: not measured. */
export function sameBytes({ trace, measured }, block, cursor) {
  const { events } = trace;
  const back = lastBefore(
    events,
    cursor,
    (event) => event.kind === "swap_in_finished" && event.blocks.includes(block),
  );
  if (back < 0) return null;
  const { id, blocks } = events[back];
  const place = blocks.indexOf(block);
  const out = lastBefore(events, back, (event) => event.kind === "swap_out_started" && event.id === id);
  const source = events[out]?.blocks[place];
  const sum = (event, which) =>
    measured.get(event)?.find((entry) => entry.block === which)?.checksum ?? null;
  const [one, other] = [sum(out, source), sum(back, block)];
  if (one !== null && other !== null) return one === other;
  return damageOf({ trace }, block, cursor)?.restored ? false : null;
}

/** The damage found last in a block, or undefined. */
export function damageOf({ trace }, block, cursor) {
  const at = lastBefore(
    trace.events,
    cursor,
    (event) => event.kind === "damage_found" && event.block === block,
  );
  return trace.events[at];
}

/** The largest difference between two lists of numbers. */
export const largestDifference = (one, other) =>
  Math.max(0, ...one.map((value, i) => Math.abs(value - (other[i] ?? value))));
