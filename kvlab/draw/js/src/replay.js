/**
 * The state at a cursor, by the changes that Python found (kvlab/trace/changes.py describes them and
 * the state). Every change goes through `put`, which notes the value that was there: a move backwards
 * undoes, so that both directions cost the same. What lies in the state is never changed in place,
 * only replaced.
 */

/** One state that moves over a trace, in both directions: `replay(trace).to(cursor)`. */
export function replay({ begin, pool, names, requests, events }) {
  const ids = requests.map(({ id }) => id);
  const state = {
    ...begin.state,
    blocks: Array(pool.num_blocks).fill(begin.blocks),
    host_blocks: Array(pool.host_blocks).fill(begin.host_blocks),
    // Ids are anything a person types: no prototype, so that "__proto__" is an id like another.
    requests: Object.create(null),
  };
  const undo = [];
  let log = [];

  function put(object, name, value) {
    log.push(object, name, object[name]);
    object[name] = value;
  }

  const set = (list, key, values) => put(list, key, { ...list[key], ...values });

  /** The cells of a block with those from `slot` up to `stop` made anew. */
  function redraw(pool, number, slot, stop, make) {
    const { cells } = state[pool][number];
    const fresh = cells.map((cell, at) => (at >= slot && at < stop ? make(cell, at - slot) : cell));
    set(state[pool], number, { cells: fresh });
  }

  const operations = {
    state: (name, value) => put(state, names[name], value),
    blocks: (number, name, value) => set(state.blocks, number, { [names[name]]: value }),
    host_blocks: (number, name, value) => set(state.host_blocks, number, { [names[name]]: value }),
    request: (who, name, value) => set(state.requests, ids[who], { [names[name]]: value }),
    arrive: (who, history) => put(state.requests, ids[who], { ...begin.request, history }),
    splice(who, name, at, removed, items) {
      const list = state.requests[ids[who]][names[name]];
      const spliced = [...list.slice(0, at), ...items, ...list.slice(at + removed)];
      set(state.requests, ids[who], { [names[name]]: spliced });
    },
    write(number, slot, who, first, count, how) {
      const event = state.cursor;
      const cell = (_, i) => ({ id: ids[who], position: first + i, how, live: true, event });
      redraw("blocks", number, slot, slot + count, cell);
    },
    mark(pool, number, slot, stop, name, value) {
      redraw(names[pool], number, slot, stop, (cell) => cell && { ...cell, [names[name]]: value });
    },
    copy: (pool, number, into, target) =>
      set(state[names[into]], target, { cells: state[names[pool]][number].cells }),
  };

  function forward() {
    log = [];
    for (const [operation, ...how] of events[state.cursor].changes) operations[names[operation]](...how);
    put(state, "cursor", state.cursor + 1);
    undo.push(log);
  }

  function back() {
    log = undo.pop();
    for (let i = log.length - 3; i >= 0; i -= 3) {
      if (log[i + 2] === undefined) delete log[i][log[i + 1]];
      else log[i][log[i + 1]] = log[i + 2];
    }
  }

  return {
    state,
    /** The state at a cursor; it is changed by the next call. */
    to(cursor) {
      const goal = Math.max(0, Math.min(cursor, events.length));
      while (state.cursor < goal) forward();
      while (state.cursor > goal) back();
      return state;
    },
  };
}
