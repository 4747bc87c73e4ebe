// The page's own part, after the player's module: shows the run that lies in the page and follows the
// place behind the hash. `kvlab` is what the module exports.
{
  const data = JSON.parse(document.getElementById("kvlab-run").textContent);
  const { picture, file, elsewhere, ...options } = data;
  const root = document.querySelector("main");

  /** The cursor that the hash asks for, or null; a place in another run is said to be one. */
  const asked = () => {
    const place = kvlab.placeIn(location.hash);
    const own = { scenario: picture.scenario.name, method: picture.scenario.method };
    const other = Object.keys(own).some((name) => name in place && place[name] !== own[name]);
    note.hidden = !other;
    return other || place.cursor === undefined ? null : Math.min(place.cursor, picture.rows.length);
  };
  const outside = (cursor) => cursor < options.start || cursor > (options.stop ?? Infinity);

  const note = document.createElement("p");
  note.setAttribute("role", "status");
  note.textContent = elsewhere;
  note.hidden = true;
  root.append(note);

  const first = asked() ?? options.cursor;
  const recorded = Uint8Array.from(atob(file), (sign) => sign.charCodeAt(0));
  // In a course's package: the share of right answers, and whether the end was reached.
  const score = { right: 0, all: 0, done: false };
  const tell = () => {
    if (typeof lms !== "undefined") lms.score(score.all ? score.right / score.all : 1, score.done);
  };
  const end = options.stop ?? picture.rows.length;
  const player = kvlab.mount(root, picture, {
    ...options,
    onAnswers(answers) {
      const checked = answers.filter(({ answer, given }) => answer !== null || given === null);
      Object.assign(score, { right: checked.filter(({ right }) => right).length, all: checked.length });
      tell();
    },
    onCursor(cursor) {
      if (score.done || cursor < end) return;
      score.done = true;
      tell();
    },
    cursor: first,
    link: "hash",
    file: () => kvlab.inflated(recorded).blob(),
    // A place outside of the lesson's part opens the whole run.
    state: outside(first) ? { lifted: true } : undefined,
  });
  addEventListener("hashchange", () => {
    const cursor = asked();
    if (cursor === null) return;
    if (outside(cursor)) player.update({ start: 0, stop: null });
    player.goto(cursor);
  });
}
