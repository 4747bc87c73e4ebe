/** The guide: one voice in one place. What happens, why, what is asked, and at the end what is next. */
import { h } from "../dom.js";
import { fallenBack, stepIndex, told } from "../model.js";
import { icon } from "../icons.js";
import { marks } from "../owners.js";
import { termed } from "../terms.js";
import { ask } from "./ask.js";

/** Where the run comes from. */
function header(model, cursor, ui) {
  const { trace, t } = model;
  const { scenario, run } = trace;
  const fell = fallenBack(trace, cursor);
  const facts = [
    trace.recorded
      ? t("recorded", { device: run.device, name: run.device_name })
      : t("just_now", { device: run.device, made: run.made, name: run.device_name }),
    trace.model.stand_in ? null : t("model", { name: trace.model.name }),
    trace.model.stand_in ? null : run.dtype,
    scenario.title && ui.title && scenario.title !== ui.title ? scenario.name : null,
  ].filter(Boolean);
  return h(
    "header",
    { class: "k-head" },
    h("h2", { class: "k-title" }, ui.title || scenario.title || scenario.name),
    h("span", { class: "k-pill" }, t(`method_${scenario.method}`)),
    fell.count > 0 && h("span", { class: "k-pill", "data-fell-back": fell.count }, t("fell_back", fell)),
    trace.model.stand_in && h("span", { class: "k-pill" }, t("stand_in")),
    h("span", { class: "k-facts" }, facts.join(" · ")),
  );
}

/** The sentence of this moment, its cause, the teacher's notes, and what is asked. */
export function guide(model, cursor, ui, act) {
  const { trace, t, say } = model;
  const at = told(model, cursor);
  const event = trace.events[at];
  const first = cursor === ui.low;
  const cause = first ? null : (event?.cause ?? null);
  const note = event ? model.notes.get(at) : trace.scenario.about;
  const ends = cursor === ui.high;
  return h(
    "section",
    { key: "guide", class: "k-guide", ...marks(model.owners.get(event?.id)), "aria-label": t("narration") },
    header(model, cursor, ui),
    ui.guide.note && h("p", { class: "k-shown", dir: "auto" }, ui.guide.note),
    first && opening(model, ui.guide),
    h(
      "p",
      { key: "say", class: "k-say", dir: "auto" },
      termed(model, event ? say(event) : t("before_first")),
      note && h("span", { class: "k-note" }, " ", String(note)),
    ),
    cause !== null &&
      h(
        "p",
        { key: "because", class: "k-because", dir: "auto" },
        h("span", { class: "k-label" }, t("follows_from", { event: cause + 1 })),
        " ",
        say(trace.events[cause]),
      ),
    ui.presenter && teaching(model, cursor),
    ask(model, ui, act),
    first && ui.low > 0 && h("div", { key: "before", class: "k-row-of-buttons" }, wholeRun(model, act)),
    ends && !ui.asked.question && ending(model, cursor, ui, act),
  );
}

/** Before the first move: the chapter's question, and what to watch. */
function opening({ t }, { question, watch, opens }) {
  return [
    question && h("p", { class: "k-chapter", dir: "auto" }, question),
    watch?.length > 0 && [
      h("h3", null, t("watch")),
      h("ul", { class: "k-watch" }, watch.map((line) => h("li", { dir: "auto" }, line))),
    ],
    opens && h("p", { class: "k-because", dir: "auto" }, opens),
  ];
}

const button = (name, words, run, extra = {}) =>
  h("button", { key: name, type: "button", class: "k-button", "data-act": name, onclick: run, ...extra }, words);

const wholeRun = ({ t }, act) => button("lift", t("whole_run"), act.lift, { class: "k-button k-quiet" });

/** What the chapter comes to, and where it goes on. */
function ending(model, cursor, ui, act) {
  const { why, next } = ui.guide;
  const more = cursor < model.trace.events.length;
  if (!why && !next && !more) return null;
  return h(
    "div",
    { key: "ends", class: "k-ask" },
    why && h("p", { class: "k-ends", dir: "auto" }, why),
    h(
      "div",
      { class: "k-row-of-buttons" },
      next && button("next", [next, icon("forward")], act.next, { "data-main": "true" }),
      more && wholeRun(model, act),
    ),
  );
}

/** Teacher's notes of the step. */
function teaching(model, cursor) {
  const step = Math.max(0, stepIndex(model.trace, cursor));
  const notes = model.teaching.get(step) ?? [];
  return h(
    "aside",
    { key: "teaching", class: "k-teaching", "aria-label": model.t("notes") },
    h("b", null, model.t("notes")),
    notes.length
      ? notes.map((text) => h("p", { dir: "auto" }, text))
      : h("p", { class: "k-none" }, model.t("no_notes")),
  );
}

/** One polite sentence per move, with the question that comes next; read, not seen. */
export function spoken(model, cursor, ui) {
  const event = model.trace.events[told(model, cursor)];
  const { question, verdict } = ui.asked;
  const parts = [
    verdict && `${verdict.says} ${verdict.explain}`,
    !verdict?.here && (event ? model.say(event) : model.t("before_first")),
    question && `${model.t("predict")} ${question.text}`,
    cursor === ui.high && !question && ui.guide.why,
  ];
  return h(
    "p",
    { key: "live", class: "k-hidden", "aria-live": "polite", "aria-atomic": "true", dir: "auto" },
    parts.filter(Boolean).join(" "),
  );
}

/** Said when the kernel does not answer: replay goes on. */
export function banner(model, ui) {
  return (
    ui.offline &&
    h("p", { key: "offline", class: "k-banner", role: "status" }, icon("damaged"), model.t("offline"))
  );
}
