/** The visitor's graphics card, by WebGPU: buffers that grow, and numbers read back from them. */

/** The card went away in the middle: another program, a driver's reset, a device that was unplugged. */
export class CardLost extends Error {
  name = "CardLost";
}

export class Card {
  /** The card, or null where this browser offers none. */
  static async find() {
    const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
    if (!adapter) return null;
    try {
      return new Card(await adapter.requestDevice(), adapter.info);
    } catch {
      return null;
    }
  }

  constructor(device, { vendor, architecture, description }) {
    this.device = device;
    this.name = description || [vendor, architecture].filter(Boolean).join(" ") || "unnamed";
    this.gone = "";
    device.lost.then(({ message, reason }) => (this.gone = message || reason || "it is gone"));
    device.onuncapturederror = ({ error }) => (this.gone ||= error.message);
  }

  /** Throws CardLost where the card has gone, or refused something. */
  refuseGone() {
    if (this.gone) throw new CardLost(this.gone);
  }

  /** A buffer for so many numbers of 4 bytes, zeros at first. */
  buffer(numbers) {
    const { STORAGE, COPY_SRC, COPY_DST } = GPUBufferUsage;
    return this.device.createBuffer({ size: Math.max(16, 4 * numbers), usage: STORAGE | COPY_SRC | COPY_DST });
  }

  /** A buffer with these numbers. */
  holding(array) {
    const buffer = this.buffer(array.length);
    this.device.queue.writeBuffer(buffer, 0, array);
    return buffer;
  }

  /** The numbers at [{buffer, from, count}, …], one after the other, once all work so far is done. */
  async read(places) {
    this.refuseGone();
    const count = places.reduce((sum, place) => sum + place.count, 0);
    const { MAP_READ, COPY_DST } = GPUBufferUsage;
    const staging = this.device.createBuffer({ size: 4 * count, usage: MAP_READ | COPY_DST });
    const encoder = this.device.createCommandEncoder();
    let at = 0;
    for (const { buffer, from, count: some } of places) {
      encoder.copyBufferToBuffer(buffer, 4 * from, staging, 4 * at, 4 * some);
      at += some;
    }
    this.device.queue.submit([encoder.finish()]);
    try {
      await staging.mapAsync(GPUMapMode.READ);
    } catch (error) {
      throw new CardLost(this.gone || error.message);
    }
    this.refuseGone();
    const numbers = new Float32Array(staging.getMappedRange()).slice();
    staging.destroy();
    return numbers;
  }
}

/** A pool of KV blocks on the card: a buffer for each layer's K and for its V. See cache.js. */
export class CardPool {
  constructor(card, { layers, kvHeads, headDim }, blocks, blockSize) {
    Object.assign(this, { card, layers, blocks, blockSize, slotSize: kvHeads * headDim });
    this.blockNumbers = blockSize * this.slotSize;
    this.halves = Array.from({ length: 2 * layers }, () => card.buffer(blocks * this.blockNumbers));
  }

  /** Copies of the values of [block, slot, count of slots] each, in main memory, by one way over the link: for
   * each layer K, then V. */
  async read(places) {
    const asked = places.flatMap(([block, slot, count]) => {
      const from = block * this.blockNumbers + slot * this.slotSize;
      return this.halves.map((buffer) => ({ buffer, from, count: count * this.slotSize }));
    });
    const all = asked.length ? await this.card.read(asked) : [];
    let at = 0;
    return places.map(([, , count]) => all.slice(at, (at += count * this.slotSize * this.halves.length)));
  }

  /** Those of one place. */
  async values(block, slot, count) {
    return (await this.read([[block, slot, count]]))[0];
  }

  /** Put such values there. */
  put(values, block, slot, count) {
    const from = block * this.blockNumbers + slot * this.slotSize;
    const size = count * this.slotSize;
    this.halves.forEach((buffer, at) => {
      this.card.device.queue.writeBuffer(buffer, 4 * from, values, at * size, size);
    });
  }

  /** One block to another place of this pool. A buffer is not copied within itself: by way of a third. */
  copyBlock(source, target) {
    const encoder = this.card.device.createCommandEncoder();
    const between = this.card.buffer(this.blockNumbers);
    const bytes = 4 * this.blockNumbers;
    for (const half of this.halves) {
      encoder.copyBufferToBuffer(half, source * bytes, between, 0, bytes);
      encoder.copyBufferToBuffer(between, 0, half, target * bytes, bytes);
    }
    this.card.device.queue.submit([encoder.finish()]);
  }

  end() {
    for (const half of this.halves) half.destroy();
  }
}
