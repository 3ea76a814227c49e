/** Who is answered, what a page may load, and what may change something. */
import { timingSafeEqual } from "node:crypto";
import type { Context, MiddlewareHandler } from "hono";
import { secureHeaders } from "hono/secure-headers";

/** A page elsewhere must not reach this server by DNS rebinding: only loopback names and those that the user allows are answered. */
export function onlyHosts(hosts: readonly string[]): MiddlewareHandler {
  const allowed = new Set(["localhost", "127.0.0.1", "[::1]", ...hosts]);
  return async (c, next) => {
    const host = (c.req.header("host") ?? "").replace(/:\d+$/, "").toLowerCase();
    if (!allowed.has(host))
      return c.text(
        `This server answers to ${[...allowed].join(", ")} only. Allow a name with: bun run serve --host-name <name>\n`,
        403,
      );
    await next();
  };
}

/** Everything from this server, nothing inline, no frame. Charts are inline SVG without style attributes. */
export const strictPolicy: MiddlewareHandler = secureHeaders({
  contentSecurityPolicy: {
    defaultSrc: ["'none'"],
    styleSrc: ["'self'"],
    scriptSrc: ["'self'"],
    connectSrc: ["'self'"],
    imgSrc: ["'self'"],
    formAction: ["'self'"],
    baseUri: ["'none'"],
    frameAncestors: ["'none'"],
  },
  xFrameOptions: "DENY",
  referrerPolicy: "same-origin",
});

/** A request that changes something, or makes work, came from a page of this server; it is refused with 403 where not. */
export class ForeignRequestError extends Error {
  override name = "ForeignRequestError";
}

/**
 * The form of a POST whose token is this server's and whose origin, where the browser says one, is this server.
 * Pages elsewhere can send forms here, but cannot read the token.
 */
export async function ownForm(c: Context, token: string): Promise<Record<string, string>> {
  const origin = c.req.header("origin");
  const site = c.req.header("sec-fetch-site");
  const foreign =
    (origin !== undefined && (!URL.canParse(origin) || new URL(origin).host !== c.req.header("host"))) ||
    (site !== undefined && site !== "same-origin");
  const body = await c.req.parseBody();
  const form = Object.fromEntries(Object.entries(body).filter((e): e is [string, string] => typeof e[1] === "string"));
  const [given, own] = [Buffer.from(form.token ?? ""), Buffer.from(token)];
  if (foreign || given.length !== own.length || !timingSafeEqual(given, own))
    throw new ForeignRequestError(
      "This form was not sent from a page of this server, or the server was started anew since. Load the page again and repeat.",
    );
  return form;
}
