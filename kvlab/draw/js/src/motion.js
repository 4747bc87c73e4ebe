/**
 * Motion between two cursors. A move forward is cut into beats (a copy, a release, a pass through the
 * model, …); each beat's end is a state of the trace, and what a beat brings is hidden until it has
 * arrived. The next move ends everything at once; under reduced motion there is none.
 */
import { flyer } from "./fly.js";
import { perform } from "./choreography.js";
import { touched } from "./model.js";

/** Milliseconds at the speed 1, and of a whole move. */
const WEIGHTS = {
  arrival: 300,
  allocation: 380,
  prefill: 700,
  recompute: 900,
  decode: 620,
  preemption: 450,
  copy: 900,
  release: 480,
};
const LONGEST = 900;
const SEEN = 215;
const MOST_BEATS = 6;

const BEATS = {
  arrived: "arrival",
  admitted: "allocation",
  resumed: "allocation",
  forked: "allocation",
  block_allocated: "allocation",
  block_shared: "allocation",
  block_copied: "allocation",
  preempted: "preemption",
  paused: "preemption",
  swap_out_advanced: "copy",
  swap_in_advanced: "copy",
  block_released: "release",
  host_block_released: "release",
  kv_written: "decode",
  token_sampled: "decode",
  token_delivered: "decode",
};

/** What moves between two cursors: [{kind, from, to, ms, events}], the last one to the goal. */
export function beats(model, from, to) {
  const found = [];
  for (let i = from; i < to; i += 1) {
    const { kind: name, id, say } = model.trace.events[i];
    const kind = BEATS[name];
    // A pass through the model is one beat a step: what comes out of one goes into the next.
    const last = found.at(-1);
    if (kind && last?.group !== kind) {
      found.push({ group: kind, kind, from: found.at(-1)?.to ?? from, to: i, events: [] });
    }
    const beat = found.at(-1);
    if (!beat) continue;
    beat.to = i + 1;
    if (name === "step_started") beat.group = null;
    if (!kind) continue;
    const event = { ...touched(model, i), kind: name, id };
    beat.events.push(event);
    // What is written says what kind of pass it is.
    if (name !== "kv_written") continue;
    if (say.startsWith("kv_written.rebuilt")) beat.kind = "recompute";
    else if (beat.kind === "decode" && event.positions[1] > event.positions[0]) beat.kind = "prefill";
  }
  // A move over a long stretch shows its end; what is before it is drawn at once.
  const shown = found.slice(-MOST_BEATS);
  if (shown.length) shown.at(-1).to = to;
  const whole = shown.reduce((sum, { kind }) => sum + WEIGHTS[kind], 0);
  if (whole <= LONGEST) return shown.map((beat) => ({ ...beat, ms: WEIGHTS[beat.kind] }));
  // Each is long enough to be seen, if that is possible; the rest of the time goes by weight.
  const least = Math.min(SEEN, LONGEST / shown.length);
  const rest = LONGEST - least * shown.length;
  return shown.map((beat) => ({ ...beat, ms: least + (rest * WEIGHTS[beat.kind]) / whole }));
}

/** `show(cursor)` draws the scene at a cursor. */
export function mover(element, model, show, spotOf) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const air = flyer(element, spotOf);
  let timer = null;
  let over = null;

  /** End what moves; the scene is not drawn again. */
  function stop() {
    clearTimeout(timer);
    timer = null;
    air.clear();
    const done = over;
    over = null;
    done?.();
  }

  /** Show the way from one cursor to a later one; `done` is called at its end, however it comes. */
  function play(from, to, speed, done) {
    stop();
    const list = calm.matches || !element.isConnected ? [] : beats(model, from, to);
    if (!list.length) {
      show(to);
      done?.();
      return;
    }
    over = done;
    if (list[0].from > from) show(list[0].from);
    run(list, 0, speed);
  }

  function run(list, i, speed) {
    air.clear();
    const beat = list[i];
    const ms = beat.ms / speed;
    const go = perform[beat.kind](beat.events, air, model);
    show(beat.to);
    go?.(ms);
    timer = setTimeout(() => (i + 1 < list.length && element.isConnected ? run(list, i + 1, speed) : finish(list)), ms);
  }

  function finish(list) {
    timer = null;
    air.clear();
    if (!element.isConnected) show(list.at(-1).to);
    const done = over;
    over = null;
    done?.();
  }

  return { play, stop, get moving() { return timer !== null; } };
}
