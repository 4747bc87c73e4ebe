/** The whole picture at a cursor: a pure function of the trace, the state and the interface. */
import { touched } from "./model.js";
import { header, narration } from "./views/frame.js";
import { hostPool, pool } from "./views/pool.js";
import { requests, tables } from "./views/requests.js";
import { time } from "./views/time.js";
import { sheet, transport } from "./views/transport.js";
import { h } from "./dom.js";

export function view(model, state, cursor, ui, act) {
  const now = touched(model, cursor - 1);
  const parts = [
    header(model, cursor, ui),
    narration(model, cursor),
    h("div", { class: "k-pools" }, pool(model, state, cursor, now), hostPool(model, state, now)),
    tables(model, state, now),
    requests(model, state, now),
    time(model, cursor, act),
    transport(model, cursor, ui, act),
    sheet(model, ui, act),
  ];
  // The root is the container whose width decides the layout, so the grid is one element further in.
  return [h("div", { class: "k-body" }, parts)];
}
