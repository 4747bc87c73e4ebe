/** The tab's runner as a process: a line {method, given} in, a line {found} or {fault} out. */
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { Tab } from "../../kvlab/export/tab/js/tab.js";
import { answer } from "./for_tests.js";

const folder = process.argv[2];
const json = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
const file = readFileSync(`${folder}/model.safetensors`);
const weights = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
const tab = new Tab({ config: json("config.json"), tokenizer: json("tokenizer.json"), weights });

for await (const line of createInterface({ input: process.stdin })) {
  const { method, given } = JSON.parse(line);
  let said;
  try {
    said = { found: await answer(tab, method, given) };
  } catch (error) {
    said = { fault: String(error.stack) };
  }
  process.stdout.write(`${JSON.stringify(said)}\n`);
}
