/** What the views need of a trace besides the state at the cursor, found once. */
import { measuredBy } from "./measured.js";
import { owners } from "./owners.js";
import { questionsOf } from "./questions.js";
import { termsOf } from "./terms.js";
import { timeline } from "./timeline.js";
import { fill, narrate } from "./words.js";

const MARKS = {
  block_allocated: "allocated",
  preempted: "preempted",
  paused: "preempted",
  swap_out_started: "copied",
  swap_in_started: "copied",
  resumed: "resumed",
  finished: "finished",
};
const MOST_MARKS = 240;

/** @returns everything about a trace that does not depend on the cursor */
export function prepare(trace, words) {
  const ids = trace.requests.map((request) => request.id);
  const prompts = new Map(trace.requests.map((request) => [request.id, request.prompt ?? []]));
  for (const event of trace.events) {
    if (event.kind !== "forked" || prompts.has(event.id)) continue;
    ids.push(event.id);
    prompts.set(event.id, prompts.get(event.parent) ?? []);
  }
  let questions = null;
  const t = (key, values = {}) => fill(words.player[key] ?? key, values, words);
  const model = {
    trace,
    words,
    // Ids of elements are the page's: no two players may have the same.
    uid: `kvlab-${Math.random().toString(36).slice(2, 10)}`,
    ids,
    owners: owners(ids),
    prompts,
    timeline: timeline(trace, ids),
    memory: new Map(),
    marks: marksOf(trace.events),
    preemptions: trace.events.flatMap((event, i) => (isPreemption(event) ? [i + 1] : [])),
    ...fallbacks(trace.events),
    notes: lessonNotes(trace),
    teaching: teachersNotes(trace),
    moments: momentsOf(trace),
    swaps: trace.events.some(({ kind }) => kind === "swap_out_started"),
    measured: measuredBy(trace),
    terms: termsOf(words),
    t,
    say: (event) => narrate(event, words),
    /** Found when somebody wants to be asked. */
    get questions() {
      questions ??= questionsOf(model);
      return questions;
    },
  };
  return model;
}

export const asList = (value) => (Array.isArray(value) ? value : []);

/**
 * The teacher's notes by the step's index: `lesson.notes` is a list of `{at: {step: 3}, text: …}`, or
 * texts by the number of the step.
 */
function teachersNotes(trace) {
  const notes = trace.scenario.lesson?.notes;
  const listed = Array.isArray(notes)
    ? notes
    : Object.entries(notes ?? {}).map(([step, text]) => ({ at: { step: Number(step) }, text }));
  const found = new Map();
  for (const note of listed) {
    const index = trace.steps.findIndex((step) => step.step === note?.at?.step);
    if (index < 0 || typeof note.text !== "string") continue;
    found.set(index, [...(found.get(index) ?? []), note.text]);
  }
  return found;
}

/** What the lesson says at an event, by its index; see lesson_notes in kvlab/trace/ranges.py. */
function lessonNotes(trace) {
  const notes = new Map();
  const listed = asList(trace.scenario.lesson?.narration);
  for (const { at, text } of listed.filter((note) => note?.at)) {
    const fits = (event) => Object.keys(at).every((name) => event[name] === at[name]);
    const index = trace.events.findIndex(fits);
    if (index >= 0) notes.set(index, String(text));
  }
  return notes;
}

/** Events that the slider marks: {cursor, mark}. In a long run only the rare ones. */
function marksOf(events) {
  const found = [];
  events.forEach((event, i) => {
    const mark = Object.hasOwn(MARKS, event.kind) && MARKS[event.kind];
    if (mark) found.push({ cursor: i + 1, mark });
  });
  if (found.length <= MOST_MARKS) return found;
  return found.filter(({ mark }) => mark === "preempted" || mark === "resumed").slice(0, MOST_MARKS);
}

/** Where a teacher would stop: {cursor, event}, event the index of the one that is told there. */
function momentsOf(trace) {
  const stops = new Set(["block_needed", "preempted", "paused", "block_released", "swap_out_finished", "swap_in_finished", "resumed"]);
  const ends = new Set(trace.steps.map((step) => step.end));
  return trace.events.flatMap((event, i) => (stops.has(event.kind) || ends.has(i + 1) ? [{ cursor: i + 1, event: i }] : []));
}

/** Index of the event that is told at a cursor: the moment's own, else the last before it. */
export function told(model, cursor) {
  return model.moments.find((moment) => moment.cursor === cursor)?.event ?? cursor - 1;
}

/** The cursor after the next step's end, but never past a preemption: its sentence is not skipped. */
export function stepForward(model, cursor) {
  const goal = stepCursor(model.trace, cursor, 1);
  const gone = after(model.preemptions, cursor);
  return gone !== null && gone < goal ? gone : goal;
}

