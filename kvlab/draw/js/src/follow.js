/** What is spoken of is in sight where the picture scrolls inside: the current step, and its request. */

const MARGIN = 48;

export function follower(element) {
  let shown = {};

  /** A box's own scrolling, so that the page around it stays where it is. */
  function along(box, from, size, low) {
    if (from - low < box.scrollLeft + MARGIN) box.scrollLeft = from - low - MARGIN;
    else if (from + size > box.scrollLeft + box.clientWidth - MARGIN) {
      box.scrollLeft = from + size - box.clientWidth + MARGIN;
    }
  }

  return (step, id) => {
    const other = { step: step !== shown.step, id: id !== shown.id };
    shown = { step, id };
    const time = other.step && element.querySelector("[data-scroll=time]");
    const now = time && time.querySelector(".k-step[data-now]");
    if (now && time.scrollWidth > time.clientWidth) {
      along(time, now.offsetLeft, now.offsetWidth, time.querySelector(".k-lab")?.offsetWidth ?? 0);
    }
    const cards = other.id && id && element.querySelector(".k-cards");
    if (!cards || cards.scrollHeight <= cards.clientHeight) return;
    const card = cards.querySelector(`[data-request="${CSS.escape(id)}"]`);
    if (!card) return;
    const top = card.offsetTop - cards.offsetTop;
    if (top < cards.scrollTop) cards.scrollTop = top;
    else if (top + card.offsetHeight > cards.scrollTop + cards.clientHeight) {
      cards.scrollTop = Math.min(top, top + card.offsetHeight - cards.clientHeight);
    }
  };
}
