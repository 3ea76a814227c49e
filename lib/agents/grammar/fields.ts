/**
 * Answers of label and value, "status: open; names: Ada, Grace.", as states: labels are runs of words of the request, values are whole values of
 * the responses, each as often as it stands there, and lists are said from their first entry to their last.
 */
import { choice, lazy, literal, type Next, State } from "./automaton.ts";
import { otherNumber } from "./extract.ts";

/** A scalar of a response, as an answer writes it. */
export interface ReadValue {
  text: string;
  /** Which response it stands in. */
  response: number;
  /** The member that it stands under, the same for all entries of a list. */
  member: string;
}

interface Entry {
  text: string;
  bytes: Uint8Array;
  /** Response and member; entry of it, and how many there are. */
  list: string;
  at: number;
  of: number;
}

export interface FieldSource {
  /** The request's words, each also in its other number. */
  labels: readonly (readonly Uint8Array[])[];
  entries: readonly Entry[];
  /** By text: how often it may be said. */
  often: ReadonlyMap<string, number>;
}

const utf8 = new TextEncoder();
/** What an answer says where a value was not to be had, or where nothing was asked for. */
const NOT_FOUND = utf8.encode("not found");
const DONE = "It is done.";
/** Characters of a label and of a value at most. */
const LONGEST_LABEL = 60;
const LONGEST_VALUE = 160;

