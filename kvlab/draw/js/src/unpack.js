/** A trace as it travels (kvlab/draw/packed.py): JSON text, deflated, its events as differences. */

/** What `zlib.compress` made small, as a response. */
export const inflated = (bytes) =>
  new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")));

/** @param {DataView | ArrayBuffer} packed */
export const unpacked = (packed) => inflated(packed).json();

/** One event; what stands in its row is looked up when it is asked for: a long run has many. */
class Event {
  constructor(says, id, row, at) {
    this.says = says;
    this.id = id;
    this.row = row;
    this.at = at;
  }

  /** The key of its words, the values that they need, and its kind. */
  get say() {
    return this.says[0];
  }

  get values() {
    return Object.fromEntries(this.says[1].map((name, i) => [name, this.row[0][i]]));
  }

  get kind() {
    return this.says[2];
  }

  get touched() {
    return this.row[1];
  }

  /** The index of the event that it follows from, or null. */
  get cause() {
    return this.row[2] ? this.at - this.row[2] : null;
  }

  get changes() {
    return this.row[3];
  }
}

/** @returns {Event[]} */
export function eventsOf({ says, rows, requests }) {
  const last = says.map(() => []);
  return rows.map(([say, who, difference], at) => {
    const place = who === null ? requests.length : who;
    const row = sum(difference, last[say][place]);
    last[say][place] = row;
    return new Event(says[say], requests[who]?.id ?? null, row, at);
  });
}

/** What `differences` in packed.py took apart. */
function sum(difference, before) {
  if (typeof difference === "number") return typeof before === "number" ? difference + before : difference;
  if (!Array.isArray(before)) return difference;
  if (difference === true) return before;
  return Array.isArray(difference) ? difference.map((one, i) => sum(one, before[i])) : difference;
}
