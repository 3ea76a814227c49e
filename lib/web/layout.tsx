import type { Child, FC } from "hono/jsx";

/** The frame of every page. All text goes through hono/jsx, which escapes it. */
export const Layout: FC<{ title: string; children?: Child }> = ({ title, children }) => (
  <html lang="en">
    <head>
      <meta charset="utf-8" />
      <meta name="viewport" content="width=device-width, initial-scale=1" />
      <title>{`${title} · paraagent`}</title>
      <link rel="stylesheet" href="/style.css" />
    </head>
    <body>
      <header>
        <a href="/" class="home">
          paraagent
        </a>
        <nav aria-label="Main">
          <a href="/">Runs</a>
        </nav>
      </header>
      <main>
        <h1>{title}</h1>
        {children}
      </main>
    </body>
  </html>
);
