/** The page of the lab: a form, a run in this tab, the player. */
import { engine, Stopped } from "./engine.js";
import { packed, packedJson, unpacked } from "./files.js";
import form from "./form.js";
import { mount, mountPair } from "./player.js";
import { settings } from "./settings.js";

const asked = new URLSearchParams(`${location.search.slice(1)}&${location.hash.slice(1)}`);
const language = chosenLanguage();
const [words, own] = await packedJson(`words-${language}.json`);
const t = (key, values = {}) => own[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);

engine.tell = loading;
const lab = { scenario: {}, preset: "", ran: null, source: {}, player: null, busy: false, resting: "" };

// The page's parts.

const status = h("p", { role: "status", class: "lab-status" });
const bar = h("progress", { hidden: "" });
const stop = h("button", { type: "button", class: "lab-stop", hidden: "" }, t("stop"));
const card = h("p", { role: "alert", class: "lab-card", hidden: "" });
const note = h("p", { class: "lab-note" });
const copy = h("button", { type: "button", class: "lab-copy" }, t("copy_link"));
const stage = h("section", { class: "lab-stage" });
const ask = h("button", { type: "button", class: "lab-ask" }, words.what_if.title);
const compare = h("button", { type: "button", class: "lab-compare" }, t("compare"));
const change = h("form", { class: "lab-change", hidden: "" });
const beside = h("section", { class: "lab-pair", tabindex: "-1" });
const fields = h("section", { class: "lab-form" });
document.documentElement.lang = language;
document.title = t("title");
document.querySelector("main").replaceChildren(
  h("nav", {}, h("h1", {}, t("title")), h("a", { href: "index.html" }, t("lessons")), copy),
  fields,
  h("div", { class: "lab-live" }, status, bar, stop, note),
  card,
  stage,
  h("div", { class: "lab-more" }, ask, compare, change),
  beside,
);

// The form speaks to a model, as it does in a notebook.

const listeners = new Map();
const spec = settings.specs[language];
const given = { spec, given: {}, busy: false, faults: {} };
const model = {
  get: (name) => given[name],
  on: (name, hear) => listeners.set(name, hear),
  off: (name) => listeners.delete(name),
  send: (message) => heard[message.type]?.(message),
};
const give = (name, value) => {
  given[name] = value;
  listeners.get(`change:${name}`)?.();
};
const heard = {
  edit: ({ scenario }) => edited(scenario),
  run: ({ scenario }) => {
    edited(scenario);
    run(lab.scenario);
  },
  preset: ({ name }) => openPreset(name),
  file: ({ name, size, text }) => openFile(name, size, text),
  want: ({ what }) => save(what),
};

form.render({ model, el: fields });
stop.addEventListener("click", () => {
  engine.stop();
  status.textContent = t("stopping");
});
copy.addEventListener("click", copyLink);

ask.addEventListener("click", offer);
compare.addEventListener("click", () => showPair("compare", [lab.trace.scenario, language]));

// What the form calls.

/** What was changed is no longer what its name and its lesson say. */
function edited(scenario) {
  const changed = JSON.stringify(scenario) !== JSON.stringify(lab.source.scenario);
  const { lesson, ...rest } = scenario;
  const renamed = shipped(scenario.name) ? { ...rest, name: "mine", title: "" } : rest;
  lab.scenario = changed ? renamed : scenario;
  lab.preset = changed ? "" : lab.source.preset;
  tell();
}

const shipped = (name) => Object.hasOwn(settings.scenarios, name);

async function openPreset(name) {
  engine.stop();
  const preset = shipped(name) ? name : settings.first;
  put(settings.scenarios[preset], preset);
  show(await packedJson(`runs/${preset}.json`), t("recorded"));
  lab.ran = lab.scenario;
  tell();
}

