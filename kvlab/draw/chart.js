/**
 * A chart on a page: draws a plotly figure with the renderer that the host has for it (JupyterLab's
 * and Voilà's, served by themselves), so that plotly.js is fetched once and never travels with a
 * widget. Follows light and dark; the sentence beside it says the same numbers.
 */
const MIME = "application/vnd.plotly.v1+json";
const SYSTEM = "(prefers-color-scheme: dark)";

const isDark = (el) => {
  const host = el.closest("[data-jp-theme-light]");
  if (host) return host.getAttribute("data-jp-theme-light") === "false";
  return matchMedia(SYSTEM).matches;
};

function render({ model, el }) {
  const figure = document.createElement("figure");
  figure.className = "kvlab-chart";
  const title = document.createElement("h3");
  const place = document.createElement("div");
  place.className = "kvlab-chart-place";
  place.setAttribute("role", "img");
  const caption = document.createElement("figcaption");
  figure.append(title, place, caption);
  el.append(figure);

  let drawn = 0;
  let renderer = null;
  let width = 0;
  let shown = "";
  let hidden = false; // when it should have been drawn

  const drop = () => {
    renderer?.constructor.Plotly?.purge(renderer.node);
    renderer?.dispose();
    renderer = null;
  };

  async function draw() {
    title.textContent = model.get("title");
    caption.textContent = model.get("caption");
    place.setAttribute("aria-label", `${model.get("title")}. ${model.get("caption")}`);
    const spec = model.get(isDark(el) ? "dark" : "light");
    // What is out of sight has no width to be drawn in; the observer calls again when it has.
    hidden = !place.clientWidth;
    if (!spec?.layout || hidden) return;
    const text = JSON.stringify(spec);
    if (text === shown) return;
    shown = text;
    drawn += 1;
    const turn = drawn;
    place.style.minHeight = `${spec.layout.height ?? 320}px`;
    const maker = await model.widget_manager?.rendermime;
    if (turn !== drawn) return;
    drop();
    // Without a renderer the sentence below has to do.
    place.hidden = !maker?.mimeTypes.includes(MIME);
    if (place.hidden) return;
    renderer = maker.createRenderer(MIME);
    place.replaceChildren(renderer.node);
    const data = { [MIME]: { ...JSON.parse(text), config: { displayModeBar: false, responsive: false } } };
    await renderer.renderModel({ data, metadata: {}, trusted: true, setData() {} });
    width = place.clientWidth;
  }

  const fit = () => {
    if (!place.clientWidth) return;
    if (!renderer || hidden) return void draw(); // hidden: while a theme is changed, too
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    if (renderer.node.querySelector(".plot-container")) {
      renderer.constructor.Plotly?.Plots.resize(renderer.node);
    }
  };

  const sizes = new ResizeObserver(() => requestAnimationFrame(fit));
  sizes.observe(figure);
  const system = matchMedia(SYSTEM);
  system.addEventListener("change", draw);
  // JupyterLab takes the page out of layout while it changes its theme.
  const themes = new MutationObserver(() => requestAnimationFrame(draw));
  for (const host of [document.documentElement, document.body]) {
    themes.observe(host, { attributeFilter: ["data-jp-theme-light"] });
  }
  const traits = "change:light change:dark change:title change:caption";
  model.on(traits, draw);
  draw();
  return () => {
    model.off(traits, draw);
    system.removeEventListener("change", draw);
    themes.disconnect();
    sizes.disconnect();
    drawn += 1;
    drop();
  };
}

export default { render };
