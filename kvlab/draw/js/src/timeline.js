/**
 * What the time picture shows, from the whole trace: the phases of each request step by step, its
 * outputs as the user receives them with the gaps between, the free blocks after each step, and the
 * cursors at which the last free block goes (`full`).
 *
 * @typedef {{phase: string, from: number, to: number, tokens: number, restored?: number}} Segment
 *   from and to: indices of steps, both included
 * @typedef {{step: number, index: number, token: number}} Delivery
 * @typedef {{from: number, to: number, steps: number, recovery: number | null}} Gap
 */
import { fold } from "./fold.js";

/** More blocks than these are not drawn one by one below the steps. */
export const MOST_DRAWN = 6;

const PHASES = {
  prefill: "prefill",
  decode: "decode",
  recompute: "recompute",
};
const WAITS = {
  waiting: "waiting",
  preempted: "preempted",
  swapping_out: "swapped",
  swapped: "swapped",
  swapping_in: "swapped",
  paused: "paused",
  running: "stalled",
};
/** Phases that grow from step to step as one piece. */
const JOINED = new Set(["decode", "waiting", "preempted", "swapped", "paused", "stalled", "prefill", "restore"]);

export function timeline(trace, ids) {
  const replay = fold(trace);
  const lanes = new Map(ids.map((id) => [id, { segments: [], deliveries: [], gaps: [], end: null }]));
  const free = [];
  const pools = [];
  const full = [];
  const arriving = new Map(); // swapped in by a copy under way: id to its positions
  let before = trace.pool.num_blocks;
  trace.steps.forEach((step, i) => {
    const events = trace.events.slice(step.first, step.end);
    for (let cursor = step.first + 1; cursor <= step.end; cursor += 1) {
      const now = replay.to(cursor).free;
      if (now === 0 && before > 0) full.push(cursor);
      before = now;
    }
    const { state } = replay;
    free.push(state.free);
    if (trace.pool.num_blocks <= MOST_DRAWN) {
      pools.push(state.blocks.map((block) => block.owners[0] ?? null));
    }
    const ran = scheduled(events);
    for (const event of events) if (event.kind === "swap_in_started") arriving.set(event.id, event.kv);
    const back = new Map(arriving);
    for (const event of events) {
      if (event.kind === "swap_in_finished" || event.kind === "copy_failed") arriving.delete(event.id);
    }
    for (const [id, lane] of lanes) {
      if (state.requests[id]) {
        addPhase(lane, i, ran.get(id), back.get(id), state.requests[id].state);
      }
    }
    for (const event of events) {
      receive(lanes, event, i);
      if (event.kind === "finished" && lanes.has(event.id)) lanes.get(event.id).end = { step: i, why: event.why };
    }
  });
  return { lanes, free, pools, full };
}

/** What went through the model in these events: id to {why, tokens}. */
function scheduled(events) {
  const ran = new Map();
  for (const event of events) {
    if (event.kind === "unscheduled") ran.delete(event.id);
    if (event.kind === "scheduled") ran.set(event.id, event);
  }
  return ran;
}

/** `restored`: positions that are on their way back from the host pool in this step. */
function addPhase(lane, step, ran, restored, state) {
  if (!ran && state === "finished") return;
  const phase = restored ? "restore" : !ran ? WAITS[state] : (PHASES[ran.why] ?? "decode");
  const last = lane.segments.at(-1);
  if (last?.phase === phase && last.to === step - 1 && JOINED.has(phase)) {
    last.to = step;
    last.tokens += ran?.tokens ?? 0;
  } else {
    lane.segments.push({ phase, from: step, to: step, tokens: ran?.tokens ?? 0, restored });
  }
}

function receive(lanes, event, step) {
  const lane = lanes.get(event.id);
  if (!lane) return;
  if (event.kind === "resumed") lane.resumed = step;
  if (event.kind !== "token_delivered") return;
  const before = lane.deliveries.at(-1);
  if (before && step - before.step > 1) {
    const steps = step - before.step;
    const back = lane.resumed > before.step ? lane.resumed : null;
    lane.gaps.push({
      from: before.step,
      to: step,
      steps,
      recovery: back === null ? null : step - back + 1,
    });
  }
  lane.deliveries.push({ step, index: event.index, token: event.token });
}
