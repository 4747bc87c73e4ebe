/**
 * What was answered to the questions of a trace (kvlab/course/questions.py).
 *
 * @typedef {{
 *   key: string, at: number, step: number, ask: string, text: string, own: boolean,
 *   options: string[], answer: string | null, look: string,
 * }} Question
 *   at: the cursor at which it holds; answer: one of the options, null: not checked; look: why
 * @typedef {{
 *   question: string, cursor: number, step: number, ask: string, text: string,
 *   given: string | null, answer: string | null, right: boolean | null,
 * }} Answer
 *   given null: skipped; right null: skipped or not checked
 */

import { nextOf } from "./model.js";

const MOST_ANSWERS = 1000;

/** Questions and answers of one player: what holds, what was just answered. */
export function asker(model, ui) {
  ui.answers = ui.answers.slice(-MOST_ANSWERS);

  const isAnswered = (question) => ui.answers.some((answer) => answer.question === question.key);

  /** The first question between two cursors that is not answered. */
  const open = (from, to) =>
    ui.predict &&
    model.questions.find((q) => q.at >= from && q.at < to && q.at >= ui.low && !isAnswered(q));

  /** The question that holds the next step, or the verdict on the one before, up to the next stop. */
  function at(cursor, stops) {
    const question = (cursor < ui.high && open(cursor, cursor + 1)) || null;
    if (question || !ui.predict || !ui.latest) return { question };
    const answer = ui.answers.find((entry) => entry.question === ui.latest.key);
    const until = nextOf(stops, ui.latest.at) ?? ui.high;
    if (!answer || cursor < ui.latest.at || cursor > until) return { question };
    const { right, given } = answer;
    const explain = given === null ? "" : ui.latest.look;
    return { question, verdict: { right, says: judged(model, answer), explain, here: cursor === ui.latest.at } };
  }

  return {
    open,
    at,
    /** As far as a reader may go at once: an open question on the way holds. */
    held: (cursor, goal) => (goal <= cursor ? goal : (open(cursor, goal)?.at ?? goal)),
    answer(question, value) {
      ui.answers = [...ui.answers, answered(question, value)].slice(-MOST_ANSWERS);
      ui.latest = question;
    },
  };
}

/** What the answer came to, in words. */
function judged({ t }, answer) {
  if (answer.given === null) return t("verdict_skipped");
  if (answer.right === null) return t("verdict_noted", answer);
  return t(answer.right ? "verdict_right" : "verdict_wrong", answer);
}

/** @returns {Answer} `given` null: skipped */
function answered(question, given) {
  const { key, at, step, ask, text, answer } = question;
  const right = given === null || answer === null ? null : given === answer;
  return { question: key, cursor: at, step, ask, text, given, answer, right };
}

/** The answers as CSV (RFC 4180); a cell that a spreadsheet would calculate is made text. */
export function asCsv(answers) {
  const names = ["step", "cursor", "ask", "text", "given", "answer", "right"];
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
  };
  const rows = answers.map((answer) => names.map((name) => cell(answer[name])).join(","));
  return [names.join(","), ...rows].join("\r\n") + "\r\n";
}
