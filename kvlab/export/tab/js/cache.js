/**
 * A pool of KV blocks in one typed array: [layers, 2, blocks, blockSize, kvHeads, headDim], K at 0 and
 * V at 1, as kvlab/runtime/kv_cache.py has it. Nothing is ever cleared: a released block keeps its
 * values until they are written over.
 */
export class Pool {
  constructor({ layers, kvHeads, headDim }, blocks, blockSize) {
    this.layers = layers;
    this.blocks = blocks;
    this.blockSize = blockSize;
    /** Numbers of a slot: one position's K, or V, in one layer. */
    this.slotSize = kvHeads * headDim;
    this.blockNumbers = blockSize * this.slotSize;
    /** From one half (K or V) of a layer to the next. */
    this.halfNumbers = blocks * this.blockNumbers;
    this.data = new Float32Array(layers * 2 * this.halfNumbers);
  }

  /** Where K (half 0) or V (half 1) of a layer begins in `data`. */
  half(layer, half) {
    return (2 * layer + half) * this.halfNumbers;
  }

  /** The numbers of `count` slots of a block from `slot` on, of one half of a layer (a view). */
  slots(layer, half, block, slot, count) {
    const from = this.half(layer, half) + block * this.blockNumbers + slot * this.slotSize;
    return this.data.subarray(from, from + count * this.slotSize);
  }

  /** CRC-32 of the bytes of a block's first `length` slots: every layer, K and V. */
  checksum(block, length) {
    let crc = 0;
    for (let layer = 0; layer < this.layers; layer += 1) crc = this.#layerChecksum(layer, block, length, crc);
    return crc;
  }

  /** The same for each layer. */
  fingerprint(block, length) {
    return Array.from({ length: this.layers }, (_, layer) => this.#layerChecksum(layer, block, length, 0));
  }

  #layerChecksum(layer, block, length, before) {
    const k = crc32(this.slots(layer, 0, block, 0, length), before);
    return crc32(this.slots(layer, 1, block, 0, length), k);
  }

  /** A copy of the values of some slots: for each layer K, then V. */
  values(block, slot, count) {
    const numbers = count * this.slotSize;
    const copy = new Float32Array(this.layers * 2 * numbers);
    for (let at = 0; at < 2 * this.layers; at += 1) {
      copy.set(this.slots(at >> 1, at & 1, block, slot, count), at * numbers);
    }
    return copy;
  }
}

/** Every layer, K and V, block by block. Throws for a block that a pool lacks, before anything moves. */
export function copyBlocks(source, target, pairs) {
  for (const [from, to] of pairs) {
    refuseBlock(source, from);
    refuseBlock(target, to);
  }
  for (const [from, to] of pairs) {
    for (let at = 0; at < 2 * source.layers; at += 1) {
      const numbers = source.slots(at >> 1, at & 1, from, 0, source.blockSize);
      target.slots(at >> 1, at & 1, to, 0, target.blockSize).set(numbers);
    }
  }
}

function refuseBlock(pool, block) {
  if (!(block >= 0 && block < pool.blocks)) throw new Error(`block ${block} is not one of the pool's ${pool.blocks}`);
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/** CRC-32 (as in zlib) of an array's bytes, going on from `before`. */
export function crc32(values, before = 0) {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  let crc = ~before;
  for (let at = 0; at < bytes.length; at += 1) crc = TABLE[(crc ^ bytes[at]) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}
