/** What a base model can do, skill by skill: how probable whole right turns are, each after the right turns before it. */
import { encodeConversation } from "../agents/chat.ts";
import type { Model } from "../model/model.ts";
import type { Tokenizer } from "../model/types.ts";
import { type DrillKind, drillKinds, drills, type Lesson } from "./drills.ts";
import { score } from "./update.ts";

export interface Skill {
  /** Turns that were asked for. */
  turns: number;
  /** Mean over turns of the probability of all its tokens: how often a sampled turn would be the right one to the letter, at temperature 1. */
  probability: number;
  /** Mean over tokens of −log p, nats. */
  loss: number;
}

/** Measures each skill on `documents` micro-episodes made of lessons. */
export async function skills(
  model: Model,
  tokenizer: Tokenizer,
  lessons: readonly Lesson[],
  options: { documents: number; seed: number; microTokens: number },
): Promise<Partial<Record<DrillKind, Skill>>> {
  const found: Partial<Record<DrillKind, Skill>> = {};
  for (const kind of drillKinds) {
    const documents = [...drills(kind, lessons, options.seed).take(options.documents)]
      .map((messages) => encodeConversation(messages, tokenizer))
      .filter((d) => d.ids.length <= options.microTokens);
    if (documents.length === 0) continue;
    const { lp } = await score(model, documents, options.microTokens);
    const turns = documents.flatMap(({ actionMask }, d) => {
      const sums: { sum: number; tokens: number }[] = [];
      for (const [i, action] of actionMask.entries()) {
        if (action === 0) continue;
        if (actionMask[i - 1] !== 1) sums.push({ sum: 0, tokens: 0 });
        const turn = sums.at(-1)!;
        turn.sum += lp[d]![i]!;
        turn.tokens++;
      }
      return sums;
    });
    const total = (of: (turn: { sum: number; tokens: number }) => number) => turns.reduce((n, turn) => n + of(turn), 0);
    found[kind] = {
      turns: turns.length,
      probability: total((turn) => Math.exp(turn.sum)) / turns.length,
      loss: -total((turn) => turn.sum) / total((turn) => turn.tokens),
    };
  }
  return found;
}
