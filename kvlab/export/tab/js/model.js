/**
 * The llama-family decoder over packed rows, in plain JavaScript: kvlab/models/llama.py, read beside it.
 *
 * Numbers are stored as float32 and summed as float64, which is a little nearer to the true value than
 * torch's own float32 sums. Rows are tokens, whatever request they belong to; attention reads K and V
 * from the pool through the block table, and nowhere else.
 */
import { rotary } from "./weights.js";

export class Model {
  constructor(shape, weights) {
    this.shape = shape;
    this.rotary = rotary(shape);
    this.embedding = weights.get("model.embed_tokens.weight");
    this.norm = weights.get("model.norm.weight");
    this.layers = Array.from({ length: shape.layers }, (_, layer) => {
      const of = (name) => weights.get(`model.layers.${layer}.${name}.weight`);
      return {
        before: of("input_layernorm"),
        q: of("self_attn.q_proj"),
        k: of("self_attn.k_proj"),
        v: of("self_attn.v_proj"),
        o: of("self_attn.o_proj"),
        after: of("post_attention_layernorm"),
        gate: of("mlp.gate_proj"),
        up: of("mlp.up_proj"),
        down: of("mlp.down_proj"),
      };
    });
  }

  /**
   * Process the rows of a batch and write their KV into the pool. Each share is {tokens, start, table}:
   * `tokens` are its request's positions from `start` on, `table` its blocks. Returns the hidden states
   * [rows, hidden] after the last norm.
   */
  forward(shares, pool) {
    const { hidden, inner, heads, kvHeads, headDim, eps } = this.shape;
    const rows = rowsOf(shares, pool.blockSize);
    const count = rows.length;
    const x = new Float32Array(count * hidden);
    rows.forEach(({ token }, row) => {
      x.set(rowOf(this.embedding, token, hidden), row * hidden);
    });
    const normed = new Float32Array(count * hidden);
    const q = new Float32Array(count * heads * headDim);
    const k = new Float32Array(count * kvHeads * headDim);
    const v = new Float32Array(count * kvHeads * headDim);
    const attended = new Float32Array(count * heads * headDim);
    const out = new Float32Array(count * hidden);
    const gate = new Float32Array(count * inner);
    const up = new Float32Array(count * inner);
    this.layers.forEach((layer, at) => {
      normalise(x, layer.before, eps, normed);
      multiply(normed, layer.q, count, hidden, q);
      multiply(normed, layer.k, count, hidden, k);
      multiply(normed, layer.v, count, hidden, v);
      this.#turn(q, rows, heads);
      this.#turn(k, rows, kvHeads);
      rows.forEach(({ block, offset }, row) => {
        pool.slots(2 * at, block, offset, 1).set(rowOf(k, row, pool.slotSize));
        pool.slots(2 * at + 1, block, offset, 1).set(rowOf(v, row, pool.slotSize));
      });
      rows.forEach((one, row) => this.#attend(q, one, row, at, pool, attended));
      multiply(attended, layer.o, count, heads * headDim, out);
      add(x, out);
      normalise(x, layer.after, eps, normed);
      multiply(normed, layer.gate, count, hidden, gate);
      multiply(normed, layer.up, count, hidden, up);
      for (let i = 0; i < gate.length; i += 1) gate[i] = (gate[i] / (1 + Math.exp(-gate[i]))) * up[i];
      multiply(gate, layer.down, count, inner, out);
      add(x, out);
    });
    normalise(x, this.norm, eps, normed);
    return normed;
  }

  /** Logits [vocab] of one row of hidden states. */
  logits(states, row) {
    const { hidden, vocab } = this.shape;
    const logits = new Float32Array(vocab);
    multiply(rowOf(states, row, hidden), this.embedding, 1, hidden, logits);
    return logits;
  }

  /** Turn the pairs (x_i, x_{i + d/2}) of each head by its row's position. */
  #turn(x, rows, heads) {
    const { headDim } = this.shape;
    const half = headDim / 2;
    const { cos, sin } = this.rotary;
    rows.forEach(({ position }, row) => {
      for (let head = 0; head < heads; head += 1) {
        const at = (row * heads + head) * headDim;
        for (let pair = 0; pair < half; pair += 1) {
          const c = cos[position * half + pair];
          const s = sin[position * half + pair];
          const a = x[at + pair];
          const b = x[at + half + pair];
          x[at + pair] = a * c - b * s;
          x[at + half + pair] = b * c + a * s;
        }
      }
    });
  }

