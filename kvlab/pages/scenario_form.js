/**
 * A scenario as a form. The document that Python gave stays as it is where no field stands for a part
 * of it (actions, a lesson, sampling settings), so that nothing of a file is lost by opening it here.
 */
const DRAFT = "kvlab lab";
const PAUSE = 400; // ms of quiet after which an edit is told

function render({ model, el }) {
  const spec = model.get("spec");
  const { words, bounds } = spec;
  const field = words.field;
  const form = h("form", { class: "kp-form", novalidate: "" });
  form.setAttribute("data-lm-suppress-shortcuts", "true");
  el.append(form);
  let scenario = {};
  let preset = "";
  let timer = null;
  let opened = false;
  let settings = false;
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

  /** `place` is the field's name in what Python says is wrong. */
  function labelled(place, label, control) {
    control.id = id(place.replaceAll(".", "-"));
    return h("div", { class: "kp-field", "data-place": place }, h("label", { for: control.id }, label), control);
  }

  /** Empty: the key is left out, so that the default holds. What is no number is kept as it is. */
  function number(target, key, fallback) {
    const [least, most] = bounds[key];
    const input = h("input", {
      type: "number", inputmode: "numeric", min: least, max: most, step: "1",
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
    const place = (key) => `requests.${at}.${key}`;
    const name = h("input", { type: "text", value: entry.id ?? "", maxlength: 40 });
    name.addEventListener("input", () => { entry.id = name.value; edited(); });
    const prompt = h("textarea", { rows: 1, spellcheck: "false" }, shown(entry.prompt));
    prompt.addEventListener("input", () => { entry.prompt = meant(prompt.value); edited(); });
    const label = words.remove.replace("{id}", entry.id ?? at + 1);
    const remove = h("button", { type: "button", class: "kp-remove", title: label, "aria-label": label }, "×");
    remove.addEventListener("click", () => {
      requests().splice(at, 1);
      edited();
      draw.requests();
      (form.querySelector(".kp-remove") ?? form.querySelector(".kp-add")).focus();
    });
    const numbers = [["max_tokens"], ["arrival_step", "0"], ["n", "1"], ["priority", "0"]];
    return h(
      "li",
      { class: "kp-request" },
      labelled(place("id"), field.id, name),
      labelled(place("prompt"), field.prompt, prompt),
      ...numbers.map(([key, fallback]) => labelled(place(key), field[key], number(of, key, fallback))),
      remove,
    );
  }

  // Parts, each drawn again by itself.

  const list = h("ol", { class: "kp-requests" });
  const note = h("p", { class: "kp-about" });
  const start = h("button", { type: "submit", class: "kp-run" }, words.run);
  const toggle = h("button", { type: "button", class: "kp-toggle" }, words.settings);
  const drawer = h("div", { class: "kp-drawer", id: id("drawer") });
  toggle.setAttribute("aria-controls", drawer.id);
  const show = (open) => {
    settings = open;
    drawer.hidden = !open;
    toggle.setAttribute("aria-expanded", String(open));
    toggle.textContent = open ? words.hide : words.settings;
  };
  toggle.addEventListener("click", () => show(!settings));
  const draw = {
    all() {
      form.dataset.at = String(model.get("given").at ?? 0);
      const { methods, victims, models, allocations, admissions, orders, unsafe } = spec;
      const presets = h("select", {});
      presets.append(h("option", { value: "" }, words.own));
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
      const of = (key, fallback) => labelled(key, field[key], number(engine, key, fallback));
      const one = (key, options, fallback, target = engine) => labelled(key, field[key], choice(target, key, options, fallback));
      const broken = new Set(engine().unsafe ?? []);
      const more = h(
        "details",
        {},
        h("summary", {}, words.more),
        fieldset(
          words.admission_group,
          one("allocation", allocations, "on_demand"),
          one("admission", admissions, "whole_sequence"),
          of("max_running", words.no_limit),
          of("watermark_blocks", "0"),
          tick(words.for_priority, Boolean(engine().preempt_for_priority), (on) => (engine().preempt_for_priority = on)),
        ),
        fieldset(
          words.work_group,
          of("step_tokens", words.no_limit),
          of("chunk_tokens", words.no_limit),
          one("free_order", orders, "head_first"),
        ),
        fieldset(
          words.unsafe_group,
          ...unsafe.map(([value, label]) =>
            tick(label, broken.has(value), (on) => {
              if (on) broken.add(value);
              else broken.delete(value);
              engine().unsafe = [...broken];
            }),
          ),
        ),
      );
      more.open = opened;
      more.addEventListener("toggle", () => (opened = more.open));
      const add = h("button", { type: "button", class: "kp-add" }, words.add);
      add.addEventListener("click", () => {
        requests().push({ id: unused(), prompt: spec.prompts[added++ % spec.prompts.length], max_tokens: 4 });
        edited();
        draw.requests();
        list.lastElementChild.querySelector("textarea").focus();
      });
      const open = h("input", { type: "file", accept: ".yaml,.yml,.json", class: "kp-open", "aria-label": words.open_label });
      open.addEventListener("change", () => upload(open));
      drawer.replaceChildren(
        h("fieldset", { class: "kp-asked", "data-place": "requests" }, h("legend", {}, words.requests), list, add),
        fieldset(words.memory, of("num_blocks"), of("block_size"), of("host_blocks", "4")),
        fieldset(
          words.shortage,
          one("victim", victims, "newest"),
          one("method", methods, "recompute"),
          of("copy_blocks_per_step", words.all_at_once),
        ),
        fieldset(
          words.model_group,
          one("model", models, "story", () => scenario),
          spec.model_note && h("small", {}, spec.model_note),
          tick(words.cache, Boolean(engine().prefix_cache), (on) => (engine().prefix_cache = on)),
        ),
        more,
        h(
          "div",
          { class: "kp-actions" },
          h("label", { class: "kp-file" }, words.open, open),
          saver(words.save_scenario, "scenario"),
          saver(words.save_trace, "trace"),
        ),
      );
      form.replaceChildren(
        h("div", { class: "kp-strip" }, labelled("preset", words.start_from, presets), start, toggle, note),
        drawer,
      );
      show(settings);
      draw.requests();
      draw.note();
      draw.busy();
    },
    requests() {
      list.replaceChildren(...requests().map(request));
      draw.faults();
    },
    note() {
      if (draw.preset) draw.preset.value = preset;
      const about = spec.presets.find(([name]) => name === preset)?.[2];
      note.textContent = about ?? words.own_about;
      note.title = note.textContent;
    },
    busy() {
      start.disabled = model.get("busy");
    },
    /** What Python says is wrong, at the fields that it is wrong in. */
    faults() {
      const faults = model.get("faults");
      for (const place of form.querySelectorAll("[data-place]")) {
        const wrong = faults[place.dataset.place];
        const control = place.querySelector("input, select, textarea");
        place.querySelector(":scope > .kp-wrong")?.remove();
        if (wrong) place.append(h("p", { class: "kp-wrong" }, wrong));
        if (wrong) control?.setAttribute("aria-invalid", "true");
        else control?.removeAttribute("aria-invalid");
      }
    },
  };

  function refused() {
    const wrong = Object.keys(model.get("faults")).length > 0;
    if (wrong) show(true);
    draw.faults();
    if (wrong) form.querySelector("[aria-invalid]")?.focus();
  }

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
    if (model.get("busy")) return;
    tell("run");
    show(false);
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !settings) return;
    show(false);
    toggle.focus();
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
  model.on("change:faults", refused);
  model.on("msg:custom", hear);
  take();
  return () => {
    clearTimeout(timer);
    model.off("change:given", take);
    model.off("change:busy", draw.busy);
    model.off("change:faults", refused);
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
