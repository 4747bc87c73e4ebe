// The page's own part, after the player's module: shows the run that lies in the page and follows the
// place behind the hash. `kvlab` is what the module exports.
{
  const data = JSON.parse(document.getElementById("kvlab-run").textContent);
  const { trace, elsewhere, ...options } = data;
  const root = document.querySelector("main");

  /** The cursor that the hash asks for, or null; a place in another run is said to be one. */
  const asked = () => {
    const place = kvlab.placeIn(location.hash);
    const own = { scenario: trace.scenario.name, method: trace.scenario.engine.method };
    const other = Object.keys(own).some((name) => name in place && place[name] !== own[name]);
    note.hidden = !other;
    return other || place.cursor === undefined ? null : Math.min(place.cursor, trace.events.length);
  };
  const outside = (cursor) => cursor < options.start || cursor > (options.stop ?? Infinity);

  const note = document.createElement("p");
  note.setAttribute("role", "status");
  note.textContent = elsewhere;
  note.hidden = true;
  root.append(note);

  const first = asked() ?? options.cursor;
  const player = kvlab.mount(root, trace, {
    ...options,
    cursor: first,
    link: "hash",
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
