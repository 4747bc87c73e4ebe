/** A trace as it travels: JSON text, deflated. */

/** @param {DataView | ArrayBuffer} packed */
export async function unpacked(packed) {
  const bytes = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(bytes).json();
}
