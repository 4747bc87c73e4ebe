/**
 * Puts a live widget in the place of its still. The output of a cell holds the still alone, in an
 * element with the still's class name: that is what is saved with a notebook. Where a kernel runs, this
 * model finds the element and shows the widget's view in it; where none does, the still is seen.
 * A page that speaks another language than the widget says so once.
 */

/** A still that was taken out of the page for so long gives up its view: milliseconds. */
const AWAY = 30_000;
/** JupyterLab's style for HTML that was written as text: not meant for a widget's headings and tables. */
const TEXT = "jp-RenderedHTMLCommon";

/** The language that was asked for in the address, or the browser's. */
function language() {
  const asked = new URLSearchParams(location.search).get("lang");
  return (asked ?? navigator.language).slice(0, 2).toLowerCase();
}

function initialize({ model, signal }) {
  const manager = model.widget_manager;
  const stills = document.getElementsByClassName(model.get("still"));
  const replaced = new Map(); // element to {nodes, view, timer, output}

  /** The still was written anew: the view that is there moves into it, as it is. */
  function moved(still) {
    for (const [old, place] of replaced) {
      if (old.isConnected || !place.view) continue;
      clearTimeout(place.timer);
      replaced.delete(old);
      Object.assign(place, { nodes: [...still.childNodes], timer: null, output: still.closest(`.${TEXT}`) });
      replaced.set(still, place);
      place.output?.classList.remove(TEXT);
      still.replaceChildren(place.view.el);
      if (document.activeElement === document.body) place.focus?.focus({ preventScroll: true });
      return true;
    }
    return false;
  }

  async function replace(still) {
    if (moved(still)) return;
    const place = { nodes: [...still.childNodes], view: null, timer: null, output: null, focus: null };
    replaced.set(still, place);
    try {
      const widget = await manager.get_model(model.get("widget"));
      const view = await manager.create_view(widget);
      if (replaced.get(still) !== place) return view.remove();
      place.view = view;
      view.el.addEventListener("focusin", (event) => (place.focus = event.target));
      view.el.addEventListener("focusout", (event) => event.relatedTarget && (place.focus = null));
      place.output = still.closest(`.${TEXT}`);
      place.output?.classList.remove(TEXT);
      still.replaceChildren(view.el);
      // What a notebook's own output would tell it.
      for (const type of ["before-attach", "after-attach"]) view.luminoWidget?.processMessage({ type });
    } catch (error) {
      console.warn(`kvlab: the still stays, its widget cannot be shown (${error?.message ?? error})`);
    }
  }

  function restore(still) {
    const { view, nodes, timer, output } = replaced.get(still);
    clearTimeout(timer);
    replaced.delete(still);
    view?.remove();
    output?.classList.add(TEXT);
    still.replaceChildren(...nodes);
  }

  function look() {
    for (const still of stills) if (!replaced.has(still)) replace(still);
    for (const [still, place] of replaced) {
      if (still.isConnected) {
        clearTimeout(place.timer);
        place.timer = null;
      } else {
        // A windowed notebook takes out what is scrolled away, and puts the same element back.
        place.timer ??= setTimeout(() => restore(still), AWAY);
      }
    }
  }

  if (language() !== model.get("language")) model.send({ language: language() });
  const watcher = new MutationObserver(look);
  watcher.observe(document.body, { childList: true, subtree: true });
  signal.addEventListener("abort", () => {
    watcher.disconnect();
    for (const still of [...replaced.keys()]) restore(still);
  });
  look();
}

export default { initialize };
