/**
 * The protocol's tags, in one list (method.md section 2). The parser, the renderer, the constrained decoder and the small
 * vocabulary (one token a tag) all read it from here.
 */
export const TAGS = ["think", "plan", "search_tool", "tools", "tool_call", "tool_response", "answer"] as const;
export type Tag = (typeof TAGS)[number];

/** Tags that only the environment writes: in a reply they would forge an observation. */
export const OBSERVATION_TAGS: readonly Tag[] = ["tools", "tool_response"];

export const openTag = (tag: Tag): string => `<${tag}>`;
export const closeTag = (tag: Tag): string => `</${tag}>`;

/** Opening and closing form of every tag: the strings that a vocabulary makes single tokens. */
export const TAG_TOKENS: readonly string[] = TAGS.flatMap((tag) => [openTag(tag), closeTag(tag)]);

/** A tag exactly as the protocol spells it. A fresh object, because a global regular expression has a position. */
export const tagPattern = (): RegExp => new RegExp(`<(/?)(${TAGS.join("|")})>`, "g");

/** What a lenient reader might take for a tag of the protocol or of a chat template: any case, spaces, attributes. */
const LOOKS_LIKE_A_TAG = new RegExp(`<(?=\\s*/?\\s*(?:${TAGS.join("|")})(?![a-z0-9_])|[|\uff5c])`, "gi");

/** Whether text holds something that could be read as a tag. */
export const holdsTag = (text: string): boolean => text.search(LOOKS_LIKE_A_TAG) >= 0;

/**
 * Makes JSON text unable to forge a tag: `<` of whatever looks like one becomes its JSON escape. The value stays the same, since
 * `<` occurs in JSON inside strings only.
 */
export const escapeTagsInJson = (json: string): string => json.replace(LOOKS_LIKE_A_TAG, "\\u003c");

/** The same for plain text, where there is no escape that a reader undoes: the sign becomes the entity that people know. */
export const escapeTagsInText = (text: string): string => text.replace(LOOKS_LIKE_A_TAG, "&lt;");
