/** An environment for tests of RL: no tools, two turns of a few tokens, and a reward that any policy can learn. */
import { trainTokenizer } from "../../model/bpe.ts";
import { conversation } from "../../paraact/conversation.ts";
import { TAG_TOKENS } from "../../paraact/tags.ts";
import type { Trajectory, Turn } from "../../paraact/types.ts";
import type { RlEnvironment, RlTask } from "../rl.ts";
import { tinyConfig } from "./tiny.ts";

export const tokenizer = await trainTokenizer(["say something please"], { vocabSize: 276, tags: TAG_TOKENS });
export const config = { ...tinyConfig, vocab_size: tokenizer.vocabSize, max_position_embeddings: 256 };

export const tasks: RlTask[] = Array.from({ length: 6 }, (_, i) => ({
  id: `t${i}`,
  shape: i % 2 ? "single" : "parallel",
}));

/** Two turns of a few tokens. An action token below 128 is worth a share of the reward: something that a policy can learn without tools. */
export const environment: RlEnvironment<RlTask> = {
  tasks: tasks.slice(0, 4),
  heldout: tasks.slice(4),
  async play(task, { policy, id, seed, temperature }): Promise<Trajectory> {
    const turns: Turn[] = [];
    const start = { system: "be brief", request: `task ${task.id}` };
    for (let t = 0; t < 2; t++) {
      const messages = conversation({ ...start, turns });
      const request = { episode: id, messages, toolsInView: [], maxNewTokens: 4, temperature, seed: seed + t };
      const reply = await policy.reply(request);
      turns.push({
        ...{
          reply: reply.text,
          kind: "call",
          planSlot: "forbidden",
          planEvent: "none",
          plan: null,
          findings: [],
          searches: [],
        },
        ...{
          calls: [],
          answer: null,
          observation: t === 0 ? "<tool_response>go on</tool_response>" : "",
          startMs: 0,
          endMs: 0,
        },
        ...(reply.tokens ? { tokens: reply.tokens } : {}),
      });
    }
    policy.release?.(id);
    return {
      ...{
        taskId: task.id,
        paradigm: "test",
        policy: policy.name,
        seed,
        ...start,
        turns,
        end: "answered",
        error: null,
        answer: "",
      },
      ...{
        usage: { promptTokens: 0, completionTokens: 8, estimated: false },
        makespanMs: 0,
        serialMs: 0,
        verdicts: null,
      },
    };
  },
  score(_task, trajectory) {
    const ids = trajectory.turns.flatMap((turn) => turn.tokens?.ids ?? []);
    const share = ids.filter((id) => id < 128).length / ids.length;
    const yes = share > 0.9 ? 1 : 0;
    trajectory.verdicts = {
      quality: yes,
      faithfulness: 1,
      utility: 1,
      judge: "exact",
      reasons: { quality: "", faithfulness: "", utility: "" },
    };
    return { trajectory: share, phase: 0, format: ids.length === 8 ? 1 : 0.5, terms: [] };
  },
};
