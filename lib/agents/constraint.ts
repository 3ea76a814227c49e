/** Schema-constrained decoding: which tokens may come next in a reply of the protocol. */
import type { Tool } from "../catalog/types.ts";
import type { TokenConstraint, Tokenizer } from "../model/types.ts";
import type { PlanSlot } from "../paraact/types.ts";
import { copySource, type State, tokenMask } from "./grammar/automaton.ts";
import { lexicon, wholeValues } from "./grammar/extract.ts";
import { fieldSource, type ReadValue } from "./grammar/fields.ts";
import { defaultLimits, type ReplyLimits, replyGrammar } from "./grammar/protocol.ts";
import { tokenTrie } from "./grammar/trie.ts";

/** A token was accepted that the constraint forbids. */
export class ConstraintError extends Error {
  override name = "ConstraintError";
}

export interface ConstraintOptions {
  protocol: "paraact" | "eae" | "ete";
  /** Tools in view: the only names that plans and calls can hold. */
  tools: readonly Tool[];
  stopIds: readonly number[];
  /** ParaAct's controller: whether a plan must, may or must not stand before searches and before calls. Default: may. */
  slots?: { search: PlanSlot; call: PlanSlot };
  /** Tools of the live plan's ready occurrences; calls without a new plan are then exactly these. */
  ready?: readonly string[];
  /** Occurrences of the live plan that have succeeded ("tool#k"): a second plan's calls are what is ready behind them. */
  done?: readonly string[];
  /** Where given, string arguments (enums apart) are runs of whole words of this text. */
  copyFrom?: string;
  /** Where given (with `copyFrom`), numbers stand in `copyFrom` too, and answers are made of these words and a few of their own. */
  answerWords?: Iterable<string>;
  /**
   * Where given, arguments (enums and objects apart) are whole values of the request and of the responses, each once a call, and answers are labels
   * of the request's words with whole values of the responses ("status: open; names: Ada, Grace.").
   */
  whole?: { request: string; read: readonly ReadValue[] };
  limits?: Partial<ReplyLimits>;
}

/** What an answer may say besides what was read. */
const OWN_WORDS = "It is done ID not found and the of I could find empty true false".split(" ");

/**
 * The constraint of one reply. Every reply that can be sampled under it parses without findings, and names only tools in view, with
 * their parameters, once each and the required ones present, enums from their lists. Masks are cached by grammar state;
 * those of free text are shared by all replies of a tokenizer.
 */
export function replyConstraint(tokenizer: Tokenizer, options: ConstraintOptions): TokenConstraint {
  const trie = tokenTrie(tokenizer);
  const masks = new Map<string, Uint32Array>();
  let state: State = replyGrammar({
    trie,
    specials: tokenizer.specials,
    stopIds: options.stopIds,
    protocol: options.protocol,
    tools: options.tools,
    slots: options.slots ?? { search: "optional", call: "optional" },
    ready: options.ready ?? null,
    done: options.done ?? [],
    copy: options.copyFrom === undefined ? null : copySource(options.copyFrom),
    extract: options.answerWords === undefined ? null : lexicon([...OWN_WORDS, ...options.answerWords]),
    whole: options.whole
      ? {
          values: wholeValues(options.whole.request, options.whole.read),
          answer: fieldSource(options.whole.request, options.whole.read),
        }
      : null,
    limits: { ...defaultLimits, ...options.limits },
  });
  return {
    allowed: () => tokenMask(trie, state, masks),
    accept(id) {
      const bytes = trie.bytes[id];
      let next: State | null = bytes && bytes.length > 0 ? state : state.tag(id);
      for (const b of bytes ?? []) next = next?.step(b) ?? null;
      if (!next) {
        throw new ConstraintError(
          `Token ${id} (${JSON.stringify(tokenizer.decode([id]))}) is not allowed here. Accept only tokens whose bit is set in allowed().`,
        );
      }
      state = next;
    },
  };
}
