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

  /** Values by name, which stand in a change as pairs from its third place on. */
  function setPairs(list, key, change) {
    const fresh = { ...list[key] };
    for (let i = 2; i < change.length; i += 2) fresh[names[change[i]]] = change[i + 1];
    put(list, key, fresh);
  }

  /** The cells of a block with those from `slot` up to `stop` made anew. */
  function redraw(pool, number, slot, stop, make) {
    const cells = state[pool][number].cells.slice();
    for (let at = slot; at < stop; at += 1) cells[at] = make(cells[at], at - slot);
    set(state[pool], number, { cells });
  }

  function apply(change) {
    const [operation, of] = change;
    switch (names[operation]) {
      case "state":
        for (let i = 2; i < change.length; i += 2) put(state, names[change[i]], change[i + 1]);
        break;
      case "blocks":
      case "host_blocks":
        setPairs(state[names[operation]], of, change);
        break;
      case "request":
        setPairs(state.requests, ids[of], change);
        break;
      case "arrive":
        put(state.requests, ids[of], { ...begin.request, history: change[2] });
        break;
      case "splice": {
        const [, , name, at, removed, items] = change;
        const list = state.requests[ids[of]][names[name]];
        const spliced = [...list.slice(0, at), ...items, ...list.slice(at + removed)];
        set(state.requests, ids[of], { [names[name]]: spliced });
        break;
      }
      case "write": {
        const [, , slot, who, first, count, how] = change;
        const event = state.cursor;
        const cell = (_, i) => ({ id: ids[who], position: first + i, how, live: true, event });
        redraw("blocks", of, slot, slot + count, cell);
        break;
      }
      case "mark": {
        const [, , number, slot, stop, name, value] = change;
        redraw(names[of], number, slot, stop, (cell) => cell && { ...cell, [names[name]]: value });
        break;
      }
      case "copy": {
        const [, , number, into, target] = change;
        set(state[names[into]], target, { cells: state[names[of]][number].cells });
      }
    }
  }

  function forward() {
    log = [];
    for (const change of events[state.cursor].changes) apply(change);
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
