/**
 * The conversation that a policy reads, and the one that training reads: the same function of the same strings, so that they are the same
 * byte for byte.
 */
import { escapeTagsInText } from "./tags.ts";
import type { Message, Trajectory, Turn } from "./types.ts";

/** The first user message: the request, which cannot forge a tag, then what the paradigm had searched beforehand. */
export function openingMessage(request: string, opening: Trajectory["opening"]): string {
  const text = escapeTagsInText(request);
  return opening ? `${text}\n${opening.observation}` : text;
}

/** Assistant message of a turn: the reply as sampled, with its ids where there are any. */
const replyMessage = (turn: Turn): Message => ({
  role: "assistant",
  content: turn.reply,
  ...(turn.tokens ? { tokens: turn.tokens.ids } : {}),
});

/** system, user, then a reply and an observation for each turn; the last turn has no observation when nothing was left to read. */
export function conversation(trajectory: Pick<Trajectory, "system" | "request" | "opening" | "turns">): Message[] {
  const messages: Message[] = [
    { role: "system", content: trajectory.system },
    { role: "user", content: openingMessage(trajectory.request, trajectory.opening) },
  ];
  for (const turn of trajectory.turns) {
    messages.push(replyMessage(turn));
    if (turn.observation !== "") messages.push({ role: "observation", content: turn.observation });
  }
  return messages;
}
