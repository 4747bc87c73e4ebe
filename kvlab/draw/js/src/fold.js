/**
 * Replay: the state of a run at a cursor, folded from the events before it.
 *
 * The twin of kvlab/trace/replay.py, which describes the state; a test holds the two equal at every
 * cursor. Every change goes through `put`, which notes the value that was there: a move backwards
 * undoes, so that both directions cost the same and lead to the same state. Arrays and cells in the
 * state are never changed in place, only replaced.
 */

/** Before the first event: every block is free and nothing was ever written. */
export function emptyState({ num_blocks, block_size, host_blocks }) {
  const list = (length, make) => Array.from({ length }, make);
  return {
    step: 0,
    free: num_blocks,
    host_free: host_blocks,
    in_flight: 0,
    blocks: list(num_blocks, () => ({
      status: "free",
      owners: [],
      cached: false,
      damaged: false,
      cells: Array(block_size).fill(null),
    })),
    host_blocks: list(host_blocks, () => ({
      status: "free",
      owner: null,
      cells: Array(block_size).fill(null),
    })),
    // Ids are anything a person types: no prototype, so that "__proto__" is an id like another.
    requests: Object.create(null),
  };
}

/** The state after the first `cursor` events, from nothing. */
export function stateAt(trace, cursor) {
  return new Replay(trace).to(cursor);
}

/** A replay that moves: `fold(trace).to(cursor)`. */
export function fold(trace) {
  return new Replay(trace);
}

/** One state that moves over a trace, in both directions. */
export class Replay {
  constructor(trace) {
    this.events = trace.events;
    this.state = emptyState(trace.pool);
    this.cursor = 0;
    this.undo = [];
  }

  /** The state at a cursor; it is changed by the next call. */
  to(cursor) {
    const goal = Math.max(0, Math.min(cursor, this.events.length));
    while (this.cursor < goal) this.forward();
    while (this.cursor > goal) this.back();
    return this.state;
  }

  forward() {
    const log = [];
    apply(this.state, this.events[this.cursor], (object, name, value) => {
      log.push(object, name, name in object ? object[name] : undefined);
      object[name] = value;
    });
    this.undo.push(log);
    this.cursor += 1;
  }

  back() {
    const log = this.undo.pop();
    for (let i = log.length - 3; i >= 0; i -= 3) {
      if (log[i + 2] === undefined) delete log[i][log[i + 1]];
      else log[i][log[i + 1]] = log[i + 2];
    }
    this.cursor -= 1;
  }
}

/** Change `state` by one event through `put(object, name, value)`. */
function apply(state, event, put) {
  put(state, "step", event.step);
  if (Object.hasOwn(CHANGES, event.kind)) {
    const change = (object, values) => {
      for (const name of Object.keys(values)) put(object, name, values[name]);
    };
    CHANGES[event.kind](state, event, change);
  }
}

/** A block's new status, with the pool's counts kept in step. */
function status(state, block, value, change) {
  const before = block.status;
  if (before === value) return;
  change(block, { status: value });
  for (const name of ["free", "in_flight"]) {
    const by = (value === name) - (before === name);
    if (by) change(state, { [name]: state[name] + by });
  }
}

function hostStatus(state, block, value, change) {
  if (block.status === value) return;
  change(block, { status: value });
  change(state, { host_free: state.host_free + (value === "free" ? 1 : -1) });
}

const living = (cells, live) =>
  cells.map((cell) => (cell && cell.live !== live ? { ...cell, live } : cell));

const without = (owners, id) => {
  const at = owners.indexOf(id);
  return at < 0 ? owners : [...owners.slice(0, at), ...owners.slice(at + 1)];
};

const newcomer = (event) => ({
  state: "waiting",
  method: null,
  history: event.history,
  kv: 0,
  host_kv: 0,
  delivered: 0,
  outputs: [],
  table: [],
  host_table: [],
  preemptions: 0,
  unmet: null,
  finish: null,
});

