/** Many requests: a search, the cards of those at hand, and a list of which only what is seen is made. */
import { h } from "../dom.js";
import { badge, marks, shortened } from "../owners.js";
import { stateWords } from "./state_words.js";

export const MANY = 12;
const ROW = 40;
const SEEN = 380;

/** The requests whose cards and tables are shown: of the event, of the need behind it, the chosen one. */
export function atHand(model, now, ui) {
  const wanted = [ui.selected, now.id, ...now.others];
  const found = [...new Set(wanted)].filter((id) => model.owners.has(id));
  return found.length ? found : model.ids.slice(0, 2);
}

export function list(model, state, ui, act) {
  const { t, ids } = model;
  const needle = ui.find.trim().toLowerCase();
  const fits = (id) =>
    id.toLowerCase().includes(needle) ||
    stateWords(model, state.requests[id]).toLowerCase().includes(needle);
  const found = needle ? ids.filter(fits) : ids;
  const from = Math.max(0, Math.min(Math.floor(ui.scrolled / ROW) - 2, found.length));
  const seen = found.slice(from, from + Math.ceil(SEEN / ROW) + 5);
  return [
    h("input", {
      key: "find",
      type: "search",
      class: "k-input",
      "aria-label": t("find_request"),
      placeholder: t("find_request"),
      value: ui.find,
      oninput: (event) => act.find(event.target.value),
    }),
    h("p", { key: "count", class: "k-none" }, t("found_requests", { found: found.length, total: ids.length })),
    h(
      "div",
      {
        key: "list",
        class: "k-many",
        role: "list",
        tabindex: "0",
        "aria-label": t("requests"),
        style: `max-height:${SEEN}px`,
        onscroll: (event) => act.scrolled(event.target.scrollTop),
      },
      h(
        "div",
        { role: "presentation", style: `height:${found.length * ROW}px` },
        seen.map((id, i) => row(model, state, id, (from + i) * ROW, found.length, from + i, ui, act)),
      ),
    ),
  ];
}

function row(model, state, id, top, total, place, ui, act) {
  const { t, owners } = model;
  const request = state.requests[id];
  return h(
    "div",
    {
      key: id,
      class: "k-many-row",
      role: "listitem",
      "aria-setsize": total,
      "aria-posinset": place + 1,
      style: `top:${top}px;height:${ROW}px`,
      ...marks(owners.get(id)),
    },
    h(
      "button",
      {
        type: "button",
        class: "k-pick",
        "data-pick": id,
        "aria-pressed": String(ui.selected === id),
        onclick: () => act.select(id),
      },
      badge(owners.get(id)),
      h("span", { class: "k-long", dir: "auto" }, shortened(id, 16)),
      h("span", { class: "k-none k-long" }, stateWords(model, request)),
      h("span", { class: "k-none k-few" }, `${t("number_kv")} ${request?.kv ?? 0}/${request?.history ?? 0}`),
    ),
  );
}
