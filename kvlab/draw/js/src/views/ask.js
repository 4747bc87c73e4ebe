/** The question that holds the next step, what was answered, and the list of results. */
import { h } from "../dom.js";
import { icon } from "../icons.js";

/** The question at the cursor with its options, or what has just been answered there. */
export function ask(model, ui, act) {
  const { t, uid } = model;
  const { question, verdict } = ui.asked;
  if (question) {
    return h(
      "div",
      { key: `ask ${question.key}`, class: "k-ask" },
      h("p", { id: `${uid}-ask`, class: "k-question", dir: "auto" }, h("b", null, t("predict")), " ", question.text),
      h(
        "div",
        { class: "k-options", role: "radiogroup", "aria-labelledby": `${uid}-ask` },
        // One tab stop; the up and down keys go from one to the next, a press answers.
        question.options.map((value, i) =>
          h(
            "button",
            {
              key: value,
              type: "button",
              class: "k-button k-option",
              role: "radio",
              "aria-checked": "false",
              tabindex: i ? "-1" : "0",
              "data-option": value,
              dir: "auto",
              onclick: () => act.answer(question, value),
            },
            h("span", null, value),
          ),
        ),
      ),
      h(
        "div",
        { class: "k-row-of-buttons" },
        h(
          "button",
          {
            key: "skip",
            type: "button",
            class: "k-button k-quiet",
            "data-act": "skip",
            onclick: () => act.answer(question, null),
          },
          t("skip"),
        ),
      ),
    );
  }
  if (!verdict) return null;
  return h(
    "div",
    { key: "verdict", class: "k-ask k-verdict", "data-right": String(verdict.right) },
    h(
      "p",
      { class: "k-question", dir: "auto" },
      icon(verdict.right ? "tick" : verdict.right === false ? "cross" : "forward", "k-judge"),
      " ",
      h("b", null, verdict.says),
      " ",
      verdict.explain,
    ),
    verdict.here &&
      h(
        "button",
        { key: "on", type: "button", class: "k-button", "data-act": "continue", onclick: act.continued },
        t("continue"),
      ),
  );
}

/** Every answer given so far, with buttons that save them. */
export function results(model, ui, act) {
  const { t } = model;
  const list = ui.answers;
  const checked = list.filter((answer) => answer.right !== null);
  const right = checked.filter((answer) => answer.right).length;
  const button = (name, words) =>
    h(
      "button",
      { key: name, type: "button", class: "k-button", "data-act": name, onclick: act[name] },
      t(words),
    );
  return [
    h("p", null, t("results_count", { right, checked: checked.length, asked: model.questions.length })),
    list.length > 0 &&
      h(
        "div",
        { class: "k-wide", tabindex: "0", role: "region", "aria-label": t("results") },
        h(
          "table",
          { class: "k-table" },
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              ["step", "result_question", "result_given", "result_answer", "result_right"].map((name) =>
                h("th", { scope: "col" }, t(name)),
              ),
            ),
          ),
          h(
            "tbody",
            null,
            list.map((answer) =>
              h(
                "tr",
                { key: answer.question },
                h("td", null, answer.step),
                h("td", { dir: "auto" }, answer.text),
                h("td", { dir: "auto" }, answer.given === null ? t("skipped") : answer.given),
                h("td", { dir: "auto" }, answer.answer ?? ""),
                h("td", null, t(`right_${answer.right}`)),
              ),
            ),
          ),
        ),
      ),
    h(
      "div",
      { class: "k-row-of-buttons" },
      list.length > 0 && [button("saveJson", "save_json"), button("saveCsv", "save_csv")],
      list.length > 0 && button("forget", "ask_again"),
    ),
  ];
}
