/**
 * The lab without a network: what was loaded once is kept in this browser, under the name of this version of
 * the folder; another version throws it away.
 */
const OURS = `kvlab ${self.registration.scope} `;
const KEPT = `${OURS}VERSION`;

self.addEventListener("install", () => self.skipWaiting());

self.addEventListener("activate", (event) => {
  const others = async () => {
    for (const name of await caches.keys()) {
      if (name.startsWith(OURS) && name !== KEPT) await caches.delete(name);
    }
    await self.clients.claim();
  };
  event.waitUntil(others());
});

self.addEventListener("fetch", (event) => {
  const { method, url } = event.request;
  if (method === "GET" && url.startsWith(self.registration.scope)) event.respondWith(kept(event.request));
});

/** The page says what it had loaded before this file was there to keep it. */
self.addEventListener("message", (event) => {
  const keep = async () => {
    const cache = await caches.open(KEPT);
    for (const url of event.data.keep) {
      if (!(await cache.match(url))) await cache.add(new Request(url, { cache: "force-cache" }));
    }
  };
  event.waitUntil(keep());
});

async function kept(request) {
  const cache = await caches.open(KEPT);
  const found = await cache.match(request, { ignoreSearch: true });
  if (found) return found;
  const answer = await fetch(request);
  if (answer.ok) await cache.put(request, answer.clone());
  return answer;
}