async function openFile(name, size, text) {
  if (size > spec.largest_file) {
    fail(t("too_large_file", { size: number(size), most: number(spec.largest_file) }));
    return;
  }
  const opened = await working(() => engine.ask("open", [name, text]));
  if (!opened) return;
  put(opened.scenario, "");
  if (opened.trace) {
    show(opened, name);
    lab.ran = lab.scenario;
    tell();
  } else {
    run(lab.scenario);
  }
}

function save(what) {
  const document = what === "trace" ? { ...lab.trace, recorded: true } : lab.scenario;
  const name = what === "trace" ? `${document.scenario.name}-trace` : document.name;
  listeners.get("msg:custom")?.({ type: "file", name: `${name}.json`, text: JSON.stringify(document, null, what === "trace" ? 0 : 2) });
}

/** At the field that a sentence names by its place, `engine.num_blocks` or `requests.B.n`. */
function mark(text) {
  const [, key] = text.match(/\bengine\.(\w+)/) ?? [];
  if (key) return give("faults", { [key]: text });
  const asked = lab.scenario.requests;
  const at = Array.isArray(asked) ? asked.findIndex((one) => text.includes(`requests.${one?.id}.`)) : -1;
  if (at < 0) return undefined;
  const name = text.split(`requests.${asked[at].id}.`)[1].match(/^\w+/)?.[0];
  return give("faults", { [`requests.${at}.${name}`]: text });
}

function put(scenario, preset) {
  Object.assign(lab, { scenario, preset, ran: null, source: { scenario, preset } });
  fail("");
  give("given", { scenario, preset, at: (given.given.at ?? 0) + 1 });
  tell();
}

// Running.

async function run(scenario) {
  give("faults", {});
  const made = await working(() => engine.ask("run", [scenario], progress));
  if (!made) return;
  lab.ran = scenario;
  window.kvlab.shown = made.summary;
  const { device_name: device } = made.trace.run;
  const said = t("ran", { device, steps: made.trace.steps.length, seconds: number(made.summary.seconds, 2) });
  show(made, made.card_lost ? `${t("card_lost", { text: made.card_lost })} ${said}` : said);
  tell();
}

/** What the work gives; nothing where it was stopped or refused: the card says so. */
async function working(work) {
  if (lab.busy) return null;
  fail("");
  busy(true);
  try {
    return await work();
  } catch (error) {
    if (error instanceof Stopped) lab.resting = t("stopped");
    else if (error.broken) fail(t("broken", { text: error.message }));
    else {
      fail(t("refused", { text: error.message }));
      mark(error.message);
    }
    return null;
  } finally {
    busy(false);
  }
}

function busy(is) {
  lab.busy = is;
  give("busy", is);
  stop.hidden = bar.hidden = !is;
  bar.removeAttribute("value");
  status.textContent = is ? t("starting") : lab.resting;
}

function loading({ loaded, of }) {
  const mega = (bytes) => number(bytes / 1e6, 1);
  bar.max = of;
  bar.value = loaded;
  status.textContent = loaded < of ? t("loading", { loaded: mega(loaded), of: mega(of) }) : t("starting");
}

function progress(far) {
  bar.max = far.requests;
  bar.value = far.finished;
  status.textContent = t("running", { ...far, tokens: number(far.tokens), seconds: number(far.seconds, 1) });
}

// Two runs beside each other.

/** What could be changed where the player stands: a setting, its value, Run. */
async function offer() {
  const { trace } = lab;
  const offers = await working(() => engine.ask("offers", [trace, lab.player.cursor, language]));
  if (!offers || trace !== lab.trace) return;
  const { step, settings: found } = offers;
  const what = choice(found.map(([, label]) => label), words.what_if.change);
  const go = h("button", { type: "submit" }, words.what_if.run);
  let value = null;
  const values = () => {
    const label = words.what_if.to;
    const next = choice(found[Number(what.value)][2].map(([, text]) => text), label);
    value ? value.replaceWith(next) : change.replaceChildren(what, next, go);
    value = next;
  };
  values();
  what.addEventListener("change", values);
  change.hidden = false;
  what.focus();
  change.onsubmit = (event) => {
    event.preventDefault();
    const [setting, , of] = found[Number(what.value)];
    showPair("what_if", [trace, [step, setting, of[Number(value.value)][0]], language]);
  };
}

