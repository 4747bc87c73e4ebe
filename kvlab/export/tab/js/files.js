/** Files of the lab's folder that lie there deflated, and scenarios that lie in an address. */

const HERE = new URL("./", import.meta.url);
/** Signs of a scenario in a link, inflated, at most: a form takes no more. */
const LARGEST = 200_000;
const LONGEST_LINK = 6_000;

/** What a packed JSON file holds. */
export async function packedJson(name) {
  const response = await fetch(new URL(`${name}.packed`, HERE));
  if (!response.ok) throw new Error(`${name}: ${response.status}`);
  return new Response(response.body.pipeThrough(new DecompressionStream("gzip"))).json();
}

/** A scenario for a link: JSON, deflated, base64 for addresses; "" when it is too long for one. As in the
 * lab's own links (kvlab/pages/lab_scenarios.py). */
export async function packed(scenario) {
  const text = new Blob([JSON.stringify(scenario)]).stream();
  const bytes = new Uint8Array(await new Response(text.pipeThrough(new CompressionStream("deflate"))).arrayBuffer());
  const base64 = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  const link = base64.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  return link.length <= LONGEST_LINK ? link : "";
}

/** The scenario of a link; throws for what is none, and stops at LARGEST however much would come. */
export async function unpacked(link) {
  const base64 = link.replaceAll("-", "+").replaceAll("_", "/");
  const bytes = Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
    if (text.length > LARGEST) throw new Error("too long");
  }
  const scenario = JSON.parse(text + decoder.decode());
  if (typeof scenario !== "object" || scenario === null || Array.isArray(scenario)) throw new Error("no scenario");
  return scenario;
}
