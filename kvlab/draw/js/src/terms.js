/** Terms that explain themselves: found in a sentence, marked, explained on focus or by pointer. */
import { h, memo } from "./dom.js";

/** One expression that finds every word of every term, longer ones first; key by word. */
export function termsOf(words) {
  const keys = new Map();
  for (const [key, { words: forms }] of Object.entries(words.terms ?? {})) {
    for (const form of forms) keys.set(form.toLowerCase(), key);
  }
  const forms = [...keys.keys()].sort((a, b) => b.length - a.length);
  const escaped = forms.map((form) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const expression = forms.length
    ? new RegExp(`(?<![\\p{L}\\p{N}])(${escaped.join("|")})(?![\\p{L}\\p{N}])`, "giu")
    : null;
  return { keys, expression };
}

/** A sentence as text with a term button where a term stands for the first time. */
export function termed(model, text, most = 6) {
  const { expression, keys } = model.terms;
  if (!expression) return text;
  const parts = [];
  const seen = new Set();
  let from = 0;
  for (const match of text.matchAll(expression)) {
    const key = keys.get(match[0].toLowerCase());
    if (seen.has(key) || seen.size >= most) continue;
    seen.add(key);
    parts.push(text.slice(from, match.index), term(model, key, match[0], seen.size === 1));
    from = match.index + match[0].length;
  }
  parts.push(text.slice(from));
  return parts;
}

/**
 * A word that explains itself; the first of a sentence is a tab stop. No button element: it would not
 * break into lines as words do.
 */
const term = (model, key, word, first) =>
  h(
    "span",
    {
      class: "k-term",
      role: "button",
      tabindex: first ? "0" : "-1",
      "data-term": key,
      "aria-describedby": `${model.uid}-${key}`,
    },
    word,
  );

/** What the term that is asked about means, beside it. */
export function tip(model, ui) {
  const { terms } = model.words;
  const shown = ui.tip && terms?.[ui.tip.key];
  return [
    memo(model.memory, "terms", [], () =>
      h(
        "div",
        { key: "terms", hidden: true },
        Object.entries(terms ?? {}).map(([key, { text }]) =>
          h("span", { id: `${model.uid}-${key}` }, text),
        ),
      ),
    ),
    shown &&
      h(
        "div",
        {
          key: "tip",
          class: "k-tip",
          "data-tip": ui.tip.key,
          "aria-hidden": "true",
          style: `left:${ui.tip.left}px;top:${ui.tip.top}px`,
        },
        h("b", null, shown.name),
        " ",
        shown.text,
      ),
  ];
}

/** Every term with its meaning. */
export function glossary({ words }) {
  const entries = Object.values(words.terms ?? {});
  return h(
    "dl",
    { class: "k-glossary" },
    entries.map(({ name, text }) => [h("dt", null, name), h("dd", null, text)]),
  );
}

const WIDTH = 300;

/**
 * Show a term's meaning while the pointer or the focus is on it; `show(tip | null)` draws. The tip
 * stays while the pointer is on it.
 */
export function watchTerms(element, show) {
  let timer = null;
  const later = (run, delay) => {
    clearTimeout(timer);
    timer = setTimeout(run, delay);
  };
  const open = (target) => {
    clearTimeout(timer);
    const root = element.getBoundingClientRect();
    const box = target.getBoundingClientRect();
    const scale = root.width / element.offsetWidth || 1;
    const width = Math.min(WIDTH, element.offsetWidth - 16);
    const left = (box.left - root.left) / scale;
    show({
      key: target.dataset.term,
      left: Math.round(Math.max(8, Math.min(left, element.offsetWidth - width - 8))),
      top: Math.round((box.bottom - root.top) / scale + 4),
    });
  };
  const termAt = (event) => event.target.closest?.(".k-term");
  element.addEventListener("pointerover", (event) => {
    const target = termAt(event);
    if (target) later(() => target.isConnected && open(target), 120);
    else if (event.target.closest?.(".k-tip")) clearTimeout(timer);
    else later(() => show(null), 250);
  });
  element.addEventListener("pointerleave", () => later(() => show(null), 250));
  element.addEventListener("focusin", (event) => {
    const target = termAt(event);
    if (target) open(target);
    else show(null);
  });
  element.addEventListener("focusout", () => show(null));
  element.addEventListener("click", (event) => termAt(event) && open(termAt(event)));
  return () => clearTimeout(timer);
}
