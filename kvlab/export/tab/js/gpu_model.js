/** The decoder on the graphics card: model.js again, in the programs of wgsl.js. */
import { rowsOf } from "./model.js";
import { parts } from "./measure.js";
import { PROGRAMS } from "./wgsl.js";

const GROUP = 64;

export class CardModel {
  /** `model` is the reference: its shape, its weights and its tables of angles. */
  constructor(card, model) {
    const { hidden, inner, heads, kvHeads, headDim, vocab, context, eps } = model.shape;
    this.card = card;
    this.shape = model.shape;
    this.qWidth = heads * headDim;
    this.qkvWidth = (heads + 2 * kvHeads) * headDim;
    const turned = { HEADS: heads, KV: kvHeads, D: headDim };
    const product = (width, outs, add) => this.#pipeline("multiply", { WIDTH: width, OUTS: outs, ADD: add });
    this.programs = {
      gather: this.#pipeline("gather", { WIDTH: hidden }),
      norm: this.#pipeline("normalise", { WIDTH: hidden, EPS: eps }),
      qkv: product(hidden, this.qkvWidth, 0),
      store: this.#pipeline("store", turned),
      attend: this.#pipeline("attend", { ...turned, CONTEXT: context }),
      o: product(this.qWidth, hidden, 1),
      gateUp: product(hidden, 2 * inner, 0),
      activate: this.#pipeline("activate", { INNER: inner }),
      down: product(inner, hidden, 1),
      head: product(hidden, vocab, 0),
    };
    const columns = (width, ...weights) => card.holding(transposed(width, weights));
    this.cos = card.holding(model.rotary.cos);
    this.sin = card.holding(model.rotary.sin);
    this.embedding = card.holding(model.embedding);
    this.head = columns(hidden, model.embedding);
    this.norm = card.holding(model.norm);
    this.layers = model.layers.map((layer) => ({
      before: card.holding(layer.before),
      qkv: columns(hidden, layer.q, layer.k, layer.v),
      o: columns(this.qWidth, layer.o),
      after: card.holding(layer.after),
      gateUp: columns(hidden, layer.gate, layer.up),
      down: columns(inner, layer.down),
    }));
    /** Buffers between the steps, by name; they grow with the batch. */
    this.between = new Map();
  }

  /** Process the rows of a batch and write their KV into the pool; the logits [vocab] after each share that
   * is in `wanted` (indices), in main memory. */
  async forward(shares, pool, wanted) {
    this.card.refuseGone();
    const { hidden, inner, heads, vocab } = this.shape;
    const rows = rowsOf(shares, pool.blockSize);
    const count = rows.length;
    const given = this.#given(shares, rows, pool.blockSize, wanted);
    const floats = (name, width) => this.#buffer(name, count * width);
    const [x, normed, qkv, q] = [floats("x", hidden), floats("normed", hidden), floats("qkv", this.qkvWidth), floats("q", this.qWidth)];
    const [attended, both, active] = [floats("attended", this.qWidth), floats("both", 2 * inner), floats("active", inner)];
    const encoder = this.card.device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    const run = (name, width, height, ...buffers) => this.#run(pass, name, width, height, buffers);
    run("gather", hidden, count, given.tokens, this.embedding, x);
    this.layers.forEach((layer, at) => {
      const [keys, values] = [pool.halves[2 * at], pool.halves[2 * at + 1]];
      run("norm", GROUP, count, x, layer.before, normed);
      run("qkv", this.qkvWidth, count, normed, layer.qkv, qkv);
      run("store", this.qkvWidth / 2, count, qkv, given.rows, this.cos, this.sin, q, keys, values);
      run("attend", GROUP * heads, count, q, given.rows, given.tables, keys, values, attended);
      run("o", hidden, count, attended, layer.o, x);
      run("norm", GROUP, count, x, layer.after, normed);
      run("gateUp", 2 * inner, count, normed, layer.gateUp, both);
      run("activate", inner, count, both, active);
      run("down", hidden, count, active, layer.down, x);
    });
    const logits = this.#buffer("logits", wanted.length * vocab);
    if (wanted.length) {
      run("gather", hidden, wanted.length, given.lasts, x, normed);
      run("norm", GROUP, wanted.length, normed, this.norm, attended);
      run("head", vocab, wanted.length, attended, this.head, logits);
    }
    pass.end();
    this.card.device.queue.submit([encoder.finish()]);
    if (!wanted.length) return [];
    return parts(await this.card.read([{ buffer: logits, from: 0, count: wanted.length * vocab }]), wanted.length);
  }

  /** What changes from batch to batch, on the card: see wgsl.js. */
  #given(shares, rows, blockSize, wanted) {
    let [end, table] = [0, 0];
    const ends = shares.map(({ tokens }) => (end += tokens.length));
    const tables = shares.map(({ table: blocks }) => (table += blocks.length) - blocks.length);
    const tableOf = shares.flatMap(({ tokens }, at) => tokens.map(() => tables[at]));
    return {
      tokens: this.#upload("tokens", rows.map(({ token }) => token)),
      rows: this.#upload("rows", rows.flatMap(({ position, slot }, at) => [position, slot, tableOf[at], blockSize])),
      tables: this.#upload("tables", shares.flatMap(({ table: blocks }) => blocks)),
      lasts: this.#upload("lasts", wanted.map((at) => ends[at] - 1)),
    };
  }

  #upload(name, numbers) {
    const buffer = this.#buffer(name, numbers.length);
    this.card.device.queue.writeBuffer(buffer, 0, Uint32Array.from(numbers));
    return buffer;
  }

  #buffer(name, numbers) {
    let buffer = this.between.get(name);
    if (!buffer || buffer.size < 4 * numbers) {
      buffer?.destroy();
      buffer = this.card.buffer(numbers);
      this.between.set(name, buffer);
    }
    return buffer;
  }

  /** One program over [height rows, width]. */
  #run(pass, name, width, height, buffers) {
    const pipeline = this.programs[name];
    const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, this.card.device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
    pass.dispatchWorkgroups(Math.ceil(width / GROUP), height);
  }

  #pipeline(name, constants) {
    const module = this.card.device.createShaderModule({ code: PROGRAMS[name] });
    return this.card.device.createComputePipeline({ layout: "auto", compute: { module, constants } });
  }
}

/** Weights [outs, width], side by side and transposed: [width, all outs], so that neighbours read neighbours. */
function transposed(width, weights) {
  const outs = weights.reduce((sum, weight) => sum + weight.length / width, 0);
  const turned = new Float32Array(width * outs);
  let column = 0;
  for (const weight of weights) {
    for (let from = 0; from < weight.length; from += width, column += 1) {
      for (let i = 0; i < width; i += 1) turned[i * outs + column] = weight[from + i];
    }
  }
  return turned;
}
