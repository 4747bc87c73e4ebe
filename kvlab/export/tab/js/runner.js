/**
 * What stores KV and runs the model in a tab, in plain JavaScript: the reference. Block numbers, tokens
 * and measured numbers cross to Python (kvlab/export/tab/runner.py), no tensor does.
 */
import { Pool, copyBlocks } from "./cache.js";
import { rowsOf } from "./model.js";
import { logprob, select } from "./sampler.js";

export class Runner {
  /** `sizes`: {numBlocks, blockSize, hostBlocks, keepsOverwritten}; the last for the unsafe lesson. */
  constructor(model, { numBlocks, blockSize, hostBlocks, keepsOverwritten }) {
    this.model = model;
    this.pool = new Pool(model.shape, numBlocks, blockSize);
    this.host = new Pool(model.shape, hostBlocks, blockSize);
    this.keepsOverwritten = keepsOverwritten;
    this.overwritten = [];
    /** Values that each request had, by id and position, for `written`. */
    this.known = new Map();
  }

  /**
   * Process a batch of {tokens, start, table, sampling}; for each sampling, in order, [token, logprob or
   * null]. What lay in the slots is kept first, where the lesson asks for it.
   */
  execute(batch) {
    if (this.keepsOverwritten) {
      this.overwritten = rowsOf(batch, this.pool.blockSize).map(({ slot }) => {
        const [block, offset] = [Math.floor(slot / this.pool.blockSize), slot % this.pool.blockSize];
        return { block, offset, values: this.pool.values(block, offset, 1) };
      });
    }
    const states = this.model.forward(batch, this.pool);
    let end = 0;
    return batch.flatMap(({ tokens, sampling }) => {
      end += tokens.length;
      if (!sampling.length) return [];
      const logits = this.model.logits(states, end - 1);
      return sampling.map((how) => {
        const token = select(logits, how);
        return [token, how.logprobs ? logprob(logits, token) : null];
      });
    });
  }

  copyOut(pairs, beforeLastWrite) {
    copyBlocks(this.pool, this.host, pairs);
    if (!beforeLastWrite) return;
    const stored = new Map(pairs);
    const size = this.host.slotSize;
    for (const { block, offset, values } of this.overwritten) {
      if (!stored.has(block)) continue;
      for (let at = 0; at < 2 * this.host.layers; at += 1) {
        this.host.slots(at >> 1, at & 1, stored.get(block), offset, 1).set(values.subarray(at * size, (at + 1) * size));
      }
    }
  }

  copyIn(pairs) {
    copyBlocks(this.host, this.pool, pairs);
  }

  copyBlock(source, target) {
    copyBlocks(this.pool, this.pool, [[source, target]]);
  }

  /** For each [block, slots in use] a checksum of each layer's bytes. */
  fingerprints(blocks) {
    return blocks.map(([block, length]) => this.pool.fingerprint(block, length));
  }

  checksums(blocks) {
    return blocks.map(([block, length]) => this.pool.checksum(block, length));
  }

  /**
   * Positions `first` to `last` of a request, just written from `slot` of a block on: the Euclidean norm
   * of their K and of their V for each layer and, where the request had them all before and `rebuilt`,
   * the largest difference of K and of V to those.
   */
  written(id, block, slot, first, last, rebuilt) {
    const count = last - first + 1;
    const numbers = count * this.pool.slotSize;
    const values = this.pool.values(block, slot, count);
    const halves = Array.from({ length: 2 * this.pool.layers }, (_, at) => values.subarray(at * numbers, (at + 1) * numbers));
    const norms = halves.map((half) => Math.sqrt(half.reduce((sum, value) => sum + value * value, 0)));
    const known = this.known.get(id) ?? this.known.set(id, new Map()).get(id);
    const before = Array.from({ length: count }, (_, place) => known.get(first + place));
    const found = { k_norm: norms.filter((_, at) => at % 2 === 0), v_norm: norms.filter((_, at) => at % 2) };
    if (rebuilt && before.every(Boolean)) found.max_diff = largestDifferences(halves, before, this.pool.slotSize);
    for (let place = 0; place < count; place += 1) known.set(first + place, this.pool.values(block, slot + place, 1));
    return found;
  }

  forget(id) {
    this.known.delete(id);
  }

  /**
   * Seconds of a pass over `tokens` positions, of one over a single position, and of copying `blocks`
   * blocks out and in, in pools of their own: medians of three after a warm-up.
   */
  timed(tokens, blocks) {
    const { blockSize } = this.pool;
    const needed = Math.max(blocks, Math.ceil(tokens / blockSize));
    const scratch = new Runner(this.model, { numBlocks: needed, blockSize, hostBlocks: blocks, keepsOverwritten: false });
    const table = Array.from({ length: needed }, (_, block) => block);
    const prompt = Array.from({ length: tokens }, (_, place) => place % this.model.shape.vocab);
    const pairs = table.slice(0, blocks).map((block) => [block, blocks - 1 - block]);
    const pass = (some) => scratch.execute([{ tokens: some, start: 0, table, sampling: [] }]);
    return {
      pass: median(() => pass(prompt)),
      row: median(() => pass(prompt.slice(0, 1))),
      out: median(() => scratch.copyOut(pairs, false)),
      in: median(() => scratch.copyIn(pairs)),
    };
  }
}

/** Seconds of some work, never 0: a browser's clock moves in steps. */
function median(work) {
  const taken = Array.from({ length: 4 }, () => {
    const began = performance.now();
    work();
    return Math.max(performance.now() - began, 0.005) / 1000;
  });
  return taken.slice(1).sort((a, b) => a - b)[1];
}

/** Of K and of V, between values by layer and half and those before, one array a slot. */
function largestDifferences(halves, before, slotSize) {
  const largest = { k: 0, v: 0 };
  halves.forEach((half, at) => {
    const name = at % 2 ? "v" : "k";
    before.forEach((old, place) => {
      for (let i = 0; i < slotSize; i += 1) {
        largest[name] = Math.max(largest[name], Math.abs(half[place * slotSize + i] - old[at * slotSize + i]));
      }
    });
  });
  return largest;
}
