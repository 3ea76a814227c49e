import type { Child, FC } from "hono/jsx";
import { Plain } from "./text.tsx";

const PAGES = [
  ["/", "Runs"],
  ["/compare", "Compare"],
  ["/trajectories", "Trajectories"],
  ["/catalog", "Catalogue"],
] as const;

/** The frame of every page. All text goes through hono/jsx, which escapes it. */
export const Layout: FC<{ title: string; here?: string; refresh?: number; children?: Child }> = ({
  title,
  here,
  refresh,
  children,
}) => (
  <html lang="en">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <title>{`${title} · paraagent`}</title>
      <link rel="icon" href="/icon.svg" type="image/svg+xml" />
      <link rel="stylesheet" href="/style.css" />
      <script src="/script.js" defer></script>
      {refresh === undefined ? null : (
        <noscript>
          <meta http-equiv="refresh" content={String(refresh)} />
        </noscript>
      )}
    </head>
    <body>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <header>
        <a href="/" class="home">
          paraagent
        </a>
        <nav aria-label="Main">
          {PAGES.map(([href, name]) => (
            <a href={href} aria-current={here === href ? "page" : undefined}>
              {name}
            </a>
          ))}
        </nav>
      </header>
      <main id="main" tabindex={-1}>
        <h1>
          <Plain text={title} />
        </h1>
        {children}
      </main>
    </body>
  </html>
);
