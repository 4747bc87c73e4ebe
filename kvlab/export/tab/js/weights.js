/**
 * The bundled model's files as typed arrays: config.json and model.safetensors.
 *
 * A safetensors file is 8 bytes (the length of a JSON header, little-endian), the header with each
 * tensor's dtype, shape and bytes, then the bytes. bfloat16 is the upper half of a float32, so that
 * widening it is exact.
 */

/** Weights by name, Float32Array each, rows as stored. `buffer`: the file. */
export function weightsOf(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const weights = new Map();
  delete header.__metadata__;
  for (const [name, { dtype, data_offsets: [from, to] }] of Object.entries(header)) {
    const bytes = buffer.slice(8 + length + from, 8 + length + to);
    weights.set(name, widened(dtype, bytes, name));
  }
  return weights;
}

function widened(dtype, bytes, name) {
  if (dtype === "F32") return new Float32Array(bytes);
  if (dtype !== "BF16") throw new Error(`${name} is stored as ${dtype}`);
  const halves = new Uint16Array(bytes);
  const bits = new Uint32Array(halves.length);
  for (let at = 0; at < halves.length; at += 1) bits[at] = halves[at] << 16;
  return new Float32Array(bits.buffer);
}

/** What the computation needs of config.json. Throws for a model that is not computed here. */
export function shapeOf(config) {
  const plain = ["attention_bias", "mlp_bias", "rope_scaling"].every((key) => !config[key]);
  if (config.model_type !== "llama" || config.hidden_act !== "silu" || !config.tie_word_embeddings || !plain) {
    throw new Error(`a ${config.model_type} model of this kind is not computed in a browser's tab`);
  }
  return {
    vocab: config.vocab_size,
    hidden: config.hidden_size,
    inner: config.intermediate_size,
    layers: config.num_hidden_layers,
    heads: config.num_attention_heads,
    kvHeads: config.num_key_value_heads,
    headDim: config.head_dim,
    context: config.max_position_embeddings,
    theta: config.rope_theta,
    eps: config.rms_norm_eps,
    eos: [config.eos_token_id].flat(),
  };
}

/** cos and sin of each position's angles, [context, headDim / 2] each, in float32 as torch has them. */
export function rotary({ context, headDim, theta }) {
  const half = headDim / 2;
  const cos = new Float32Array(context * half);
  const sin = new Float32Array(context * half);
  for (let pair = 0; pair < half; pair += 1) {
    const power = Math.fround(theta ** Math.fround((2 * pair) / headDim));
    const frequency = Math.fround(1 / power);
    for (let position = 0; position < context; position += 1) {
      const angle = Math.fround(position * frequency);
      cos[position * half + pair] = Math.cos(angle);
      sin[position * half + pair] = Math.sin(angle);
    }
  }
  return { cos, sin };
}
