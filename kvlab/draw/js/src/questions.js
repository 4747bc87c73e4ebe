/**
 * Questions to answer before the run shows what happens: those of the lesson and built-in ones.
 * Every answer is read off the trace.
 *
 * A lesson lists `{at: {step: 3, kind: preempted, id: B, …}, ask: …, text: …, options: […], answer: …,
 * explain: …}`. `at` names the first event that has all those fields; the question is put just before
 * that event is shown. `ask` is one of
 *
 *   who_is_paused     the request of the next preemption or pause
 *   free_after        blocks that are free after the event
 *   tokens_processed  tokens of the event's request that go through the model when it runs next
 *   tokens_sent       outputs that the user of the event's request receives in the step
 *   blocks_allocated  blocks that the event's request is given next
 *
 * or a text of the teacher's own with `options` and an `answer`: one of them, or `{field: free}` for
 * what the event says there. `text` is another wording, `explain` another explanation than the
 * sentence of the event that answers. An entry that does not fit is passed over. `lesson.predict:
 * lesson` leaves out the built-in questions.
 *
 * @typedef {{
 *   key: string, at: number, step: number, ask: string, text: string, own: boolean,
 *   options: {value: string, label: string}[], answer: string | null, explain: string,
 * }} Question
 *   at: the cursor at which it holds; answer: a value of one of the options, null: not checked
 * @typedef {{
 *   question: string, cursor: number, step: number, ask: string, text: string,
 *   given: string | null, answer: string | null, right: boolean | null,
 * }} Answer
 *   given null: skipped; right null: skipped or not checked
 */
import { fold } from "./fold.js";
import { asList } from "./model.js";

const MOST_ASKED_ABOUT = 3;
const MOST_OPTIONS = 8;
const MOST_OF_A_LESSON = 100;

/** @returns {Question[]} in the order of the run */
export function questionsOf(model) {
  const { lesson } = model.trace.scenario;
  const own = asList(lesson?.questions).slice(0, MOST_OF_A_LESSON);
  const wanted = own.map((entry) => placed(model, entry)).filter(Boolean);
  if (lesson?.predict !== "lesson") wanted.push(...builtIn(model.trace.events));
  const replay = fold(model.trace);
  const found = new Map();
  for (const entry of wanted.sort((a, b) => a.at - b.at)) {
    const question = made(model, entry, replay.to(entry.at), () => {
      const { free } = replay.to(entry.at + 1);
      replay.to(entry.at);
      return free;
    });
    if (question && !found.has(question.key)) found.set(question.key, question);
  }
  return [...found.values()];
}

/** A lesson's entry at its event, or null. */
function placed({ trace }, entry) {
  const { at, ask } = entry ?? {};
  if (typeof at !== "object" || at === null || typeof ask !== "string") return null;
  const names = Object.keys(at);
  const index = trace.events.findIndex((event) => names.every((name) => event[name] === at[name]));
  return index < 0 || !names.length ? null : { ...entry, at: index, own: true };
}

/** What is asked when the lesson says nothing: about the first shortages and what follows them. */
function builtIn(events) {
  const found = [];
  const gone = new Map();
  let times = 0;
  events.forEach((event, at) => {
    if (event.kind === "preempted" || event.kind === "paused") {
      if (times >= MOST_ASKED_ABOUT) return;
      times += 1;
      gone.set(event.id, event.kind);
      if (event.need_of !== null) found.push({ at, ask: "who_is_paused" });
      if (event.kind === "paused") found.push({ at, ask: "free_after" });
      return;
    }
    if (!gone.has(event.id)) return;
    if (event.kind === "block_released" && gone.get(event.id) === "preempted") {
      gone.set(event.id, "released");
      found.push({ at, ask: "free_after" });
    } else if (event.kind === "resumed") {
      gone.set(event.id, "resumed");
      if (event.why !== "pause") found.push({ at, ask: "tokens_processed" });
    } else if (event.kind === "token_delivered" && gone.get(event.id) === "resumed") {
      gone.delete(event.id);
      found.push({ at, ask: "tokens_sent" });
    }
  });
  return found;
}

function made(model, entry, state, freeAfter) {
  const { trace, t, say } = model;
  const event = trace.events[entry.at];
  const builtIn = Object.hasOwn(ASKED, entry.ask);
  const facts = builtIn ? ASKED[entry.ask](model, event, entry.at, state, freeAfter) : custom(event, entry);
  if (!facts || facts.options.length < 2 || facts.options.length > MOST_OPTIONS) return null;
  const text = entry.text ?? (builtIn ? t(facts.words, { ...event, ...facts.values }) : entry.ask);
  return {
    key: `${entry.at}:${entry.ask}`.slice(0, 200),
    at: entry.at,
    step: event.step,
    ask: entry.ask,
    text: String(text),
    own: Boolean(entry.own),
    options: facts.options,
    answer: facts.answer,
    explain: String(entry.explain ?? (facts.event ? say(facts.event) : "")),
  };
}

