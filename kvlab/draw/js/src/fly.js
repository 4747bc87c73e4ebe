/**
 * What moves: copies that fly above the picture, and elements of the picture itself that hold back
 * until something has arrived. Everything is measured first, then made, then set in motion.
 */
import { marks } from "./owners.js";

const EASE = "cubic-bezier(0.4, 0, 0.2, 1)";
const MOST = 64;

/** `spotOf(kind, id)`: where a block of a canvas is, in the window's pixels, or null. */
export function flyer(element, spotOf) {
  const air = element.ownerDocument.createElement("div");
  air.className = "k-air";
  air.setAttribute("aria-hidden", "true");
  element.append(air);
  let held = [];
  let olds = new Map();
  let running = [];
  let root = null;
  let scale = 1;

  function clear() {
    for (const motion of running) motion.cancel();
    for (const el of held) {
      el.removeAttribute("data-moving");
      el.removeAttribute("data-coming");
      el.removeAttribute("data-old");
    }
    olds = new Map();
    air.replaceChildren();
    held = [];
    running = [];
    root = null;
  }

  const quoted = (value) => CSS.escape(String(value));
  const one = (selector) => element.querySelector(selector);

  /** Elements by what they show. */
  const at = {
    block: (id) => one(`.k-memory [data-block="${id}"]`),
    host: (id) => one(`.k-memory [data-host="${id}"]`),
    cell: (kind, id, slot) => at[kind](id)?.querySelectorAll(".k-cell")[slot],
    card: (id) => one(`.k-card[data-request="${quoted(id)}"]`),
    chip: (id, position) => at.card(id)?.querySelector(`[data-position="${position}"] .k-token`),
    entry: (id, block) => at.card(id)?.querySelector(`[data-entry="${block}"] b`),
    stored: (id, host) => at.card(id)?.querySelector(`[data-host-entry="${host}"] b`),
    output: (id, index) => one(`.k-output[data-lane="${quoted(id)}"][data-output="${index}"] > span`),
    model: () => one(".k-model"),
    link: () => one(".k-link"),
  };

  /** A place in the player's own pixels, or null where nothing is to be seen. */
  function boxOf(el) {
    const box = el?.getBoundingClientRect();
    return box?.width ? own(box) : null;
  }

  function own({ left, top, width, height }) {
    if (!root) {
      root = element.getBoundingClientRect();
      scale = root.width / element.offsetWidth || 1;
    }
    return {
      x: (left - root.left) / scale,
      y: (top - root.top) / scale,
      w: width / scale,
      h: height / scale,
    };
  }

  /** The place of a block: its element's, or its square's on a canvas. */
  function blockBox(kind, id) {
    const spot = spotOf(kind === "host" ? "host" : "pool", id);
    return spot ? own(spot) : boxOf(at[kind](id));
  }

  function animate(el, frames, options) {
    const motion = el.animate(frames, { easing: EASE, ...options });
    running.push(motion);
    return motion;
  }

  /** Mark an element as moving until the beat is over. */
  function mark(el, kind) {
    if (!el) return;
    el.setAttribute("data-moving", kind);
    held.push(el);
  }

  /** What lies in a slot before something is written over it. */
  function remember(cell) {
    if (cell?.dataset.cell === "ghost") olds.set(cell, `${cell.dataset.was}${cell.textContent}`);
  }

  /** Hide what an element brings until `ms` have passed. */
  function holdBack(el, kind, ms) {
    if (!el) return;
    mark(el, kind);
    el.setAttribute("data-coming", "");
    if (olds.has(el)) el.setAttribute("data-old", olds.get(el));
    // A motion without a picture: it ends when the rest does, and is cancelled with it.
    animate(el, { outlineOffset: ["1px", "1px"] }, { duration: Math.max(1, ms) }).onfinish = () => {
      el.removeAttribute("data-coming");
      el.removeAttribute("data-old");
    };
  }

  /**
   * Send a copy over places, each {x, y, w, h}: from the first to the last, through those between.
   * `at` are the parts of the time at which it is there.
   */
  function fly({ label = "", id, model, kind, places, at: parts, ms, frame = false, fade = true }) {
    if (places.some((place) => !place) || air.childElementCount >= MOST) return;
    const el = element.ownerDocument.createElement("span");
    el.className = "k-fly";
    el.textContent = label;
    el.setAttribute("data-moving", kind);
    if (frame) el.setAttribute("data-frame", "");
    for (const [name, value] of Object.entries(marks(model.owners.get(id)))) el.setAttribute(name, value);
    const size = places.at(-1);
    el.style.cssText = `width:${size.w}px;height:${size.h}px`;
    air.append(el);
    const frames = places.map((place, i) => ({
      transform:
        `translate(${place.x + (place.w - size.w) / 2}px, ${place.y + (place.h - size.h) / 2}px) ` +
        `scale(${Math.min(1.6, place.w / size.w || 1)})`,
      opacity: 1,
      offset: Math.min(1, parts[i]),
      easing: EASE,
    }));
    const [start, end] = [frames[0], frames.at(-1)];
    if (start.offset > 0) frames.unshift({ ...start, opacity: 0, offset: 0, easing: "step-end" });
    if (end.offset < 1) {
      const gone = { ...end, opacity: fade ? 0 : 1 };
      frames.push({ ...gone, offset: Math.min(1, end.offset + 0.08) });
      if (end.offset < 0.92) frames.push({ ...gone, offset: 1 });
    }
    animate(el, frames, { duration: ms, fill: "both", easing: "linear" });
  }

  /** The old look of something, going: `by` pixels down. */
  function fade({ label, id, model, kind, ms, place, by = 0 }) {
    if (place) fly({ label, id, model, kind, ms, places: [place, { ...place, y: place.y + by }], at: [0, by ? 0.5 : 0.3] });
  }

  return { at, boxOf, blockBox, animate, mark, remember, holdBack, fly, fade, clear };
}

/** A small place in the middle of another. */
export function middle(box, size = 18) {
  return box && { x: box.x + box.w / 2 - size / 2, y: box.y + box.h / 2 - size / 2, w: size, h: size };
}
