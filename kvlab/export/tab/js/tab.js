/**
 * The model of this tab with the pools of the run in progress, behind the one function that Python
 * calls: a method and its arguments as JSON, its result as JSON. On a graphics card some results come
 * later: a promise of the JSON.
 */
import { CardModel } from "./gpu_model.js";
import { CardRunner } from "./gpu_runner.js";
import { Model } from "./model.js";
import { Runner } from "./runner.js";
import { Tokenizer } from "./tokenizer.js";
import { shapeOf, weightsOf } from "./weights.js";

const NAME = "story";

export class Tab {
  /** `config` and `tokenizer` are the parsed files, `weights` the buffer of model.safetensors, `card` the
   * graphics card (gpu.js), where there is one that Python can wait for. */
  constructor({ config, tokenizer, weights, card = null }) {
    this.shape = shapeOf(config);
    this.model = new Model(this.shape, weightsOf(weights));
    this.tokenizer = new Tokenizer(tokenizer);
    this.card = card;
    this.onCard = card && new CardModel(card, this.model);
    /** Runners in use; the last one computes. */
    this.runners = [];
  }

  get runner() {
    return this.runners.at(-1);
  }

  call(method, given) {
    const found = this.#answer(method, JSON.parse(given));
    return found instanceof Promise ? found.then(asJson) : asJson(found);
  }

  #answer(method, given) {
    switch (method) {
      case "about":
        return this.#about(...given);
      case "begin": // pools of their own, until `end`
        return void this.runners.push(this.#made(...given));
      case "end": // memory comes back
        return this.runners.pop()?.end();
      case "encode":
        return this.tokenizer.encode(...given);
      case "decode":
        return this.tokenizer.decode(...given);
      default:
        return this.runner[method](...given);
    }
  }

  /** The model, and who computes: the card where there is one and it is `wanted`. */
  #about(wanted) {
    const card = wanted && this.card && !this.card.gone;
    const device = card
      ? { device: "webgpu", device_name: `${this.card.name}, WebGPU` }
      : { device: "cpu", device_name: "JavaScript, typed arrays" };
    return { name: NAME, shape: this.shape, ...device };
  }

  #made({ device, ...sizes }) {
    return device === "webgpu" ? new CardRunner(this.onCard, sizes) : new Runner(this.model, sizes);
  }
}

const asJson = (found) => JSON.stringify(found ?? null);
