/** Selecting the next token from logits; kvlab/runtime/sampler.py, rule for rule. */

/** For each sampling of a row of logits [token, its log-probability where asked for, else null]. */
export function chosen(logits, samplings) {
  return samplings.map((sampling) => {
    const token = select(logits, sampling);
    return [token, sampling.logprobs ? logprob(logits, token) : null];
  });
}

/**
 * The token of one sampling {temperature, topP, topK, drawn}. Temperature 0 takes the highest logit, the
 * lowest id among equals. Otherwise `drawn`, a uniform number from [0, 1) that Python's generator made
 * from (seed, position), goes through the cumulative distribution of softmax(logits / temperature), cut
 * to the topK most likely tokens and then to the smallest set whose probability reaches topP.
 */
function select(logits, { temperature, topP, topK, drawn }) {
  if (!temperature) return highest(logits);
  const top = logits[highest(logits)];
  const weights = Float64Array.from(logits, (logit) => Math.exp((logit - top) / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const tokens = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a] || a - b);
  const ordered = tokens.map((token) => weights[token] / total);
  let keep = topK ? Math.min(topK, ordered.length) : ordered.length;
  const cumulative = sums(ordered);
  if (topP < 1) {
    const enough = topP * cumulative.at(-1);
    keep = Math.min(keep, ordered.filter((probability, at) => cumulative[at] - probability < enough).length);
  }
  const limit = drawn * cumulative[keep - 1];
  let at = 0;
  while (at < keep - 1 && cumulative[at] <= limit) at += 1;
  return tokens[at];
}

/** Natural log of the model's own probability of `token`: before temperature and cuts. */
function logprob(logits, token) {
  const top = logits[highest(logits)];
  const total = logits.reduce((sum, logit) => sum + Math.exp(logit - top), 0);
  return Math.fround(logits[token] - top - Math.log(total));
}

/** The first of the highest; the first NaN where there is one, as torch's argmax has it. */
function highest(logits) {
  let best = 0;
  for (let at = 0; at < logits.length; at += 1) {
    if (Number.isNaN(logits[at])) return at;
    if (logits[at] > logits[best]) best = at;
  }
  return best;
}

function sums(numbers) {
  let sum = 0;
  return numbers.map((number) => (sum += number));
}
