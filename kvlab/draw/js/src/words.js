/**
 * Words for events and for the player, from a catalogue (kvlab/trace/words); templates are described
 * in kvlab/trace/narration.py.
 *
 * @typedef {Record<string, any>} Words
 */

const FIELD = /\{([a-z_]+)(?::([A-Za-z_]+))?\}/g;

const has = Object.hasOwn;

/** A template with its fields replaced, in one pass: values are never read as templates. */
export function fill(template, values, words) {
  return template.replace(FIELD, (_, name, spec) =>
    field(has(values, name) ? values[name] : null, spec, words),
  );
}

const rules = new Map();

/** Which form of a word a count has. */
function form(forms, count, { language }) {
  if (count === 0 && forms.zero !== undefined) return forms.zero;
  if (!rules.has(language)) rules.set(language, new Intl.PluralRules(language));
  return forms[rules.get(language).select(count)] ?? forms.other;
}

function field(value, spec, words) {
  if (spec === undefined) return text(value);
  if (has(words.forms, spec)) {
    return text(form(words.forms[spec], value, words)).replaceAll("{n}", () => grouped(value, words));
  }
  if (has(words.maps, spec)) {
    const map = words.maps[spec];
    if (has(map, text(value))) return map[text(value)];
    return has(map, "*") ? map["*"].replace("{n}", () => text(value)) : text(value).replaceAll("_", " ");
  }
  const items = Array.isArray(value) ? value : [value];
  return join(
    items.map((item) => (spec === "list" ? "" : spec) + text(item)),
    words,
  );
}

/** A count with its digits in groups of three. */
const grouped = (value, words) => text(value).replace(/\B(?=(\d{3})+$)/g, words.grammar.thousands);

function join(items, words) {
  const grammar = words.grammar.list;
  if (!items.length) return grammar.none;
  if (items.length > grammar.most) {
    const kept = grammar.most - 2;
    items = [...items.slice(0, kept), grammar.more.replaceAll("{n}", items.length - kept)];
  }
  if (items.length === 1) return items[0];
  return items.slice(0, -1).join(grammar.between) + grammar.last + items[items.length - 1];
}

const text = (value) => (value === null || value === undefined ? "" : String(value));
