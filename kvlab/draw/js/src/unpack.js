/**
 * A trace as it travels (kvlab/draw/packed.py): JSON text, deflated, its events as differences.
 *
 * @typedef {{
 *   kind: string, id: string | null, say: string, values: Record<string, any>, touched: any[],
 *   cause: number | null, changes: any[][],
 * }} Event
 */

/** What `zlib.compress` made small, as a response. */
export const inflated = (bytes) =>
  new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")));

/** @param {DataView | ArrayBuffer} packed */
export const unpacked = (packed) => inflated(packed).json();

/** @returns {Event[]} */
export function eventsOf({ says, rows, requests }) {
  const last = new Map();
  return rows.map(([index, who, difference], at) => {
    const known = `${index} ${who}`;
    const row = sum(difference, last.get(known));
    last.set(known, row);
    const [say, names, kind] = says[index];
    const [values, touched, back, changes] = row;
    return {
      kind,
      id: who === null ? null : requests[who].id,
      say,
      values: Object.fromEntries(names.map((name, i) => [name, values[i]])),
      touched,
      cause: back ? at - back : null,
      changes,
    };
  });
}

/** What `differences` in packed.py took apart. */
function sum(difference, before) {
  if (typeof difference === "number") return typeof before === "number" ? difference + before : difference;
  if (!Array.isArray(before)) return difference;
  if (difference === true) return before;
  return Array.isArray(difference) ? difference.map((one, i) => sum(one, before[i])) : difference;
}
