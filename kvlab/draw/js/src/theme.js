/**
 * Which of the two sets of colours fits the host. The player lies on the host's own ground where the
 * host names one (JupyterLab, Voilà), so that ground decides; else an attribute, else the system.
 */

const SYSTEM = "(prefers-color-scheme: dark)";
const GROUND = "--jp-layout-color1";

/** "light" or "dark" for an element in the document. */
export function themeOf(el) {
  const style = getComputedStyle(el);
  if (style.getPropertyValue(GROUND).trim()) {
    const parts = style.backgroundColor.match(/^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)/);
    if (parts) return luma(parts.slice(1).map(Number)) < 128 ? "dark" : "light";
  }
  const host = el.closest("[data-jp-theme-light]");
  if (host) return host.getAttribute("data-jp-theme-light") === "false" ? "dark" : "light";
  const scheme = el.closest("[data-theme]:not(.kvlab-player)")?.getAttribute("data-theme");
  if (scheme === "dark" || scheme === "light") return scheme;
  return matchMedia(SYSTEM).matches ? "dark" : "light";
}

const luma = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue;

/** Call `changed` with the theme now and whenever it changes; returns what stops it. */
export function watchTheme(el, changed) {
  const tell = () => changed(themeOf(el));
  const system = matchMedia(SYSTEM);
  system.addEventListener("change", tell);
  // A host may set its attribute before the theme's style sheet has arrived.
  const later = () => {
    tell();
    setTimeout(tell, 400);
  };
  const attributes = new MutationObserver(later);
  for (const host of [el.ownerDocument.documentElement, el.ownerDocument.body]) {
    attributes.observe(host, {
      attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "data-theme"],
    });
  }
  // A widget is rendered before it is put into the page: its size appears when it has a place.
  const place = new ResizeObserver(tell);
  place.observe(el);
  tell();
  return () => {
    system.removeEventListener("change", tell);
    attributes.disconnect();
    place.disconnect();
  };
}
