/** Hand a text or a blob to the reader as a file, without a server. */
export function save(element, name, content) {
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
