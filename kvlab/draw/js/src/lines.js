/** Lines from the entries of a block table to their blocks, for what is touched or pointed at. */

const MOST = 16;
const SVG = "http://www.w3.org/2000/svg";

export function liner(element) {
  const svg = element.ownerDocument.createElementNS(SVG, "svg");
  svg.setAttribute("class", "k-lines");
  svg.setAttribute("aria-hidden", "true");
  element.append(svg);
  let asked = 0;

  /** Pairs of elements: an entry and its block. */
  function pairs() {
    const found = [];
    for (const entry of element.querySelectorAll(".k-entry:is([data-now], [data-lit])")) {
      const { entry: block, hostEntry: host } = entry.dataset;
      const name = block === undefined ? `host="${host}"` : `block="${block}"`;
      const to = (block ?? host) === undefined ? null : element.querySelector(`.k-memory [data-${name}]`);
      if (to && found.length < MOST) found.push([entry.lastElementChild, to]);
    }
    return found;
  }

  function draw() {
    asked = 0;
    const root = element.getBoundingClientRect();
    const scale = root.width / element.offsetWidth || 1;
    const boxOf = (selector) => element.querySelector(selector)?.getBoundingClientRect();
    const [memory, requests] = [boxOf(".k-memory"), boxOf(".k-requests")];
    const hueOf = (entry) => entry.closest("[data-hue]")?.dataset.hue;
    const lines = pairs().flatMap(([entry, block]) => {
      const [from, to] = [entry.getBoundingClientRect(), block.getBoundingClientRect()];
      const middle = to.top + to.height / 2;
      if (!from.width || !to.width || middle < memory.top || middle > memory.bottom) return [];
      const at = (x, y) => `${((x - root.left) / scale).toFixed(1)} ${((y - root.top) / scale).toFixed(1)}`;
      const x = from.left + from.width / 2;
      if (from.left < memory.right) {
        const half = (from.top + to.bottom) / 2;
        const foot = to.left + to.width / 2;
        return [{ path: `M${at(x, from.top)}C${at(x, half)} ${at(foot, half)} ${at(foot, to.bottom)}`, hue: hueOf(entry) }];
      }
      // Under the entries, over the gutter, and between the rows of blocks: over nothing that is read.
      const under = from.bottom + 5;
      const [left, right] = [requests.left - 6, memory.right + 3];
      const behind = to.right < memory.right - 12;
      const level = behind ? to.bottom + 4 : middle;
      const path =
        `M${at(x, from.bottom)}Q${at(x, under)} ${at(x - 6, under)}L${at(left, under)}` +
        `C${at((left + right) / 2, under)} ${at((left + right) / 2, level)} ${at(right, level)}` +
        (behind ? `L${at(to.right - 14, level)}L${at(to.right - 18, to.bottom)}` : `L${at(to.right, level)}`);
      return [{ path, hue: hueOf(entry) }];
    });
    while (svg.childElementCount > lines.length) svg.lastChild.remove();
    lines.forEach(({ path, hue }, i) => {
      const line = svg.children[i] ?? svg.appendChild(element.ownerDocument.createElementNS(SVG, "path"));
      line.setAttribute("d", path);
      line.setAttribute("data-hue", hue ?? "");
    });
  }

  return {
    /** Once before the next frame: to measure after every change would lay the page out at once. */
    again: () => {
      asked ||= requestAnimationFrame(draw);
    },
    stop: () => cancelAnimationFrame(asked),
  };
}
