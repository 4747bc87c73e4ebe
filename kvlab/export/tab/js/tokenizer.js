/**
 * Text to tokens and back by a tokenizer.json of byte-level BPE (Radford et al. 2019, section 2.2):
 * words by a pattern, their UTF-8 bytes as printable signs, merged pair by pair in the file's order.
 */

/** GPT-2's pattern, as the `ByteLevel` pre-tokenizer has it; JavaScript's \s is another set. */
const SPACE = "\\p{White_Space}";
const WORDS = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|${SPACE}+(?!\\P{White_Space})|${SPACE}+`,
  "gu",
);

export class Tokenizer {
  /** `file` is the parsed tokenizer.json. Throws for one of another kind. */
  constructor(file) {
    const { model, added_tokens: added, pre_tokenizer: words, normalizer, decoder } = file;
    if (model.type !== "BPE" || words.type !== "ByteLevel" || words.add_prefix_space || normalizer || decoder.type !== "ByteLevel") {
      throw new Error("a tokenizer of this kind is not read in a browser's tab");
    }
    this.ids = new Map(Object.entries(model.vocab));
    this.signs = new Map(Object.entries(model.vocab).map(([sign, id]) => [id, sign]));
    this.ranks = new Map(model.merges.map((pair, rank) => [typeof pair === "string" ? pair : pair.join(" "), rank]));
    this.added = new Map(added.map(({ content, id }) => [content, id]));
    this.special = new Set(added.filter((one) => one.special).map(({ id }) => id));
    added.forEach(({ content, id }) => this.signs.set(id, content));
    this.split = new RegExp(`(${added.map(({ content }) => content.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join("|")})`, "u");
    this.signOfByte = signsOfBytes();
    this.byteOfSign = new Map(this.signOfByte.map((sign, byte) => [sign, byte]));
  }

  /** Token ids of a text. */
  encode(text) {
    const encoder = new TextEncoder();
    const parts = this.added.size ? text.split(this.split) : [text];
    return parts.flatMap((part) => {
      if (this.added.has(part)) return [this.added.get(part)];
      return (part.match(WORDS) ?? []).flatMap((word) => this.#merged(Array.from(encoder.encode(word), (byte) => this.signOfByte[byte])));
    });
  }

  /** Text of tokens, special ones left out unless `special`. Bytes that are no character become U+FFFD. */
  decode(tokens, special = false) {
    const bytes = tokens
      .filter((token) => special || !this.special.has(token))
      .flatMap((token) => [...(this.signs.get(token) ?? "")].map((sign) => this.byteOfSign.get(sign)));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
  }

  /** The pair of the lowest rank is merged, the first of equals, until no pair has a rank. */
  #merged(signs) {
    for (;;) {
      let best = Infinity;
      let place = -1;
      for (let at = 0; at + 1 < signs.length; at += 1) {
        const rank = this.ranks.get(`${signs[at]} ${signs[at + 1]}`) ?? Infinity;
        if (rank < best) [best, place] = [rank, at];
      }
      if (place < 0) return signs.map((sign) => this.ids.get(sign));
      signs.splice(place, 2, signs[place] + signs[place + 1]);
    }
  }
}

/** A printable sign for each byte: itself where it is one, else the next free one from U+0100 on. */
function signsOfBytes() {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCharCode(printable ? byte : next++);
  });
}
