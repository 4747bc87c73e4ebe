/**
 * What stores KV and runs the model in a tab, in plain JavaScript: the reference. Block numbers, tokens
 * and measured numbers cross to Python (kvlab/export/tab/runner.py), no tensor does.
 */
import { Pool, copyBlocks } from "./cache.js";
import { Known, crc32, fingerprint } from "./measure.js";
import { rowsOf } from "./model.js";
import { chosen } from "./sampler.js";

export class Runner {
  /** `keepsOverwritten` is for the unsafe lesson: what a batch writes over is kept until the next. */
  constructor(model, { numBlocks, blockSize, hostBlocks, keepsOverwritten }) {
    this.model = model;
    this.pool = new Pool(model.shape, numBlocks, blockSize);
    this.host = new Pool(model.shape, hostBlocks, blockSize);
    this.keepsOverwritten = keepsOverwritten;
    this.overwritten = [];
    this.known = new Known();
  }

  /** Process a batch of {tokens, start, table, sampling}; for each sampling, in order, [token, logprob or
   * null]. */
  execute(batch) {
    if (this.keepsOverwritten) {
      this.overwritten = rowsOf(batch, this.pool.blockSize).map(({ block, offset }) => {
        return { block, offset, values: this.pool.values(block, offset, 1) };
      });
    }
    const states = this.model.forward(batch, this.pool);
    let end = 0;
    return batch.flatMap(({ tokens, sampling }) => {
      end += tokens.length;
      return sampling.length ? chosen(this.model.logits(states, end - 1), sampling) : [];
    });
  }

  copyOut(pairs, beforeLastWrite) {
    copyBlocks(this.pool, this.host, pairs);
    if (!beforeLastWrite) return;
    const stored = new Map(pairs);
    for (const { block, offset, values } of this.overwritten) {
      if (stored.has(block)) this.host.put(values, stored.get(block), offset, 1);
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
    return blocks.map(([block, length]) => fingerprint(this.pool.values(block, 0, length), this.pool.layers));
  }

  /** For each [block, slots in use] one of all layers' bytes. */
  checksums(blocks) {
    return blocks.map(([block, length]) => crc32(this.pool.values(block, 0, length)));
  }

  /** What is measured of a request's positions `first` to `last`, just written from `slot` of a block on. */
  written(id, block, slot, first, last, rebuilt) {
    const count = last - first + 1;
    return this.known.written(id, this.pool.values(block, slot, count), this.pool.layers, first, count, rebuilt);
  }

  forget(id) {
    this.known.forget(id);
  }

  /** Give the memory back. */
  end() {
    this.pool = this.host = this.known = null;
  }
}
