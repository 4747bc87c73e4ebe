/** The player's keys. No plain key leaves the player while it has the focus. */

const KEYS = {
  ArrowRight: "forward",
  ArrowLeft: "back",
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

/** Groups in which the up and down keys go from one to the next. */
const GROUPS = [
  [".k-requests", ".k-chip"],
  [".k-pools", ".k-open"],
  [".k-tables", ".k-row"],
  [".k-time", ".k-lab[tabindex]"],
];

export function onKey(event, element, act) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  event.stopPropagation();
  const target = event.target;
  const name = target.tagName;
  if (name === "SELECT" || (name === "INPUT" && target.type !== "range")) {
    if (event.key === "Escape") act.close();
    return;
  }
  const handled = () => event.preventDefault();
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.shiftKey && (key === "ArrowRight" || key === "ArrowLeft")) {
    handled();
    act[key === "ArrowRight" ? "stepForward" : "stepBack"]();
  } else if (Object.hasOwn(KEYS, key)) {
    handled();
    act[KEYS[key]]();
  } else if (/^[1-9]$/.test(key)) {
    act.choose(Number(key) - 1);
  } else if (key === " " || key === "Enter") {
    // On a button the space bar presses it.
    if (name === "BUTTON") return;
    if (key === " ") {
      handled();
      act.play();
    }
  } else if (key === "?") {
    handled();
    act.sheet("help");
  } else if (key === "Escape") {
    act.close();
  } else if (key === "ArrowUp" || key === "ArrowDown") {
    if (name === "INPUT") return handled();
    for (const [group, item] of GROUPS) {
      if (!target.matches(item)) continue;
      handled();
      const all = [...element.querySelectorAll(`${group} ${item}`)];
      all[all.indexOf(target) + (key === "ArrowDown" ? 1 : -1)]?.focus();
    }
  }
}
