/**
 * runner.js on the visitor's graphics card: the GPU pool and the model are there, the host pool is in main
 * memory, and copies go over the link between the two. What reads from the card answers later (promises).
 */
import { Pool, refuseBlocks } from "./cache.js";
import { CardPool } from "./gpu.js";
import { Known, crc32, fingerprint } from "./measure.js";
import { rowsOf } from "./model.js";
import { chosen } from "./sampler.js";

export class CardRunner {
  /** `model` is a CardModel; sizes as for runner.js. */
  constructor(model, { numBlocks, blockSize, hostBlocks, keepsOverwritten }) {
    this.model = model;
    this.pool = new CardPool(model.card, model.shape, numBlocks, blockSize);
    this.host = new Pool(model.shape, hostBlocks, blockSize);
    this.keepsOverwritten = keepsOverwritten;
    this.overwritten = [];
    this.known = new Known();
  }

  async execute(batch) {
    if (this.keepsOverwritten) {
      const rows = rowsOf(batch, this.pool.blockSize);
      const values = await this.pool.read(rows.map(({ block, offset }) => [block, offset, 1]));
      this.overwritten = rows.map(({ block, offset }, at) => ({ block, offset, values: values[at] }));
    }
    const wanted = [...batch.keys()].filter((at) => batch[at].sampling.length);
    const logits = await this.model.forward(batch, this.pool, wanted);
    return wanted.flatMap((at, place) => chosen(logits[place], batch[at].sampling));
  }

  /** On return the values are in the host pool. */
  async copyOut(pairs, beforeLastWrite) {
    refuseBlocks(this.pool, this.host, pairs);
    const size = this.pool.blockSize;
    const copies = await this.pool.read(pairs.map(([block]) => [block, 0, size]));
    copies.forEach((values, at) => this.host.put(values, pairs[at][1], 0, size));
    if (!beforeLastWrite) return;
    const stored = new Map(pairs);
    for (const { block, offset, values } of this.overwritten) {
      if (stored.has(block)) this.host.put(values, stored.get(block), offset, 1);
    }
  }

  /** On return they are on their way; what the card is given later sees them. */
  copyIn(pairs) {
    refuseBlocks(this.host, this.pool, pairs);
    const size = this.host.blockSize;
    for (const [from, to] of pairs) this.pool.put(this.host.values(from, 0, size), to, 0, size);
  }

  copyBlock(source, target) {
    refuseBlocks(this.pool, this.pool, [[source, target]]);
    this.pool.copyBlock(source, target);
  }

  async fingerprints(blocks) {
    const read = await this.pool.read(blocks.map(([block, length]) => [block, 0, length]));
    return read.map((values) => fingerprint(values, this.pool.layers));
  }

  async checksums(blocks) {
    return (await this.pool.read(blocks.map(([block, length]) => [block, 0, length]))).map((values) => crc32(values));
  }

  async written(id, block, slot, first, last, rebuilt) {
    const count = last - first + 1;
    const values = await this.pool.values(block, slot, count);
    return this.known.written(id, values, this.pool.layers, first, count, rebuilt);
  }

  forget(id) {
    this.known.forget(id);
  }

  end() {
    this.pool.end();
    this.host = this.known = null;
  }
}
