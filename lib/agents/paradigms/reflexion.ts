/**
 * Reflexion (Shinn et al. 2023) over the flat agent: after an attempt that did not succeed the policy writes down what went wrong, and the next
 * attempt begins anew with what it wrote.
 */
import { hash2 } from "../../engine/random.ts";
import { conversation } from "../../paraact/conversation.ts";
import { runEpisode } from "../../paraact/episode.ts";
import type { PolicyReply, Trajectory, Usage } from "../../paraact/types.ts";
import { EAE_SYSTEM, REFLEXION_CHECK, REFLEXION_REFLECT } from "../prompts.ts";
import type { ParadigmOptions } from "./types.ts";

const TRIALS = 3;
/** Characters of a transcript that the policy reads back: its end says most. */
const TRANSCRIPT = 12_000;

function transcript(trajectory: Trajectory): string {
  const text = conversation(trajectory)
    .slice(2)
    .map((m) => `${m.role === "assistant" ? "Agent" : "Environment"}: ${m.content}`)
    .join("\n");
  return text.length <= TRANSCRIPT ? text : `…${text.slice(-TRANSCRIPT)}`;
}

function added(a: Usage, b: Usage): Usage {
  return {
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    estimated: a.estimated || b.estimated,
  };
}

export async function runReflexion(options: ParadigmOptions): Promise<Trajectory> {
  const { task, policy, seed, temperature, id } = options;
  const trials = options.trials ?? TRIALS;
  const lessons: string[] = [];
  let usage: Usage = { promptTokens: 0, completionTokens: 0, estimated: false };
  let makespanMs = 0;
  let serialMs = 0;
  const ask = async (system: string, trajectory: Trajectory, part: number): Promise<string> => {
    const episode = `${id}/reflect${part}`;
    const reply: PolicyReply = await policy.reply({
      episode,
      messages: [
        { role: "system", content: system },
        { role: "user", content: `Request: ${task.request}\n\nTranscript:\n${transcript(trajectory)}` },
      ],
      toolsInView: [],
      maxNewTokens: 400,
      temperature,
      seed: hash2(seed, 1000 + part),
    });
    policy.release?.(episode);
    usage = added(usage, reply.usage);
    return reply.text.replace(/<think>.*?<\/think>/s, "").trim();
  };
  for (let trial = 0; ; trial++) {
    const system = [
      options.settings.system ?? EAE_SYSTEM,
      ...lessons.map((l, i) => `Lesson of attempt ${i + 1}: ${l}`),
    ].join("\n\n");
    const trajectory = await runEpisode({
      task,
      policy,
      environment: options.open(),
      seed: hash2(seed, trial),
      temperature,
      settings: { ...options.settings, system },
      id: `${id}/${trial}`,
    });
    usage = added(usage, trajectory.usage);
    makespanMs += trajectory.makespanMs;
    serialMs += trajectory.serialMs;
    const whole = (): Trajectory => ({ ...trajectory, seed, usage, makespanMs, serialMs });
    if (trial + 1 >= trials) return whole();
    try {
      const good = options.succeeded
        ? await options.succeeded(trajectory)
        : trajectory.answer !== null && /^\W*yes\b/i.test(await ask(REFLEXION_CHECK, trajectory, 2 * trial));
      if (good) return whole();
      lessons.push(await ask(REFLEXION_REFLECT, trajectory, 2 * trial + 1));
    } catch (error) {
      // The attempt stands as it is; only the reflection on it failed.
      return { ...whole(), error: `reflection failed: ${error instanceof Error ? error.message : String(error)}` };
    }
  }
}
