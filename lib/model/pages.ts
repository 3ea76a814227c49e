/**
 * Book-keeping of a paged cache: which page holds which tokens after which prefix, who uses it, and what goes when room is short. Pure host logic; the
 * contents are the generator's.
 */
export const PAGE_SIZE = 16;

export interface Page {
  readonly number: number;
  /** Unique for the life of the cache: the identity of the whole prefix that ends with this page. */
  id: number;
  /** Sequences that use the page now. */
  refs: number;
  /** Names under which it is kept for later. */
  keeps: number;
  /** Under which prefix and tokens it can be found; null where it cannot. */
  key: string | null;
  /** Contents are computed (or are about to be in the step being put together). */
  ready: boolean;
  /** The sequence that will compute it, until it is ready. */
  owner: object | null;
  usedAt: number;
}

/** The prefix of nothing. */
export const ROOT = 0;

export class PageCache {
  #pages: Page[];
  #free: Page[];
  #byKey = new Map<string, Page>();
  /** Pages that nobody uses but that can be found. */
  #idle = new Set<Page>();
  /** The identity tells whether the page still holds what was kept. */
  #kept = new Map<string, { page: Page; id: number }[]>();
  #ids = ROOT;
  #clock = 0;

  constructor(pages: number) {
    const blank = { id: 0, refs: 0, keeps: 0, key: null, ready: false, owner: null, usedAt: 0 };
    this.#pages = Array.from({ length: pages }, (_, number) => ({ number, ...blank }));
    this.#free = this.#pages.toReversed();
  }

  get size(): number {
    return this.#pages.length;
  }

  /** Pages that could be handed out: free ones, and idle ones, which would be evicted. */
  get available(): number {
    return this.#free.length + this.#idle.size;
  }

  /** Finds the page that holds these tokens after the prefix `parent`, and uses it. */
  find(parent: number, tokens: readonly number[]): Page | undefined {
    const page = this.#byKey.get(keyOf(parent, tokens));
    if (!page) return undefined;
    this.#idle.delete(page);
    page.refs++;
    page.usedAt = ++this.#clock;
    return page;
  }

  /** A page for one user. Evicts idle pages if none is free: those that no name keeps first, of equals the least recently used. */
  take(): Page {
    if (this.#free.length === 0) this.#evict();
    const page = this.#free.pop();
    if (!page) throw new Error("no page is available: the caller must ask `available` first");
    return Object.assign(page, {
      id: ++this.#ids,
      refs: 1,
      keeps: 0,
      key: null,
      ready: false,
      owner: null,
      usedAt: ++this.#clock,
    });
  }

  /**
   * Makes a page findable. Returns the identity of its prefix: that of another page where these tokens are held already (this page then
   * stays with its user alone).
   */
  register(page: Page, parent: number, tokens: readonly number[]): number {
    const key = keyOf(parent, tokens);
    const there = this.#byKey.get(key);
    if (there) return there.id;
    this.#byKey.set(key, page);
    page.key = key;
    return page.id;
  }

  /** One user less. */
  drop(page: Page): void {
    if (--page.refs > 0) return;
    if (page.key !== null && page.ready) {
      page.usedAt = ++this.#clock;
      this.#idle.add(page);
    } else {
      this.#release(page);
    }
  }

  /** Keeps those of the pages that can be found again under a name, instead of what was kept under it before. */
  keep(name: string, pages: readonly Page[]): void {
    const findable = pages.filter((p) => p.key !== null && p.ready);
    for (const page of findable) page.keeps++;
    this.unkeep(name);
    this.#kept.set(
      name,
      findable.map((page) => ({ page, id: page.id })),
    );
  }

  unkeep(name: string): void {
    for (const { page, id } of this.#kept.get(name) ?? []) if (page.id === id && page.keeps > 0) page.keeps--;
    this.#kept.delete(name);
  }

  /** Forgets every prefix; pages in use stay with their users. */
  clear(): void {
    for (const name of [...this.#kept.keys()]) this.unkeep(name);
    for (const page of this.#byKey.values()) page.key = null;
    this.#byKey.clear();
    for (const page of [...this.#idle]) this.#release(page);
  }

  #release(page: Page): void {
    this.#idle.delete(page);
    if (page.key !== null) this.#byKey.delete(page.key);
    page.key = null;
    page.keeps = 0;
    this.#free.push(page);
  }

  /** Frees an eighth of the idle pages. Of pages used together the deepest of a prefix go first: without its parent a page is never found. */
  #evict(): void {
    const order = (a: Page, b: Page) => Math.sign(a.keeps) - Math.sign(b.keeps) || a.usedAt - b.usedAt;
    const least = [...this.#idle].sort(order).slice(0, Math.ceil(this.#idle.size / 8));
    for (const page of least) this.#release(page);
  }
}

const keyOf = (parent: number, tokens: readonly number[]) => `${parent}:${tokens.join()}`;
