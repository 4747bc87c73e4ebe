/** Icons as paths on a 20 × 20 grid, drawn in the text's colour. */
import { h } from "./dom.js";

const PATHS = {
  first: "M5 4v12M16 4.5 8.5 10l7.5 5.5z",
  last: "M15 4v12M4 4.5 11.5 10 4 15.5z",
  back: "M13.5 4 6 10l7.5 6z",
  forward: "M6.5 4 14 10l-7.5 6z",
  stepBack: "M10.5 5 4 10l6.5 5zM16.5 5 10 10l6.5 5z",
  stepForward: "M9.5 5 16 10l-6.5 5zM3.5 5 10 10l-6.5 5z",
  play: "M6.5 4 14 10l-7.5 6z",
  pause: "M6 4h2.5v12H6zM11.5 4H14v12h-2.5z",
  tick: "M4 10.5 8.2 15 16 5.5",
  out: "M10 3v12M5.5 10.5 10 15.5l4.5-5",
  in: "M10 17V5M5.5 9.5 10 4.5l4.5 5",
  rebuilt: "M15.5 10a5.5 5.5 0 1 1-1.7-4M14.5 2.5v4h-4",
};

const STROKED = new Set(["tick", "out", "in", "rebuilt"]);

/** An icon without a meaning of its own: what it stands for is said in words beside it. */
export function icon(name, className = "") {
  return h(
    "svg",
    {
      viewBox: "0 0 20 20",
      class: `k-icon ${STROKED.has(name) ? "k-stroked" : ""} ${className}`,
      "aria-hidden": "true",
      focusable: "false",
    },
    h("path", { d: PATHS[name] }),
  );
}
