/**
 * Pools and runs too large for elements: canvases. The pool's is drawn by deltas (a block is painted
 * again when its state is another one), the run's once for a size and a theme.
 */

const TALLEST = 400;
/** Height of all lanes of the overview. */
const OVERVIEW = 110;
const PHASE_ALPHA = { prefill: 1, recompute: 1, restore: 1, decode: 0.5, stalled: 0.25 };

/** Larger pools than these are drawn on a canvas. */
export const isDense = (blocks, size) => blocks > 256 || blocks * size > 4096;

/** A longer or wider run than these is drawn as an overview. */
export const isLong = (trace, ids) => trace.steps.length > 240 || ids.length > 24;

/** The canvases of one player; `paint` after every change of the picture; `again` paints once more. */
export function painter(element, model, again) {
  const pools = new Map();
  // Widths come from an observer: to ask for one after a change would lay the page out at once.
  const widths = new Map();
  const watch = new ResizeObserver((entries) => {
    let other = false;
    for (const { target, contentRect } of entries) {
      const width = Math.round(contentRect.width);
      if (!target.isConnected) {
        watch.unobserve(target);
        widths.delete(target);
        pools.delete(target);
      } else if (widths.get(target) !== width) {
        widths.set(target, width);
        other = true;
      }
    }
    if (other) again();
  });
  let overview = null;
  let colours = null;
  let theme = null;

  /** Colours as numbers, read once for a theme. */
  function look() {
    const now = element.getAttribute("data-theme");
    if (colours && theme === now) return colours;
    const style = getComputedStyle(element);
    const value = (name) => style.getPropertyValue(`--${name}`).trim();
    theme = now;
    colours = {
      bg: style.backgroundColor,
      ink: value("ink"),
      edge: value("edge"),
      faint: value("faint"),
      soft: value("soft"),
      hues: [0, 1, 2, 3, 4, 5].map((hue) => value(`hue${hue}`)),
    };
    pools.clear();
    overview = null;
    return colours;
  }

  /** A canvas as large as its place, in device pixels. */
  function sized(canvas, width, height) {
    const ratio = Math.min(2, globalThis.devicePixelRatio || 1);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    return { pen, width, height };
  }

  /** A canvas's width; 0 while it has no place. */
  function widthOf(canvas) {
    if (!widths.has(canvas)) {
      widths.set(canvas, canvas.clientWidth);
      watch.observe(canvas);
    }
    return widths.get(canvas);
  }

  function paintPool(canvas, blocks, untouched, ringed) {
    const paint = look();
    const width = widthOf(canvas);
    if (!width) return;
    let known = pools.get(canvas);
    if (known?.width !== width) {
      const size = Math.max(4, Math.min(18, Math.floor(Math.sqrt((width * TALLEST) / blocks.length))));
      const across = Math.max(1, Math.floor(width / size));
      const place = sized(canvas, width, Math.ceil(blocks.length / across) * size);
      known = { ...place, size, across, drawn: Array(blocks.length).fill(untouched), ringed: new Set() };
      pools.set(canvas, known);
      paintGround(known, paint, blocks.length);
    }
    // A block that changes is another object: the same one looks as it did.
    const { drawn } = known;
    const fresh = new Set([...ringed, ...known.ringed]);
    for (let id = 0; id < blocks.length; id += 1) if (drawn[id] !== blocks[id]) fresh.add(id);
    for (const id of fresh) {
      drawn[id] = blocks[id];
      paintBlock(known, paint, id, blocks[id], ringed.has(id));
    }
    known.ringed = ringed;
  }

  /** Blocks to which nothing has happened, all at once. */
  function paintGround({ pen, size, across, width, height }, paint, blocks) {
    pen.fillStyle = paint.faint;
    pen.fillRect(0, 0, across * size, height);
    pen.fillStyle = paint.bg;
    for (let x = size; x <= across * size; x += size) pen.fillRect(x - 1, 0, 1, height);
    for (let y = size; y <= height; y += size) pen.fillRect(0, y - 1, width, 1);
    pen.fillRect((blocks % across || across) * size, height - size, width, size);
  }

  function paintBlock({ pen, size, across }, paint, id, block, ring) {
    const x = (id % across) * size;
    const y = Math.floor(id / across) * size;
    const inside = size - 1;
    pen.fillStyle = paint.bg;
    pen.fillRect(x, y, size, size);
    const owner = block.owners ? block.owners[0] : block.owner;
    const held = model.owners.get(owner ?? copyOwner(block));
    const hue = held ? paint.hues[held.hue] : paint.edge;
    if (block.status === "free") {
      pen.fillStyle = paint.faint;
      pen.fillRect(x, y, inside, inside);
      if (block.cached) {
        pen.fillStyle = paint.edge;
        pen.fillRect(x + inside / 2 - 1, y + inside / 2 - 1, 2, 2);
      }
    } else {
      let filled = 0;
      for (const cell of block.cells) filled += cell && cell.live ? 1 : 0;
      const part = filled / block.cells.length;
      pen.fillStyle = hue;
      pen.globalAlpha = 0.28;
      pen.fillRect(x, y, inside, inside);
      pen.globalAlpha = 1;
      pen.fillRect(x, y + inside * (1 - part), inside, inside * part);
      if (block.status === "in_flight") {
        pen.fillStyle = paint.bg;
        pen.beginPath();
        pen.moveTo(x, y);
        pen.lineTo(x + inside, y);
        pen.lineTo(x, y + inside);
        pen.fill();
      }
      if (held && held.pattern % 2) {
        pen.fillStyle = paint.bg;
        pen.fillRect(x + inside / 2 - 1, y + inside / 2 - 1, 2, 2);
      }
    }
    if (block.damaged && block.status !== "free") {
      pen.strokeStyle = paint.ink;
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(x + inside, y + inside);
      pen.stroke();
    }
    if (ring) {
      pen.strokeStyle = paint.ink;
      pen.lineWidth = 2;
      pen.strokeRect(x + 1, y + 1, inside - 2, inside - 2);
    }
  }

  const copyOwner = ({ cells }) => cells.find((cell) => cell?.live)?.id;

  /**
   * Lanes of all requests, and the free blocks below them, over the first `known` of `span` columns.
   * What is drawn already is drawn on; what is not reached is not drawn.
   */
  function paintOverview(canvas, known, span) {
    const paint = look();
    const wide = widthOf(canvas);
    if (!wide) return;
    const { trace, timeline, ids } = model;
    const lane = Math.max(2, Math.min(14, Math.floor(OVERVIEW / ids.length)));
    const below = 32;
    const same = overview?.canvas === canvas && overview.width === wide && overview.span === span;
    if (same && overview.known === known) return;
    const on = same && overview.known < known;
    const { pen, width, height } = on ? overview : sized(canvas, wide, lane * ids.length + below);
    const column = width / span;
    const from = on ? overview.known : 0;
    overview = { canvas, pen, width, height, span, known };
    if (!on) pen.clearRect(0, 0, width, height);
    ids.forEach((id, row) => {
      pen.fillStyle = paint.hues[model.owners.get(id).hue];
      for (const segment of timeline.lanes.get(id).segments) {
        const [left, right] = [Math.max(segment.from, from), Math.min(segment.to + 1, known)];
        if (left >= right) continue;
        const alpha = PHASE_ALPHA[segment.phase];
        const thick = alpha === undefined ? Math.max(1, lane * 0.2) : Math.max(1, lane - 1);
        pen.globalAlpha = alpha ?? 0.8;
        pen.fillRect(left * column, row * lane + (lane - thick) / 2, Math.max(1, (right - left) * column), thick);
      }
    });
    pen.globalAlpha = 1;
    pen.fillStyle = paint.soft;
    for (let i = from; i < known; i += 1) {
      const tall = (timeline.free[i] / trace.pool.num_blocks) * (below - 8);
      pen.fillRect(i * column, height - 2 - tall, Math.max(1, column), tall);
    }
  }

  function paint(state, now) {
    for (const canvas of element.querySelectorAll("canvas")) {
      if (canvas.dataset.dense === "pool") paintPool(canvas, state.blocks, model.trace.begin.blocks, now.blocks);
      else if (canvas.dataset.dense === "host") paintPool(canvas, state.host_blocks, model.trace.begin.host_blocks, now.hosts);
      else paintOverview(canvas, Number(canvas.dataset.known), Number(canvas.dataset.span));
    }
  }

  /** The block under the pointer. */
  function blockAt(canvas, event) {
    const known = pools.get(canvas);
    if (!known) return null;
    const box = canvas.getBoundingClientRect();
    const scale = box.width / known.width || 1;
    const x = Math.floor((event.clientX - box.left) / scale / known.size);
    const id = Math.floor((event.clientY - box.top) / scale / known.size) * known.across + x;
    return x < known.across && id < known.drawn.length ? id : null;
  }

  /** Where a block of a canvas is in the window, or null where its pool is no canvas. */
  function spotOf(kind, id) {
    const canvas = element.querySelector(`canvas[data-dense="${kind}"]`);
    const known = canvas && pools.get(canvas);
    if (!known) return null;
    const box = canvas.getBoundingClientRect();
    const size = (known.size * box.width) / known.width;
    const [left, top] = [box.left + (id % known.across) * size, box.top + Math.floor(id / known.across) * size];
    return { left, top, width: size, height: size };
  }

  return { paint, blockAt, spotOf, stop: () => watch.disconnect() };
}
