/**
 * A tiny virtual tree: `h` describes, `patch` makes the document match. Nodes are reused (by key, else
 * by order), so that focus and scroll positions survive. Text is always a text node, never HTML.
 *
 * @typedef {{tag: string, props: Record<string, any>, key: any, children: Node[], el?: Element}} Node
 */

const SVG = "http://www.w3.org/2000/svg";

/** A node; children may be nested lists, texts, numbers, or null and false for nothing. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, key: props?.key, children: flat(children, []) };
}

function flat(children, into) {
  for (const child of children) {
    if (Array.isArray(child)) flat(child, into);
    else if (child === null || child === undefined || child === false) continue;
    else if (typeof child === "object") into.push(child);
    else into.push({ tag: "#text", text: String(child), props: {}, children: [] });
  }
  return into;
}

/**
 * What `make` gives, made again only when one of `deps` is another; `patch` passes over a node that is
 * the same as last time. `store` belongs to one player.
 */
export function memo(store, key, deps, make) {
  const last = store.get(key);
  if (last?.deps.length === deps.length && last.deps.every((dep, i) => dep === deps[i])) {
    return last.made;
  }
  const made = make();
  store.set(key, { deps, made });
  return made;
}

/** Make the children of `parent` match `next`; `last` is what the call before was given. */
export function patch(parent, last, next) {
  const keyed = new Map();
  const loose = [];
  for (const node of last) {
    if (node.key === undefined) loose.push(node);
    else keyed.set(node.key, node);
  }
  const matches = next.map((node) => {
    if (node.key !== undefined) {
      const found = keyed.get(node.key);
      if (found?.tag !== node.tag) return undefined;
      keyed.delete(node.key);
      return found;
    }
    const at = loose.findIndex((old) => old.tag === node.tag);
    return at < 0 ? undefined : loose.splice(at, 1)[0];
  });
  for (const node of [...keyed.values(), ...loose]) node.el.remove();
  let place = parent.firstChild;
  next.forEach((node, i) => {
    const old = matches[i];
    if (old) update(old, node);
    else create(node);
    if (node.el === place) place = place.nextSibling;
    else parent.insertBefore(node.el, place);
  });
}

function create(node) {
  if (node.tag === "#text") {
    node.el = document.createTextNode(node.text);
    return;
  }
  const svg = node.tag === "svg" || node.tag === "path" || node.tag === "circle";
  node.el = svg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  for (const name of Object.keys(node.props)) set(node.el, name, node.props[name]);
  patch(node.el, [], node.children);
  // A select shows its value only once its options are there.
  if (node.tag === "select") set(node.el, "value", node.props.value);
}

function update(old, node) {
  if (old === node) return;
  node.el = old.el;
  if (node.tag === "#text") {
    if (old.text !== node.text) node.el.data = node.text;
    return;
  }
  for (const name of Object.keys(old.props)) {
    if (!(name in node.props)) set(node.el, name, null);
  }
  for (const name of Object.keys(node.props)) {
    const value = node.props[name];
    if (old.props[name] !== value || name === "value") set(node.el, name, value);
  }
  patch(node.el, old.children, node.children);
}

function set(el, name, value) {
  if (name === "key") return;
  if (name.startsWith("on")) el[name] = value;
  // Not as an attribute: a page may refuse those (Content-Security-Policy).
  else if (name === "style") el.style.cssText = value ?? "";
  else if (name === "value") {
    if (el.value !== String(value)) el.value = value;
  } else if (value === null || value === undefined || value === false) el.removeAttribute(name);
  else el.setAttribute(name, value === true ? "" : value);
}