  /** softmax(q K^T / sqrt(d)) V of one row over its positions so far, gathered through its table. */
  #attend(q, { position, table }, row, layer, pool, out) {
    const { heads, kvHeads, headDim } = this.shape;
    const { data, blockSize, slotSize, halfNumbers } = pool;
    const [keys, values] = [2 * layer * halfNumbers, (2 * layer + 1) * halfNumbers];
    const scale = 1 / Math.sqrt(headDim);
    const scores = new Float64Array(position + 1);
    const starts = Int32Array.from(scores, (_, p) => (table[Math.floor(p / blockSize)] * blockSize + (p % blockSize)) * slotSize);
    for (let head = 0; head < heads; head += 1) {
      const query = (row * heads + head) * headDim;
      const offset = Math.floor((head * kvHeads) / heads) * headDim; // heads share K and V in groups
      let highest = -Infinity;
      for (let p = 0; p <= position; p += 1) {
        const key = keys + starts[p] + offset;
        let sum = 0;
        for (let i = 0; i < headDim; i += 1) sum += q[query + i] * data[key + i];
        scores[p] = sum * scale;
        if (!(scores[p] <= highest)) highest = scores[p];
      }
      let total = 0;
      for (let p = 0; p <= position; p += 1) total += scores[p] = Math.exp(scores[p] - highest);
      for (let i = 0; i < headDim; i += 1) {
        let sum = 0;
        for (let p = 0; p <= position; p += 1) sum += scores[p] * data[values + starts[p] + offset + i];
        out[query + i] = sum / total;
      }
    }
  }
}

/** Every token of the shares with its position, its place and slot in the pool and its request's table. */
export function rowsOf(shares, blockSize) {
  return shares.flatMap(({ tokens, start, table }) =>
    tokens.map((token, at) => {
      const position = start + at;
      const [block, offset] = [table[Math.floor(position / blockSize)], position % blockSize];
      return { token, position, table, block, offset, slot: block * blockSize + offset };
    }),
  );
}

const rowOf = (x, row, size) => x.subarray(row * size, (row + 1) * size);

function add(x, y) {
  for (let i = 0; i < x.length; i += 1) x[i] += y[i];
}

/** x / rms(x) * weight for each row (Zhang & Sennrich 2019). */
function normalise(x, weight, eps, out) {
  const size = weight.length;
  for (let at = 0; at < x.length; at += size) {
    let squares = 0;
    for (let i = 0; i < size; i += 1) squares += x[at + i] * x[at + i];
    const scale = 1 / Math.sqrt(squares / size + eps);
    for (let i = 0; i < size; i += 1) out[at + i] = x[at + i] * scale * weight[i];
  }
}

/** out [rows, n] = x [rows, width] times weight [n, width] transposed; four rows share one reading. */
function multiply(x, weight, rows, width, out) {
  const n = weight.length / width;
  let row = 0;
  for (; row + 4 <= rows; row += 4) {
    const [a, b, c, d] = [row * width, (row + 1) * width, (row + 2) * width, (row + 3) * width];
    for (let o = 0, w = 0; o < n; o += 1, w += width) {
      let [s, t, u, v] = [0, 0, 0, 0];
      for (let i = 0; i < width; i += 1) {
        const value = weight[w + i];
        s += x[a + i] * value;
        t += x[b + i] * value;
        u += x[c + i] * value;
        v += x[d + i] * value;
      }
      out[row * n + o] = s;
      out[(row + 1) * n + o] = t;
      out[(row + 2) * n + o] = u;
      out[(row + 3) * n + o] = v;
    }
  }
  for (; row < rows; row += 1) {
    const a = row * width;
    for (let o = 0, w = 0; o < n; o += 1, w += width) {
      let [s, t, u, v] = [0, 0, 0, 0]; // four sums, so that none waits for the one before; width is a multiple of 4
      for (let i = 0; i < width; i += 4) {
        s += x[a + i] * weight[w + i];
        t += x[a + i + 1] * weight[w + i + 1];
        u += x[a + i + 2] * weight[w + i + 2];
        v += x[a + i + 3] * weight[w + i + 3];
      }
      out[row * n + o] = s + t + (u + v);
    }
  }
}
