/**
 * The whole picture: a pure function of the trace, the state and the interface. Guide and controls stand
 * at the cursor; the scene at `shown`, which follows it through the states between while things move.
 */
import { isLong } from "./dense.js";
import { h } from "./dom.js";
import { stepIndex, told, touched } from "./model.js";
import { marks } from "./owners.js";
import { tip } from "./terms.js";
import { banner, guide, spoken } from "./views/guide.js";
import { MANY, atHand } from "./views/many.js";
import { memory } from "./views/pool.js";
import { requests } from "./views/requests.js";
import { sheet } from "./views/sheets.js";
import { asTables } from "./views/table.js";
import { overview, time } from "./views/time.js";
import { transport } from "./views/transport.js";

export function view(model, state, cursor, shown, ui, act) {
  const now = touched(model, told(model, shown));
  const come = model.ids.filter((id) => ui.ahead || state.requests[id]);
  const ids = model.ids.length > MANY ? atHand(model, model.trace.events[shown - 1], ui) : come;
  const scene = ui.table
    ? [asTables(model, state)]
    : [
        memory(model, state, shown, now, act),
        batch(model, shown, now),
        requests(model, state, now, ids, ui, act),
      ];
  return [
    banner(model, ui),
    spoken(model, cursor, ui),
    // The root is the container whose size decides the layout, so the grid is one element further in.
    h("div", { key: "body", class: "k-body" }, [
      guide(model, cursor, ui, act),
      transport(model, cursor, ui, act),
      h(
        "div",
        { key: "scene", class: "k-scene" },
        scene,
        isLong(model.trace, model.ids) ? overview(model, shown, ui, act) : time(model, shown, ui, act),
      ),
      sheet(model, state, cursor, ui, act),
    ].filter(Boolean)),
    tip(model, ui),
  ].flat().filter(Boolean);
}

/** The model between memory and requests, with what goes through it in this step. */
function batch({ trace, t, owners }, cursor, now) {
  const step = trace.steps[stepIndex(trace, cursor)];
  const own = new Map();
  for (const event of step ? trace.events.slice(step.first, cursor) : []) {
    if (event.kind === "scheduled") own.set(event.id, event);
    if (event.kind === "unscheduled") own.delete(event.id);
  }
  const total = (name) => [...own.values()].reduce((sum, event) => sum + event[name], 0);
  const [tokens, again] = [total("tokens"), total("again")];
  return h(
    "div",
    { key: "model", class: "k-model", "data-now": own.size > 0, ...(own.has(now.id) ? marks(owners.get(now.id)) : {}) },
    h("span", null, t("the_model"), tokens > 0 && ` · ${t(again ? "in_batch_again" : "in_batch", { tokens, again })}`),
  );
}
