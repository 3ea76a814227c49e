import { setImmediate } from "node:timers/promises";
import type { StageContext } from "../runs/types.ts";

/**
 * Whether the user has asked to stop. Lets the event loop turn first: engines on the CPU end their work before they return, so that a training loop's
 * awaits alone never give a signal's handler its turn.
 */
export async function stopAsked(ctx: Pick<StageContext, "stopping">): Promise<boolean> {
  await setImmediate();
  return ctx.stopping;
}
