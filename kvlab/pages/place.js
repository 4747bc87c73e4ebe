/**
 * The line at the top of the dashboard: pages, chapters, the link. It owns the address: what Python says
 * stands in it, with the cursor of the player on show. Back and forward, a reload, a link and another
 * language all ask Python to go there; until it has answered, the address is the reader's and is not
 * touched.
 */
const STORE = "kvlab";
/** A change of one of these is a new entry of the history; others replace the one there is. */
const TURNS = ["page", "chapter", "scenario"];
const LOOK = 4000 / HASTE; // ms between two looks at what has become of the kernel

function render({ model, el }) {
  const page = el.ownerDocument;
  const { location, history, navigator } = page.defaultView;
  // In a notebook the address is the notebook's.
  const linked = page.body.dataset.voila === "voila";
  const t = (key) => model.get("words")[key] ?? key;
  const bar = make("header", { class: "kp-bar" });
  const nav = make("nav");
  const chapters = make("nav", { class: "kp-chapters" });
  const said = make("span", { class: "kp-copied", role: "status" });
  const copy = make("button", { type: "button", class: "kp-copy" });
  const other = make("a", { class: "kp-language" });
  const address = make("input", { class: "kp-address", readonly: "" });
  const more = make("a", { class: "kp-more", href: "#kp-below" });
  bar.append(make("span", { class: "kp-brand" }, "kvlab"), nav, chapters, more, said);
  if (linked) bar.append(copy, other, address);
  address.hidden = true;
  el.append(bar);

  /** The words of the line, in the language that is spoken. */
  function speak() {
    const language = model.get("language");
    if (linked) page.documentElement.lang = language;
    bar.lang = language;
    nav.setAttribute("aria-label", t("pages"));
    chapters.setAttribute("aria-label", t("chapters"));
    copy.textContent = t("copy");
    address.setAttribute("aria-label", t("address"));
    more.textContent = `${t("more")} ↓`;
    other.textContent = t("other");
    other.lang = other.hreflang = t("other_language");
    other.href = `?lang=${t("other_language")}`;
    nav.replaceChildren(
      ...model.get("pages").map(([name, label]) => make("a", { href: `?page=${name}`, "data-page": name }, label)),
    );
    chapters.replaceChildren(
      ...model.get("chapters").map(([number, label]) => {
        const link = make("a", { href: `?chapter=${number}`, "data-chapter": number });
        link.append(make("b", {}, number), make("span", {}, ` ${label}`));
        return link;
      }),
    );
    show();
  }

  /** Where the page is, as an address. */
  function wanted() {
    const query = new URLSearchParams(model.get("query"));
    if (player && player.get(at) !== (player.get("start") ?? 0)) query.set(at, player.get(at));
    const next = new URL(location.href);
    next.search = query.toString();
    next.hash = "";
    return next;
  }

  /** Asked and not yet answered: the address says where the reader wants to be. */
  let asked = 0;
  let began = false;
  const heard = model.get("answered");
  const waiting = () => !began || model.get("answered") - heard < asked;

  function show() {
    const name = model.get("page");
    const query = new URLSearchParams(model.get("query"));
    for (const link of nav.children) mark(link, link.dataset.page === name, "page");
    for (const link of chapters.children) mark(link, link.dataset.chapter === query.get("chapter"), "step");
    chapters.hidden = more.hidden = !query.has("chapter");
    said.textContent = "";
    address.hidden = true;
    bar.setAttribute("aria-busy", String(waiting()));
    if (linked) {
      const here = nav.querySelector("[aria-current]")?.textContent ?? "";
      const part = chapters.querySelector("[aria-current]")?.textContent ?? here;
      page.title = `${part} · kvlab`;
    }
    if (!linked || waiting()) return;
    el.closest(".kvlab-page")?.removeAttribute("data-asked");
    const next = wanted();
    if (next.search === location.search) return;
    const before = new URLSearchParams(location.search);
    const turned = TURNS.some((part) => before.get(part) !== next.searchParams.get(part));
    // The first entry was the reader's own; what Python makes of it takes its place.
    history[turned && settled ? "pushState" : "replaceState"](null, "", next);
  }
  let settled = false;
  function answered() {
    show();
    if (!waiting()) settled = true;
  }

  const mark = (link, here, kind) => (here ? link.setAttribute("aria-current", kind) : link.removeAttribute("aria-current"));

  // What a person wrote.

  const read = () => {
    try {
      return JSON.parse(sessionStorage.getItem(STORE) ?? "{}") ?? {};
    } catch {
      return {};
    }
  };
  const write = (change) => {
    try {
      sessionStorage.setItem(STORE, JSON.stringify({ ...read(), ...change }));
    } catch {
      // A tab without storage, or a full one: the page works, and keeps nothing.
    }
  };
  const keep = () => write(model.get("kept"));

  let player = null;
  /** What says where it stands: a player's event, or the step that two runs share. */
  let at = "cursor";
  let turn = 0;
  const keepAnswers = () => {
    const answers = player.get("answers");
    if (model.get("run")) write({ answers: { ...read().answers, [model.get("run")]: answers } });
  };
  async function follow() {
    const mine = (turn += 1);
    const id = model.get("player");
    const found = id ? await model.widget_manager?.get_model(id) : null;
    if (mine !== turn) return;
    player?.off(`change:${at}`, show);
    player?.off("change:answers", keepAnswers);
    player = found;
    at = player?.get("step") === undefined ? "cursor" : "step";
    player?.on(`change:${at}`, show);
    player?.on("change:answers", keepAnswers);
    show();
  }

  /** A kernel that has gone cannot be told anything; the page says so below. */
  function send(message) {
    try {
      model.send(message);
      return true;
    } catch {
      return false; // what is on show stays, and so does what was written
    }
  }
  function go() {
    const query = linked ? location.search : "";
    settled = false;
    began = true;
    if (send({ type: "go", query, kept: read(), languages: [...navigator.languages] })) asked += 1;
    show();
  }
  const back = () => linked && go();

  copy.addEventListener("click", async () => {
    const text = linked ? wanted().href : "";
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = t("copied");
      setTimeout(() => (said.textContent = ""), 4000);
    } catch {
      said.textContent = t("copy_here");
      address.value = text;
      address.hidden = false;
      address.select();
    }
  });

  // Whether the engine is there.

  const gone = make("div", { class: "kp-gone", role: "alert", hidden: "" });
  let looking = null;

  /** What has become of the kernel, by what the server says to whoever asks for it. */
  async function fate() {
    const kernel = model.widget_manager?.kernel;
    if (!kernel) return "silent";
    const { baseUrl } = kernel.serverSettings;
    try {
      const answer = await fetch(`${baseUrl}api/kernels/${kernel.id}`, { cache: "no-store" });
      if (!answer.ok || answer.redirected || kernel.isDisposed) return "ended";
    } catch {
      if (kernel.isDisposed) return "ended";
      connect(kernel);
      return "offline";
    }
    if (kernel.connectionStatus !== "connected") connect(kernel);
    return "silent";
  }

  /** At once, and as often as it takes: left alone, a page waits ever longer and gives up. */
  function connect(kernel) {
    kernel.reconnect().catch(() => {});
  }

  async function look() {
    const mine = looking;
    const found = await fate();
    if (mine === null || mine !== looking || gone.dataset.fate === found) return;
    gone.dataset.fate = found;
    gone.replaceChildren(make("p", {}, t(found)));
    if (found !== "offline") {
      const again = make("button", { type: "button" }, t("reload"));
      again.addEventListener("click", () => location.reload());
      gone.append(again);
    }
    gone.hidden = false;
    if (found === "ended") clearInterval(looking);
  }

  function tell(silent) {
    clearInterval(looking);
    looking = null;
    if (silent) {
      looking = setInterval(look, LOOK);
      look();
    } else {
      gone.hidden = true;
      delete gone.dataset.fate;
    }
  }

  /** A link to a page, a chapter or a language, here or in a text, keeps the kernel. */
  function onClick(event) {
    const link = event.target.closest?.(".kvlab-page a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const { page: name, chapter } = link.dataset;
    if (link === more) {
      event.preventDefault();
      page.querySelector(".kp-below")?.scrollIntoView({ block: "start", behavior: "smooth" });
    } else if (link === other && linked) {
      event.preventDefault();
      const next = wanted();
      next.searchParams.set("lang", t("other_language"));
      history.pushState(null, "", next);
      go();
    } else if (name || chapter) {
      event.preventDefault();
      settled = true;
      send(name ? { type: "page", page: name } : { type: "chapter", chapter });
      toTop();
    }
  }

  function toTop() {
    page.defaultView.scrollTo?.({ top: 0 });
  }
  const hear = (content) => content?.type === "top" && linked && toTop();

  /** Arrow keys move the player in sight while nothing has the focus that could use them. */
  function onKey(event) {
    if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const held = page.activeElement;
    if (held && held !== page.body && !held.matches("button, a, summary")) return;
    const inSight = [...page.querySelectorAll(".kvlab-player")].find((one) => {
      const box = one.getBoundingClientRect();
      return box.height > 0 && box.bottom > 80 && box.top < page.defaultView.innerHeight - 80;
    });
    if (!inSight || inSight.contains(held)) return;
    event.preventDefault();
    inSight.focus({ preventScroll: true });
    inSight.dispatchEvent(new KeyboardEvent("keydown", { key: event.key, shiftKey: event.shiftKey }));
  }

  const listeners = {
    "change:query": show,
    "change:answered": answered,
    "change:language": speak,
    "change:kept": keep,
    "change:player": follow,
    "msg:custom": hear,
  };
  for (const [name, listener] of Object.entries(listeners)) model.on(name, listener);
  page.defaultView.addEventListener("popstate", back);
  if (linked) page.addEventListener("keydown", onKey);
  page.addEventListener("click", onClick);
  // Rendered in advance in one language: not shown to who reads another, for as long as that may take.
  const reads = new URLSearchParams(location.search).get("lang") ?? navigator.language.slice(0, 2);
  if (linked && reads === t("other_language")) {
    el.closest(".kvlab-page")?.setAttribute("data-asked", "");
    setTimeout(() => el.closest(".kvlab-page")?.removeAttribute("data-asked"), LOOK);
  }
  speak();
  follow();
  const sliders = new MutationObserver(nameSliders);
  sliders.observe(page.body, { childList: true, subtree: true });
  let quiet = () => {};
  if (linked) {
    page.body.append(gone);
    quiet = heartbeat(model, page.body, tell);
  }
  go();
  return () => {
    turn += 1;
    quiet();
    sliders.disconnect();
    clearInterval(looking);
    gone.remove();
    player?.off(`change:${at}`, show);
    player?.off("change:answers", keepAnswers);
    for (const [name, listener] of Object.entries(listeners)) model.off(name, listener);
    page.defaultView.removeEventListener("popstate", back);
    page.removeEventListener("keydown", onKey);
    page.removeEventListener("click", onClick);
  };
}

/** The host's sliders show their name beside the handle, and do not tell it to a screen reader. */
function nameSliders() {
  for (const handle of document.querySelectorAll(".noUi-handle:not([aria-label])")) {
    const label = handle.closest(".widget-slider")?.querySelector(".widget-label");
    if (label?.textContent) handle.setAttribute("aria-label", label.textContent);
  }
}

function make(tag, attributes = {}, text = "") {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

export default { render };
