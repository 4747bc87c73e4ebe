/** The player's module: an anywidget's `render`, and the parts for tests and static pages. */
import english from "../../../trace/words/en.json";
import css from "./player.css";
import { fold, stateAt } from "./fold.js";
import { mountPlayer } from "./player.js";
import { narrate as narrateWith } from "./words.js";

const WORDS = { en: english };
const FORMAT = "kvlab-trace";
const VERSION = 1;

const wordsFor = (language) => WORDS[language] ?? WORDS.en;

/** The sentence for an event. */
export const narrate = (event, language = "en") => narrateWith(event, wordsFor(language));

export { fold, stateAt };

/** Show a trace in `root` with a style of its own; a trace that does not fit becomes a card. */
export function mount(root, trace, options = {}) {
  if (options.style !== false) {
    const style = document.createElement("style");
    style.textContent = css;
    root.append(style);
  }
  const words = wordsFor(options.language);
  try {
    const fault = misfit(trace);
    if (fault) throw new Error(fault);
    return mountPlayer(root, trace, { ...options, words });
  } catch (error) {
    return card(root, words, error);
  }
}

/** What keeps a trace from being shown, or null. */
function misfit(trace) {
  if (trace?.format !== FORMAT) return "format";
  if (trace.version !== VERSION) return `version ${trace.version}`;
  for (const name of ["scenario", "run", "model", "pool", "requests", "events", "steps"]) {
    if (typeof trace[name] !== "object" || trace[name] === null) return name;
  }
  return null;
}

/** One clear card in the place of a picture that could not be drawn. */
function card(root, words, error) {
  const element = document.createElement("div");
  element.className = "kvlab-player k-failed";
  element.setAttribute("role", "alert");
  const title = document.createElement("strong");
  title.textContent = words.player.failed;
  const detail = document.createElement("p");
  detail.textContent = String(error?.message ?? error);
  element.append(title, detail);
  root.append(element);
  return { element, cursor: 0, goto() {}, update() {}, destroy: () => element.remove() };
}

/** anywidget's entry: one view of one model. */
function render({ model, el }) {
  let player = null;
  let timer = null;
  const send = (cursor) => {
    clearTimeout(timer);
    // The kernel is told where the reader has come to rest, not every event passed on the way.
    timer = setTimeout(() => {
      model.set("cursor", cursor);
      model.save_changes();
    }, 250);
  };
  const build = () => {
    player?.destroy();
    player = mount(el, model.get("trace"), {
      style: false,
      title: model.get("title"),
      language: model.get("language"),
      start: model.get("start"),
      stop: model.get("stop"),
      cursor: model.get("cursor"),
      onCursor: send,
    });
  };
  const listeners = {
    "change:trace": build,
    "change:language": build,
    "change:cursor": () => player.goto(model.get("cursor")),
    "change:title": () => player.update({ title: model.get("title") }),
    "change:start": () => ranged(),
    "change:stop": () => ranged(),
  };
  const ranged = () => player.update({ start: model.get("start"), stop: model.get("stop") });
  for (const name of Object.keys(listeners)) model.on(name, listeners[name]);
  build();
  return () => {
    clearTimeout(timer);
    for (const name of Object.keys(listeners)) model.off(name, listeners[name]);
    player.destroy();
  };
}

export default { render };
