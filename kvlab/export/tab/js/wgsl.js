/**
 * The model's steps in WGSL, one small program each; model.js is their reference, line by line. Sizes that
 * a model fixes are constants of a pipeline; what changes from batch to batch comes in `rows`: for each row
 * position, slot, where its table begins in `tables`, and the size of a block.
 */

const ROW = /* wgsl */ `
struct Row { position: u32, slot: u32, table: u32, block_size: u32 }
`;

/** to[row] = from[index[row]], WIDTH numbers each. */
const gather = /* wgsl */ `
override WIDTH: u32;
@group(0) @binding(0) var<storage, read> index: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x < WIDTH) { out[id.y * WIDTH + id.x] = source[index[id.y] * WIDTH + id.x]; }
}`;

/** out = x / rms(x) * weight for each row. */
const normalise = /* wgsl */ `
override WIDTH: u32;
override EPS: f32;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
var<workgroup> sums: array<f32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) at: u32) {
  let base = group.y * WIDTH;
  var sum = 0.0;
  for (var i = at; i < WIDTH; i += 64u) { sum += x[base + i] * x[base + i]; }
  sums[at] = sum;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (at < half) { sums[at] += sums[at + half]; }
    workgroupBarrier();
  }
  let scale = 1.0 / sqrt(sums[0] / f32(WIDTH) + EPS);
  for (var i = at; i < WIDTH; i += 64u) { out[base + i] = x[base + i] * scale * weight[i]; }
}`;

/** out[row] = x[row] times weight, which lies transposed, [WIDTH, OUTS]; ADD: added to what is there. */
const multiply = /* wgsl */ `
override WIDTH: u32;
override OUTS: u32;
override ADD: bool;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= OUTS) { return; }
  let base = id.y * WIDTH;
  var sum = 0.0;
  for (var i = 0u; i < WIDTH; i++) { sum += x[base + i] * weight[i * OUTS + id.x]; }
  let at = id.y * OUTS + id.x;
  if (ADD) { out[at] += sum; } else { out[at] = sum; }
}`;

/** gate and up [rows, 2 INNER] to silu(gate) * up [rows, INNER]. */
const activate = /* wgsl */ `
override INNER: u32;
@group(0) @binding(0) var<storage, read> both: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= INNER) { return; }
  let gate = both[id.y * 2u * INNER + id.x];
  out[id.y * INNER + id.x] = gate / (1.0 + exp(-gate)) * both[id.y * 2u * INNER + INNER + id.x];
}`;

/**
 * q, k, v side by side [rows, (HEADS + 2 KV) D] to q, turned by its position, and to the row's slot of the
 * pool: k, turned too, and v.
 */
const store = /* wgsl */ `${ROW}
override HEADS: u32;
override KV: u32;
override D: u32;
@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> rows: array<Row>;
@group(0) @binding(2) var<storage, read> cosines: array<f32>;
@group(0) @binding(3) var<storage, read> sines: array<f32>;
@group(0) @binding(4) var<storage, read_write> q: array<f32>;
@group(0) @binding(5) var<storage, read_write> keys: array<f32>;
@group(0) @binding(6) var<storage, read_write> values: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let half = D / 2u;
  if (id.x >= (HEADS + 2u * KV) * half) { return; }
  let row = rows[id.y];
  let head = id.x / half;
  let pair = id.x % half;
  let from_ = id.y * (HEADS + 2u * KV) * D + head * D + pair;
  let a = qkv[from_];
  let b = qkv[from_ + half];
  let c = cosines[row.position * half + pair];
  let s = sines[row.position * half + pair];
  if (head < HEADS) {
    let to = (id.y * HEADS + head) * D + pair;
    q[to] = a * c - b * s;
    q[to + half] = b * c + a * s;
  } else if (head < HEADS + KV) {
    let to = (row.slot * KV + head - HEADS) * D + pair;
    keys[to] = a * c - b * s;
    keys[to + half] = b * c + a * s;
  } else {
    let to = (row.slot * KV + head - HEADS - KV) * D + pair;
    values[to] = a;
    values[to + half] = b;
  }
}`;

/** softmax(q K^T / sqrt(D)) V over a row's positions so far, read through its table; a group a row and head. */
const attend = /* wgsl */ `${ROW}
override HEADS: u32;
override KV: u32;
override D: u32;
override CONTEXT: u32;
@group(0) @binding(0) var<storage, read> q: array<f32>;
@group(0) @binding(1) var<storage, read> rows: array<Row>;
@group(0) @binding(2) var<storage, read> tables: array<u32>;
@group(0) @binding(3) var<storage, read> keys: array<f32>;
@group(0) @binding(4) var<storage, read> values: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
var<workgroup> scores: array<f32, CONTEXT>;
var<workgroup> shared_: array<f32, 64>;
fn slot_of(row: Row, p: u32) -> u32 {
  return tables[row.table + p / row.block_size] * row.block_size + p % row.block_size;
}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) at: u32) {
  let row = rows[group.y];
  let head = group.x;
  let shared_head = head * KV / HEADS; // heads share K and V in groups
  let query = (group.y * HEADS + head) * D;
  let end = row.position + 1u;
  var highest = -3.4e38;
  for (var p = at; p < end; p += 64u) {
    let key = (slot_of(row, p) * KV + shared_head) * D;
    var sum = 0.0;
    for (var i = 0u; i < D; i++) { sum += q[query + i] * keys[key + i]; }
    let score = sum / sqrt(f32(D));
    scores[p] = score;
    highest = max(highest, score);
  }
  shared_[at] = highest;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (at < half) { shared_[at] = max(shared_[at], shared_[at + half]); }
    workgroupBarrier();
  }
  highest = shared_[0];
  workgroupBarrier();
  var total = 0.0;
  for (var p = at; p < end; p += 64u) {
    let weight = exp(scores[p] - highest);
    scores[p] = weight;
    total += weight;
  }
  shared_[at] = total;
  workgroupBarrier();
  for (var half = 32u; half > 0u; half /= 2u) {
    if (at < half) { shared_[at] += shared_[at + half]; }
    workgroupBarrier();
  }
  total = shared_[0];
  for (var i = at; i < D; i += 64u) {
    var sum = 0.0;
    for (var p = 0u; p < end; p++) { sum += scores[p] * values[(slot_of(row, p) * KV + shared_head) * D + i]; }
    out[query + i] = sum / total;
  }
}`;

export const PROGRAMS = { gather, normalise, multiply, activate, store, attend };
