import type { FC } from "hono/jsx";
import { code, HIDDEN } from "./marks.ts";

/** Text from tools and models as it is, with nothing hidden in it. Escaped by hono/jsx; its direction does not leak into what is around it. */
export const Plain: FC<{ text: string }> = ({ text }) => (
  <bdi>
    {HIDDEN.test(text)
      ? text.split(HIDDEN).map((part, i) => (i % 2 === 1 ? <span class="hidden-mark">{code(part)}</span> : part))
      : text}
  </bdi>
);

/** One line of a text, cut. */
export const Short: FC<{ text: string; most?: number }> = ({ text, most = 140 }) => {
  const line = text.slice(0, most + 1).replace(/\s+/g, " ");
  return <Plain text={text.length > most ? `${line.slice(0, most)}…` : line} />;
};

/** A text with its line breaks, in a scrolling region that the keyboard reaches. */
export const Pre: FC<{ label: string; text: string }> = ({ label, text }) => (
  // biome-ignore lint/a11y/useSemanticElements: a fieldset would be a form's, and a section a landmark for each text
  <div class="pre" role="group" tabindex={0} aria-label={label}>
    <pre>
      <Plain text={text} />
    </pre>
  </div>
);

const FOLD_FROM = 700;

/** A block of text: short ones whole, long ones folded behind their beginning. */
export const Block: FC<{ label: string; text: string; open?: boolean }> = ({ label, text, open = false }) => {
  const pre = <Pre label={label} text={text} />;
  if (text.length <= FOLD_FROM)
    return (
      <>
        <p class="label">{label}</p>
        {pre}
      </>
    );
  return (
    <details class="block" open={open}>
      <summary>
        <span class="label">{label}</span>{" "}
        <span class="soft">
          {text.length.toLocaleString("en")} characters · <Short text={text} most={90} />
        </span>
      </summary>
      {pre}
    </details>
  );
};

/** A scrolling region that the keyboard reaches. */
export const Scroll: FC<{ label: string; children?: unknown }> = ({ label, children }) => (
  // biome-ignore lint/a11y/useSemanticElements: a fieldset would be a form's, and a section a landmark for each table
  <div class="scroll" role="group" tabindex={0} aria-label={label}>
    {children as never}
  </div>
);
