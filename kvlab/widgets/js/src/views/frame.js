/** Title, facts about the run, and the sentence about the current event. */
import { h } from "../dom.js";
import { causeOf, stepIndex } from "../model.js";
import { marks } from "../owners.js";

/** Where the run comes from and where the cursor stands. */
export function header(model, cursor, ui) {
  const { trace, t } = model;
  const { scenario, run } = trace;
  const step = stepIndex(trace, cursor);
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

/** One polite sentence per move, and below it what the event follows from. */
export function narration(model, cursor) {
  const { trace, t, say } = model;
  const event = trace.events[cursor - 1];
  const cause = event ? causeOf(trace.events, cursor - 1) : null;
  return h(
    "section",
    { class: "k-narration", ...marks(model.owners.get(event?.id)), "aria-label": t("narration") },
    h(
      "p",
      { class: "k-say", "aria-live": "polite", "aria-atomic": "true", dir: "auto" },
      event ? say(event) : t("before_first"),
    ),
    h(
      "p",
      { class: "k-because", dir: "auto" },
      cause === null
        ? null
        : [
            h("span", { class: "k-label" }, t("follows_from", { event: cause + 1 })),
            " ",
            say(trace.events[cause]),
          ],
    ),
  );
}
