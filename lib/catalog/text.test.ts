import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { isEnglish } from "./filters.ts";
import { apiSlug, assignNames, nameFromPath, operationName, snakeCase } from "./naming.ts";
import { SCRUBBED, scrubJson, scrubText } from "./scrub.ts";
import { cleanText, clip, describe as described, plainText } from "./text.ts";

describe("plain text", () => {
  test.each([
    [
      "<p>Creates a <code>Bucket</code>.</p><p>It's &quot;new&quot; &amp; empty&#46;</p>",
      'Creates a Bucket. It\'s "new" & empty.',
    ],
    ["See [the guide](https://x.example/a_(b)) for **all** `options`.", "See the guide for all options."],
    ["# Title\n\n- one\n- two", "Title one two"],
    ['Gets it.\n\n```json\n{"a": 1}\n```\nThen more.', "Gets it. Then more."],
    ["Uses snake_case_names and 2 * 3 * 4", "Uses snake_case_names and 2 * 3 * 4"],
    ["  many   spaces\tand\nlines ", "many spaces and lines"],
    ["First line\nSecond line", "First line. Second line"],
  ])("%j", (raw, expected) => {
    expect(plainText(raw)).toBe(expected);
  });

  test("is never slow, whatever the text", () => {
    for (const raw of [
      "<".repeat(50_000),
      "[".repeat(50_000),
      "*".repeat(50_000),
      "_a".repeat(30_000),
      "<p ".repeat(20_000),
      "](".repeat(30_000),
      "| a ".repeat(20_000),
      "\n".repeat(50_000),
      "-----BEGIN ".repeat(5000),
      "eyJ".repeat(20_000),
    ]) {
      expect(cleanText(raw, 320).length).toBeLessThanOrEqual(320);
    }
  });

  test("clips at sentences and words", () => {
    fc.assert(
      fc.property(fc.string(), fc.integer({ min: 10, max: 80 }), (s, n) => {
        expect(clip(s, n).length).toBeLessThanOrEqual(n);
      }),
      { seed: 2 },
    );
    expect(clip("One sentence here. And another one follows it", 30)).toBe("One sentence here.");
    expect(clip("word after word without any stop at all", 20)).toBe("word after word…");
  });

  test("summary and detail become one text that says things once", () => {
    expect(described("List users", "Lists all users of the account, page by page.", 300)).toBe(
      "List users. Lists all users of the account, page by page.",
    );
    expect(described("Get a user", "Get a user by id.", 300)).toBe("Get a user by id.");
    expect(described("getUser", "Returns the user.", 300)).toBe("Returns the user.");
    expect(
      described(
        "Delete the sending rules of an envelope",
        "Deletes the sending rules of an envelope. It cannot be undone.",
        300,
      ),
    ).toBe(
      "Delete the sending rules of an envelope. Deletes the sending rules of an envelope. It cannot be undone.".slice(
        41,
      ),
    );
    expect(described("", "For more information, see the docs.", 300)).toBe("For more information, see the docs.");
    expect(
      described(
        "Pay an invoice",
        "For more information, see the docs. Requires an access token. Money moves at once.",
        300,
      ),
    ).toBe("Pay an invoice. Money moves at once.");
  });

  test("other languages are told from English", () => {
    expect(isEnglish("Returns the list of pets for a given owner")).toBe(true);
    expect(isEnglish("Get user by email")).toBe(true);
    expect(isEnglish("Gibt die Liste der Kunden und ihrer Verträge zurück")).toBe(false);
    expect(isEnglish("Obtener la lista de los usuarios")).toBe(false);
    expect(isEnglish("Récupère la liste des clients de l'entreprise")).toBe(false);
    expect(isEnglish("获取用户列表 users")).toBe(false);
  });
});

describe("secrets", () => {
  test("strings shaped like keys are removed, others stay", () => {
    for (const secret of [
      `AKIA${"Z".repeat(16)}`,
      `ghp_${"a1".repeat(18)}`,
      "xoxb-1234567890-abcdef",
      `eyJ${"a".repeat(20)}.${"b".repeat(20)}.${"c".repeat(20)}`,
      "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
      `sk_live_${"4".repeat(24)}`,
    ]) {
      expect(scrubText(`before ${secret} after`)).toBe(`before ${SCRUBBED} after`);
      expect(scrubJson({ a: [{ b: secret }] })).toEqual({ a: [{ b: SCRUBBED }] });
    }
    for (const fine of ["ghost_story", "AKIArelation", "xoxo love", "eyJust a word", "BEGIN here"])
      expect(scrubText(fine)).toBe(fine);
  });
});

describe("names", () => {
  test.each([
    ["getHTTPUsers-v2", "get_http_users_v2"],
    ["calendar.events.list", "calendar_events_list"],
    ["ListOAuth2Apps", "list_oauth2_apps"],
    ["Crème brûlée", "creme_brulee"],
    ["获取", ""],
  ])("%s in snake case", (raw, expected) => {
    expect(snakeCase(raw)).toBe(expected);
  });

  test("from operationId, else from method and path", () => {
    expect(operationName("GET_DescribeQueues", "GET", "/#Action=DescribeQueues")).toBe("describe_queues");
    expect(operationName("groups.calendar.CreateEvents-1a2b", "POST", "/x")).toBe("groups_calendar_create_events");
    expect(operationName("5f3e9a0c1b2d4e6f8a9b0c1d", "DELETE", "/v1/users/{userId}")).toBe("delete_users_by_user_id");
    expect(operationName(undefined, "GET", "/获取")).toBe("get");
    expect(nameFromPath("GET", "/api/v2.0/users/{id}/posts")).toBe("get_api_users_posts");
  });

  test("are unique, short and the same in any order of the entries", () => {
    const part = fc.constantFrom("get", "get_user", "list", "a".repeat(64), `${"long_word_".repeat(6)}x`);
    const api = fc.constantFrom(
      "stripe.com",
      "googleapis.com/calendar",
      "other.com/calendar",
      "x.org/v1",
      "azure.com/a-very-long-service-name-that-goes-on-and-on",
    );
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.record({ api, operation: part, key: fc.string({ maxLength: 6 }) }), {
          selector: (e) => `${e.api} ${e.key}`,
          maxLength: 40,
        }),
        fc.infiniteStream(fc.nat()),
        (entries, order) => {
          const names = assignNames(entries);
          expect(new Set(names).size).toBe(entries.length);
          for (const name of names) expect(name).toMatch(/^[a-z0-9_]{1,64}$/);
          const byKey = new Map(entries.map((e, i) => [`${e.api} ${e.key}`, names[i]!]));
          const shuffled = entries
            .map((e) => ({ e, at: order.next().value as number }))
            .sort((a, b) => a.at - b.at)
            .map((x) => x.e);
          const again = assignNames(shuffled);
          expect(again).toEqual(shuffled.map((e) => byKey.get(`${e.api} ${e.key}`)!));
        },
      ),
      { seed: 9 },
    );
  });

  test("APIs have short readable names", () => {
    expect(apiSlug("stripe.com")).toBe("stripe");
    expect(apiSlug("googleapis.com/calendar")).toBe("calendar");
    expect(apiSlug("googleapis.com/calendar", true)).toBe("googleapis_calendar");
    expect(apiSlug("twilio.com/api")).toBe("twilio_api");
  });
});
