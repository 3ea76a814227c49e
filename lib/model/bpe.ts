/**
 * Small vocabularies for small models. The merges come from Hugging Face's Rust trainer (npm `tokenizers`), whose train() always makes 30,000
 * entries; they are cut here to size in merge order, below the 256 bytes and above the special tokens.
 *
 * Text is first split into runs of letters, single digits, runs of marks and runs of white space, and no merge crosses a split: a word has
 * the same tokens after a space, a quote or an underscore, and numbers are read digit by digit.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Tokenizer as RustTokenizer } from "tokenizers";
import { z } from "zod";
import { BYTE_LETTERS, createTokenizer, type LoadedTokenizer, spelledBytes, TokenizerError } from "./tokenizer.ts";

/** The split described above. Its classes are disjoint and no merge joins two, so the merges alone give the same tokens (but for parts of non-ASCII characters). */
export const PATTERN = String.raw`[\p{L}\p{M}]+|\p{N}|[^\s\p{L}\p{M}\p{N}]+|\s+`;

/** Qwen3's control tokens, which every vocabulary has: end of text (padding), start and end of a message. */
export const CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] as const;

/**
 * ChatML, as Qwen3's template without its rewriting of earlier messages: what stood in the context stays. Observations are read under
 * the role user (agents/chat.ts).
 */
export const CHAT_TEMPLATE =
  "{% for message in messages %}{% set role = 'user' if message.role in ['tool', 'observation'] else message.role %}" +
  "{{ '<|im_start|>' + role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false };

interface AddedEntry {
  id: number;
  content: string;
  special: boolean;
}

/** The contents of a tokenizer.json. */
function tokenizerJson(vocab: Record<string, number>, merges: [string, string][], added: AddedEntry[]) {
  const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false };
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: added.map(({ id, content, special }) => ({ id, content, ...flags, special })),
    normalizer: null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [{ type: "Split", pattern: { Regex: PATTERN }, behavior: "Isolated", invert: false }, byteLevel],
    },
    post_processor: null,
    decoder: byteLevel,
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab,
      merges,
    },
  };
}

const Trained = z.looseObject({ model: z.looseObject({ merges: z.array(z.tuple([z.string(), z.string()])) }) });

/**
 * Trains a vocabulary of exactly `vocabSize` entries: ids 0–255 are the bytes, then the merges, then CONTROL_TOKENS and `tags` (each one token;
 * control tokens are skipped by decoding where asked, tags are text). Deterministic in `texts`. Tags and control tokens in
 * the texts are left out of the training.
 *
 * Throws TokenizerError if the texts give too few merges for the size, if a merge crosses a split, or if the two libraries disagree on the ids of
 * any of up to 200 of the texts.
 */
export async function trainTokenizer(
  texts: readonly string[],
  options: { vocabSize: number; tags: readonly string[]; chatTemplate?: string; maxLength?: number },
): Promise<LoadedTokenizer> {
  const { vocabSize, tags } = options;
  const contents: string[] = [...new Set([...CONTROL_TOKENS, ...tags])];
  const wanted = vocabSize - 256 - contents.length;
  if (wanted < 0)
    throw new TokenizerError(
      `vocabulary size ${vocabSize}: at least ${256 + contents.length} are needed (bytes and tags).`,
    );
  const merges = trainMerges(texts, contents);
  const vocab: Record<string, number> = Object.fromEntries(BYTE_LETTERS.map((letter, byte) => [letter, byte]));
  const kept: [string, string][] = [];
  let next = 256;
  for (const [left, right] of merges) {
    const fresh = !Object.hasOwn(vocab, left + right);
    if (fresh && next === 256 + wanted) break;
    checkWithinSplit(left + right);
    if (fresh) vocab[left + right] = next++;
    kept.push([left, right]);
  }
  if (next < 256 + wanted)
    throw new TokenizerError(
      `the texts give ${next - 256} merges, a vocabulary of ${vocabSize} needs ${wanted}: use more text or a smaller size.`,
    );
  const added = contents.map((content, i) => ({
    id: next + i,
    content,
    special: (CONTROL_TOKENS as readonly string[]).includes(content),
  }));
  const json = tokenizerJson(vocab, kept, added);
  const config = {
    add_bos_token: false,
    add_prefix_space: false,
    added_tokens_decoder: Object.fromEntries(json.added_tokens.map(({ id, ...token }) => [String(id), token])),
    additional_special_tokens: ["<|im_start|>", "<|im_end|>"],
    bos_token: null,
    chat_template: options.chatTemplate ?? CHAT_TEMPLATE,
    clean_up_tokenization_spaces: false,
    eos_token: "<|im_end|>",
    model_max_length: options.maxLength ?? 32768,
    pad_token: "<|endoftext|>",
    split_special_tokens: false,
    tokenizer_class: "PreTrainedTokenizerFast",
    unk_token: null,
  };
  const tokenizer = createTokenizer(json, config, null, "trained tokenizer");
  await compareLibraries(tokenizer, json, texts.slice(0, 200));
  return tokenizer;
}

/** Merges in order of rank, by the Rust trainer, without anything of `specials`. */
function trainMerges(texts: readonly string[], specials: readonly string[]): [string, string][] {
  const splitter = new RegExp(specials.map(RegExp.escape).join("|"), "u");
  const dir = mkdtempSync(join(tmpdir(), "bpe-"));
  try {
    const corpus = join(dir, "corpus.txt");
    writeFileSync(corpus, texts.flatMap((text) => text.split(splitter)).join("\n"));
    const rust = RustTokenizer.fromString(JSON.stringify(tokenizerJson({}, [], [])));
    rust.train([corpus]);
    const out = join(dir, "tokenizer.json");
    rust.save(out);
    return Trained.parse(JSON.parse(readFileSync(out, "utf8"))).model.merges;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

const WHOLE = new RegExp(`^(?:${PATTERN})$`, "u");

/** A merged token must lie in one class of the pattern; one that is part of a character only must hold no digit or space. */
function checkWithinSplit(token: string): void {
  const bytes = spelledBytes(token, "trained tokenizer");
  const text = new TextDecoder().decode(bytes);
  const partial = text.includes("\ufffd");
  if (partial ? bytes.some(isDigitOrSpace) : !WHOLE.test(text))
    throw new TokenizerError(
      `the merge ${JSON.stringify(text)} crosses a split: the trainer did not apply the pattern. Check the version of npm tokenizers.`,
    );
}

function isDigitOrSpace(byte: number): boolean {
  return byte < 128 && /[\s\d]/.test(String.fromCharCode(byte));
}

async function compareLibraries(tokenizer: LoadedTokenizer, json: unknown, texts: readonly string[]): Promise<void> {
  const rust = RustTokenizer.fromString(JSON.stringify(json));
  for (const text of texts) {
    const ids = (await rust.encode(text, null, { addSpecialTokens: false })).getIds();
    const ours = tokenizer.encode(text, { special: true });
    const at = ids.findIndex((id, i) => id !== ours[i]);
    if (at !== -1 || ids.length !== ours.length)
      throw new TokenizerError(
        `the two tokenizer libraries disagree from token ${at} on: ${JSON.stringify(text.slice(0, 200))}`,
      );
  }
}
