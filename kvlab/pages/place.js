/**
 * The bar at the top of the dashboard. It owns the address: what Python says stands in it, with the
 * cursor of the player on show. Back and forward, a reload and a link all ask Python to go there.
 */
const STORE = "kvlab";
/** A change of one of these is a new entry of the history; others replace the one there is. */
const TURNS = ["page", "scenario"];
const LOOK = 4000 / HASTE; // ms between two looks at what has become of the kernel
const KEPT = "What is on show can still be replayed, and what you write is kept";
const FATES = {
  ended: `The engine of this page has ended. ${KEPT}: load the page again to go on.`,
  offline: `No connection to the lab. ${KEPT}; the page goes on trying.`,
  silent: `The engine does not answer. ${KEPT}; wait, or load the page again.`,
};

function render({ model, el }) {
  const page = el.ownerDocument;
  const { location, history, navigator } = page.defaultView;
  // In a notebook the address is the notebook's.
  const linked = page.body.dataset.voila === "voila";
  const bar = make("header", { class: "kp-bar" });
  const nav = make("nav", { "aria-label": "Pages" });
  const said = make("span", { class: "kp-copied", role: "status" });
  const copy = make("button", { type: "button", class: "kp-copy" }, "Copy link");
  const address = make("input", { class: "kp-address", readonly: "", "aria-label": "Link to this view" });
  bar.append(make("span", { class: "kp-brand" }, "kvlab"), nav, said);
  if (linked) bar.append(copy, address);
  address.hidden = true;
  el.append(bar);

  for (const [name, label] of model.get("pages")) {
    nav.append(make("a", { href: `?page=${name}`, "data-page": name }, label));
  }

  /** Where the page is, as an address. */
  function wanted() {
    const query = new URLSearchParams(model.get("query"));
    if (player && player.get(at) !== (player.get("start") ?? 0)) query.set(at, player.get(at));
    const next = new URL(location.href);
    next.search = query.toString();
    return next;
  }

  function show() {
    for (const link of nav.children) {
      const here = link.dataset.page === model.get("page");
      if (here) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
      if (here && linked) page.title = `${link.textContent} · kvlab`;
    }
    said.textContent = "";
    address.hidden = true;
    // Before Python has gone where this page was asked for, the address is the reader's wish.
    const asked = model.get("answered") === 0;
    bar.setAttribute("aria-busy", String(asked));
    if (!linked || asked) return;
    const next = wanted();
    if (next.search === location.search) return;
    const before = new URLSearchParams(location.search);
    const turned = before.has("page") && TURNS.some((name) => before.get(name) !== next.searchParams.get(name));
    history[turned ? "pushState" : "replaceState"](null, "", next);
  }

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
    } catch {
      // What is on show stays, and so does what was written.
    }
  }
  const go = () => send({ type: "go", query: location.search, kept: read() });
  const back = () => linked && go();

  copy.addEventListener("click", async () => {
    const text = linked ? wanted().href : "";
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = "The link is in the clipboard.";
    } catch {
      said.textContent = "Copy the link from here:";
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
    gone.replaceChildren(make("p", {}, FATES[found]));
    if (found !== "offline") {
      const again = make("button", { type: "button" }, "Load the page again");
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

  /** A link to a page, here or in a text, turns to it and keeps the kernel. */
  function onClick(event) {
    const link = event.target.closest?.(".kvlab-page a[data-page]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    send({ type: "page", page: link.dataset.page });
    if (!nav.contains(link)) page.defaultView.scrollTo?.({ top: 0 });
  }

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

  model.on("change:query", show);
  model.on("change:answered", show);
  model.on("change:kept", keep);
  model.on("change:player", follow);
  page.defaultView.addEventListener("popstate", back);
  if (linked) page.addEventListener("keydown", onKey);
  page.addEventListener("click", onClick);
  follow();
  let quiet = () => {};
  if (linked) {
    page.body.append(gone);
    quiet = heartbeat(model, page.body, tell);
  }
  send({ type: "go", query: linked ? location.search : "", kept: read() });
  return () => {
    turn += 1;
    quiet();
    clearInterval(looking);
    gone.remove();
    player?.off(`change:${at}`, show);
    player?.off("change:answers", keepAnswers);
    model.off("change:query", show);
    model.off("change:answered", show);
    model.off("change:kept", keep);
    model.off("change:player", follow);
    page.defaultView.removeEventListener("popstate", back);
    page.removeEventListener("keydown", onKey);
    page.removeEventListener("click", onClick);
  };
}

function make(tag, attributes, text = "") {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

export default { render };
