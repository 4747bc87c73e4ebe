/**
 * One player in one element. It owns the cursor and what is open; the picture is a function of them.
 *
 * @typedef {{
 *   words: object, title?: string, cursor?: number, start?: number, stop?: number | null,
 *   onCursor?: (cursor: number) => void, style?: boolean,
 * }} Options
 *   start and stop: the range of a figure, as cursors; stop null or below 0: to the end
 */
import { patch } from "./dom.js";
import { fold } from "./fold.js";
import { nextPreemption, prepare, stepCursor, stepIndex } from "./model.js";
import { watchTheme } from "./theme.js";
import { view } from "./view.js";

const MILLISECONDS_PER_EVENT = 1400;

/** Show a trace in `root`. Returns {goto, update, destroy, cursor}. */
export function mountPlayer(root, trace, options) {
  const element = document.createElement("div");
  element.className = "kvlab-player";
  element.tabIndex = 0;
  element.setAttribute("role", "group");
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
    playing: false,
    speed: 1,
    sheet: null,
    lifted: false,
    ...rangeOf(options),
  };
  let cursor = clamp(options.cursor ?? ui.low, ui.low, ui.high);
  let timer = null;
  let last = [];
  let shownStep = null;

  element.setAttribute("aria-label", model.t("player", { title: ui.title || trace.scenario.title }));

  function draw() {
    const next = view(model, replay.to(cursor), cursor, ui, act);
    patch(element, last, next);
    last = next;
    const step = stepIndex(trace, cursor);
    if (step !== shownStep) follow(element);
    shownStep = step;
  }

  function goto(value, from = "user") {
    const goal = clamp(Math.round(value), ui.low, ui.high);
    if (goal === cursor) return;
    cursor = goal;
    draw();
    if (from === "user") options.onCursor?.(cursor);
  }

  function lift() {
    Object.assign(ui, { lifted: true, low: 0, high: events });
    draw();
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
      if (cursor < ui.high) return tick();
      stop();
      draw();
    }, MILLISECONDS_PER_EVENT / ui.speed);
  }

  const move = (to) => () => {
    if (ui.playing) stop();
    goto(to());
    draw();
  };
  const act = {
    first: move(() => ui.low),
    last: move(() => ui.high),
    back: move(() => cursor - 1),
    forward: move(() => cursor + 1),
    stepBack: move(() => stepCursor(trace, cursor, -1)),
    stepForward: move(() => stepCursor(trace, cursor, 1)),
    preemption: move(() => {
      const found = nextPreemption(trace, cursor);
      return found !== null && found <= ui.high ? found : cursor;
    }),
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
        ui.playing = true;
        tick();
      }
      draw();
    },
    speed: (value) => {
      ui.speed = value;
      draw();
    },
    lift,
    sheet: (name) => {
      ui.sheet = ui.sheet === name ? null : name;
      draw();
    },
    close: () => {
      if (!ui.sheet) return;
      ui.sheet = null;
      draw();
      if (!element.contains(element.getRootNode().activeElement)) element.focus();
    },
  };

  element.addEventListener("keydown", (event) => onKey(event, element, act));
  for (const kind of ["keypress", "keyup"]) {
    element.addEventListener(kind, (event) => event.stopPropagation());
  }
  draw();
  const unwatch = watchTheme(element, (theme) => element.setAttribute("data-theme", theme));

  return {
    element,
    goto: (value) => goto(value, "host"),
    get cursor() {
      return cursor;
    },
    /** New range or title from the host. */
    update(changes) {
      if ("title" in changes) ui.title = changes.title;
      if ("start" in changes || "stop" in changes) {
        Object.assign(ui, rangeOf(changes), { lifted: false });
        cursor = clamp(cursor, ui.low, ui.high);
      }
      draw();
    },
    destroy() {
      stop();
      unwatch();
      element.remove();
    },
  };
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

const KEYS = {
  ArrowRight: "forward",
  ArrowLeft: "back",
  Home: "first",
  End: "last",
  PageDown: "stepForward",
  PageUp: "stepBack",
  n: "preemption",
  N: "preemption",
};

/** The player's keys. No plain key leaves the player while it has the focus. */
function onKey(event, element, act) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  event.stopPropagation();
  const target = event.target;
  const name = target.tagName;
  if (name === "SELECT" || (name === "INPUT" && target.type !== "range")) return;
  const handled = () => event.preventDefault();
  if (event.shiftKey && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
    handled();
    act[event.key === "ArrowRight" ? "stepForward" : "stepBack"]();
  } else if (Object.hasOwn(KEYS, event.key)) {
    handled();
    act[KEYS[event.key]]();
  } else if (event.key === " ") {
    // On a button the space bar presses it.
    if (name === "BUTTON") return;
    handled();
    act.play();
  } else if (event.key === "?") {
    handled();
    act.sheet("help");
  } else if (event.key === "Escape") {
    act.close();
  } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
    if (name === "INPUT") return handled();
    if (!target.classList.contains("k-chip")) return;
    handled();
    const chips = [...element.querySelectorAll(".k-requests .k-chip")];
    chips[chips.indexOf(target) + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
  }
}
