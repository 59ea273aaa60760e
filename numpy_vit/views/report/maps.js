"use strict";
// A map is a row of the attention: how much one token, the query, takes from every other.
// Tokens are numbered as in the model: the prefix tokens first, then the patches, row by row.

const RECEIVED = -1; // in place of a query: the mean of all patches' rows
const MEAN = -1; // in place of a head

/** Return the token of the largest magnitude in a map, among some. */
function largest(row, from, to) {
  let best = from;
  for (let i = from + 1; i < to; i++) if (Math.abs(row[i]) > Math.abs(row[best])) best = i;
  return best;
}

/** All maps of an image: its weights and, where the model has a head, their gradients. */
class Maps {
  constructor(data, kinds) {
    this.kinds = kinds; // of each: scales, prefix numbers, codes, and the value of each code at scale 1
    this.blocks = data.blocks;
    this.heads = data.heads;
    this.first = data.prefix.length; // the token of the first patch
    this.patches = data.grid[0] * data.grid[1];
    this.tokens = this.first + this.patches;
  }

  static async unpack(data, entry) {
    const weights = await Maps.inflate(data, entry.weights, (code) => (code / 255) ** 2);
    const signed = (share) => Math.sign(share) * share * share;
    const gradients = entry.gradients && (await Maps.inflate(data, entry.gradients, (code) => signed((code - 128) / 127)));
    return new Maps(data, { weights, gradients });
  }

  static async inflate(data, text, value) {
    const deflated = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
    const raw = await new Response(stream).arrayBuffer();
    const prefix = data.prefix.length;
    const rows = data.blocks * data.heads * (prefix + data.grid[0] * data.grid[1]);
    return {
      scales: new Float32Array(raw, 0, rows),
      prefix: new Float32Array(raw, 4 * rows, rows * prefix),
      codes: new Uint8Array(raw, 4 * rows * (1 + prefix)),
      values: Float64Array.from({ length: 256 }, (_, code) => value(code)),
    };
  }

  /** Return what a query takes from each token; of no single head, the heads' mean. */
  row(what, block, head, query) {
    const sum = new Float64Array(this.tokens);
    const heads = head === MEAN ? [...Array(this.heads).keys()] : [head];
    for (const one of heads) this.add(sum, this.kinds[what], (block * this.heads + one) * this.tokens, query, heads.length);
    return sum;
  }

  /** Add a query's row of a head, whose rows start at `begin`, divided by a count; or the mean of the patches' rows. */
  add(sum, kind, begin, query, count) {
    const [from, to] = query === RECEIVED ? [this.first, this.tokens] : [query, query + 1];
    const share = 1 / (count * (to - from));
    for (let row = begin + from; row < begin + to; row++) {
      for (let token = 0; token < this.first; token++) sum[token] += share * kind.prefix[row * this.first + token];
      const unit = share * kind.scales[row];
      const codes = kind.codes.subarray(row * this.patches, (row + 1) * this.patches);
      for (let patch = 0; patch < this.patches; patch++) sum[this.first + patch] += unit * kind.values[codes[patch]];
    }
  }
}
