// The quiz's own part: the questions that lie in the page, their verdicts, and the answers as a file.
{
  const data = JSON.parse(document.getElementById("kvlab-run").textContent);
  const { words, items, form, seed } = data;
  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const make = (tag, attributes = {}, ...inside) => {
    const el = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) el.setAttribute(name, value);
    el.append(...inside);
    return el;
  };

  const student = make("input", { id: "student", autocomplete: "off", maxlength: "40" });
  const sheet = make("form", {});
  sheet.append(
    make("p", {}, words.lead),
    make("p", {}, make("label", { for: "student" }, words.student), " ", student),
  );
  const fields = items.map((item, number) => {
    const verdict = make("p", { class: "verdict" });
    const options = item.options.map((option, at) => {
      const input = make("input", { type: "radio", name: item.construct, value: String(at) });
      return make("label", {}, input, ` ${item.labels[at]}`);
    });
    const legend = make("legend", {}, `${number + 1}. ${item.text}`);
    const field = make("fieldset", { "data-item": item.construct }, legend, ...options, verdict);
    sheet.append(field);
    return { item, field, verdict };
  });
  const status = make("p", { role: "status" });
  const button = make("button", { type: "submit" }, words.check);
  sheet.append(button, status);
  document.querySelector("main").append(sheet);

  const chosen = ({ item }) => sheet.elements[item.construct].value;
  let warned = false;

  sheet.addEventListener("submit", (event) => {
    event.preventDefault();
    const open = fields.filter((one) => chosen(one) === "").length;
    if (open && !warned) {
      warned = true;
      status.textContent = fill(words.open, { n: open });
      return;
    }
    finish();
  });

  function finish() {
    const rows = [["student", "form", "seed", "item", "given", "right", "misconception"]];
    let right = 0;
    for (const one of fields) {
      const { item, field, verdict } = one;
      const at = chosen(one);
      const given = at === "" ? "" : item.options[Number(at)];
      const isRight = given === item.right;
      const kind = at === "" || isRight ? "" : item.misconceptions[given];
      right += isRight;
      field.dataset.verdict = isRight ? "right" : "wrong";
      const label = (value) => item.labels[item.options.indexOf(value)];
      const says = { given: at === "" ? "" : label(given), right: label(item.right), why: words.why[kind] };
      verdict.textContent = isRight ? `✓ ${words.right}` : `✗ ${fill(at === "" ? words.none : words.wrong, says)}`;
      rows.push([student.value.trim() || "-", form, seed, item.construct, given, item.right, kind]);
    }
    for (const input of sheet.querySelectorAll("input")) input.disabled = true;
    status.textContent = fill(words.result, { right, all: fields.length });
    button.replaceWith(make("a", { href: asFile(rows), download: `quiz-${form}-${seed}.csv` }, words.save));
    lms.score(right / fields.length, true);
    status.tabIndex = -1;
    status.focus();
  }

  /** RFC 4180; what a spreadsheet would calculate is made text. */
  function asFile(rows) {
    const cell = (value) => {
      const text = String(value);
      return `"${(/^[=+\-@\t\r]/.test(text) && text !== "-" ? "'" : "") + text.replaceAll('"', '""')}"`;
    };
    const text = rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
    return `data:text/csv;charset=utf-8,${encodeURIComponent(text)}`;
  }
}
