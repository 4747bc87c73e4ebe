/**
 * Puts a live widget in the place of its still. The output of a cell holds the still alone, in an
 * element with the seat's class name: that is what is saved with a notebook. Where a kernel runs, this
 * model finds the element and shows the widget's view in it; where none does, the still is seen.
 */

/** A seat that was taken out of the page for so long gives up its view: milliseconds. */
const AWAY = 30_000;
/** JupyterLab's style for HTML that was written as text: not meant for a widget's headings and tables. */
const TEXT = "jp-RenderedHTMLCommon";

function initialize({ model, signal }) {
  const manager = model.widget_manager;
  const seats = document.getElementsByClassName(model.get("seat"));
  const taken = new Map(); // element to {still, view, timer}

  async function take(seat) {
    const place = { still: [...seat.childNodes], view: null, timer: null, output: null };
    taken.set(seat, place);
    try {
      const widget = await manager.get_model(model.get("widget"));
      const view = await manager.create_view(widget);
      if (taken.get(seat) !== place) return view.remove();
      place.view = view;
      place.output = seat.closest(`.${TEXT}`);
      place.output?.classList.remove(TEXT);
      seat.replaceChildren(view.el);
      // What a notebook's own output would tell it.
      for (const type of ["before-attach", "after-attach"]) view.luminoWidget?.processMessage({ type });
    } catch (error) {
      console.warn(`kvlab: the still stays, its widget cannot be shown (${error?.message ?? error})`);
    }
  }

  function leave(seat) {
    const { view, still, timer, output } = taken.get(seat);
    clearTimeout(timer);
    taken.delete(seat);
    view?.remove();
    output?.classList.add(TEXT);
    seat.replaceChildren(...still);
  }

  function look() {
    for (const seat of seats) if (!taken.has(seat)) take(seat);
    for (const [seat, place] of taken) {
      if (seat.isConnected) {
        clearTimeout(place.timer);
        place.timer = null;
      } else {
        // A windowed notebook takes out what is scrolled away, and puts the same element back.
        place.timer ??= setTimeout(() => leave(seat), AWAY);
      }
    }
  }

  const watcher = new MutationObserver(look);
  watcher.observe(document.body, { childList: true, subtree: true });
  signal.addEventListener("abort", () => {
    watcher.disconnect();
    for (const seat of [...taken.keys()]) leave(seat);
  });
  look();
}

export default { initialize };
