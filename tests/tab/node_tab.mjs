/**
 * The tab's runner as a process: a line {method, given} in, a line {found} or {fault} out. Beside the
 * methods that Python calls, three are for tests: `logits` of a batch's last rows, `read` and `fill` of
 * the slots of the pool.
 */
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Tab } from "../../kvlab/export/tab/js/tab.js";

const folder = process.argv[2];
const json = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
const file = readFileSync(`${folder}/model.safetensors`);
const weights = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
const tab = new Tab({ config: json("config.json"), tokenizer: json("tokenizer.json"), weights });

const FOR_TESTS = {
  logits(shares) {
    const { model, pool } = tab.runner;
    const states = model.forward(shares, pool);
    let end = 0;
    return shares.map(({ tokens }) => Array.from(model.logits(states, (end += tokens.length) - 1)));
  },
  read: (block, slot) => Array.from(tab.runner.pool.values(block, slot, 1)),
  fill(block, slot, value) {
    const { pool } = tab.runner;
    const number = value ?? NaN;
    for (let at = 0; at < 2 * pool.layers; at += 1) pool.slots(at >> 1, at & 1, block, slot, 1).fill(number);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { method, given } = JSON.parse(line);
  let answer;
  try {
    const own = FOR_TESTS[method];
    answer = { found: own ? JSON.stringify(own(...JSON.parse(given)) ?? null) : tab.call(method, given) };
  } catch (error) {
    answer = { fault: String(error.stack) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
