/** What a request is doing, in words. */
/** A request's state in words. */
export function stateWords({ t }, request) {
  if (!request) return t("state_absent");
  if (request.state === "finished") return t(`state_finished_${request.finish}`);
  if (request.state === "running" && request.unmet) return t("state_unmet");
  return t(`state_${request.state}`, { method: request.method });
}
