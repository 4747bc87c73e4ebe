/**
 * The page's script. `window.kvlab.run(scenario)` runs a scenario (its document, or the name of a shipped
 * one) beside what is on show, and gives its summary; `shown` is that of the run on show, once one was made
 * here; `ready` is settled when the page is there.
 */
import { engine } from "./engine.js";

window.kvlab = {
  ready: import("./page.js").then(({ begun }) => begun),
  shown: null,
  run: async (scenario) => (await engine.ask("run", [scenario])).summary,
};
