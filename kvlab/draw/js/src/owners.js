/**
 * How a request is recognised everywhere: a short name in a shape, a hue and a pattern, together,
 * so that none of them is needed alone. Which are whose says the trace.
 *
 * @typedef {{id: string, short: string, hue: number, pattern: number, shape: number}} Owner
 */
import { h } from "./dom.js";

/** Attributes that give an element the hue and the pattern of a request. */
export const marks = (owner) =>
  owner ? { "data-hue": owner.hue, "data-pattern": owner.pattern } : {};

/** The request's badge. */
export function badge(owner) {
  return h(
    "span",
    { class: "k-badge", ...marks(owner), "data-shape": owner.shape, title: owner.id },
    owner.short,
  );
}

/** A name that is not too long to stand in a line. */
export function shortened(text, most = 24) {
  const signs = Array.from(text);
  return signs.length > most ? signs.slice(0, most - 1).join("") + "…" : text;
}
