/** `bun run serve`: the results browser, on loopback. */

import { resultsRoot } from "../lib/runs/stages.ts";
import { webApp } from "../lib/web/app.tsx";
import { warmUp } from "../lib/web/chart.ts";
import { main, UsageError } from "./cli.ts";

await main(
  {
    name: "serve",
    summary: "shows the results in a browser, on this machine only unless told otherwise",
    usage: ["bun run serve [--port 4173]"],
    flags: {
      port: { type: "string", default: "4173", help: "port to listen on; 0 takes a free one" },
      host: { type: "string", default: "127.0.0.1", help: "address to listen on" },
      "host-name": { type: "string", multiple: true, help: "further host names to answer to" },
    },
  },
  async (args) => {
    const port = args.number("port", { min: 0, max: 65535 })!;
    const root = resultsRoot();
    const app = webApp(root, { hosts: args.texts("host-name") });
    let server: ReturnType<typeof Bun.serve>;
    try {
      server = Bun.serve({ port, hostname: args.text("host")!, idleTimeout: 60, fetch: app.fetch });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EADDRINUSE") throw error;
      throw new UsageError(`port ${port} is taken. Choose another: bun run serve --port ${port + 1}`);
    }
    if (args.json) process.stdout.write(`${JSON.stringify({ url: server.url.href, results: root })}\n`);
    else console.log(`${server.url.href}  (results in ${root}; Ctrl-C ends it)`);
    // The charts' libraries load while the user opens the browser.
    await warmUp();
    await new Promise<void>((resolve) => {
      process.once("SIGINT", resolve);
      process.once("SIGTERM", resolve);
    });
    await server.stop(true);
    process.exit(0);
  },
);
