/**
 * Motion of what moved: small copies fly over the picture, which is itself already the new one. They
 * delay nothing, the next move ends them, and under reduced motion there are none.
 */
import { marks } from "./owners.js";

const MILLISECONDS = 280;
const MOST_FLYING = 8;

/** What flies at an event, as [label, from, to]; a place is ["table", id, block], … */
function flights(event) {
  const each = (make) => event.blocks.slice(0, MOST_FLYING).map(make);
  const onGpu = (block) => ["block", block];
  switch (event.kind) {
    case "block_released":
      return each((block) => [`P${block}`, ["entry", event.id, block], onGpu(block)]);
    case "block_allocated":
    case "block_shared":
    case "swap_in_finished":
      return each((block) => [`P${block}`, onGpu(block), ["entry", event.id, block]]);
    case "swap_out_advanced":
      return each((block, i) => [`P${block}`, onGpu(block), ["host", event.host_blocks[i]]]);
    case "swap_in_advanced":
      return each((block, i) => [`H${event.host_blocks[i]}`, ["host", event.host_blocks[i]], onGpu(block)]);
    default:
      return [];
  }
}

export function mover(element, model) {
  let flying = [];
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  function stop() {
    for (const el of flying) el.remove();
    flying = [];
  }

  /** Where a place is now, in the player's own pixels. */
  function spot([kind, ...ids], root, scale) {
    const quoted = (text) => CSS.escape(String(text));
    const el = element.querySelector(
      kind === "entry"
        ? `[data-table="${quoted(ids[0])}"] [data-entry="${ids[1]}"]`
        : `.k-pools [data-${kind}="${ids[0]}"] .k-name`,
    );
    if (!el) return null;
    const box = el.getBoundingClientRect();
    if (!box.width) return null;
    return { x: (box.left - root.left) / scale, y: (box.top - root.top) / scale };
  }

  function measure(places) {
    const root = element.getBoundingClientRect();
    const scale = root.width / element.offsetWidth || 1;
    return places.map((place) => spot(place, root, scale));
  }

  /** Call before the picture changes; what it returns, after. */
  function before(from, to) {
    stop();
    if (to !== from + 1 || calm.matches || !element.isConnected) return null;
    const event = model.trace.events[to - 1];
    const found = flights(event);
    if (!found.length) return null;
    const starts = measure(found.map(([, start]) => start));
    return () => {
      const places = measure(found.flatMap(([, start, end]) => [start, end]));
      found.forEach(([label], i) => {
        const start = starts[i] ?? places[2 * i];
        const end = places[2 * i + 1];
        if (start && end) fly(label, event.id, start, end);
      });
    };
  }

  function fly(label, id, from, to) {
    const el = element.ownerDocument.createElement("span");
    el.className = "k-fly";
    el.textContent = label;
    el.setAttribute("aria-hidden", "true");
    const looks = marks(model.owners.get(id));
    for (const name of Object.keys(looks)) el.setAttribute(name, looks[name]);
    element.append(el);
    flying.push(el);
    const at = ({ x, y }) => `translate(${x}px, ${y}px)`;
    const path = [
      { transform: at(from), opacity: 1 },
      { transform: at(to), opacity: 1, offset: 0.85 },
      { transform: at(to), opacity: 0 },
    ];
    const motion = el.animate(path, { duration: MILLISECONDS, easing: "ease-in-out" });
    motion.onfinish = () => el.remove();
  }

  return { before, stop };
}