/** Index of the step that a cursor stands in, -1 before the first event. */
export function stepIndex(trace, cursor) {
  let low = 0;
  let high = trace.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (trace.steps[middle].first < cursor) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The cursor after the next step's end, or the one before; steps move from end to end. */
export function stepCursor(trace, cursor, direction) {
  const ends = [0, ...trace.steps.map((step) => step.end)];
  if (direction > 0) return ends.find((end) => end > cursor) ?? trace.events.length;
  return ends.findLast((end) => end < cursor) ?? 0;
}

/** Cursors just after preemptions proper, and just after those that could not be by swap. */
function fallbacks(events) {
  const after = (fits) => events.flatMap((event, i) => (fits(event) ? [i + 1] : []));
  return {
    evictions: after(({ kind }) => kind === "preempted"),
    fellBack: after(({ kind, fallback }) => fallback || kind === "copy_failed"),
  };
}

/** How many preemptions before the cursor, and how many of them were by recompute instead of swap. */
export function fallenBack({ evictions, fellBack }, cursor) {
  const before = (list) => list.filter((one) => one <= cursor).length;
  return { count: before(fellBack), total: before(evictions) };
}

const isPreemption = (event) => event.kind === "preempted" || event.kind === "paused";

/** Events at which playing pauses: something a reader should look at. */
const KEY = new Set(["preempted", "paused", "resumed", "damage_found", "storm_detected"]);
export const isKey = (event) => Boolean(event) && KEY.has(event.kind);

/** The first event from an index on that fits. */
export function next(events, from, fits) {
  for (let i = from; i < events.length; i += 1) if (fits(events[i])) return events[i];
  return undefined;
}

/** The first of sorted cursors behind `cursor`, or null. */
const after = (cursors, cursor) => cursors.find((one) => one > cursor) ?? null;

/** The cursor just after the next preemption or pause; null: there is none. */
export const nextPreemption = (model, cursor) => after(model.preemptions, cursor);

/** The cursor just after the one before. */
export const previousPreemption = (model, cursor) =>
  model.preemptions.findLast((one) => one < cursor) ?? null;

/** The cursor at which the last free block goes next. */
export const nextFull = (model, cursor) => after(model.timeline.full, cursor);

/** The cursor just after the next event of a request. */
export function nextOf(trace, cursor, id) {
  const at = trace.events.findIndex((event, i) => i >= cursor && event.id === id);
  return at < 0 ? null : at + 1;
}

/**
 * The earlier event that an event follows from, as its index, or null: the need behind a
 * preemption, the release behind an allocation.
 */
export function causeOf(events, index) {
  const event = events[index];
  const find = (test, sameStep = true) => {
    for (let i = index - 1; i >= 0; i -= 1) {
      if (sameStep && events[i].step !== event.step) return null;
      if (test(events[i])) return i;
    }
    return null;
  };
  const own = (...kinds) => find((e) => e.id === event.id && kinds.includes(e.kind));
  const freed = (sameStep) =>
    find((e) => e.kind === "block_released" && e.freed.length > 0, sameStep);
  switch (event.kind) {
    case "preempted":
    case "paused":
      if (event.need_of === null) return own("action_taken");
      return find((e) => e.kind === "block_needed" && e.id === event.need_of);
    case "block_needed":
      return find((e) => e.id === event.id && e.kind === "token_sampled", false);
    case "scheduled":
      if (event.why !== "decode") return own("block_allocated");
      return find((e) => e.id === event.id && e.kind === "token_sampled", false);
    case "admitted":
      return find((e) => e.id === event.id && e.kind === "arrived", false);
    case "finished":
      return own("token_delivered");
    case "swap_out_finished":
      return own("swap_out_started");
    case "swap_in_finished":
      return own("swap_in_started");
    case "host_block_released":
      return own("swap_in_finished", "copy_failed");
    case "stalled":
      return find((e) => e.kind === "paused") ?? own("block_needed");
    case "block_released":
      if (event.why === "swapped_out") return own("swap_out_finished");
      if (event.why === "copy_unfinished") return own("swap_out_started");
      return event.why === "preempted" ? own("preempted") : null;
    case "block_allocated":
      if (event.why === "decode") return own("block_needed") === null ? null : freed(true);
      return own("resumed", "admitted");
    case "resumed":
      return event.why === "pause" ? own("action_taken") : freed(false);
    case "swap_out_started":
      return own("preempted");
    case "swap_in_started":
      return own("resumed");
    case "kv_written":
      return (
        find((e) => e.kind === "block_allocated" && e.blocks.includes(event.block)) ??
        own("scheduled")
      );
    case "token_delivered":
      return event.gap > 1 ? own("resumed") : null;
    default:
      return null;
  }
}

/** What the event at `index` touched, so that the views can ring it. */
export function touched({ trace, prompts }, index) {
  const event = trace.events[index];
  const found = {
    id: event?.id,
    blocks: new Set(),
    hosts: new Set(),
    slots: null,
    entries: null,
    unmet: null,
    positions: null,
  };
  if (!event) return found;
  for (const block of event.blocks ?? []) found.blocks.add(block);
  for (const block of event.host_blocks ?? []) found.hosts.add(block);
  switch (event.kind) {
    case "block_allocated":
    case "block_shared":
      found.entries = [event.logical, event.logical + event.blocks.length - 1];
      break;
    case "swap_in_finished":
      found.entries = [0, event.blocks.length - 1];
      break;
    case "damage_found":
      found.blocks.add(event.block);
      break;
    case "block_copied":
      found.blocks.add(event.block);
      found.entries = [event.logical, event.logical];
      break;
    case "block_needed":
      found.unmet = event.id;
      break;
    case "kv_written":
      found.slots = {
        block: event.block,
        from: event.slot,
        to: event.slot + event.last - event.first,
      };
      found.positions = [event.first, event.last];
      break;
    case "scheduled":
      found.positions = [event.start, event.start + event.tokens - 1];
      break;
    case "token_sampled":
    case "token_delivered": {
      const position = (prompts.get(event.id)?.length ?? 0) + event.index;
      found.positions = [position, position];
      break;
    }
  }
  return found;
}
