/**
 * Whether the kernel still answers. Plain messages, `{type: "ping", beat}` and `{type: "pong", beat}`,
 * every few seconds while somebody may be looking: a page that nobody has touched for a while asks
 * nothing, so that an idle kernel can be culled.
 */

/** How many times as fast time passes here: a test says more than 1, so as not to wait. */
export const HASTE = globalThis.kvlabHaste ?? 1;
export const EVERY = 2500 / HASTE;
/** Silence that means that nobody is there; with one interval more it stays below 10 s. */
export const PATIENCE = 6000 / HASTE;
const AWAKE = 10 * 60_000;

/** Call `tell(silent)` when that changes. Returns what stops it. */
export function heartbeat(model, el, tell) {
  const page = el.ownerDocument;
  let beat = 0;
  let silent = false;
  let heard = Date.now();
  let touched = Date.now();

  const say = (now) => {
    if (now === silent) return;
    silent = now;
    tell(silent);
  };

  /** A kernel that is known to work on something cannot answer, and is there. */
  function busy() {
    const kernel = model.widget_manager?.kernel;
    return kernel?.status === "busy" && kernel.connectionStatus === "connected";
  }

  function ask() {
    if (page.hidden || !el.isConnected || Date.now() - touched > AWAKE) {
      heard = null;
      return;
    }
    // Nothing was asked while the page slept, so nothing can have been heard.
    if (heard === null || busy()) heard = Date.now();
    if (Date.now() - heard >= PATIENCE) say(true);
    beat += 1;
    try {
      model.send({ type: "ping", beat });
    } catch {
      // A model without a kernel cannot send: that is silence, too.
    }
  }

  function hear(content) {
    if (content?.type !== "pong") return;
    heard = Date.now();
    say(false);
  }

  function touch() {
    const slept = Date.now() - touched > AWAKE;
    touched = Date.now();
    if (slept) ask();
  }

  const timer = setInterval(ask, EVERY);
  model.on("msg:custom", hear);
  for (const kind of ["pointermove", "pointerdown", "keydown"]) el.addEventListener(kind, touch);
  ask();
  return () => {
    clearInterval(timer);
    model.off("msg:custom", hear);
    for (const kind of ["pointermove", "pointerdown", "keydown"]) el.removeEventListener(kind, touch);
  };
}
