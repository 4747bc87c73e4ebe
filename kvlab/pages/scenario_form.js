/**
 * A scenario as a form. The document that Python gave stays as it is where no field stands for a part
 * of it (actions, a lesson, sampling settings), so that nothing of a file is lost by opening it here.
 */
const DRAFT = "kvlab lab";
const PAUSE = 400; // ms of quiet after which an edit is told

function render({ model, el }) {
  const spec = model.get("spec");
  const form = h("form", { class: "kp-form", novalidate: "" });
  form.setAttribute("data-lm-suppress-shortcuts", "true");
  el.append(form);
  let scenario = {};
  let preset = "";
  let timer = null;
  let opened = false;
  let added = 0;
  /** Nothing was touched since the page was loaded. */
  let fresh = true;
  /** Marks of what Python has given, and of what it was told since. */
  const known = [];

  // Reading and writing one value of the document.

  const engine = () => (scenario.engine ??= {});
  const requests = () => (scenario.requests ??= []);

  function edited() {
    preset = "";
    fresh = false;
    draw.note();
    remember();
    clearTimeout(timer);
    timer = setTimeout(() => tell("edit"), PAUSE);
  }

  function tell(type) {
    clearTimeout(timer);
    timer = null;
    if (send({ type, scenario })) known.push(markOf(scenario));
  }

  /** False when there is no kernel to tell: the bar says so, and the tab keeps what is in the form. */
  function send(message) {
    try {
      model.send(message);
      return true;
    } catch {
      return false;
    }
  }

  function remember() {
    try {
      sessionStorage.setItem(DRAFT, JSON.stringify({ known: known.slice(-100), scenario }));
    } catch {
      // A tab without storage keeps nothing; the address still does.
    }
  }

  /** What was typed after Python last heard of it: on a reload, if Python is where it was before. */
  function draft(given) {
    try {
      const [{ type }] = performance.getEntriesByType("navigation");
      // A page of ours in between, such as the one that asks for the token, is no new visit.
      const again = type !== "navigate" || el.ownerDocument.referrer.startsWith(`${location.origin}/`);
      const kept = JSON.parse(sessionStorage.getItem(DRAFT));
      return again && kept.known.includes(markOf(given)) ? kept.scenario : null;
    } catch {
      return null;
    }
  }

  // Fields.

  const id = (name) => `kp-${name}-${form.dataset.at ?? 0}`;

  function labelled(name, label, control, unit = "") {
    control.id = id(name);
    return h("div", { class: "kp-field" }, h("label", { for: control.id }, label), control, unit && h("small", {}, unit));
  }

  /** Empty: the key is left out, so that the default holds. What is no number is kept as it is. */
  function number(target, key, bounds, fallback) {
    const input = h("input", {
      type: "number", inputmode: "numeric", min: bounds[0], max: bounds[1], step: "1",
      placeholder: fallback ?? "", value: target()[key] ?? "",
    });
    input.addEventListener("input", () => {
      if (input.value === "" && !input.validity.badInput) delete target()[key];
      else target()[key] = input.value === "" || Number.isNaN(Number(input.value)) ? input.value || "?" : Number(input.value);
      edited();
    });
    return input;
  }

  function choice(target, key, options, fallback) {
    const now = target()[key] === undefined ? fallback : target()[key];
    const select = h("select", {});
    const all = options.some(([value]) => value === now) ? options : [...options, [now, String(now)]];
    all.forEach(([value, label], at) => {
      const option = h("option", { value: at }, label);
      option.selected = value === now;
      select.append(option);
    });
    select.addEventListener("change", () => {
      target()[key] = all[Number(select.value)][0];
      edited();
    });
    return select;
  }

  function tick(label, on, change) {
    const input = h("input", { type: "checkbox" });
    input.checked = on;
    input.addEventListener("change", () => {
      change(input.checked);
      edited();
    });
    return h("label", { class: "kp-tick" }, input, label);
  }

  function fieldset(legend, ...fields) {
    return h("fieldset", {}, h("legend", {}, legend), ...fields);
  }

  // A prompt is a text, or token ids with commas between them.

  const shown = (prompt) => (Array.isArray(prompt) ? prompt.join(", ") : (prompt ?? ""));
  const meant = (text) => (/^\s*\d+(\s*,\s*\d+)*\s*,?\s*$/.test(text) ? text.split(",").filter((part) => part.trim()).map(Number) : text);

  function request(entry, at) {
    const of = () => entry;
    const bounds = spec.bounds;
    const name = h("input", { type: "text", value: entry.id ?? "", maxlength: 40 });
    name.addEventListener("input", () => { entry.id = name.value; edited(); });
    const prompt = h("textarea", { rows: 1, spellcheck: "false" }, shown(entry.prompt));
    prompt.addEventListener("input", () => { entry.prompt = meant(prompt.value); edited(); });
    const remove = h("button", { type: "button", class: "kp-remove", title: "Remove this request" }, "×");
    remove.setAttribute("aria-label", `Remove request ${entry.id ?? at + 1}`);
    remove.addEventListener("click", () => {
      requests().splice(at, 1);
      edited();
      draw.requests();
      (form.querySelector(".kp-remove") ?? form.querySelector(".kp-add")).focus();
    });
    return h(
      "li",
      { class: "kp-request" },
      labelled(`id${at}`, "name", name),
      labelled(`prompt${at}`, "prompt", prompt),
      labelled(`max${at}`, "outputs", number(of, "max_tokens", bounds.max_tokens)),
      labelled(`arrival${at}`, "arrives", number(of, "arrival_step", bounds.arrival_step, "0")),
      labelled(`n${at}`, "samples", number(of, "n", bounds.n, "1")),
      labelled(`priority${at}`, "priority", number(of, "priority", bounds.priority, "0")),
      remove,
    );
  }

  // Parts, each drawn again by itself.

  const list = h("ol", { class: "kp-requests" });
  const note = h("p", { class: "kp-about" });
  const start = h("button", { type: "submit", class: "kp-run" }, "Run");
  const draw = {
    all() {
      form.dataset.at = String(model.get("given").at ?? 0);
      const { bounds, methods, victims, models, allocations, admissions, orders, unsafe } = spec;
      const presets = h("select", {});
      presets.append(h("option", { value: "" }, "your own"));
      for (const [name, title] of spec.presets) {
        const option = h("option", { value: name }, title);
        option.selected = name === preset;
        presets.append(option);
      }
      presets.addEventListener("change", () => {
        fresh = false;
        if (presets.value) send({ type: "preset", name: presets.value });
      });
      draw.preset = presets;
      const broken = new Set(engine().unsafe ?? []);
      const more = h(
        "details",
        {},
        h("summary", {}, "More settings"),
        h(
          "div",
          { class: "kp-fields" },
          fieldset(
            "Admission",
            labelled("allocation", "blocks are given", choice(engine, "allocation", allocations, "on_demand")),
            labelled("admission", "comes in with room for", choice(engine, "admission", admissions, "whole_sequence")),
            labelled("running", "run at once, at most", number(engine, "max_running", bounds.count, "no limit")),
            labelled("watermark", "blocks kept free", number(engine, "watermark_blocks", bounds.blocks0, "0")),
          ),
          fieldset(
            "Work of a step",
            labelled("step", "tokens in a step, at most", number(engine, "step_tokens", bounds.count, "no limit")),
            labelled("chunk", "of one request, at most", number(engine, "chunk_tokens", bounds.count, "no limit")),
            labelled("order", "order of the free list", choice(engine, "free_order", orders, "head_first")),
          ),
          fieldset(
            "Break an ordering on purpose",
            ...unsafe.map(([value, label]) =>
              tick(label, broken.has(value), (on) => {
                if (on) broken.add(value);
                else broken.delete(value);
                engine().unsafe = [...broken];
              }),
            ),
          ),
        ),
      );
      more.open = opened;
      more.addEventListener("toggle", () => (opened = more.open));
      const add = h("button", { type: "button", class: "kp-add" }, "Add a request");
      add.addEventListener("click", () => {
        requests().push({ id: unused(), prompt: spec.prompts[added++ % spec.prompts.length], max_tokens: 4 });
        edited();
        draw.requests();
        list.lastElementChild.querySelector("textarea").focus();
      });
      const open = h("input", { type: "file", accept: ".yaml,.yml,.json", class: "kp-open" });
      open.setAttribute("aria-label", "Open a scenario or trace file");
      open.addEventListener("change", () => upload(open));
      form.replaceChildren(
        h("div", { class: "kp-from" }, labelled("preset", "Start from", presets), note),
        h(
          "div",
          { class: "kp-fields" },
          fieldset(
            "Memory",
            labelled("blocks", "blocks in the GPU pool", number(engine, "num_blocks", bounds.blocks)),
            labelled("size", "positions in a block", number(engine, "block_size", bounds.block_size)),
            labelled("host", "blocks in the CPU pool", number(engine, "host_blocks", bounds.blocks0, "4")),
          ),
          fieldset(
            "When a block is needed and none is free",
            labelled("victim", "who is paused", choice(engine, "victim", victims, "newest")),
            labelled("method", "how it comes back", choice(engine, "method", methods, "recompute")),
            labelled("copy", "blocks copied in a step", number(engine, "copy_blocks_per_step", bounds.count, "all at once")),
          ),
          fieldset(
            "Model and sharing",
            labelled("model", "model", choice(() => scenario, "model", models, "story")),
            tick("prefix cache: equal beginnings share blocks", Boolean(engine().prefix_cache), (on) => (engine().prefix_cache = on)),
          ),
        ),
        more,
        h("fieldset", { class: "kp-asked" }, h("legend", {}, "Requests"), list, add),
        h(
          "div",
          { class: "kp-actions" },
          start,
          h("label", { class: "kp-file" }, "Open a file", open),
          saver("Save the scenario", "scenario"),
          saver("Save the trace", "trace"),
        ),
      );
      draw.requests();
      draw.note();
      draw.busy();
    },
    requests() {
      list.replaceChildren(...requests().map(request));
    },
    note() {
      if (draw.preset) draw.preset.value = preset;
      const about = spec.presets.find(([name]) => name === preset)?.[2];
      const more = (scenario.actions ?? []).length;
      const actions = more ? ` It also has ${more} ${more === 1 ? "action" : "actions"} of its own, which stay.` : "";
      note.textContent = (about ?? "Your own scenario. Its address holds it: a link brings it back.") + actions;
    },
    busy() {
      start.disabled = model.get("busy");
    },
  };

  function unused() {
    const taken = new Set(requests().map((entry) => entry.id));
    return [..."ABCDEFGHIJKLMNOPQRSTUVWXYZ"].find((letter) => !taken.has(letter)) ?? `R${requests().length + 1}`;
  }

  // Files.

  function saver(label, what) {
    const press = h("button", { type: "button", class: "kp-save" }, label);
    press.addEventListener("click", () => {
      flush();
      if (send({ type: "want", what }) || what !== "scenario") return;
      hear({ type: "file", name: "scenario.json", text: JSON.stringify(scenario, null, 2) });
    });
    return press;
  }

  async function upload(input) {
    const [file] = input.files;
    input.value = "";
    if (!file) return;
    // What is too large is refused by Python, in words; the file need not travel for that.
    const text = file.size > spec.largest_file ? "" : await file.text();
    send({ type: "file", name: file.name, size: file.size, text });
  }

  function hear(content) {
    if (content?.type !== "file") return;
    const address = URL.createObjectURL(new Blob([content.text], { type: "application/json" }));
    const link = h("a", { href: address, download: content.name });
    form.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  function flush() {
    if (timer !== null) tell("edit");
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!model.get("busy")) tell("run");
  });

  function take() {
    const given = model.get("given");
    if (!given.scenario) return;
    const kept = fresh ? draft(given.scenario) : null;
    scenario = structuredClone(kept ?? given.scenario);
    preset = kept ? "" : given.preset;
    draw.all();
    known.push(markOf(given.scenario));
    if (kept) tell("edit");
  }

  model.on("change:given", take);
  model.on("change:busy", draw.busy);
  model.on("msg:custom", hear);
  take();
  return () => {
    clearTimeout(timer);
    model.off("change:given", take);
    model.off("change:busy", draw.busy);
    model.off("msg:custom", hear);
  };
}

/** A short mark of what a form says; name and lesson are Python's to change. */
function markOf({ model, engine, requests, actions }) {
  let mark = 0;
  for (const sign of JSON.stringify([model ?? "", engine, requests, actions ?? []])) {
    mark = (mark * 31 + sign.codePointAt(0)) | 0;
  }
  return mark;
}

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter(Boolean));
  return element;
}

export default { render };
