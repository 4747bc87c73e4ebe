/**
 * The race: two runs beside each other, in step and playing. Above, what a step spends: tokens that go
 * through the model, blocks that slide over the link; below, each reader's text as it arrives. All that
 * happens in a step was worked out in Python (kvlab/draw/race.py).
 *
 * @typedef {{words: object, step?: number, playing?: boolean, onStep?: (step: number) => void}} Options
 */
import { h, patch } from "./dom.js";
import { icon } from "./icons.js";
import { badge, marks } from "./owners.js";
import { watchTheme } from "./theme.js";
import { fill } from "./words.js";

/** Milliseconds of a step's parts: copies, the pass through the model, and a rest to read in. */
const COPY = 800;
const PASS = 700;
const REST = 500;
const HEAVY = 500; // more, for a bundle that is worth a look
const MOST_CHIPS = 24; // tokens that fly one by one
const STILL = "(prefers-reduced-motion: reduce)";
const KEYS = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1, Home: -Infinity, End: Infinity };

/** Show a race in `root`. Returns {element, goto, play, destroy, step}. */
export function mountRace(root, race, options) {
  const { words } = options;
  const t = (key, values = {}) => fill(words.race[key] ?? key, values, words);
  const number = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, words.grammar.thousands);
  const own = new Map(race.owners.map((owner) => [owner.id, owner]));
  const steps = Math.max(...race.sides.map((side) => side.steps.at(-1)?.step ?? 0));
  const element = document.createElement("div");
  element.className = "kvlab-player kvlab-race";
  element.tabIndex = 0;
  element.lang = words.language;
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", race.title);
  element.setAttribute("data-lm-suppress-shortcuts", "true");
  root.append(element);

  const bounded = (value) => Math.max(0, Math.min(steps, Math.round(value) || 0));
  let step = bounded(options.step ?? 0);
  let playing = false;
  let last = [];
  /** What moves now, and what is to be done when it has moved. */
  let moves = [];
  let timers = [];
  let timer = null;

  const at = (side, when) => side.steps.findLast((one) => one.step <= when);

  // The picture of a step.

  function draw(when = step) {
    const next = [
      h("p", { key: "live", class: "k-hidden", "aria-live": "polite" }, playing ? "" : spoken(when)),
      h("div", { key: "sides", class: "k-race-sides" }, race.sides.map((side, i) => lane(side, i, when))),
      controls(when),
      h("p", { key: "verdict", class: "k-race-verdict" }, when >= steps ? race.verdict : "\u00a0"),
    ];
    patch(element, last, next);
    last = next;
  }

  function lane(side, i, when) {
    const now = at(side, when);
    return h(
      "section",
      { key: i, class: "k-race-side", "data-side": i, "aria-label": side.name },
      h(
        "h3",
        null,
        side.name,
        when > (side.steps.at(-1)?.step ?? 0) && h("small", null, ` · ${t("ended", { step: side.steps.at(-1).step })}`),
      ),
      h(
        "div",
        { class: "k-race-machine" },
        h("div", { class: "k-race-model", "data-place": "model" }, t("model"), h("span", null, spent(now, when))),
        h("div", { class: "k-race-pools" }, pool("gpu", now?.pool, side.num_blocks), link(now, when), pool("cpu", now?.host, side.host_blocks)),
      ),
      h("div", { class: "k-race-bars" }, bar("computed", now), bar("moved", now)),
      h("div", { class: "k-race-readers" }, race.readers.map((id) => reader(side, id, when, now))),
    );
  }

  /** What went through the model in this very step. */
  function spent(now, when) {
    if (!now || now.step !== when) return "";
    return now.model
      .map(({ id, tokens, again }) => `${id} ${again ? t("again_new", { again, fresh: tokens - again }) : tokens}`)
      .join(", ");
  }

  function pool(kind, blocks, all) {
    if (!all) return null;
    const cells = blocks ?? Array(Math.min(all, 32)).fill(null);
    return h(
      "div",
      { class: "k-race-pool", "data-pool": kind },
      h("span", { class: "k-label" }, t(kind)),
      h(
        "div",
        { class: "k-race-blocks" },
        cells.map((id, n) => h("i", { key: n, class: "k-race-block", "data-block": `${kind}${n}`, ...marks(own.get(id)), "data-held": id !== null }, id ?? "")),
      ),
    );
  }

  function link(now, when) {
    const copies = now?.step === when ? now.copies : [];
    const says = copies.map((one) => t(one.way === "out" ? "out" : "back_in", { blocks: one.pairs.length })).join(", ");
    return h("div", { class: "k-race-link", "data-now": copies.length > 0 }, h("span", null, says || t("link")));
  }

  function bar(total, now) {
    const value = now?.[total] ?? 0;
    const share = race.most[total] ? value / race.most[total] : 0;
    return h(
      "div",
      { class: "k-race-bar", "data-total": total },
      h("span", null, t(total)),
      h("i", { style: `--share:${share}` }),
      h("b", null, number(value)),
    );
  }

  function reader(side, id, when, now) {
    const text = side.steps.filter((one) => one.step <= when).map((one) => one.says[id] ?? "").join("");
    const held = now?.step === when || now?.held[id] ? (now?.held[id] ?? 0) : 0;
    const ended = now?.ended.includes(id);
    return h(
      "p",
      { key: id, class: "k-race-reader", ...marks(own.get(id)), "data-held": held > 0, dir: "auto" },
      badge(own.get(id)),
      h("span", { class: "k-race-text", "aria-label": t("reads", { id }) }, text.trim() || (ended ? "" : "…")),
      !ended && h("i", { class: "k-race-caret" }),
      held > 0 && h("small", null, t("gap", { id, steps: held })),
    );
  }

  function controls(when) {
    const key = (name, to, title, act = () => goto(to)) =>
      h(
        "button",
        { key: name, type: "button", class: "k-button", "data-control": name, "aria-label": title, title, disabled: name !== "play" && bounded(to) === when, onclick: act },
        icon(name === "play" && playing ? "pause" : name),
      );
    const where = when ? t("at_step", { step: when, steps }) : t("at_start", { steps });
    return h(
      "div",
      { key: "controls", class: "k-race-controls" },
      key("first", 0, t("again")),
      key("play", 0, t(playing ? "pause" : "play"), () => (playing ? pause() : play())),
      key("forward", when + 1, t("at_step", { step: bounded(when + 1), steps }), () => advance()),
      h("input", {
        key: "slider",
        type: "range",
        min: 0,
        max: steps,
        step: 1,
        value: when,
        "aria-label": t("slider"),
        "aria-valuetext": where,
        oninput: (event) => goto(Number(event.target.value)),
      }),
      h("b", { key: "where" }, where),
    );
  }

  function spoken(when) {
    if (!when) return t("at_start", { steps });
    return race.sides
      .map((side) => {
        const now = at(side, when);
        const says = race.readers.map((id) => now?.says[id] && `${id}: ${now.says[id].trim()}`).filter(Boolean);
        return `${side.name}. ${spent(now, when)}. ${says.join(", ")}`;
      })
      .join(" ");
  }

  // Motion: between two steps, and never a third state.

  const find = (i, what) => element.querySelector(`[data-side="${i}"] ${what}`);

  /**
   * A token or a block goes along `places` of a side; it stays at the last until the step is drawn, and
   * nothing is filled before it has arrived. `spread` keeps a bundle's tokens apart in the middle.
   */
  function fly(i, places, id, wait, lasts, { block = false, spread = 0 } = {}) {
    const side = element.querySelector(`[data-side="${i}"]`);
    const home = side.getBoundingClientRect();
    const boxes = places.map((one) => one.getBoundingClientRect());
    const chip = document.createElement("i");
    const [wide, high] = block ? [boxes[0].width, boxes[0].height] : [24, 24];
    chip.className = block ? "k-race-chip k-race-block" : "k-race-chip";
    chip.style.cssText = `width: ${wide}px; height: ${high}px`;
    chip.textContent = id;
    const mark = { "data-moving": "", "data-held": "", ...marks(own.get(id)) };
    for (const name of Object.keys(mark)) chip.setAttribute(name, mark[name]);
    side.append(chip);
    const frames = boxes.map((box, at) => {
      const shift = at > 0 && at < boxes.length - 1 ? spread : 0;
      const x = box.x + box.width / 2 - home.x - wide / 2 + shift;
      return { transform: `translate(${x}px, ${box.y + box.height / 2 - home.y - high / 2}px)`, opacity: 1 };
    });
    frames[0].opacity = block ? 1 : 0.3;
    const flight = chip.animate(frames, { delay: wait, duration: lasts, easing: "ease-in-out", fill: "forwards" });
    // Before its turn a token is not there yet; a block that waits still lies where it was.
    chip.hidden = wait > 0;
    if (wait > 0) timers.push(setTimeout(() => (chip.hidden = false), wait));
    moves.push({ flight, chip });
  }

  /** Show how step `next` comes about; returns how long that takes, in milliseconds. */
  function moving(next) {
    if (matchMedia(STILL).matches) return 0;
    const now = race.sides.map((side) => at(side, next)).map((one) => (one?.step === next ? one : null));
    const copies = now.some((one) => one?.copies.length) ? COPY : 0;
    const most = Math.max(0, ...now.map((one) => Math.max(0, ...(one?.model ?? []).map(({ tokens }) => tokens))));
    const pass = PASS + (most > 1 ? HEAVY : 0);
    now.forEach((one, i) => {
      for (const { id, way, pairs } of one?.copies ?? []) {
        pairs.forEach(([from, to], n) => {
          const [a, b] = way === "out" ? ["gpu", "cpu"] : ["cpu", "gpu"];
          const ends = [find(i, `[data-block="${a}${from}"]`), find(i, `[data-block="${b}${to}"]`)];
          const each = COPY / pairs.length;
          if (ends.every(Boolean)) fly(i, ends, id, n * each, each, { block: true });
        });
      }
      for (const { id, tokens } of one?.model ?? []) {
        const from = element.querySelectorAll(`[data-side="${i}"] .k-race-reader`)[race.readers.indexOf(id)];
        if (!from) continue;
        const chips = Math.min(tokens, MOST_CHIPS);
        const blocks = [...element.querySelectorAll(`[data-side="${i}"] .k-race-pools [data-block^=gpu]`)];
        const home = blocks.filter((_, n) => one.pool[n] === id);
        for (let n = 0; n < chips; n += 1) {
          const goal = home[tokens === 1 ? home.length - 1 : Math.floor((n * home.length) / chips)];
          const way = [from.querySelector(".k-badge"), find(i, "[data-place=model]"), goal].filter(Boolean);
          fly(i, way, id, copies, pass, { spread: (n - (chips - 1) / 2) * Math.min(14, 130 / chips) });
        }
      }
    });
    return copies + pass;
  }

  function settle() {
    for (const one of [timer, ...timers]) clearTimeout(one);
    timers = [];
    for (const { flight, chip } of moves) {
      flight.cancel();
      chip.remove();
    }
    moves = [];
  }

  function show(when, tell = true) {
    step = bounded(when);
    draw();
    if (tell) options.onStep?.(step);
  }

  /** To a step at once. */
  function goto(when, tell = true) {
    settle();
    playing = false;
    show(when, tell);
  }

  /** One step on, seen to happen; the next press ends it at once. */
  function advance() {
    const ends = moves.length > 0;
    settle();
    if (ends) show(step + 1);
    if (step >= steps) return pause();
    const lasts = moving(step + 1);
    timer = setTimeout(() => {
      settle();
      show(step + 1);
      if (playing && step < steps) timer = setTimeout(advance, REST);
      else if (playing) pause();
    }, lasts);
  }

  function play() {
    if (step >= steps) show(0);
    playing = true;
    draw();
    advance();
  }

  function pause() {
    settle();
    playing = false;
    draw();
  }

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.key === " " && event.target === element) {
      event.preventDefault();
      event.stopPropagation();
      return playing ? pause() : play();
    }
    if (!Object.hasOwn(KEYS, event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    if (KEYS[event.key] === 1) advance();
    else goto(step + KEYS[event.key]);
  }
  element.addEventListener("keydown", onKey);
  const unwatch = watchTheme(element, (theme) => element.setAttribute("data-theme", theme));
  draw();
  // It opens playing where somebody sees it, and where motion is welcome.
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((one) => one.isIntersecting)) return;
    seen.disconnect();
    if (options.playing && step === 0 && !matchMedia(STILL).matches) play();
  }, { threshold: 0.6 });
  seen.observe(element);

  return {
    element,
    goto: (value) => bounded(value) !== step && goto(value, false),
    play,
    get step() {
      return step;
    },
    destroy() {
      settle();
      seen.disconnect();
      unwatch();
      element.remove();
    },
  };
}

/** anywidget's entry: one view of a race. */
function render({ model, el }) {
  let race = null;
  let timer = null;
  const build = () => {
    const step = race?.step ?? model.get("step");
    race?.destroy();
    race = mountRace(el, model.get("race"), {
      words: model.get("words"),
      step,
      playing: true,
      onStep: (at) => {
        clearTimeout(timer);
        timer = setTimeout(() => {
          model.set("step", at);
          model.save_changes();
        }, 250);
      },
    });
  };
  const listeners = { "change:race": build, "change:step": () => race?.goto(model.get("step")) };
  for (const name of Object.keys(listeners)) model.on(name, listeners[name]);
  build();
  return () => {
    clearTimeout(timer);
    for (const name of Object.keys(listeners)) model.off(name, listeners[name]);
    race?.destroy();
  };
}

export default { render };
