/** The whole picture at a cursor: a pure function of the trace, the state and the interface. */
import { isLong } from "./dense.js";
import { h } from "./dom.js";
import { touched } from "./model.js";
import { tip } from "./terms.js";
import { banner, header, narration, spoken } from "./views/frame.js";
import { MANY, atHand } from "./views/many.js";
import { hostPool, pool } from "./views/pool.js";
import { requests, tables } from "./views/requests.js";
import { sheet } from "./views/sheets.js";
import { asTables } from "./views/table.js";
import { overview, time } from "./views/time.js";
import { transport } from "./views/transport.js";

export function view(model, state, cursor, ui, act) {
  const now = touched(model, cursor - 1);
  const ids = model.ids.length > MANY ? atHand(model, model.trace.events[cursor - 1], ui) : model.ids;
  const parts = [
    header(model, cursor, ui),
    narration(model, cursor, ui, act),
    ui.table
      ? asTables(model, state)
      : [
          h(
            "div",
            { key: "pools", class: "k-pools" },
            pool(model, state, cursor, now, act),
            hostPool(model, state, now, act),
          ),
          tables(model, state, now, ids),
          requests(model, state, now, ids, ui, act),
        ],
    isLong(model.trace, model.ids) ? overview(model, cursor, ui, act) : time(model, cursor, ui, act),
    transport(model, cursor, ui, act),
    sheet(model, state, cursor, ui, act),
  ];
  // The root is the container whose width decides the layout, so the grid is one element further in.
  return [
    banner(model, ui),
    spoken(model, cursor, ui),
    h("div", { key: "body", class: "k-body", "data-table": ui.table }, parts),
    tip(model, ui),
  ].flat().filter(Boolean);
}
