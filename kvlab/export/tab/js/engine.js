/** The engine as the page sees it: loaded when it is first asked something, stopped, started anew. */
import { settings } from "./settings.js";

const BASE = new URL("./", import.meta.url);
/** After Stop a run has so long (ms) to be heard; then its worker is ended, whatever it does. */
const PATIENCE = 1500;

/** Its run was stopped. */
export class Stopped extends Error {}

class Engine {
  constructor() {
    /** Hears {loaded, of}, in bytes, while the engine's files come. */
    this.tell = () => {};
    this.worker = null;
    this.asked = new Map();
    this.last = 0;
  }

  /** The answer; rejects with a sentence, or with Stopped. `progress` hears how far a run has got. */
  async ask(method, given, progress = () => {}) {
    const id = (this.last += 1);
    await this.#ready();
    return new Promise((resolve, reject) => {
      this.asked.set(id, { resolve, reject, progress });
      this.worker.postMessage({ id, method, given: JSON.stringify(given) });
    });
  }

  /** Stop what is going on; loading is not interrupted, and goes on for the next question. */
  stop() {
    for (const id of this.asked.keys()) this.worker.postMessage({ stop: id });
    setTimeout(() => this.asked.size && this.#end(new Stopped()), PATIENCE);
  }

  #ready() {
    this.loading ??= new Promise((resolve, reject) => {
      // A worker made of a blob keeps to the page's own policy (CSP); one from an address would not.
      const source = new Blob([`import ${JSON.stringify(`${BASE}worker.js`)};`], { type: "text/javascript" });
      const address = URL.createObjectURL(source);
      this.worker = new Worker(address, { type: "module" });
      this.worker.onmessage = ({ data }) => this.#hear(data, resolve, reject);
      this.worker.onerror = (event) => this.#broken(event.message ?? "it could not be loaded", reject);
      this.worker.postMessage({ load: settings.sizes });
    });
    return this.loading;
  }

  #hear(data, resolve, reject) {
    if (data.loaded) this.tell(data);
    else if (data.ready) resolve();
    else if (data.broken) this.#broken(data.broken, reject);
    else {
      const { resolve: found, reject: lost, progress } = this.asked.get(data.id);
      if (data.progress) return progress(data.progress);
      this.asked.delete(data.id);
      if (data.answer.fault) lost(new Error(data.answer.fault));
      else if (data.answer.stopped) lost(new Stopped());
      else found(data.answer.found);
    }
  }

  #broken(text, reject) {
    const error = Object.assign(new Error(text), { broken: true });
    reject(error);
    this.#end(error);
  }

  /** The worker goes, and its memory; the next question starts another. */
  #end(error) {
    this.worker?.terminate();
    this.worker = this.loading = null;
    const left = [...this.asked.values()];
    this.asked.clear();
    for (const { reject } of left) reject(error);
  }
}

/** The page's one engine. */
export const engine = new Engine();
