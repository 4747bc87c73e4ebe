/** Icons as paths on a 20 × 20 grid, drawn in the text's colour. */
import { h } from "./dom.js";
import PATHS from "./icons.json";

const FILLED = new Set(["play", "pause", "damaged"]);

/** An icon without a meaning of its own: what it stands for is said in words beside it. */
export function icon(name, className = "") {
  return h(
    "svg",
    {
      viewBox: "0 0 20 20",
      class: `k-icon ${FILLED.has(name) ? "" : "k-stroked"} ${className}`,
      "aria-hidden": "true",
      focusable: "false",
    },
    h("path", { d: PATHS[name] }),
  );
}
