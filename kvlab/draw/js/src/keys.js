/** The player's keys. What it does not use goes to the host: Ctrl, Meta and Alt, Shift+Enter, Tab. */

const KEYS = {
  ArrowRight: "forward",
  ArrowLeft: "back",
  "Shift ArrowRight": "event",
  "Shift ArrowLeft": "eventBack",
  Home: "first",
  End: "last",
  PageDown: "stepForward",
  PageUp: "stepBack",
  n: "preemption",
  p: "preemptionBack",
  e: "sameRequest",
  0: "full",
  f: "projector",
  t: "table",
  ".": "blank",
};

/** What the help sheet lists: key and name of what it does in the catalogue. */
export const LISTED = [
  ["→", "act_forward"],
  ["←", "act_back"],
  ["key_shift_right", "act_event"],
  ["key_shift_left", "act_event_back"],
  ["key_page_down", "act_step_forward"],
  ["key_page_up", "act_step_back"],
  ["Home", "act_first"],
  ["End", "act_last"],
  ["key_space", "act_play_pause"],
  ["N", "next_preemption"],
  ["P", "preemption_back"],
  ["0", "next_full"],
  ["E", "next_same"],
  ["1 … 9", "act_answer"],
  ["F", "projector"],
  ["T", "table_view"],
  [".", "act_blank"],
  ["↑ ↓", "act_neighbours"],
  ["key_enter", "act_open"],
  ["?", "act_help"],
  ["Esc", "act_close"],
];

/** Groups of which only one is a tab stop: the up and down keys go from one to the next. */
const GROUPS = [
  [".k-guide", ".k-say .k-term"],
  [".k-options", ".k-option"],
  [".k-requests", ".k-chip"],
  [".k-memory", ".k-open"],
  [".k-cards", ".k-row"],
  [".k-time", ".k-lab[tabindex]"],
  [".k-time", ".k-step"],
];

const isText = ({ tagName, type }) => tagName === "SELECT" || (tagName === "INPUT" && type !== "range");

/** Whether the player has a use for a key, or keeps it from a host that would act on a bare letter. */
function isOurs(event) {
  const { key, ctrlKey, metaKey, altKey, shiftKey } = event;
  if (ctrlKey || metaKey || altKey) return false;
  if (key.length === 1 || Object.hasOwn(KEYS, key) || key === "Escape") return true;
  if (isText(event.target)) return key !== "Tab" && !(key === "Enter" && shiftKey);
  return key === "ArrowUp" || key === "ArrowDown" || (key === "Enter" && !shiftKey);
}

/**
 * JupyterLab looks at keys before the page's elements do, and leaves alone what lies in an element
 * with this attribute: it is there for the keys that are ours, and for no others. Returns what ends it.
 */
export function guarded(element) {
  const page = element.ownerDocument.defaultView;
  const look = (event) => {
    if (!element.contains(event.target)) return;
    if (isOurs(event)) element.setAttribute("data-lm-suppress-shortcuts", "true");
    else element.removeAttribute("data-lm-suppress-shortcuts");
  };
  const kinds = ["keydown", "keypress", "keyup"];
  for (const kind of kinds) page.addEventListener(kind, look, true);
  for (const kind of kinds.slice(1)) {
    element.addEventListener(kind, (event) => isOurs(event) && event.stopPropagation());
  }
  return () => {
    for (const kind of kinds) page.removeEventListener(kind, look, true);
  };
}

export function onKey(event, element, act) {
  if (!isOurs(event)) return;
  event.stopPropagation();
  const { target } = event;
  if (isText(target)) {
    if (event.key === "Escape") act.close();
    return;
  }
  const handled = () => event.preventDefault();
  const bare = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const key = event.shiftKey && bare.startsWith("Arrow") ? `Shift ${bare}` : bare;
  if (Object.hasOwn(KEYS, key)) {
    handled();
    act[KEYS[key]]();
  } else if (/^[1-9]$/.test(key)) {
    act.choose(Number(key) - 1);
  } else if (key === " ") {
    // On a button the space bar presses it.
    if (target.tagName === "BUTTON") return;
    handled();
    act.play();
  } else if (key === "?") {
    handled();
    act.sheet("help");
  } else if (key === "Escape") {
    act.close();
  } else if (key === "ArrowUp" || key === "ArrowDown") {
    if (target.tagName === "INPUT") return handled();
    for (const [group, item] of GROUPS) {
      if (!target.matches(item)) continue;
      handled();
      const all = [...element.querySelectorAll(`${group} ${item}`)];
      all[all.indexOf(target) + (key === "ArrowDown" ? 1 : -1)]?.focus();
    }
  }
}
