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

/** @returns {Answer} `given` null: skipped */
export function answered(question, given) {
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
