/**
 * Which of the two sets of colours fits the host: JupyterLab and Voilà say it in an attribute; any
 * other page says it with its own colours, or the system does.
 */

const SYSTEM = "(prefers-color-scheme: dark)";

/** "light" or "dark" for an element in the document. */
export function themeOf(el) {
  const host = el.closest("[data-jp-theme-light]");
  if (host) return host.getAttribute("data-jp-theme-light") === "false" ? "dark" : "light";
  const scheme = el.closest("[data-theme]:not(.kvlab-player)")?.getAttribute("data-theme");
  if (scheme === "dark" || scheme === "light") return scheme;
  return matchMedia(SYSTEM).matches ? "dark" : "light";
}

/** Call `changed` with the theme now and whenever it changes; returns what stops it. */
export function watchTheme(el, changed) {
  const tell = () => changed(themeOf(el));
  const system = matchMedia(SYSTEM);
  system.addEventListener("change", tell);
  const observer = new MutationObserver(tell);
  const watch = el.ownerDocument;
  for (const host of [watch.documentElement, watch.body]) {
    observer.observe(host, { attributeFilter: ["data-jp-theme-light", "data-theme"] });
  }
  tell();
  return () => {
    system.removeEventListener("change", tell);
    observer.disconnect();
  };
}
