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
    /** Numbers of a layer's K, or of its V. */
    this.halfNumbers = blocks * this.blockNumbers;
    this.data = new Float32Array(layers * 2 * this.halfNumbers);
  }

  /** The numbers of `count` slots of a block from `slot` on, of half `at` (0: K of layer 0, 1: its V). */
  slots(at, block, slot, count) {
    const from = at * this.halfNumbers + block * this.blockNumbers + slot * this.slotSize;
    return this.data.subarray(from, from + count * this.slotSize);
  }

  /** A copy of the values of some slots: for each layer K, then V. */
  values(block, slot, count) {
    const copy = new Float32Array(this.layers * 2 * count * this.slotSize);
    this.each((at) => copy.set(this.slots(at, block, slot, count), at * count * this.slotSize));
    return copy;
  }

  /** Put such values back. */
  put(values, block, slot, count) {
    const size = count * this.slotSize;
    this.each((at) => this.slots(at, block, slot, count).set(values.subarray(at * size, (at + 1) * size)));
  }

  /** `work(at)` for each layer's K and V. */
  each(work) {
    for (let at = 0; at < 2 * this.layers; at += 1) work(at);
  }
}

/** Every layer, K and V, block by block. */
export function copyBlocks(source, target, pairs) {
  refuseBlocks(source, target, pairs);
  for (const [from, to] of pairs) {
    source.each((at) => target.slots(at, to, 0, target.blockSize).set(source.slots(at, from, 0, source.blockSize)));
  }
}

/** Throws for a block that a pool lacks, before anything moves. */
export function refuseBlocks(source, target, pairs) {
  for (const [from, to] of pairs) {
    for (const [pool, block] of [[source, from], [target, to]]) {
      if (!(block >= 0 && block < pool.blocks)) throw new Error(`block ${block} is not one of the pool's ${pool.blocks}`);
    }
  }
}
