/**
 * What is measured of values that were read from a pool: for each layer K, then V, [2 * layers, slots,
 * numbers of a slot] in one Float32Array.
 */

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/** CRC-32 (as in zlib) of an array's bytes. */
export function crc32(values) {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  let crc = ~0;
  for (let at = 0; at < bytes.length; at += 1) crc = TABLE[(crc ^ bytes[at]) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

/** Equal parts of an array (views). */
export function parts(values, count) {
  const size = values.length / count;
  return Array.from({ length: count }, (_, at) => values.subarray(at * size, (at + 1) * size));
}

/** CRC-32 of each layer's K and V. */
export const fingerprint = (values, layers) => parts(values, layers).map((layer) => crc32(layer));

/** What each request had in each position, to compare with what it has there later. */
export class Known {
  #values = new Map();

  /**
   * Of values just written at positions from `first` on: the Euclidean norm of K and of V for each layer
   * and, where the request had all these positions before and they are `rebuilt`, the largest difference
   * of K and of V to those.
   */
  written(id, values, layers, first, count, rebuilt) {
    const own = this.#values.get(id) ?? this.#values.set(id, new Map()).get(id);
    const halves = parts(values, 2 * layers);
    const norms = halves.map((half) => Math.sqrt(half.reduce((sum, value) => sum + value * value, 0)));
    const now = Array.from({ length: count }, (_, place) => halves.map((half) => parts(half, count)[place].slice()));
    const before = now.map((_, place) => own.get(first + place));
    const found = { k_norm: norms.filter((_, at) => at % 2 === 0), v_norm: norms.filter((_, at) => at % 2) };
    if (rebuilt && before.every(Boolean)) found.max_diff = largestDifferences(now, before);
    now.forEach((slot, place) => own.set(first + place, slot));
    return found;
  }

  forget(id) {
    this.#values.delete(id);
  }
}

/** Of K and of V, between two lists of slots, each an array a layer's half. */
function largestDifferences(now, before) {
  const largest = { k: 0, v: 0 };
  now.forEach((slot, place) =>
    slot.forEach((half, at) => {
      const name = at % 2 ? "v" : "k";
      const old = before[place][at];
      for (let i = 0; i < half.length; i += 1) largest[name] = Math.max(largest[name], Math.abs(half[i] - old[i]));
    }),
  );
  return largest;
}
