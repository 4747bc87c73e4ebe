/** Title, facts about the run, and the sentence about the current event. */
import { h } from "../dom.js";
import { causeOf, fallenBack, stepIndex } from "../model.js";
import { icon } from "../icons.js";
import { marks } from "../owners.js";
import { termed } from "../terms.js";
import { ask } from "./ask.js";

/** Where the run comes from and where the cursor stands. */
export function header(model, cursor, ui) {
  const { trace, t } = model;
  const { scenario, run } = trace;
  const step = stepIndex(trace, cursor);
  const fell = fallenBack(model, cursor);
  const facts = [
    trace.recorded
      ? t("recorded", { device: run.device, name: run.device_name })
      : t("just_now", { device: run.device, name: run.device_name }),
    trace.model.stand_in ? null : t("model", { name: trace.model.name }),
    trace.model.stand_in ? null : run.dtype,
    scenario.title && ui.title && scenario.title !== ui.title ? scenario.name : null,
  ].filter(Boolean);
  return h(
    "header",
    { class: "k-head" },
    h("h2", { class: "k-title" }, ui.title || scenario.title || scenario.name),
    h("span", { class: "k-pill" }, t(`method_${scenario.engine.method}`)),
    fell.count > 0 && h("span", { class: "k-pill", "data-fell-back": fell.count }, t("fell_back", fell)),
    trace.model.stand_in && h("span", { class: "k-pill" }, t("stand_in")),
    h("span", { class: "k-facts" }, facts.join(" · ")),
    h(
      "span",
      { class: "k-where", "data-step": step + 1, "data-event": cursor },
      h("span", null, t(step < 0 ? "before_step" : "step_of", { step: step + 1, steps: trace.steps.length })),
      h("span", null, t("event_of", { event: cursor, events: trace.events.length })),
    ),
  );
}

/** What happened, what it follows from, the teacher's notes, and the question that comes next. */
export function narration(model, cursor, ui, act) {
  const { trace, t, say } = model;
  const event = trace.events[cursor - 1];
  const cause = event ? causeOf(trace.events, cursor - 1) : null;
  const note = event ? model.notes.get(cursor - 1) : trace.scenario.lesson?.about;
  const sentence = event ? say(event) : t("before_first");
  return h(
    "section",
    { class: "k-narration", ...marks(model.owners.get(event?.id)), "aria-label": t("narration") },
    h(
      "p",
      { key: "say", class: "k-say", dir: "auto" },
      termed(model, sentence),
      note && h("span", { class: "k-note" }, " ", String(note)),
    ),
    h(
      "p",
      { key: "because", class: "k-because", dir: "auto" },
      cause === null
        ? null
        : [
            h("span", { class: "k-label" }, t("follows_from", { event: cause + 1 })),
            " ",
            say(trace.events[cause]),
          ],
    ),
    cursor === ui.high &&
      cursor < trace.events.length &&
      h("p", { key: "ends", class: "k-ends" }, t("part_ends", { button: t("whole_run") })),
    ui.presenter && teaching(model, cursor),
    ask(model, ui, act),
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
  const event = model.trace.events[cursor - 1];
  const { question, verdict } = ui.asked;
  const parts = [
    verdict && `${verdict.says} ${verdict.explain}`,
    !verdict?.here && (event ? model.say(event) : model.t("before_first")),
    question && `${model.t("predict")} ${question.text}`,
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
