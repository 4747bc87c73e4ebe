/** Whether the kernel still answers; see part e. */
export function heartbeat() {
  return () => {};
}
