/**
 * DFSDT (Qin et al. 2023, ToolLLM): a depth-first search over branches of the flat agent. A branch ends with an answer, or is given up (by its
 * answer GIVE UP, or at a limit); the search then goes back to the last step that has a branch left, where the policy is told what
 * has been tried. Going back opens a fresh state and replays the branch's replies: worlds are deterministic, so it meets the same responses.
 */
import { hash2 } from "../../engine/random.ts";
import { ContextOverflow, Episode } from "../../paraact/episode.ts";
import type { Message, Trajectory, Usage } from "../../paraact/types.ts";
import type { ParadigmOptions } from "./types.ts";

const WIDTH = 2;
const MAX_NODES = 40;

/** Whether an answer gives its branch up. */
export function givesUp(answer: string): boolean {
  return /^\W*give\s*up\b/i.test(answer);
}

/** The conversation with a note on what was tried at this step. */
function withTried(messages: Message[], tried: readonly string[]): Message[] {
  if (tried.length === 0) return messages;
  const last = messages.at(-1)!;
  const note = `Tried at this step before, without success: ${tried.join(" | ")}. Do something else.`;
  return [...messages.slice(0, -1), { ...last, content: `${last.content}\n${note}` }];
}

/** A reply's action without its reasoning. */
function actionOf(reply: string): string {
  return reply
    .replace(/<think>.*?<\/think>/s, "")
    .replaceAll(/<\/?\w+>/g, " ")
    .trim()
    .slice(0, 200);
}

export async function runDfsdt(options: ParadigmOptions): Promise<Trajectory> {
  const { task, policy, seed, temperature, id, settings } = options;
  const width = options.width ?? WIDTH;
  const maxNodes = options.maxNodes ?? MAX_NODES;
  const usage: Usage = { promptTokens: 0, completionTokens: 0, estimated: false };
  let makespanMs = 0;
  let serialMs = 0;
  let nodes = 0;

  async function replayed(replies: readonly string[]): Promise<Episode> {
    const episode = new Episode(options.open(), task.request, settings);
    for (const text of replies) await episode.step({ text });
    return episode;
  }

  let last: Episode | null = null;
  /** Searches below a branch. `episode` stands where its replies lead; null where it has to be replayed. */
  async function search(replies: readonly string[], first: Episode | null): Promise<Episode | null> {
    const tried: string[] = [];
    let episode = first;
    for (let branch = 0; branch < width && nodes < maxNodes; branch++) {
      episode ??= await replayed(replies);
      last = episode;
      if (episode.state.end !== null) return null;
      const branchId = `${id}/${nodes}`;
      try {
        const reply = await policy.reply({
          episode: branchId,
          messages: withTried(episode.messages(), tried),
          toolsInView: [...episode.state.toolsInView],
          maxNewTokens: episode.tokensLeft(),
          temperature,
          seed: hash2(seed, nodes),
        });
        nodes++;
        usage.promptTokens += reply.usage.promptTokens;
        usage.completionTokens += reply.usage.completionTokens;
        usage.estimated ||= reply.usage.estimated;
        const { turn } = await episode.step({ text: reply.text });
        makespanMs += turn.endMs - turn.startMs;
        serialMs += [...turn.searches, ...turn.calls].reduce((ms, a) => ms + a.latencyMs, 0);
        if (turn.answer !== null) {
          if (!givesUp(turn.answer)) return episode;
        } else {
          const below = await search([...replies, reply.text], episode);
          if (below) return below;
        }
        tried.push(actionOf(reply.text));
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        episode.stop(error instanceof ContextOverflow ? "context_overflow" : "policy_error", message);
        return episode;
      } finally {
        policy.release?.(branchId);
      }
      episode = null;
    }
    return null;
  }

  const found = await search([], null);
  // Nothing was accepted: the last branch stands as it ended.
  const episode = found ?? last ?? (await replayed([]));
  if (episode.state.end === null) episode.stop("turn_limit", `the search ended after ${nodes} steps`);
  return {
    ...episode.trajectory({ taskId: task.id, policy: policy.name, seed }),
    usage,
    makespanMs,
    serialMs,
  };
}