function choice(labels, label) {
  const select = h("select", { "aria-label": label });
  select.append(...labels.map((text, at) => h("option", { value: at }, text)));
  return select;
}

async function showPair(method, given) {
  const made = await working(() => engine.ask(method, given, progress));
  if (!made) return;
  const { pictures, fork, title, note: remark, table, before, after } = made;
  const named = before ? { ...words, pair: { ...words.pair, before, after } } : words;
  clearPair();
  lab.pair = mountPair(beside, pictures, { words: named, title, fork, step: fork, note: remark, table, onStep: () => {} });
  beside.scrollIntoView({ block: "start" });
  beside.focus({ preventScroll: true });
}

function clearPair() {
  lab.pair?.destroy();
  lab.pair = null;
  change.hidden = true;
  beside.replaceChildren();
}

// Showing.

/** `trace` is kept for whoever wants the file, `picture` is shown. */
function show({ trace, picture }, text) {
  lab.trace = trace;
  lab.resting = text;
  if (!lab.busy) status.textContent = text;
  clearPair();
  lab.player?.destroy();
  stage.replaceChildren();
  lab.player = mount(stage, picture, { words, title: "", start: 0, stop: null, cursor: 0, link: "" });
}

function fail(text) {
  card.textContent = text;
  card.hidden = !text;
}

/** Whether the picture is of what the form says; the address follows. */
async function tell() {
  const same = JSON.stringify(lab.ran) === JSON.stringify(lab.scenario);
  const place = new URLSearchParams();
  if (lab.preset) place.set("scenario", lab.preset);
  else {
    const link = await packed(lab.scenario);
    if (link) place.set("s", link);
    if (!link) note.textContent = t("too_long");
  }
  if (same && !lab.preset) place.set("run", "now");
  if (asked.get("lang")) place.set("lang", language);
  history.replaceState(null, "", `${location.pathname}#${place}`);
  note.textContent = same ? "" : t("other");
}

async function copyLink() {
  await tell();
  try {
    await navigator.clipboard.writeText(location.href);
    status.textContent = t("copied");
  } catch {
    status.textContent = t("not_copied");
  }
}

// Beginning: what the address asks for.

async function begin() {
  if (asked.get("s")) {
    try {
      put(await unpacked(asked.get("s")), "");
      status.textContent = lab.resting = t("nothing");
      if (asked.get("run") === "now") run(lab.scenario);
      return;
    } catch {
      await openPreset(settings.first);
      fail(t("damaged"));
      return;
    }
  }
  const name = asked.get("scenario") ?? settings.first;
  await openPreset(name);
  if (!shipped(name)) fail(t("unknown", { name: name.slice(0, 80) }));
  else if (asked.get("run") === "now") run(lab.scenario);
}

/** Settled when the page shows what its address asks for. */
export const begun = begin();
begun.then(keepForLater);

/** A return visit needs no network; what this one loaded before the keeper was there is told to it. */
async function keepForLater() {
  if (!navigator.serviceWorker) return; // an address without HTTPS, other than this machine's own
  await navigator.serviceWorker.register("offline.js");
  const { active } = await navigator.serviceWorker.ready;
  const loaded = performance.getEntriesByType("resource").map(({ name }) => name.split("#")[0]);
  const own = [location.href.split(/[?#]/)[0], ...loaded].filter((name) => name.startsWith(new URL(".", location).href));
  active.postMessage({ keep: [...new Set(own)] });
}

function chosenLanguage() {
  const wanted = asked.get("lang") ?? navigator.language.slice(0, 2);
  return settings.languages.includes(wanted) ? wanted : "en";
}

function number(value, digits = 0) {
  return value.toLocaleString(language, { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
