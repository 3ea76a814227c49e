/** Text scores. */

function words(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
}

/** ROUGE-L F1 (Lin 2004): longest common subsequence of words, recall and precision weighed alike. In [0,1]; 0 where either is empty. */
export function rougeL(candidate: string, reference: string): number {
  const a = words(candidate);
  const b = words(reference);
  if (a.length === 0 || b.length === 0) return 0;
  let previous = new Uint32Array(b.length + 1);
  let current = new Uint32Array(b.length + 1);
  for (const word of a) {
    for (let j = 0; j < b.length; j++) {
      current[j + 1] = word === b[j] ? previous[j]! + 1 : Math.max(previous[j + 1]!, current[j]!);
    }
    [previous, current] = [current, previous];
  }
  const lcs = previous[b.length]!;
  return lcs === 0 ? 0 : (2 * lcs) / (a.length + b.length);
}
