/** What the views need of a packed trace besides the state at the cursor, made ready once. */
import { termsOf } from "./terms.js";
import { eventsOf } from "./unpack.js";
import { fill } from "./words.js";

/** @returns everything about a packed trace (kvlab/draw/packed.py) that does not depend on the cursor */
export function prepare(packed, words) {
  const { requests, steps, timeline } = packed;
  const events = eventsOf(packed);
  const ids = requests.map(({ id }) => id);
  const say = ({ say, values }) => fill(words.events[say], values, words);
  const trace = {
    ...packed,
    events,
    steps: steps.map(([step, end, told], i) => ({ step, first: i ? steps[i - 1][1] : 0, end, told })),
  };
  /** A text of the teacher's, the sentence of an event, or words of the catalogue. */
  const told = (text) => {
    if (typeof text === "number") return say(events[text]);
    return Array.isArray(text) ? fill(words.questions[text[0]], text[1], words) : text;
  };
  return {
    trace,
    words,
    // Ids of elements are the page's: no two players may have the same.
    uid: `kvlab-${Math.random().toString(36).slice(2, 10)}`,
    ids,
    owners: new Map(requests.map((request) => [request.id, request])),
    moments: packed.moments.map(([cursor, event, kind, weight]) => ({ cursor, event, kind, weight })),
    /** The cursors of a range at which the large arrow stops; the lesson's own part has its grain. */
    stops(low, high) {
      const [start, stop, grain] = packed.lesson;
      const least = low === start && high === stop ? grain : 0;
      const inside = ({ cursor, weight }) => cursor > low && cursor <= high && weight >= least;
      return this.moments.filter(inside).map(({ cursor }) => cursor);
    },
    prompts: new Map(requests.map(({ id, prompt }) => [id, prompt])),
    timeline: { ...timeline, lanes: new Map(timeline.lanes.map((lane, i) => [ids[i], laneOf(lane)])) },
    memory: new Map(),
    notes: new Map(packed.notes),
    teaching: new Map(packed.teaching),
    terms: termsOf(words),
    questions: packed.questions.map((one) => ({ ...one, text: told(one.text), look: told(one.look) })),
    t: (key, values = {}) => fill(words.player[key] ?? key, values, words),
    say,
  };
}

function laneOf([segments, deliveries, gaps, end]) {
  return {
    segments: segments.map(([phase, from, to, tokens, restored]) => ({ phase, from, to, tokens, restored })),
    deliveries: deliveries.map(([step, index, token]) => ({ step, index, token })),
    gaps: gaps.map(([after, steps, waiting, recovery]) => ({
      from: deliveries[after][0],
      to: deliveries[after + 1][0],
      steps,
      waiting,
      recovery,
    })),
    end: end && { step: end[0], why: end[1] },
  };
}

/** Index of the step that a cursor stands in, -1 before the first event. */
export function stepIndex({ steps }, cursor) {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle].first < cursor) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The cursor after the next step's end, or the one before; steps move from end to end. */
export function stepCursor({ steps, events }, cursor, direction) {
  const ends = [0, ...steps.map((step) => step.end)];
  return (direction > 0 ? nextOf(ends, cursor) : lastOf(ends, cursor)) ?? (direction > 0 ? events.length : 0);
}

/** Index of the event that is told at a cursor: the moment's own, else the last before it. */
export function told({ moments }, cursor) {
  return moments.find((moment) => moment.cursor === cursor)?.event ?? cursor - 1;
}

/** The cursor after the next step's end, but never past a preemption: its sentence is not skipped. */
export function stepForward({ trace }, cursor) {
  const goal = stepCursor(trace, cursor, 1);
  const gone = nextOf(trace.pauses, cursor);
  return gone !== null && gone < goal ? gone : goal;
}

/** The first of sorted cursors behind `cursor`, or null. */
export const nextOf = (cursors, cursor) => cursors.find((one) => one > cursor) ?? null;

/** The last of sorted cursors before `cursor`, or null. */
export const lastOf = (cursors, cursor) => cursors.findLast((one) => one < cursor) ?? null;

/** The cursor just after the next event of a request, or null. */
export function nextEventOf({ events }, cursor, id) {
  const at = events.findIndex((event, i) => i >= cursor && event.id === id);
  return at < 0 ? null : at + 1;
}

/** How many preemptions before the cursor, and how many of them were by recompute instead of swap. */
export function fallenBack({ fell_back: fellBack, preempted }, cursor) {
  const before = (list) => list.filter((one) => one <= cursor).length;
  return { count: before(fellBack), total: before(preempted) };
}

/** What the event at `index` touched, so that the views can point at it. */
export function touched({ trace, ids }, index) {
  const event = trace.events[index];
  const [blocks, hosts, slots, entries, positions, unmet, others] = event?.touched ?? [];
  return {
    id: event?.id,
    blocks: new Set(blocks || []),
    hosts: new Set(hosts || []),
    slots: slots ? { block: slots[0], from: slots[1], to: slots[2] } : null,
    entries: entries || null,
    positions: positions || null,
    unmet: unmet ? event.id : null,
    others: (others || []).map((who) => ids[who]),
  };
}
