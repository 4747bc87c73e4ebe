/**
 * How a request is recognised everywhere: a short name in a shape, a hue and a pattern, together,
 * so that none of them is needed alone.
 *
 * @typedef {{id: string, short: string, hue: number, pattern: number, shape: number}} Owner
 */
import { h } from "./dom.js";

const HUES = 6;
const PATTERNS = 6;
const SHAPES = 3;

/** @returns {Map<string, Owner>} every request's marks, by its place in the trace */
export function owners(ids) {
  const shorts = shortNames(ids);
  return new Map(
    ids.map((id, i) => [
      id,
      {
        id,
        short: shorts[i],
        hue: i % HUES,
        // Once round, another pattern: hue and pattern together repeat after 36 requests.
        pattern: (i + Math.floor(i / HUES)) % PATTERNS,
        shape: i % SHAPES,
      },
    ]),
  );
}

function shortNames(ids) {
  const head = (id) => Array.from(id).slice(0, 3).join("");
  const ends = (id) => Array.from(id)[0] + Array.from(id).slice(-2).join("");
  const heads = ids.map(head);
  return ids.map((id, i) => (heads.indexOf(heads[i]) === heads.lastIndexOf(heads[i]) ? heads[i] : ends(id)));
}

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
