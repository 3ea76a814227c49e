/** What an agent runs on. The types live with the episode loop, which calls them; imports run downwards only. */
export type { Policy, PolicyReply, PolicyRequest } from "../paraact/types.ts";
