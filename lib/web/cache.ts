/** The last used of a bounded number of values. */
export class Recent<T> {
  readonly #values = new Map<string, T>();
  constructor(readonly most: number) {}

  get(key: string, make: () => T): T {
    const known = this.#values.get(key);
    if (known !== undefined) {
      this.#values.delete(key);
      this.#values.set(key, known);
      return known;
    }
    const value = make();
    this.#values.set(key, value);
    if (this.#values.size > this.most) this.#values.delete(this.#values.keys().next().value as string);
    return value;
  }
}
