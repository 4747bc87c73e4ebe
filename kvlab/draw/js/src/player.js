/**
 * One player in one element. It owns the cursor and what is open; the picture is a function of them.
 *
 * @typedef {{
 *   words: object, title?: string, cursor?: number, start?: number, stop?: number | null,
 *   predict?: boolean, covered?: boolean, answers?: Answer[], presenter?: boolean, state?: object, axis?: number,
 *   link?: "" | "query" | "hash", style?: boolean,
 *   onCursor?: (cursor: number) => void, onPredict?: (on: boolean) => void,
 *   guide?: {question?: string, watch?: string[], note?: string, why?: string, next?: string},
 *   onNext?: () => void, onAnswers?: (answers: Answer[]) => void, onState?: (state: object) => void,
 * }} Options
 *   start and stop: the range of a figure, as cursors; stop null or below 0: to the end
 *   covered: the time picture hides what comes after the cursor; state: what `state` of another player gave; axis: columns that the time picture has at least, so
 *   that two runs stand on one axis; link: where a copied link keeps scenario, method and cursor
 */
import { patch } from "./dom.js";
import { isDense, isLong, painter } from "./dense.js";
import { fold } from "./fold.js";
import { onKey } from "./keys.js";
import { addressOf, copy } from "./link.js";
import { lighter } from "./lit.js";
import * as places from "./model.js";
import { isKey, prepare, stepCursor, stepIndex } from "./model.js";
import { mover } from "./motion.js";
import { answered, asCsv } from "./questions.js";
import { save } from "./save.js";
import { savePicture, saveRun } from "./take.js";
import { watchTerms } from "./terms.js";
import { watchTheme } from "./theme.js";
import { view } from "./view.js";
import { judged } from "./views/ask.js";

const MILLISECONDS_PER_EVENT = 1400;
const MOST_ANSWERS = 1000;
/** What a host may keep and give back. */
const KEPT = ["lifted", "speed", "pauses", "predict", "presenter", "projector", "table", "selected"];

