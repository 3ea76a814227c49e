/** Controls and marks that would hide or turn text around: shown as their code points instead. Tab and line breaks stay. */
export const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  /([\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb])/;

/** How a hidden mark is written out. */
export const code = (c: string): string => `U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** A text with its hidden marks written out, for places that take no elements. */
export const shownMarks = (text: string): string =>
  text
    .split(HIDDEN)
    .map((part, i) => (i % 2 === 1 ? `[${code(part)}]` : part))
    .join("");