const CHANGES = {
  step_started(state, event, change) {
    for (const request of Object.values(state.requests)) {
      if (request.unmet) change(request, { unmet: null });
    }
  },

  arrived(state, event, change) {
    change(state.requests, { [event.id]: newcomer(event) });
  },

  admitted(state, event, change) {
    change(state.requests[event.id], { state: "running" });
  },

  resumed(state, event, change) {
    const request = state.requests[event.id];
    if (request.state !== "swapping_in") change(request, { state: "running" });
  },

  block_needed(state, event, change) {
    const { logical, position, needs } = event;
    change(state.requests[event.id], { unmet: { logical, position, needs } });
  },

  block_allocated(state, event, change) {
    const request = state.requests[event.id];
    for (const id of event.blocks) {
      const block = state.blocks[id];
      status(state, block, "held", change);
      change(block, {
        owners: [event.id],
        cached: false,
        damaged: false,
        cells: living(block.cells, false),
      });
    }
    change(request, { unmet: null, table: [...request.table, ...event.blocks] });
  },

  block_shared(state, event, change) {
    const request = state.requests[event.id];
    for (const id of event.blocks) {
      const block = state.blocks[id];
      status(state, block, "held", change);
      change(block, { owners: [...block.owners, event.id], cells: living(block.cells, true) });
    }
    change(request, {
      table: [...request.table, ...event.blocks],
      kv: request.kv + event.tokens,
    });
  },

  block_copied(state, event, change) {
    const request = state.requests[event.id];
    const source = state.blocks[event.source];
    const block = state.blocks[event.block];
    status(state, block, "held", change);
    change(block, {
      owners: [event.id],
      cached: false,
      damaged: source.damaged,
      cells: source.cells.map((cell) => cell && { ...cell, id: event.id }),
    });
    change(source, { owners: without(source.owners, event.id) });
    if (!source.owners.length) status(state, source, "in_flight", change);
    change(request, {
      table: request.table.map((id, i) => (i === event.logical ? event.block : id)),
    });
  },

  block_released(state, event, change) {
    for (const id of event.blocks) {
      const block = state.blocks[id];
      change(block, { owners: without(block.owners, event.id) });
      if (event.freed.includes(id)) {
        status(state, block, "free", change);
        change(block, { cached: event.cached.includes(id), cells: living(block.cells, false) });
      } else if (block.owners.length) {
        status(state, block, "held", change);
      } else {
        // The last table gone, a copy still reads it, or fills it for somebody else.
        status(state, block, "in_flight", change);
        change(block, { damaged: false });
      }
    }
    const request = state.requests[event.id];
    const table = request.table.filter((id) => !event.blocks.includes(id));
    // Before a swap only the blocks without KV go: the rest of the table stands.
    change(request, table.length ? { table } : { table, kv: 0 });
  },

  preempted(state, event, change) {
    const request = state.requests[event.id];
    change(request, {
      state: "preempted",
      method: event.method,
      unmet: null,
      preemptions: request.preemptions + 1,
    });
  },

  paused(state, event, change) {
    change(state.requests[event.id], { state: "paused" });
  },

  kv_written(state, event, change) {
    const block = state.blocks[event.block];
    const cells = block.cells.slice();
    for (let position = event.first; position <= event.last; position += 1) {
      cells[event.slot + position - event.first] = {
        id: event.id,
        position,
        how: event.why,
        live: true,
      };
    }
    change(block, { cells });
    change(state.requests[event.id], { kv: event.last + 1 });
  },

  token_sampled(state, event, change) {
    const request = state.requests[event.id];
    change(request, {
      history: request.history + 1,
      outputs: [...request.outputs, event.token],
    });
  },

  token_delivered(state, event, change) {
    const request = state.requests[event.id];
    change(request, { delivered: request.delivered + 1 });
  },

  swap_out_started(state, event, change) {
    const request = state.requests[event.id];
    change(request, {
      state: "swapping_out",
      table: request.table.filter((id) => !event.blocks.includes(id)),
      kv: request.kv - event.kv,
      host_table: [...request.host_table, ...event.host_blocks],
    });
    for (const id of event.blocks) {
      const block = state.blocks[id];
      change(block, { owners: without(block.owners, event.id) });
      if (!block.owners.length) status(state, block, "in_flight", change);
    }
    for (const id of event.host_blocks) {
      const block = state.host_blocks[id];
      hostStatus(state, block, "held", change);
      change(block, { owner: event.id, cells: living(block.cells, false) });
    }
  },

  swap_out_advanced(state, event, change) {
    event.blocks.forEach((id, i) => {
      change(state.host_blocks[event.host_blocks[i]], {
        cells: state.blocks[id].cells.map((cell) => cell && { ...cell, how: "stored" }),
      });
    });
    change(state.requests[event.id], { host_kv: event.host_kv });
  },

  swap_out_finished(state, event, change) {
    change(state.requests[event.id], { state: "swapped" });
  },

  swap_in_started(state, event, change) {
    const request = state.requests[event.id];
    const table = request.table.filter((id) => !event.blocks.includes(id));
    change(request, { state: "swapping_in", table });
    for (const id of event.blocks) {
      const block = state.blocks[id];
      change(block, { owners: without(block.owners, event.id) });
      // Else a copy begins before the last read (unsafe).
      if (!block.owners.length) status(state, block, "in_flight", change);
    }
  },

  swap_in_advanced(state, event, change) {
    event.blocks.forEach((id, i) => {
      change(state.blocks[id], {
        cells: state.host_blocks[event.host_blocks[i]].cells.map(
          (cell) => cell && { ...cell, how: "restored" },
        ),
      });
    });
  },

  swap_in_finished(state, event, change) {
    const request = state.requests[event.id];
    change(request, {
      state: "running",
      kv: request.kv + event.kv,
      table: event.table.slice(),
    });
    let left = event.kv;
    for (const id of event.blocks) {
      const block = state.blocks[id];
      const used = left;
      status(state, block, "held", change);
      // Whatever came back is in use, another request's values too where an ordering was broken.
      change(block, {
        owners: [...block.owners, event.id],
        cells: block.cells.map((cell, slot) => cell && { ...cell, live: slot < used }),
      });
      left -= block.cells.length;
    }
  },

  reclaimed(state, event, change) {
    if (event.why === "recompute") CHANGES.copy_failed(state, event, change);
  },

  copy_failed(state, event, change) {
    change(state.requests[event.id], { state: "preempted", method: "recompute" });
  },

  forked(state, event, change) {
    CHANGES.arrived(state, event, change);
    const table = event.blocks.slice();
    change(state.requests[event.id], { state: "running", kv: event.kv, table });
    for (const id of event.blocks) {
      const block = state.blocks[id];
      change(block, { owners: [...block.owners, event.id] });
    }
  },

  damage_found(state, event, change) {
    change(state.blocks[event.block], { damaged: true });
  },

  host_block_released(state, event, change) {
    for (const id of event.host_blocks) {
      const block = state.host_blocks[id];
      hostStatus(state, block, "free", change);
      change(block, { owner: null, cells: living(block.cells, false) });
    }
    change(state.requests[event.id], { host_table: [], host_kv: 0 });
  },

  finished(state, event, change) {
    change(state.requests[event.id], { state: "finished", finish: event.why, unmet: null });
  },
};
