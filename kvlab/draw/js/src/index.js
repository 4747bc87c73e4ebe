/** The player's module: an anywidget's `render`, and the parts for tests and static pages. */
import { heartbeat } from "./heartbeat.js";
import { placeIn } from "./link.js";
import { mountPair } from "./pair.js";
import { mountPlayer } from "./player.js";
import { prepare } from "./model.js";
import { replay } from "./replay.js";
import { inflated, unpacked } from "./unpack.js";

const FORMAT = "kvlab-picture";
const VERSION = 1;

export { inflated, mountPair, placeIn, prepare, replay };

/**
 * Show a packed trace (kvlab/draw/packed.py) in `root`; one that does not fit becomes a card.
 * `options.words` is a catalogue (kvlab/trace/words), `options.css` the player's style where the page
 * does not have it yet.
 */
export function mount(root, trace, options = {}) {
  if (options.css) {
    const style = document.createElement("style");
    style.textContent = options.css;
    root.append(style);
  }
  try {
    const fault = misfit(trace) ?? (options.words?.player ? null : "words");
    if (fault) throw new Error(fault);
    return mountPlayer(root, trace, options);
  } catch (error) {
    return card(root, options.words, error);
  }
}

/** What keeps a trace from being shown, or null. */
function misfit(trace) {
  if (trace?.format !== FORMAT) return "format";
  if (trace.version !== VERSION) return `version ${trace.version}`;
  return null;
}

/** One clear card in the place of a picture that could not be drawn. */
function card(root, words, error) {
  const element = document.createElement("div");
  element.className = "kvlab-player k-failed";
  element.setAttribute("role", "alert");
  const title = document.createElement("strong");
  title.textContent = words?.player?.failed ?? "The player cannot show this run.";
  const detail = document.createElement("p");
  detail.textContent = String(error?.message ?? error);
  element.append(title, detail);
  for (const old of root.querySelectorAll(":scope > .kvlab-player")) old.remove();
  root.append(element);
  const nothing = () => {};
  return { element, cursor: 0, answers: [], state: {}, goto: nothing, update: nothing, destroy: () => element.remove() };
}

/** anywidget's entry: one view of one model. */
function render({ model, el }) {
  let player = null;
  let closed = false;
  let offline = false;
  let built = 0;
  const changes = new Map();
  let timer = null;
  /** The kernel is told where the reader has come to rest, not every event passed on the way. */
  const tell = (name, value) => {
    changes.set(name, value);
    clearTimeout(timer);
    timer = setTimeout(() => {
      for (const [trait, last] of changes) model.set(trait, last);
      changes.clear();
      model.save_changes();
    }, 250);
  };
  const build = async () => {
    const turn = (built += 1);
    let trace = null;
    let fault = null;
    try {
      trace = await unpacked(model.get("packed"));
    } catch (error) {
      fault = error;
    }
    if (closed || turn !== built) return;
    const before = player?.state;
    player?.destroy();
    player = mount(el, fault ? { format: FORMAT, version: String(fault.message) } : trace, {
      words: model.get("words"),
      title: model.get("title"),
      start: model.get("start"),
      stop: model.get("stop"),
      state: before && { ...before, lifted: false, reached: false, selected: null, cursor: undefined },
      cursor: model.get("cursor"),
      predict: model.get("predict"),
      hold: model.get("hold"),
      covered: model.get("covered"),
      answers: model.get("answers"),
      presenter: model.get("presenter"),
      guide: model.get("guide"),
      onNext: () => model.send({ type: "next" }),
      link: model.get("link"),
      onCursor: (cursor) => tell("cursor", cursor),
      onPredict: (on) => tell("predict", on),
      onAnswers: (answers) => tell("answers", answers),
    });
    player.update({ offline });
  };
  const hear = (...names) => () => {
    const heard = {};
    for (const name of names) heard[name] = model.get(name);
    player?.update(heard);
  };
  const listeners = {
    "change:packed": build,
    "change:words": build,
    "change:cursor": () => player?.goto(model.get("cursor")),
    "change:start": hear("start", "stop"),
    "change:stop": hear("start", "stop"),
  };
  for (const name of ["title", "predict", "covered", "presenter", "guide", "link", "answers"]) {
    listeners[`change:${name}`] = hear(name);
  }
  for (const name of Object.keys(listeners)) model.on(name, listeners[name]);
  build();
  const quiet = heartbeat(model, el, (silent) => {
    offline = silent;
    player?.update({ offline });
  });
  return () => {
    closed = true;
    clearTimeout(timer);
    quiet();
    for (const name of Object.keys(listeners)) model.off(name, listeners[name]);
    player?.destroy();
    player = null;
  };
}

/** One view of a pair of runs; its model has two traces. */
function renderPair({ model, el }) {
  let pair = null;
  let closed = false;
  let built = 0;
  let timer = null;
  const build = async () => {
    const turn = (built += 1);
    let fault = null;
    let traces = [];
    try {
      traces = await Promise.all([unpacked(model.get("packed")), unpacked(model.get("packed_other"))]);
      fault = misfit(traces[0]) ?? misfit(traces[1]);
    } catch (error) {
      fault = String(error.message);
    }
    if (closed || turn !== built) return;
    pair?.destroy();
    if (fault) {
      pair = card(el, model.get("words"), fault);
      return;
    }
    pair = mountPair(el, traces, {
      words: model.get("words"),
      title: model.get("title"),
      fork: model.get("fork"),
      step: model.get("step"),
      note: model.get("note"),
      table: model.get("table"),
      onStep: (step) => {
        clearTimeout(timer);
        timer = setTimeout(() => {
          model.set("step", step);
          model.save_changes();
        }, 250);
      },
    });
  };
  const listeners = {
    "change:packed_other": build,
    "change:words": build,
    "change:step": () => pair?.goto(model.get("step")),
  };
  for (const name of Object.keys(listeners)) model.on(name, listeners[name]);
  build();
  return () => {
    closed = true;
    clearTimeout(timer);
    for (const name of Object.keys(listeners)) model.off(name, listeners[name]);
    pair?.destroy();
    pair = null;
  };
}

/** anywidget's entry: a player, or a pair where the model has a second trace. */
const renderEither = (context) =>
  (context.model.get("packed_other") === undefined ? render : renderPair)(context);

export default { render: renderEither };
