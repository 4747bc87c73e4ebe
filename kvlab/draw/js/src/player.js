/**
 * One player in one element. It owns the cursor and what is open; the picture is a function of them.
 *
 * @typedef {{
 *   words: object, title?: string, cursor?: number, start?: number, stop?: number | null,
 *   predict?: boolean, hold?: boolean, covered?: boolean, answers?: Answer[], presenter?: boolean, state?: object, axis?: number,
 *   link?: "" | "query" | "hash", file?: () => Promise<Blob | string>,
 *   onCursor?: (cursor: number) => void, onPredict?: (on: boolean) => void,
 *   guide?: {question?: string, watch?: string[], note?: string, why?: string, next?: string},
 *   onNext?: () => void, onAnswers?: (answers: Answer[]) => void, onState?: (state: object) => void,
 * }} Options
 *   start and stop: the range of a figure, as cursors; stop null or below 0: to the end
 *   covered: what comes after the cursor is not in the page until the end was reached once
 *   state: what `state` of another player gave
 *   axis: columns that the time picture has at least, so that two runs stand on one axis
 *   link: where a copied link keeps scenario, method and cursor
 *   file: gives the recorded run as a file that a reader can save
 *   guide: the host's words: before the first move, and at the end
 */
import { asCsv, asker } from "./answers.js";
import { isDense, isLong, painter } from "./canvas.js";
import { patch } from "./dom.js";
import { download, downloadPicture } from "./download.js";
import { follower } from "./follow.js";
import { highlighter } from "./highlight.js";
import { guarded, onKey } from "./keys.js";
import { addressOf, copy } from "./link.js";
import { liner } from "./lines.js";
import { lastOf, nextEventOf, nextOf, prepare, stepCursor, stepForward, stepIndex, told, touched } from "./model.js";
import { mover } from "./motion.js";
import { replay as replayOf } from "./replay.js";
import { watchTerms } from "./terms.js";
import { watchTheme } from "./theme.js";
import { view } from "./view.js";

/** From the end of one move to the next, while playing. */
const MILLISECONDS_TO_READ = 1500;
/** What a host may keep and give back. */
const KEPT = ["lifted", "speed", "pauses", "predict", "presenter", "projector", "table", "selected", "reached"];

