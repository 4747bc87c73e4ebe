/**
 * Words for events and for the player, from a catalogue (kvlab/trace/words). The twin of
 * kvlab/trace/narration.py, which describes the templates; a test holds the two equal.
 *
 * @typedef {Record<string, any>} Words
 */

const FIELD = /\{([a-z_]+)(?::([A-Za-z_]+))?\}/g;

const has = Object.hasOwn;

/** The sentence for an event: by its key `say`, else by the longest part of it that has words. */
export function narrate(event, words) {
  const templates = words.events;
  let say = event.say || event.kind;
  while (!has(templates, say) && say.includes(".")) say = say.slice(0, say.lastIndexOf("."));
  return fill(has(templates, say) ? templates[say] : templates.unknown, args(event), words);
}

/** The event's fields and what follows from them; see `arguments` in narration.py. */
function args(event) {
  switch (event.kind) {
    case "scheduled":
      return {
        ...event,
        last: event.start + event.tokens - 1,
        fresh: event.tokens - event.again,
      };
    case "resumed":
      return { ...event, fresh: event.history - event.kv - event.rebuild };
    case "block_allocated":
      return { ...event, logicals: event.blocks.map((_, i) => event.logical + i) };
    case "block_released":
      return { ...event, kept: event.blocks.length - event.freed.length };
    case "damage_found":
      return { ...event, count: event.layers.length };
    case "token_delivered":
      return { ...event, before: event.index - 1 };
    default:
      return event;
  }
}

/** A template with its fields replaced, in one pass: values are never read as templates. */
export function fill(template, values, words) {
  return template.replace(FIELD, (_, name, spec) =>
    field(has(values, name) ? values[name] : null, spec, words),
  );
}

/** The form that the catalogue's rule gives a number. */
export function plural(number, words) {
  const lists = (list, value) => list === undefined || list.includes(value);
  for (const rule of words.grammar.plural) {
    if (
      lists(rule.is, number) &&
      lists(rule.mod10, number % 10) &&
      lists(rule.mod100, number % 100) &&
      !(rule.not100 ?? []).includes(number % 100)
    )
      return rule.form;
  }
  return "other";
}

function field(value, spec, words) {
  if (spec === undefined) return text(value);
  if (has(words.forms, spec)) {
    const forms = words.forms[spec];
    return text(forms[plural(value, words)] ?? forms.other).replaceAll("{n}", () => grouped(value, words));
  }
  if (has(words.maps, spec)) {
    const map = words.maps[spec];
    return has(map, text(value)) ? map[text(value)] : text(value).replaceAll("_", " ");
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