/** What answers to a request can be made of. An identifier or number that the request itself names is no answer to it, lists apart. */
export function fieldSource(request: string, values: readonly ReadValue[]): FieldSource {
  const given = request.split(/\s+/).map((word) => word.replace(/^[("']+|[)"'.,;:!?]+$/g, ""));
  const named = new Set(given.filter((word) => /\d/.test(word)));
  const lists = Map.groupBy(
    values.filter(({ text }) => text !== "" && text.length <= LONGEST_VALUE && !/[<\n]/.test(text)),
    ({ response, member }) => `${response} ${member}`,
  );
  const entries = [...lists].flatMap(([list, all]) => {
    const said = all.length > 1 ? all : all.filter(({ text }) => !named.has(text));
    return said.map(({ text }, at): Entry => ({ text, bytes: utf8.encode(text), list, at, of: said.length }));
  });
  const often = new Map<string, number>();
  for (const { text } of entries) often.set(text, (often.get(text) ?? 0) + 1);
  const labels = given.map((word) =>
    word.includes("<") ? [] : [word, ...otherNumber(word)].map((w) => utf8.encode(w)),
  );
  return { labels, entries, often };
}

const [SPACE, COMMA, COLON, SEMICOLON, STOP] = [0x20, 0x2c, 0x3a, 0x3b, 0x2e];

/** What has been said before the present label or value. */
interface Said {
  labels: readonly string[];
  texts: ReadonlyMap<string, number>;
  /** Members of finished groups, where they are known for certain. */
  lists: ReadonlySet<string>;
}

abstract class Field extends State {
  constructor(
    protected readonly source: FieldSource,
    protected readonly said: Said,
    /** All of the answer so far: it names the state. */
    protected readonly text: string,
    protected readonly limit: number,
    protected readonly next: Next,
  ) {
    super();
  }
  protected makeKey(): string {
    return `F${this.text};${this.next.key}`;
  }
  protected get full(): boolean {
    return this.text.length >= this.limit;
  }
  protected with(byte: number): string {
    return this.text + String.fromCharCode(byte);
  }
}

/** Within a label: the request's words that may stand here, and how much of them has been said. */
class Label extends Field {
  constructor(
    source: FieldSource,
    said: Said,
    text: string,
    limit: number,
    next: Next,
    private readonly label = "",
    private readonly open: readonly { word: number; form: number }[] = formsOf(source, source.labels.keys()),
    private readonly length = 0,
  ) {
    super(source, said, text, limit, next);
  }
  step(byte: number): State | null {
    const { source, said, limit, next, label, open, length } = this;
    const bytes = ({ word, form }: { word: number; form: number }) => source.labels[word]![form]!;
    const inside = open.filter((o) => bytes(o)[length] === byte);
    if (inside.length > 0) {
      const longer = label + String.fromCharCode(byte);
      return new Label(source, said, this.with(byte), limit, next, longer, inside, length + 1);
    }
    const whole = length === 0 ? [] : open.filter((o) => bytes(o).length === length);
    if (whole.length === 0) return null;
    const after = formsOf(
      source,
      whole.map(({ word }) => word + 1),
    );
    const ends = after.length === 0 || label.length >= LONGEST_LABEL || this.full;
    if (byte === SPACE) return ends ? null : new Label(source, said, this.with(byte), limit, next, `${label} `, after);
    // No label twice, unless the words lead nowhere else.
    if (byte !== COLON || (said.labels.includes(label) && !ends)) return null;
    return new Gap(source, { ...said, labels: [...said.labels, label] }, this.with(byte), limit, next, null);
  }
}

/** All forms of some words of the request. */
const formsOf = ({ labels }: FieldSource, words: Iterable<number>) =>
  [...words].flatMap((word) =>
    (labels[word] ?? []).flatMap((bytes, form) => (bytes.length > 0 ? [{ word, form }] : [])),
  );

/** The space before a value. `last` are the values of this group that may have been said last; null: none yet. */
class Gap extends Field {
  constructor(
    source: FieldSource,
    said: Said,
    text: string,
    limit: number,
    next: Next,
    private readonly last: readonly number[] | null,
  ) {
    super(source, said, text, limit, next);
  }
  step(byte: number): State | null {
    const { source, said, limit, next, last } = this;
    if (byte !== SPACE) return null;
    const open = openFor(source, said, this.text.length, limit, last);
    return new Value(source, said, this.with(byte), limit, next, last, open, 0, last === null);
  }
}

/** The entries that may stand next, behind one of `last` (null: at the beginning of a group), at `length` characters. */
function openFor(
  source: FieldSource,
  said: Said,
  length: number,
  limit: number,
  last: readonly number[] | null,
): number[] {
  return [...source.entries.keys()].filter((j) => {
    const entry = source.entries[j]!;
    return (
      (said.texts.get(entry.text) ?? 0) < source.often.get(entry.text)! &&
      !said.lists.has(entry.list) &&
      length + entry.text.length < limit &&
      (last === null ? entry.at === 0 : last.some((i) => follows(source.entries[i]!, entry)))
    );
  });
}

/** Whether one entry may stand behind another: the list's next, or behind a whole list the beginning of another. */
const follows = (a: Entry, b: Entry) => (a.list === b.list ? b.at === a.at + 1 : a.at === a.of - 1 && b.at === 0);

/** Within a value: those that begin with what was said of it. */
class Value extends Field {
  constructor(
    source: FieldSource,
    said: Said,
    text: string,
    limit: number,
    next: Next,
    private readonly last: readonly number[] | null,
    private readonly open: readonly number[],
    private readonly length: number,
    private readonly missing: boolean,
  ) {
    super(source, said, text, limit, next);
  }
  step(byte: number): State | null {
    const { source, said, limit, next, last, open, length } = this;
    const goOn = open.filter((j) => source.entries[j]!.bytes[length] === byte);
    const missing = this.missing && NOT_FOUND[length] === byte;
    const inside =
      goOn.length > 0 || missing
        ? new Value(source, said, this.with(byte), limit, next, last, goOn, length + 1, missing)
        : null;
    const ended = this.#ended(byte);
    // A mark may end a value or belong to a longer one.
    return inside && ended ? choice([inside, ended]) : (inside ?? ended);
  }
  /** What follows a whole value. */
  #ended(byte: number): State | null {
    const { source, said, limit, next, open, length } = this;
    const whole = open.filter((j) => source.entries[j]!.bytes.length === length);
    if (whole.length === 0 && !(this.missing && length === NOT_FOUND.length)) return null;
    const last = whole.map((j) => source.entries[j]!);
    const texts = new Map(said.texts);
    if (last.length > 0) texts.set(last[0]!.text, (texts.get(last[0]!.text) ?? 0) + 1);
    const after = { ...said, texts };
    const more = last.length > 0 && openFor(source, after, this.text.length + 1, limit, whole).length > 0;
    // A list is said to its end, as far as there is room.
    const cut = more && last.every(({ at, of }) => at + 1 < of);
    if (byte === STOP) return cut ? null : next.state;
    if (byte === COMMA) return more ? new Gap(source, after, this.with(byte), limit, next, whole) : null;
    if (byte !== SEMICOLON || this.full || cut) return null;
    const lists = new Set(said.lists);
    if (last.length === 1) lists.add(last[0]!.list);
    const text = `${this.with(byte)} `;
    const label = () => new Label(source, { ...after, lists }, text, limit, next);
    return literal(" ", lazy(`F${text};${next.key}`, label));
  }
}

/** An answer of about `limit` characters, then `next`. */
export function fields(source: FieldSource, limit: number, next: Next): State {
  const label = new Label(source, { labels: [], texts: new Map(), lists: new Set() }, "", limit, next);
  return choice([label, literal(DONE, next)]);
}
