/**
 * A link that leads back to a picture: scenario, method and cursor, in the query or behind the hash.
 * The twin of kvlab.draw.player.Place.
 */

/** The address of a page with the place in it; what else the query says stays. */
export function addressOf(location, where, place) {
  const address = new URL(location.href);
  const part = new URLSearchParams(where === "hash" ? address.hash.slice(1) : address.search);
  for (const [name, value] of Object.entries(place)) part.set(name, value);
  if (where === "hash") address.hash = part.toString();
  else address.search = part.toString();
  return address.href;
}

/** {scenario, method, cursor} from a query or hash; what is not there or no number is missing. */
export function placeIn(text) {
  const part = new URLSearchParams(text.replace(/^[#?]/, ""));
  const place = {};
  for (const name of ["scenario", "method"]) if (part.has(name)) place[name] = part.get(name);
  if (/^\d{1,9}$/.test(part.get("cursor") ?? "")) place.cursor = Number(part.get("cursor"));
  return place;
}

/** Into the clipboard; false where the page may not use it. */
export async function copy(element, text) {
  try {
    await element.ownerDocument.defaultView.navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