/** A question in the teacher's own words. */
function custom(event, entry) {
  const values = asList(entry.options).map(String);
  const { answer } = entry;
  const right = typeof answer === "object" && answer !== null ? event[answer.field] : answer;
  const told = right === undefined || right === null ? null : String(right);
  if (told !== null && !values.includes(told)) values.push(told);
  return {
    options: [...new Set(values)].map((value) => ({ value, label: value })),
    answer: told,
    event: told === null ? null : event,
  };
}

const ASKED = {
  who_is_paused({ trace }, event, at, state) {
    const gone = next(trace.events, at, (e) => e.kind === "preempted" || e.kind === "paused");
    if (!gone) return null;
    const runs = (id) => ["running", "paused"].includes(state.requests[id]?.state);
    const ids = Object.keys(state.requests).filter((id) => id !== gone.id && runs(id));
    const few = ids.slice(0, MOST_OPTIONS - 1).concat(gone.id).sort();
    return {
      words: gone.need_of === null ? "ask_who" : "ask_who_for",
      values: { need_of: gone.need_of, free: state.free },
      options: few.map((id) => ({ value: id, label: id })),
      answer: gone.id,
      event: gone,
    };
  },

  free_after(model, event, at, state, freeAfter) {
    const own = state.requests[event.id]?.table.length ?? 1;
    const before = state.free;
    const after = freeAfter();
    const words = { block_released: "ask_free_release", paused: "ask_free_pause" };
    return {
      words: words[event.kind] ?? "ask_free",
      options: numbers(after, [before, own, 0, state.blocks.length]),
      answer: String(after),
      event,
    };
  },

  tokens_processed({ trace }, event, at, state) {
    const ran = next(trace.events, at, (e) => e.kind === "scheduled" && e.id === event.id);
    if (!ran) return null;
    const history = state.requests[event.id]?.history ?? event.history ?? ran.tokens;
    return {
      words: "ask_tokens",
      values: { history },
      options: numbers(ran.tokens, [1, history - 1, history]),
      answer: String(ran.tokens),
      // After a swap the return of the KV is the reason, not the one decoded token.
      event: ran.why === "decode" && event.kind === "resumed" ? event : ran,
    };
  },

  tokens_sent({ trace }, event, at, state) {
    const sent = trace.events.filter(
      (e) => e.kind === "token_delivered" && e.id === event.id && e.step === event.step,
    );
    if (!sent.length) return null;
    const now = sent.map((e) => e.index);
    const before = Array.from({ length: state.requests[event.id]?.delivered ?? 0 }, (_, i) => i);
    const values = [...new Set([now, [...before, ...now], before, []].map(outputs))].sort();
    return {
      words: "ask_sent",
      options: values.map((value) => ({ value, label: value })),
      answer: outputs(now),
      event: sent.at(-1),
    };
  },

  blocks_allocated({ trace }, event, at) {
    const given = next(trace.events, at, (e) => e.kind === "block_allocated" && e.id === event.id);
    if (!given) return null;
    const count = given.blocks.length;
    return {
      words: "ask_blocks",
      options: numbers(count, [0, 1, count + 1]),
      answer: String(count),
      event: given,
    };
  },
};

/** x0, x1, …: the ends where there are many. */
function outputs(list) {
  if (!list.length) return "–";
  const names = list.map((index) => `x${index}`);
  return names.length > 4 ? `${names[0]} … ${names.at(-1)}` : names.join(", ");
}

const next = (events, at, fits) => events.slice(at, at + 5000).find(fits);

/** The answer among others, in order, so that its place gives nothing away. */
function numbers(answer, others) {
  const near = [...others, answer + 1, answer + 2].filter((n) => n >= 0 && n !== answer);
  const few = [...new Set(near)].slice(0, 3).concat(answer).sort((a, b) => a - b);
  return few.map((n) => ({ value: String(n), label: String(n) }));
}

/** @returns {Answer} `given` null: skipped */
export function answered(question, given) {
  const { key, at, step, ask, text, answer } = question;
  const right = given === null || answer === null ? null : given === answer;
  return { question: key, cursor: at, step, ask, text, given, answer, right };
}

/** The answers as CSV (RFC 4180); a cell that a spreadsheet would calculate is made text. */
export function asCsv(answers) {
  const names = ["step", "cursor", "ask", "text", "given", "answer", "right"];
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
  };
  const rows = answers.map((answer) => names.map((name) => cell(answer[name])).join(","));
  return [names.join(","), ...rows].join("\r\n") + "\r\n";
}
