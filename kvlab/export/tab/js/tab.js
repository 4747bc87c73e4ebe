/**
 * The model of this tab with the pools of the run in progress, behind the one function that Python
 * calls: a method and its arguments as JSON, its result as JSON.
 */
import { Model } from "./model.js";
import { Runner } from "./runner.js";
import { Tokenizer } from "./tokenizer.js";
import { shapeOf, weightsOf } from "./weights.js";

const NAME = "story";

export class Tab {
  /** `config` and `tokenizer` are the parsed files, `weights` the buffer of model.safetensors. */
  constructor({ config, tokenizer, weights }) {
    this.shape = shapeOf(config);
    this.model = new Model(this.shape, weightsOf(weights));
    this.tokenizer = new Tokenizer(tokenizer);
    this.runner = null;
  }

  call(method, given) {
    const found = this.#answer(method, JSON.parse(given));
    return JSON.stringify(found ?? null);
  }

  #answer(method, given) {
    switch (method) {
      case "about":
        return { name: NAME, shape: this.shape, device: "cpu", device_name: "JavaScript, typed arrays" };
      case "begin":
        this.runner = null; // the pools of the run before are free before new ones are made
        this.runner = new Runner(this.model, ...given);
        return null;
      case "end": // memory comes back
        this.runner = null;
        return null;
      case "encode":
        return this.tokenizer.encode(...given);
      case "decode":
        return this.tokenizer.decode(...given);
      default:
        return this.runner[method](...given);
    }
  }
}
