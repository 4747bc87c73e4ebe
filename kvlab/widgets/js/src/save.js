/** Hand a text to the reader as a file, without a server. */
export function save(element, name, text) {
  const { ownerDocument: page } = element;
  const type = name.endsWith(".csv") ? "text/csv" : "application/json";
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = page.createElement("a");
  link.href = address;
  link.download = name.replace(/[^\w.-]+/g, "-");
  element.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
