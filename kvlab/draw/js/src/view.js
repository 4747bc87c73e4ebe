/**
 * The whole picture: a pure function of the trace, the state and the interface. Guide and controls stand
 * at the cursor; the scene at `shown`, which follows it through the states between while things move.
 */
import { isLong } from "./canvas.js";
import { h } from "./dom.js";
import { told, touched } from "./model.js";
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
  const ids = model.ids.length > MANY ? atHand(model, now, ui) : come;
  const scene = ui.table
    ? [asTables(model, state)]
    : [
        memory(model, state, now, act),
        batch(model, state, now),
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
function batch({ t, owners }, state, now) {
  const own = Object.values(state.requests).flatMap(({ batch }) => (batch ? [batch] : []));
  const [tokens, again] = [0, 1].map((place) => own.reduce((sum, batch) => sum + batch[place], 0));
  const mine = state.requests[now.id]?.batch && owners.get(now.id);
  return h(
    "div",
    { key: "model", class: "k-model", "data-now": own.length > 0, ...marks(mine) },
    h("span", null, t("the_model"), tokens > 0 && ` · ${t(again ? "in_batch_again" : "in_batch", { tokens, again })}`),
  );
}
