/** What a reader can take along from a page without a server: files, and the picture as an image. */

/** Hand a text or a blob to the reader as a file. */
export function download(element, name, content) {
  const { ownerDocument: page } = element;
  const types = { csv: "text/csv", svg: "image/svg+xml" };
  const type = types[name.split(".").pop()] ?? "application/json";
  const blob = content instanceof Blob ? content : new Blob([content], { type });
  const address = URL.createObjectURL(blob);
  const link = page.createElement("a");
  link.href = address;
  link.download = name.replace(/[^\w.-]+/g, "-");
  element.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Left out of the picture: what is there to be pressed, read aloud or opened. */
const CONTROLS = ".k-transport, .k-sheet, .k-tip, .k-hidden, .k-banner, .k-ask";

/**
 * The picture as the browser draws it, twice as large. A browser that does not let a page read such a
 * drawing back gets it as SVG.
 */
export async function downloadPicture(element, name) {
  const svg = drawing(element);
  try {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
    await image.decode();
    const canvas = element.ownerDocument.createElement("canvas");
    Object.assign(canvas, { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    download(element, `${name}.png`, await new Promise((done) => canvas.toBlob(done, "image/png")));
  } catch {
    download(element, `${name}.svg`, svg);
  }
}

/** A copy of the player with its style, as a drawing of its own. */
function drawing(element) {
  const page = element.ownerDocument;
  const copy = element.cloneNode(true);
  for (const one of copy.querySelectorAll(CONTROLS)) one.remove();
  const originals = element.querySelectorAll("canvas");
  copy.querySelectorAll("canvas").forEach((one, i) => {
    const image = page.createElement("img");
    image.src = originals[i].toDataURL();
    image.className = one.className;
    image.style.cssText = one.style.cssText;
    one.replaceWith(image);
  });
  const rules = [...page.styleSheets].flatMap((sheet) => {
    try {
      return [...sheet.cssRules].map((rule) => rule.cssText);
    } catch {
      return []; // of another origin
    }
  });
  const style = page.createElement("style");
  // As it is at rest: an image would catch the first moment of every motion.
  style.textContent =
    rules.filter((rule) => rule.includes("kvlab")).join("\n") +
    "* { animation: none !important; transition: none !important; }";
  copy.prepend(style);
  const box = element.getBoundingClientRect();
  const bar = element.querySelector(".k-transport")?.offsetHeight ?? 0;
  const [width, height] = [Math.ceil(box.width), Math.ceil(box.height - bar)];
  const inside = new XMLSerializer().serializeToString(copy);
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">` +
    `<foreignObject width="100%" height="100%">${inside}</foreignObject></svg>`
  );
}
