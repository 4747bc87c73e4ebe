/**
 * Two runs of one scenario on one axis of steps: one slider drives both, the fork is marked, and a
 * run that has ended stays as it was. The pictures are the player's own views.
 *
 * @typedef {{
 *   words: object, title?: string, fork?: number, step?: number, note?: string,
 *   table?: {caption: string, head: string[], rows: string[][], note: string},
 *   onStep?: (step: number) => void,
 * }} Options
 *   fork: the step from whose start on the second run is changed; 0: nowhere
 */
import { isDense, isLong, painter } from "./canvas.js";
import { h, patch } from "./dom.js";
import { highlighter } from "./highlight.js";
import { icon } from "./icons.js";
import { prepare, stepIndex, touched } from "./model.js";
import { replay as replayOf } from "./replay.js";
import { watchTheme } from "./theme.js";
import { MANY, atHand } from "./views/many.js";
import { memory } from "./views/pool.js";
import { requests } from "./views/requests.js";
import { sheet } from "./views/sheets.js";
import { overview, time } from "./views/time.js";
import { fill } from "./words.js";

const KEYS = {
  ArrowRight: 1,
  ArrowLeft: -1,
  PageDown: 1,
  PageUp: -1,
  Home: -Infinity,
  End: Infinity,
};

/** Show two traces in `root`. Returns {element, goto, update, destroy, step}. */
export function mountPair(root, packed, options) {
  const { words } = options;
  const models = packed.map((one) => prepare(one, words));
  const traces = models.map(({ trace }) => trace);
  const t = (key, values = {}) => fill(words.pair[key] ?? key, values, words);
  const element = document.createElement("div");
  element.className = "kvlab-player kvlab-pair";
  element.tabIndex = 0;
  element.lang = words.language;
  element.setAttribute("role", "group");
  element.setAttribute("data-lm-suppress-shortcuts", "true");
  root.append(element);

  const shown = { note: "", table: null, fork: 0, title: "", ...options };
  const steps = Math.max(...traces.map((trace) => trace.steps.at(-1)?.step ?? 0));
  const axis = Math.max(...traces.map((trace) => trace.steps.length));
  let step = bounded(options.step ?? shown.fork);
  let last = [];
  const runs = models.map((model, i) => run(model, ["before", "after"][i]));
  const long = runs.some((one) => isLong(one.trace, one.model.ids));
  element.setAttribute("aria-label", t("label", { title: shown.title || traces[0].scenario.title }));

  function bounded(value) {
    return Math.max(0, Math.min(steps, Math.round(value) || 0));
  }

  /** One of the two: its replay, what is open in it, and what a reader may do there. */
  function run(model, name) {
    const { trace } = model;
    const place = {
      name,
      trace,
      model,
      replay: replayOf(trace),
      painters: [],
      ui: { axis, ahead: true, unfolded: new Set(), low: 0, high: trace.events.length, find: "", scrolled: 0, selected: null, sheet: null },
      cursor: () => trace.steps.findLast((one) => one.step <= step)?.end ?? 0,
    };
    const { ui } = place;
    const set = (changes) => {
      Object.assign(ui, changes);
      draw();
    };
    place.act = {
      goto: (cursor) => goto(trace.steps[stepIndex(trace, cursor)]?.step ?? 0),
      open: (what) => set({ open: what, sheet: "block" }),
      close: () => set({ sheet: null }),
      select: (id) => set({ selected: ui.selected === id ? null : id }),
      eventOf: (id) => set({ selected: id }),
      find: (text) => set({ find: text, scrolled: 0 }),
      scrolled: (top) => set({ scrolled: top }),
      openAt: (event, kind) => {
        const id = place.pools?.blockAt(event.currentTarget, event) ?? null;
        if (id !== null) place.act.open(kind === "host" ? { host: id } : { block: id });
      },
      nameAt: () => {},
    };
    return place;
  }

  /** What the step brought, in one sentence. */
  function says({ trace, model }) {
    if (!step) return t("nothing_yet");
    const own = trace.steps.find((one) => one.step === step);
    const end = trace.steps.at(-1)?.step ?? 0;
    if (!own) return t("ended", { last: end });
    return model.say(trace.events[own.told]);
  }

  function spoken([one, other]) {
    if (!step) return t("at_start", { steps });
    if (one === other) return t("same", { step, one });
    return t("apart", { step, one, other, before: t("before"), after: t("after") });
  }

  function view() {
    const sentences = runs.map(says);
    return [
      h("p", { key: "live", class: "k-hidden", "aria-live": "polite", "aria-atomic": "true", dir: "auto" }, spoken(sentences)),
      h(
        "div",
        { key: "body", class: "k-pair-body" },
        shown.note && h("p", { key: "note", class: "k-banner" }, icon("damaged"), shown.note),
        h("h2", { key: "title", class: "k-title" }, shown.title || traces[0].scenario.title),
        controls(),
        runs.map(times),
        runs.map((one, i) => picture(one, sentences[i])),
        shown.table && differences(shown.table),
      ),
    ];
  }

  function controls() {
    const key = (name, to, iconName) => {
      const off = bounded(to) === step;
      return h(
        "button",
        {
          key: name,
          type: "button",
          class: "k-button",
          "data-act": name,
          "aria-label": t(name),
          title: t(name),
          "aria-disabled": off ? "true" : undefined,
          onclick: off ? null : () => goto(to),
        },
        iconName ? icon(iconName) : "◆",
      );
    };
    const where = step ? t("at_step", { step, steps }) : t("at_start", { steps });
    const ends = runs.map(({ trace }) => trace.steps.at(-1)?.step ?? 0);
    const at = (value) => `--at:${value / Math.max(1, steps)}`;
    return h(
      "div",
      { key: "controls", class: "k-pair-controls", role: "group", "aria-label": t("controls") },
      h(
        "div",
        { class: "k-keys" },
        key("to_start", 0, "first"),
        key("back", step - 1, "back"),
        key("forward", step + 1, "forward"),
        key("to_end", steps, "last"),
        shown.fork > 0 && key("to_fork", shown.fork, null),
      ),
      h(
        "div",
        { class: "k-slider", style: at(step) },
        h("i", { class: "k-track" }),
        h(
          "span",
          { "aria-hidden": "true" },
          shown.fork > 0 && h("i", { key: "fork", class: "k-mark", "data-mark": "preempted", style: at(shown.fork) }),
          ends.map((end, i) => h("i", { key: `end${i}`, class: "k-mark", "data-mark": "finished", style: at(end) })),
        ),
        h("input", {
          key: "input",
          type: "range",
          min: 0,
          max: steps,
          step: 1,
          value: step,
          "aria-label": t("slider"),
          "aria-valuetext": where,
          oninput: (event) => goto(Number(event.target.value)),
        }),
      ),
      h("b", { key: "where", class: "k-pair-where" }, where),
    );
  }

  /** The lanes of one run, in the columns of both. */
  function times({ name, trace, model, ui, act, cursor }, i) {
    return h(
      "div",
      { key: `time ${name}`, class: "k-pair-time", "data-run": name, style: `--part:${trace.steps.length / axis}` },
      h(
        "h3",
        { class: "k-pair-name" },
        t(name),
        i > 0 && shown.fork > 0 && h("span", null, ` · ${t("fork_here", { step: shown.fork })}`),
      ),
      ofRun(name, (long ? overview : time)(model, cursor(), ui, act)),
    );
  }

  /** A part of the player's with the run in its name: of each part there are two on the page. */
  function ofRun(name, node) {
    const label = node?.props["aria-label"];
    return label ? { ...node, props: { ...node.props, "aria-label": `${label}: ${t(name)}` } } : node;
  }

  function picture({ name, model, replay, ui, act, cursor }, says) {
    const at = cursor();
    const state = replay.to(at);
    const now = touched(model, at - 1);
    const ids = model.ids.length > MANY ? atHand(model, now, ui) : model.ids;
    return h(
      "section",
      { key: name, class: "k-pair-run", "data-run": name, "aria-label": t(name) },
      h("h3", { class: "k-pair-name" }, t(name)),
      h("p", { class: "k-pair-says", dir: "auto" }, says),
      ofRun(name, memory(model, state, now, act)),
      ofRun(name, requests(model, state, now, ids, ui, act)),
      ofRun(name, sheet(model, state, at, ui, act)),
    );
  }

  function differences({ caption, head, rows, note }) {
    return h(
      "div",
      { key: "differences", class: "k-wide k-pair-differences", role: "region", tabindex: "0", "aria-label": caption },
      // The roles keep a table one where a narrow place lays its rows out in another way.
      h(
        "table",
        { class: "k-table", role: "table" },
        h("caption", null, caption),
        h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head.map((name) => h("th", { scope: "col", role: "columnheader" }, name)))),
        h(
          "tbody",
          { role: "rowgroup" },
          rows.map(([first, ...rest]) =>
            h(
              "tr",
              { key: first, role: "row" },
              h("th", { scope: "row", role: "rowheader", dir: "auto" }, first),
              rest.map((value) => h("td", { role: "cell", dir: "auto" }, value)),
            ),
          ),
        ),
      ),
      note && h("p", { class: "k-none" }, note),
    );
  }

  function draw() {
    const next = view();
    patch(element, last, next);
    last = next;
    for (const { name, trace, model, replay, cursor, painters, highlight } of runs) {
      const at = cursor();
      for (const one of painters) one.paint(replay.to(at), touched(model, at - 1));
      highlight?.again();
      const fork = trace.steps.findIndex((own) => shown.fork > 0 && own.step === shown.fork);
      partOf("time", name).querySelectorAll(".k-step")[fork]?.setAttribute("data-fork", "");
    }
  }

  const partOf = (what, name) => element.querySelector(`.k-pair-${what}[data-run=${name}]`);

  function goto(value, from = "user") {
    const goal = bounded(value);
    if (goal === step) return;
    step = goal;
    draw();
    follow();
    if (from === "user") options.onStep?.(step);
  }

  const scrollers = () => [...element.querySelectorAll("[data-scroll=time]")];

  /** Both time pictures show the same steps, the current one among them. */
  function follow() {
    for (const box of scrollers()) {
      const now = box.querySelector(".k-step[data-now]");
      if (!now || box.scrollWidth <= box.clientWidth) continue;
      const label = box.querySelector(".k-lab")?.offsetWidth ?? 0;
      const left = now.offsetLeft - label;
      const room = box.clientWidth - label - now.offsetWidth;
      if (left < box.scrollLeft || left > box.scrollLeft + room) box.scrollLeft = Math.max(0, left - room / 2);
    }
  }

  function together(event) {
    if (!event.target.matches?.("[data-scroll=time]")) return;
    for (const box of scrollers()) {
      if (box !== event.target && box.scrollLeft !== event.target.scrollLeft) box.scrollLeft = event.target.scrollLeft;
    }
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    if (event.key === "Escape") {
      for (const { ui } of runs) ui.sheet = null;
      draw();
    }
    const field = event.target.tagName === "INPUT" && event.target.type !== "range";
    if (field || !Object.hasOwn(KEYS, event.key)) return;
    // The slider would move by itself, the page and the table would scroll.
    event.preventDefault();
    goto(step + KEYS[event.key]);
  }

  element.addEventListener("keydown", onKey);
  element.addEventListener("scroll", together, true);
  for (const kind of ["keypress", "keyup"]) element.addEventListener(kind, (event) => event.stopPropagation());
  draw();
  for (const one of runs) {
    const { name, model, trace, replay, cursor } = one;
    one.highlight = highlighter(partOf("run", name), model, () => replay.to(cursor()));
    const size = trace.pool.block_size;
    if (isDense(trace.pool.num_blocks, size) || isDense(trace.pool.host_blocks, size)) {
      one.pools = painter(partOf("run", name), model, draw);
      one.painters.push(one.pools);
    }
    if (long) one.painters.push(painter(partOf("time", name), model, draw));
  }
  const unwatch = watchTheme(element, (theme) => {
    if (element.getAttribute("data-theme") === theme) return;
    // Canvases read their colours again where their own place has another theme.
    for (const part of [element, ...element.querySelectorAll(".k-pair-run, .k-pair-time")]) {
      part.setAttribute("data-theme", theme);
    }
    draw();
  });
  follow();

  return {
    element,
    goto: (value) => goto(value, "host"),
    get step() {
      return step;
    },
    update(changes) {
      Object.assign(shown, changes);
      draw();
    },
    destroy() {
      for (const { painters } of runs) for (const one of painters) one.stop();
      unwatch();
      element.remove();
    },
  };
}
