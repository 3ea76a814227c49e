/** What tools are called: snake case, [a-z0-9_], 1–64 characters, unique in the catalogue. */

export const MAX_NAME = 64;

/** Snake case of any identifier or text: "getHTTPUsers-v2" → "get_http_users_v2". May be empty. */
export function snakeCase(text: string): string {
  return text
    .normalize("NFKD")
    .replace(/[\u0300-\u036f]/g, "")
    .replace(/OAuth/g, "Oauth")
    .replace(/\bIDs\b|(?<=[a-z])IDs/g, "Ids")
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/([A-Z])([A-Z][a-z]{2,})/g, "$1_$2")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "_")
    .replace(/^_+|_+$/g, "");
}

/** At most `limit` characters, cut between words where a word ends in the second half. */
export function clipName(name: string, limit = MAX_NAME): string {
  if (name.length <= limit) return name;
  const cut = name.lastIndexOf("_", limit);
  return name.slice(0, cut >= limit / 2 ? cut : limit).replace(/_+$/, "");
}

/** Four hexadecimal digits of a text's SHA-256: the stable last resort against equal names. */
export function shortHash(text: string): string {
  return new Bun.CryptoHasher("sha256").update(text).digest("hex").slice(0, 4);
}

/** Name from method and path: ("GET", "/v1/users/{id}/posts") → "get_users_posts_by_id". */
export function nameFromPath(method: string, path: string): string {
  const parts = path.split(/[/#?]/).filter((p) => p !== "" && !/^v\d+(?:\.\d+)*$/i.test(p));
  const fixed = parts
    .map((p) => p.replace(/\{[^}]*\}/g, " "))
    .map(snakeCase)
    .filter((p) => p !== "");
  const last = parts.at(-1)?.match(/^\{([^}]*)\}$/)?.[1];
  return [method.toLowerCase(), ...fixed, ...(last ? ["by", snakeCase(last)] : [])].filter((p) => p !== "").join("_");
}

const JUNK =
  /^(?:[0-9a-f]{16,}|[0-9a-f]{8}-[0-9a-f-]{27}|\d+|(?:get|post|put|patch|delete|op|operation|endpoint)?[-_]?\d+)$/i;

/** The operation's own name, from its operationId where that is a name, else from method and path. Never empty. */
export function operationName(operationId: unknown, method: string, path: string): string {
  if (typeof operationId === "string" && operationId.length <= 200 && !JUNK.test(operationId.trim())) {
    // AWS query protocols name the method too; Graph appends a hash.
    const name = snakeCase(operationId.replace(/^(?:GET|POST)_(?=[A-Z])/, "").replace(/-[0-9a-f]{4}$/, ""));
    if (name.length >= 2 && name.length <= 90) return clipName(name);
  }
  return clipName(nameFromPath(method, path)) || "call";
}

const TLDS =
  /\.(?:com|org|net|io|co|app|dev|gov|edu|local|ai|me|cloud|us|uk|ca|de|fr|eu|nl|in|au|info|tv|xyz|so|sh|gg|fm|be|ch|at|it|es|pl|jp|br|se|no|dk|fi|cz|ru|nz|za|ac|tech|rest)(?=\.|$)/g;

/** A short readable name of an API: "googleapis.com/calendar" → "calendar", "stripe.com" → "stripe". `long` keeps the provider too. */
export function apiSlug(api: string, long = false): string {
  const [host = "", ...rest] = api.split("/");
  const provider = snakeCase(host.replace(/^(?:www|api)\./, "").replace(TLDS, "")) || snakeCase(host) || "api";
  const service = snakeCase(rest.join("/"));
  if (service === "") return clipName(provider, 28);
  if (!long && service.length > 3 && !/^(?:v\d+|api|rest|main|public|core|data|internal|default)(?:_|$)/.test(service))
    return clipName(service, 28);
  return clipName(service.startsWith(provider) ? service : `${provider}_${service}`, long ? 40 : 28);
}

/** `<operation><tail>` within 64 characters: the operation is cut, the tail is not. */
function withTail(operation: string, tail: string): string {
  return clipName(operation, MAX_NAME - tail.length) + tail;
}

/**
 * Unique names, in the order of the entries: the operation's own where one entry has it; else `<operation>_for_<api>`; else with the
 * provider; else with four digits of the hash of `key`. `taken` names are never given (tools already in a catalogue).
 */
export function assignNames(
  entries: readonly { api: string; operation: string; key: string }[],
  taken: ReadonlySet<string> = new Set(),
): string[] {
  const byOperation = new Map<string, number>();
  for (const e of entries) byOperation.set(e.operation, (byOperation.get(e.operation) ?? 0) + 1);
  const free = (name: string) => !used.has(name) && !taken.has(name);
  const used = new Set<string>();
  const names: (string | null)[] = entries.map((e) => {
    if (byOperation.get(e.operation) !== 1 || taken.has(e.operation)) return null;
    used.add(e.operation);
    return e.operation;
  });
  const candidates: ((e: { api: string; operation: string; key: string }) => string)[] = [
    (e) => withTail(e.operation, `_for_${apiSlug(e.api)}`),
    (e) => withTail(e.operation, `_for_${apiSlug(e.api, true)}`),
    (e) => withTail(e.operation, `_for_${clipName(apiSlug(e.api), 20)}_${shortHash(`${e.api} ${e.key}`)}`),
    (e) =>
      withTail(
        e.operation,
        `_${new Bun.CryptoHasher("sha256").update(`${e.api} ${e.key}`).digest("hex").slice(0, 16)}`,
      ),
  ];
  for (const candidate of candidates) {
    const wanted = new Map<string, number[]>();
    entries.forEach((e, i) => {
      if (names[i] !== null) return;
      const name = candidate(e);
      const list = wanted.get(name);
      if (list) list.push(i);
      else wanted.set(name, [i]);
    });
    // A form that two entries would share is given to neither: names do not depend on which comes first.
    for (const [name, list] of wanted) {
      if (list.length !== 1 || !free(name)) continue;
      used.add(name);
      names[list[0]!] = name;
    }
  }
  return names.map((name, i) => {
    if (name !== null) return name;
    const e = entries[i]!;
    for (let n = 2; ; n++) {
      const numbered = withTail(e.operation, `_${n}`);
      if (!free(numbered)) continue;
      used.add(numbered);
      return numbered;
    }
  });
}
