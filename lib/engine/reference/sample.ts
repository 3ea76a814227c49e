/** Sampling of one row, float64. The rule (order, ties) is the one stated at SampleOptions in types.ts. */

export interface RowSample {
  id: number;
  lp: number;
  /** How near the draw came to another choice, as a probability: engines in f32 may differ where it is tiny. */
  margin: number;
}

export function sampleRow(
  logits: Float64Array,
  o: { temperature: number; topK: number; topP: number; u: number; allowed: (v: number) => boolean },
): RowSample {
  const scale = o.temperature > 0 ? 1 / o.temperature : 1;
  const ids = Array.from(logits.keys()).filter(o.allowed);
  const max = ids.reduce((m, v) => Math.max(m, logits[v]!), -Infinity);
  const weight = (v: number) => Math.exp((logits[v]! - max) * scale);
  const lse = Math.log(ids.reduce((sum, v) => sum + weight(v), 0));
  const chosen = (id: number, margin: number): RowSample => ({ id, lp: (logits[id]! - max) * scale - lse, margin });

  const ranked = ids.toSorted((a, b) => logits[b]! - logits[a]! || a - b);
  if (o.temperature <= 0) return chosen(ranked[0]!, ranked.length > 1 ? 1 - weight(ranked[1]!) : 1);

  // Thresholds on the logit: the k-th largest, then the largest one above which the mass reaches topP of what top-k left.
  const mass = (from: number[]) => from.reduce((sum, v) => sum + weight(v), 0);
  const cut = o.topK > 0 && o.topK < ranked.length ? logits[ranked[o.topK - 1]!]! : -Infinity;
  let kept = ranked.filter((v) => logits[v]! >= cut);
  let margin = 1;
  if (o.topP < 1) {
    const goal = o.topP * mass(kept);
    let [sum, last] = [0, 0];
    for (; last < kept.length; last++) {
      margin = Math.min(margin, Math.abs(sum - goal) / mass(kept));
      sum += weight(kept[last]!);
      if (sum >= goal) break;
    }
    margin = Math.min(margin, Math.abs(sum - goal) / mass(kept));
    const least = logits[kept[Math.min(last, kept.length - 1)]!]!;
    kept = kept.filter((v) => logits[v]! >= least);
  }
  kept.sort((a, b) => a - b);
  const total = mass(kept);
  let sum = 0;
  for (const v of kept) {
    const before = sum;
    sum += weight(v);
    if (sum > o.u * total || v === kept.at(-1)) {
      const [below, above] = [o.u - before / total, sum / total - o.u];
      return chosen(v, Math.min(margin, v === kept[0] ? 1 : below, v === kept.at(-1) ? 1 : above));
    }
  }
  return chosen(ranked[0]!, 0);
}
