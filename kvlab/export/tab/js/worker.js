/**
 * The worker: Python with the lab's own engine (in Pyodide), and the model and its memory beside it.
 *
 * In:  {load: sizes}, then {id, method, given}, and {stop: id} while that is answered.
 * Out: {loaded: bytes, of: bytes}, {ready: true} or {broken: text}; {id, progress}, {id, answer}.
 */
import { Card } from "./gpu.js";
import { Tab } from "./tab.js";

const HERE = new URL("./", import.meta.url);
const PYTHON = new URL("pyodide/", HERE).href;
const ENTRY = "kvlab.export.tab.visit";
/** A table of packages; there is none to be had, and none is asked for. */
const NO_PACKAGES = { info: { abi_version: "2026_0", arch: "wasm32", platform: "emscripten_5_0_3", python: "3.14.2" }, packages: {} };
/** Python waits for the graphics card by this (JSPI); a browser without it computes in plain JavaScript. */
const CAN_WAIT = "Suspending" in WebAssembly;

let visit = null;
let stopped = null;

onmessage = async ({ data }) => {
  if (data.load) return load(data.load);
  if (data.stop !== undefined) return void (stopped = data.stop);
  const { id, method, given } = data;
  const hear = (progress) => {
    postMessage({ id, progress: JSON.parse(progress) });
    return stopped === id;
  };
  try {
    postMessage({ id, answer: JSON.parse(await visit.answer(method, given, hear)) });
  } catch (error) {
    postMessage({ broken: String(error.message ?? error) });
  }
};

async function load(sizes) {
  try {
    const got = fetcher(sizes);
    const texts = ["config.json", "tokenizer.json"].map(async (name) => (await got(`story/${name}`)).json());
    const weights = got("story/model.safetensors").then((file) => file.arrayBuffer());
    const archive = got("python.zip").then((file) => file.arrayBuffer());
    const python = startPython(got);
    const card = CAN_WAIT ? await Card.find() : null;
    const [config, tokenizer] = await Promise.all(texts);
    const tab = new Tab({ config, tokenizer, weights: await weights, card });
    const py = await python;
    py.unpackArchive(new Uint8Array(await archive), "zip", { extractDir: "/lab" });
    py.runPython("import sys; sys.path.insert(0, '/lab')");
    visit = py.pyimport(ENTRY).Visit((method, given) => tab.call(method, given));
    postMessage({ ready: true });
  } catch (error) {
    postMessage({ broken: String(error.message ?? error) });
  }
}

async function startPython(got) {
  const { loadPyodide } = await import(`${PYTHON}pyodide.mjs`);
  const files = new Map(
    ["pyodide.asm.wasm", "python_stdlib.zip"].map((name) => [`${PYTHON}${name}`, got(`pyodide/${name}`)]),
  );
  const plain = globalThis.fetch;
  globalThis.fetch = (what, options) => files.get(String(what.url ?? what)) ?? plain(what, options);
  try {
    return await loadPyodide({ indexURL: PYTHON, packageBaseUrl: PYTHON, lockFileContents: NO_PACKAGES });
  } finally {
    globalThis.fetch = plain;
  }
}

/**
 * Files of the lab's folder, as Responses. Those in `sizes` ({name: [bytes, packed]}) are told of while they
 * come; packed ones lie there deflated, under another name, so that no server takes them for its own.
 */
function fetcher(sizes) {
  const of = Object.values(sizes).reduce((sum, [bytes]) => sum + bytes, 0);
  let loaded = 0;
  return async (name) => {
    const [, packed] = sizes[name];
    const response = await fetch(new URL(packed ? `${name}.packed` : name, HERE));
    if (!response.ok) throw new Error(`${name}: ${response.status}`);
    const count = new TransformStream({
      transform(chunk, out) {
        loaded += chunk.byteLength;
        postMessage({ loaded, of });
        out.enqueue(chunk);
      },
    });
    const bytes = response.body.pipeThrough(count);
    const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(packed ? bytes.pipeThrough(new DecompressionStream("gzip")) : bytes, { headers: { "content-type": type } });
  };
}
