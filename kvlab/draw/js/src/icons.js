/** Icons as paths on a 20 × 20 grid, drawn in the text's colour. */
import { h } from "./dom.js";

const PATHS = {
  first: "M5 4.5v11M14.5 4.5 9 10l5.5 5.5",
  last: "M15 4.5v11M5.5 4.5 11 10l-5.5 5.5",
  back: "M12.5 4.5 7 10l5.5 5.5",
  forward: "M7.5 4.5 13 10l-5.5 5.5",
  event: "M11 6 15 10l-4 4M5.5 10h.01",
  play: "M6.5 4 14 10l-7.5 6z",
  pause: "M6 4h2.5v12H6zM11.5 4H14v12h-2.5z",
  cross: "M5 5l10 10M15 5 5 15",
  tick: "M4 10.5 8.2 15 16 5.5",
  out: "M10 3v12M5.5 10.5 10 15.5l4.5-5",
  in: "M10 17V5M5.5 9.5 10 4.5l4.5 5",
  damaged: "M11 2 5 11h4l-1 7 7-10h-4.5z",
  rebuilt: "M15.5 10a5.5 5.5 0 1 1-1.7-4M14.5 2.5v4h-4",
};

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