/** Show a trace in `root`. Returns {element, goto, update, destroy, cursor, state}. */
export function mountPlayer(root, trace, options) {
  const element = document.createElement("div");
  element.className = "kvlab-player";
  element.tabIndex = 0;
  element.setAttribute("role", "group");
  element.lang = options.words.language;
  element.setAttribute("data-lm-suppress-shortcuts", "true");
  root.append(element);

  const events = trace.events.length;
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const rangeOf = ({ start, stop }) => {
    const low = clamp(start ?? 0, 0, events);
    const high = stop === null || stop === undefined || stop < 0 ? events : clamp(stop, low, events);
    return { low, high };
  };

  const model = prepare(trace, options.words);
  const replay = fold(trace);
  const ui = {
    title: options.title ?? "",
    guide: options.guide ?? {},
    link: options.link ?? "",
    axis: options.axis ?? 0,
    offline: false,
    playing: false,
    speed: 1,
    pauses: true,
    sheet: null,
    lifted: false,
    predict: Boolean(options.predict),
    answers: (options.answers ?? []).slice(-MOST_ANSWERS),
    asked: {},
    covered: Boolean(options.covered),
    veiled: false,
    latest: null,
    presenter: Boolean(options.presenter),
    projector: false,
    blank: false,
    table: false,
    open: null,
    selected: null,
    find: "",
    scrolled: 0,
    tip: null,
    copied: null,
    ...rangeOf(options),
    ...kept(options.state ?? {}),
  };
  if (ui.lifted) Object.assign(ui, { low: 0, high: events });
  let cursor = clamp(options.state?.cursor ?? options.cursor ?? ui.low, ui.low, ui.high);
  let timer = null;
  let last = [];
  let shownStep = null;
  let drawn = cursor;

  element.setAttribute("aria-label", model.t("player", { title: ui.title || trace.scenario.title }));
  const move = mover(element, model);
  const paints = isLong(trace, model.ids) || [trace.pool.num_blocks, trace.pool.host_blocks].some(
    (blocks) => isDense(blocks, trace.pool.block_size),
  );
  const canvases = paints ? painter(element, model, () => draw()) : null;
  const lit = lighter(element, model, () => replay.to(cursor));

  function draw() {
    ui.asked = askedNow();
    ui.veiled = ui.covered || Boolean(open(cursor, ui.high));
    // Where there is a canvas there is too much to see one block fly.
    const fly = canvases ? null : move.before(drawn, cursor);
    element.toggleAttribute("data-projector", ui.projector);
    element.toggleAttribute("data-blank", ui.blank);
    const state = replay.to(cursor);
    const next = view(model, state, cursor, ui, act);
    patch(element, last, next);
    last = next;
    canvases?.paint(state, places.touched(model, cursor - 1));
    const step = stepIndex(trace, cursor);
    if (step !== shownStep) follow(element);
    shownStep = step;
    drawn = cursor;
    lit.again();
    fly?.();
  }

  /** What an action changed is drawn, and told to a host that keeps it. */
  function changed() {
    draw();
    options.onState?.(state());
  }

  const isAnswered = (question) => ui.answers.some((answer) => answer.question === question.key);
  const open = (from, to) =>
    ui.predict &&
    model.questions.find((q) => q.at >= from && q.at < to && q.at >= ui.low && !isAnswered(q));

  /** The question that holds the next step, or the verdict on the one before. */
  function askedNow() {
    const question = (cursor < ui.high && open(cursor, cursor + 1)) || null;
    if (question || !ui.predict || !ui.latest) return { question };
    const answer = ui.answers.find((entry) => entry.question === ui.latest.key);
    if (!answer || cursor < ui.latest.at || cursor > ui.latest.at + 1) return { question };
    return {
      question,
      verdict: {
        right: answer.right,
        says: judged(model, ui.latest, answer),
        explain: answer.given === null ? "" : ui.latest.explain,
        here: cursor === ui.latest.at,
      },
    };
  }

  /** As far as a reader may go at once: an open question on the way holds. */
  function held(goal) {
    return goal <= cursor ? goal : (open(cursor, goal)?.at ?? goal);
  }

  function goto(value, from = "user") {
    const wanted = clamp(Math.round(value), ui.low, ui.high);
    const goal = from === "user" ? held(wanted) : wanted;
    if (goal === cursor) {
      if (wanted > goal) askAgain();
      return;
    }
    cursor = goal;
    draw();
    if (from === "user") options.onCursor?.(cursor);
  }

  function askAgain() {
    const place = element.querySelector(".k-option");
    place?.focus();
    place?.scrollIntoView?.({ block: "nearest" });
  }

  /** What has opened is in sight, also where it stands in the flow of a narrow page. */
  function reveal() {
    element.querySelector(".k-sheet")?.scrollIntoView({ block: "nearest" });
  }

  function lift() {
    Object.assign(ui, { lifted: true, low: 0, high: events });
    draw();
    // The button that had the focus is gone; keys should go on working.
    if (!element.contains(element.getRootNode().activeElement)) element.focus({ preventScroll: true });
  }

  function stop() {
    clearTimeout(timer);
    timer = null;
    ui.playing = false;
  }

  function tick() {
    timer = setTimeout(() => {
      if (!element.isConnected) return stop();
      goto(cursor + 1);
      const halt = ui.asked.question || (ui.pauses && isKey(trace.events[cursor - 1]));
      if (cursor < ui.high && !halt) return tick();
      stop();
      draw();
    }, MILLISECONDS_PER_EVENT / ui.speed);
  }

  const go = (to) => () => {
    if (ui.playing) stop();
    goto(to() ?? cursor);
    draw();
  };
  const within = (found) => (found !== null && found <= ui.high && found >= ui.low ? found : null);
  const toggle = (name) => () => {
    ui[name] = !ui[name];
    changed();
  };
  const act = {
    first: go(() => ui.low),
    last: go(() => ui.high),
    back: go(() => cursor - 1),
    forward: go(() => cursor + 1),
    stepBack: go(() => stepCursor(trace, cursor, -1)),
    stepForward: go(() => stepCursor(trace, cursor, 1)),
    preemption: go(() => within(places.nextPreemption(model, cursor))),
    preemptionBack: go(() => within(places.previousPreemption(model, cursor))),
    full: go(() => within(places.nextFull(model, cursor))),
    sameRequest: go(() => within(places.nextOf(trace, cursor, ui.selected ?? nearestId(trace, cursor)))),
    eventOf: (id) => {
      ui.selected = id;
      go(() => within(places.nextOf(trace, cursor, id)))();
    },
    within,
    goto: (value) => {
      if (ui.playing) stop();
      if (value < ui.low || value > ui.high) lift();
      goto(value);
      draw();
    },
    play: () => {
      if (ui.playing) stop();
      else {
        if (cursor >= ui.high) goto(ui.low);
        ui.playing = !ui.asked.question;
        if (ui.playing) tick();
        else askAgain();
      }
      draw();
    },
    speed: (value) => {
      ui.speed = value;
      changed();
    },
    lift,
    pauses: toggle("pauses"),
    presenter: toggle("presenter"),
    projector: toggle("projector"),
    table: toggle("table"),
    blank: toggle("blank"),
    predict: () => {
      ui.predict = !ui.predict;
      options.onPredict?.(ui.predict);
      changed();
    },
    answer: (question, value) => {
      const inside = element.querySelector(".k-ask")?.contains(active());
      const answer = answered(question, value);
      ui.answers = [...ui.answers, answer].slice(-MOST_ANSWERS);
      ui.latest = question;
      draw();
      options.onAnswers?.(ui.answers);
      if (!inside) return;
      const next = element.querySelector(".k-option") ?? element.querySelector("[data-act=continue]");
      (next ?? element).focus();
    },
    choose: (index) => {
      const { question } = ui.asked;
      const option = question?.options[index];
      if (option) act.answer(question, option.value);
    },
    continued: () => {
      act.forward();
      if (!element.contains(active())) element.focus();
    },
    forget: () => {
      Object.assign(ui, { answers: [], latest: null });
      draw();
      options.onAnswers?.([]);
    },
    saveJson: () => saveAnswers("json"),
    saveCsv: () => saveAnswers("csv"),
    saveRun: () => saveRun(element, trace),
    savePicture: () => savePicture(element, `${trace.scenario.name}-${cursor}`),
    copyLink: async () => {
      const address = addressOf(element.ownerDocument.location, ui.link, place());
      ui.copied = { address, done: await copy(element, address) };
      draw();
      if (!ui.copied.done) element.querySelector(".k-address")?.select();
    },
    open: (what) => {
      ui.open = what;
      ui.sheet = "block";
      draw();
      reveal();
    },
    select: (id) => {
      ui.selected = ui.selected === id ? null : id;
      changed();
    },
    find: (text) => {
      Object.assign(ui, { find: text, scrolled: 0 });
      draw();
    },
    scrolled: (top) => {
      ui.scrolled = top;
      draw();
    },
    openAt: (event, kind) => {
      const id = canvases.blockAt(event.currentTarget, event);
      if (id !== null) act.open(kind === "host" ? { host: id } : { block: id });
    },
    nameAt: (event, kind) => {
      const id = canvases.blockAt(event.currentTarget, event);
      const { blocks, host_blocks: stored } = replay.to(cursor);
      const one = id === null ? null : kind === "host" ? stored[id] : blocks[id];
      const owners = one && (one.owners ?? [one.owner]).filter(Boolean);
      event.currentTarget.title = one
        ? `${kind === "host" ? "H" : "P"}${id}: ${owners.join(", ") || model.t("free")}`
        : "";
    },
    sheet: (name) => {
      ui.sheet = ui.sheet === name ? null : name;
      ui.copied = null;
      draw();
      reveal();
    },
    close: () => {
      if (ui.tip) ui.tip = null;
      else if (ui.blank) ui.blank = false;
      else if (ui.sheet) ui.sheet = null;
      else if (ui.projector) ui.projector = false;
      else return;
      draw();
      if (!element.contains(active())) element.focus();
    },
  };

  const active = () => element.getRootNode().activeElement;

  function saveAnswers(kind) {
    const name = `${trace.scenario.name ?? "run"}-answers.${kind}`;
    const facts = { scenario: trace.scenario.name, model: trace.model.name, answers: ui.answers };
    save(element, name, kind === "csv" ? asCsv(ui.answers) : JSON.stringify(facts, null, 2));
  }

  /** What a link says: enough to come back to this picture. */
  function place() {
    return { scenario: trace.scenario.name, method: trace.scenario.engine.method, cursor };
  }

  function state() {
    return { cursor, ...kept(ui) };
  }

  element.addEventListener("keydown", (event) => onKey(event, element, act));
  for (const kind of ["keypress", "keyup"]) {
    element.addEventListener(kind, (event) => event.stopPropagation());
  }
  const unwatchTerms = watchTerms(element, (tip) => {
    if (tip === ui.tip) return;
    ui.tip = tip;
    draw();
  });
  draw();
  const unwatch = watchTheme(element, (theme) => {
    if (element.getAttribute("data-theme") === theme) return;
    element.setAttribute("data-theme", theme);
    draw();
  });

  return {
    element,
    goto: (value) => goto(value, "host"),
    get cursor() {
      return cursor;
    },
    get answers() {
      return ui.answers;
    },
    get state() {
      return state();
    },
    /** New range, title or setting from the host. */
    update(changes) {
      for (const name of ["title", "predict", "covered", "presenter", "guide", "link", "answers", "offline", "axis"]) {
        if (name in changes) ui[name] = changes[name];
      }
      if ("start" in changes || "stop" in changes) {
        Object.assign(ui, rangeOf(changes), { lifted: false });
        cursor = clamp(cursor, ui.low, ui.high);
      }
      draw();
    },
    destroy() {
      stop();
      move.stop();
      canvases?.stop();
      unwatchTerms();
      unwatch();
      element.remove();
    },
  };
}

function kept(values) {
  const found = {};
  for (const name of KEPT) if (name in values) found[name] = values[name];
  return found;
}

/** The request that the event at the cursor is about, or the last one before it. */
function nearestId(trace, cursor) {
  for (let i = cursor - 1; i >= 0; i -= 1) if (trace.events[i].id) return trace.events[i].id;
  return places.next(trace.events, cursor, (event) => event.id)?.id;
}

/** Keep the current step in view where the time picture is wider than its place. */
function follow(element) {
  const box = element.querySelector("[data-scroll=time]");
  const step = box?.querySelector(".k-step[data-now]");
  if (!step || box.scrollWidth <= box.clientWidth) return;
  const margin = 48;
  const left = step.offsetLeft;
  const label = box.querySelector(".k-lab")?.offsetWidth ?? 0;
  if (left - label < box.scrollLeft + margin) box.scrollLeft = left - label - margin;
  else if (left + step.offsetWidth > box.scrollLeft + box.clientWidth - margin)
    box.scrollLeft = left + step.offsetWidth - box.clientWidth + margin;
}