/** Show a trace in `root`. Returns {element, goto, update, destroy, cursor, state}. */
export function mountPlayer(root, packed, options) {
  const element = document.createElement("div");
  element.className = "kvlab-player";
  element.tabIndex = -1;
  element.setAttribute("role", "group");
  element.lang = options.words.language;
  root.append(element);

  const model = prepare(packed, options.words);
  const { trace } = model;
  const events = trace.events.length;
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const rangeOf = ({ start, stop }) => {
    const low = clamp(start ?? 0, 0, events);
    const high = stop === null || stop === undefined || stop < 0 ? events : clamp(stop, low, events);
    return { low, high };
  };

  const replay = replayOf(trace);
  const ui = {
    title: options.title ?? "",
    guide: options.guide ?? {},
    link: options.link ?? "",
    file: Boolean(options.file),
    axis: options.axis ?? 0,
    offline: false,
    playing: false,
    speed: 1,
    pauses: true,
    sheet: null,
    lifted: false,
    predict: Boolean(options.predict),
    hold: options.hold ?? true,
    answers: options.answers ?? [],
    asked: {},
    covered: options.covered ?? true,
    reached: false,
    ahead: false,
    latest: null,
    presenter: Boolean(options.presenter),
    projector: false,
    blank: false,
    table: false,
    open: null,
    selected: null,
    unfolded: new Set(),
    find: "",
    scrolled: 0,
    tip: null,
    copied: null,
    ...rangeOf(options),
    ...kept(options.state ?? {}),
  };
  if (ui.lifted) Object.assign(ui, { low: 0, high: events });
  const asks = asker(model, ui);
  let cursor = clamp(options.state?.cursor ?? options.cursor ?? ui.low, ui.low, ui.high);
  let shown = cursor;
  let timer = null;
  let last = [];

  element.setAttribute("aria-label", model.t("player", { title: ui.title || trace.scenario.title }));
  const paints = isLong(trace, model.ids) || [trace.pool.num_blocks, trace.pool.host_blocks].some(
    (blocks) => isDense(blocks, trace.pool.block_size),
  );
  const canvases = paints ? painter(element, model, () => draw()) : null;
  const lines = liner(element);
  const follow = follower(element);
  const highlight = highlighter(element, model, () => replay.to(shown), lines.again);
  const move = mover(
    element,
    model,
    (at) => {
      shown = at;
      draw();
    },
    (kind, id) => canvases?.spotOf(kind, id) ?? null,
  );

  function draw() {
    if (cursor >= ui.high) ui.reached = true;
    ui.asked = asks.at(cursor, stops());
    ui.ahead = (!ui.covered || ui.reached) && !asks.open(cursor, ui.high);
    element.toggleAttribute("data-projector", ui.projector);
    element.setAttribute("data-lead", leads());
    element.toggleAttribute("data-blank", ui.blank);
    const state = replay.to(shown);
    const next = view(model, state, cursor, shown, ui, act);
    // A button that loses its use must not take the focus with it.
    const held = active();
    patch(element, last, next);
    last = next;
    if (held?.disabled) element.focus({ preventScroll: true });
    canvases?.paint(state, touched(model, shown - 1));
    follow(stepIndex(trace, shown), trace.events[told(model, shown)]?.id);
    highlight.again();
    lines.again();
  }

  /** What a projector shows large: a long stretch its time, another one its blocks. */
  const leads = () =>
    !trace.swaps && stepIndex(trace, ui.high) - stepIndex(trace, ui.low + 1) > 5 ? "time" : "memory";

  /** What an action changed is drawn, and told to a host that keeps it. */
  function changed() {
    draw();
    options.onState?.(state());
  }

  /** To a cursor; forward and `moving`: everything on the way is seen to happen. */
  function goto(value, { from = "user", moving = false, done } = {}) {
    const wanted = clamp(Math.round(value), ui.low, ui.high);
    // Without `hold` who goes on from an open question passes it over.
    const passed = from === "user" && !ui.hold && wanted > cursor && asks.open(cursor, cursor + 1);
    if (passed) act.answer(passed, null);
    const goal = from === "user" ? asks.held(cursor, wanted) : wanted;
    if (goal === cursor) {
      move.stop();
      shown = cursor;
      draw();
      if (wanted > goal) askAgain();
      return;
    }
    // The next move ends the one before at once.
    const start = moving && goal > cursor ? cursor : goal;
    move.stop();
    cursor = goal;
    move.play(start, goal, ui.speed, done);
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

  /** From one moment to the next, each shown and then left standing to be read. */
  function playOn() {
    if (!element.isConnected) return stop();
    const before = cursor;
    goto(nextMoment(), {
      moving: true,
      done: () => {
        if (!ui.playing) return;
        const halt = cursor === before || ui.asked.question || (ui.pauses && trace.halts.includes(told(model, cursor) + 1));
        if (cursor < ui.high && !halt) {
          timer = setTimeout(playOn, MILLISECONDS_TO_READ / ui.speed);
          return;
        }
        stop();
        draw();
      },
    });
  }

  const stops = () => model.stops(ui.low, ui.high);
  const nextMoment = () => nextOf(stops(), cursor) ?? ui.high;
  const momentBefore = () => lastOf(stops(), cursor) ?? ui.low;

  const go = (to, moving = false) => () => {
    stop();
    goto(to() ?? cursor, { moving });
  };
  const within = (found) => (found !== null && found <= ui.high && found >= ui.low ? found : null);
  const toggle = (name) => () => {
    ui[name] = !ui[name];
    changed();
  };
  const act = {
    first: go(() => ui.low),
    last: go(() => ui.high),
    back: go(momentBefore),
    forward: go(nextMoment, true),
    eventBack: go(() => cursor - 1),
    event: go(() => cursor + 1, true),
    stepBack: go(() => stepCursor(trace, cursor, -1)),
    stepForward: go(() => stepForward(model, cursor), true),
    preemption: go(() => within(nextOf(trace.pauses, cursor))),
    preemptionBack: go(() => within(lastOf(trace.pauses, cursor))),
    full: go(() => within(nextOf(trace.full, cursor))),
    sameRequest: go(() => within(nextEventOf(trace, cursor, ui.selected ?? nearestId(trace, cursor)))),
    eventOf: (id) => {
      ui.selected = id;
      go(() => within(nextEventOf(trace, cursor, id)))();
    },
    within,
    goto: (value) => {
      stop();
      if (value < ui.low || value > ui.high) lift();
      goto(value);
    },
    play: () => {
      if (ui.playing) stop();
      else {
        if (cursor >= ui.high) goto(ui.low);
        ui.playing = !ui.asked.question;
        if (ui.playing) return playOn();
        askAgain();
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
      asks.answer(question, value);
      draw();
      options.onAnswers?.(ui.answers);
      if (!inside) return;
      const next = element.querySelector(".k-option") ?? element.querySelector("[data-act=continue]");
      (next ?? element).focus();
    },
    choose: (index) => {
      const { question } = ui.asked;
      const option = question?.options[index];
      if (option !== undefined) act.answer(question, option);
    },
    next: () => options.onNext?.(),
    unfold: (id) => {
      if (!ui.unfolded.delete(id)) ui.unfolded.add(id);
      draw();
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
    saveRun: async () => download(element, `${trace.scenario.name}-trace.json`, await options.file()),
    savePicture: () => downloadPicture(element, `${trace.scenario.name}-${cursor}`),
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
      const { blocks, host_blocks: stored } = replay.to(shown);
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
      else return leave();
      draw();
      if (!element.contains(active())) element.focus();
    },
  };

  const active = () => element.getRootNode().activeElement;

  /** The focus goes back to the host: JupyterLab's cell, else the page. */
  function leave() {
    const host = element.parentElement?.closest("[tabindex]");
    if (host) host.focus();
    else active()?.blur();
  }

  function saveAnswers(kind) {
    const name = `${trace.scenario.name ?? "run"}-answers.${kind}`;
    const facts = { scenario: trace.scenario.name, model: trace.model.name, answers: ui.answers };
    download(element, name, kind === "csv" ? asCsv(ui.answers) : JSON.stringify(facts, null, 2));
  }

  /** What a link says: enough to come back to this picture. */
  function place() {
    return { scenario: trace.scenario.name, method: trace.scenario.method, cursor };
  }

  function state() {
    return { cursor, ...kept(ui) };
  }

  const unguard = guarded(element);
  element.addEventListener("keydown", (event) => onKey(event, element, act));
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
    goto: (value) => goto(value, { from: "host" }),
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
        Object.assign(ui, rangeOf(changes), { lifted: false, reached: false });
        cursor = clamp(cursor, ui.low, ui.high);
      }
      move.stop();
      shown = cursor;
      draw();
    },
    destroy() {
      stop();
      move.stop();
      canvases?.stop();
      lines.stop();
      unguard();
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
  return trace.events.slice(cursor).find((event) => event.id)?.id;
}
