/**
 * A tab's runner as tests drive it: the methods that Python calls, and three more: `logits` after each share
 * of a batch, `read` and `fill` of a slot of the pool.
 */
export async function answer(tab, method, given) {
  const { runner } = tab;
  const more = {
    async logits(shares) {
      const { model, pool } = runner;
      const all = [...shares.keys()];
      if (tab.card) return (await model.forward(shares, pool, all)).map((row) => Array.from(row));
      const states = model.forward(shares, pool);
      let end = 0;
      return shares.map(({ tokens }) => Array.from(model.logits(states, (end += tokens.length) - 1)));
    },
    read: async (block, slot) => Array.from(await runner.pool.values(block, slot, 1)),
    async fill(block, slot, value) {
      const values = await runner.pool.values(block, slot, 1);
      runner.pool.put(values.fill(value ?? NaN), block, slot, 1);
    },
  };
  if (!Object.hasOwn(more, method)) return tab.call(method, given);
  return JSON.stringify((await more[method](...JSON.parse(given))) ?? null);
}
