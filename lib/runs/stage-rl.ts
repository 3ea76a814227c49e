import { type Paradigm, runParadigm } from "../agents/paradigms.ts";
import { scoreToolEnv } from "../bench/toolenv.ts";
import { faultRates, TaskWorlds } from "../bench/worlds.ts";
import { ConfigError } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import { hash2 } from "../engine/random.ts";
import type { LoadedTokenizer } from "../model/tokenizer.ts";
import { environment } from "../paraact/environment.ts";
import { PAPER_CONSTANTS, type RewardConstants } from "../rewards/constants.ts";
import { scoreToolRL } from "../rewards/toolrl.ts";
import type { Session, Task } from "../toolenv/types.ts";
import { RenamedWorld, taskWords } from "../train/renamed-world.ts";
import { lettersOf, THOROUGHLY } from "../train/renaming.ts";
import { runRl } from "../train/rl.ts";
import { episodeSettings, LOCAL_CONCURRENCY, localAgent, localGenerator } from "./agent.ts";
import type { Shared } from "./pipeline.ts";
import { retrieverOf } from "./retriever.ts";
import { openModel } from "./stage-base.ts";
import { readTasks, type TasksResult } from "./stage-tasks.ts";
import { runStage, type StageRecord } from "./stages.ts";

const VERSION = 2;

export type RlStageResult = { model: string; steps: number; episodes: number; newTokens: number };

/** Held-out tasks that are played at each evaluation on the way: to watch, not to choose by. */
const HELDOUT_ON_THE_WAY = 24;

/** The rewards' constants with an experiment's changes. */
export function rewardConstants(rewards: Exclude<Experiment["stages"]["rl"], undefined>["rewards"]): RewardConstants {
  const { lambda, beta } = PAPER_CONSTANTS;
  return {
    ...PAPER_CONSTANTS,
    outcomeGate: rewards?.outcomeGate ?? PAPER_CONSTANTS.outcomeGate,
    lambda: rewards?.lambda ?? lambda,
    beta: rewards?.beta ?? beta,
  };
}

/** RL trains on one conversation an episode: paradigms that hold several are played with what another has learnt. */
function trainedParadigm(paradigm: Paradigm): Paradigm {
  if (paradigm === "paraact" || paradigm === "eae" || paradigm === "ete") return paradigm;
  throw new ConfigError([
    `stages.rl: an episode of ${paradigm} is more than one conversation, which RL can't train on. Leave stages.rl out (null), or use paraact, eae or ete.`,
  ]);
}

/** A step's prompts and some more. */
const WORLDS_KEPT = 64;

const RENAMED_SALT = 0x4a3e;
const CONSTRAINED_SALT = 0x51d7;

/** Whether a prompt is of a share of all: the same for all of its rollouts. */
const inShare = (prompt: number, salt: number, share: number): boolean => hash2(prompt, salt) / 2 ** 32 < share;

/** The world of a prompt under other names, the same object for all of its rollouts; null for the prompts that are played as they are. */
function renamedWorlds(
  tasks: readonly Task[],
  catalog: Shared["catalog"],
  tokenizer: LoadedTokenizer,
  share: number,
): (prompt: number) => RenamedWorld | null {
  if (share === 0) return () => null;
  const words = taskWords(tasks, catalog, lettersOf(tokenizer));
  const kept = new Map<number, RenamedWorld>();
  return (prompt) => {
    if (!inShare(prompt, RENAMED_SALT, share)) return null;
    const known = kept.get(prompt) ?? new RenamedWorld(words, THOROUGHLY, prompt);
    kept.delete(prompt);
    kept.set(prompt, known);
    for (const oldest of kept.keys()) {
      if (kept.size <= WORLDS_KEPT) break;
      kept.delete(oldest);
    }
    return known;
  };
}

/** Improves the model on the training tasks, with the three reward channels and decoupled advantages. */
export async function rlStage(
  shared: Shared,
  from: StageRecord<{ model: string }>,
  tasks: StageRecord<TasksResult>,
): Promise<StageRecord<RlStageResult>> {
  const { experiment } = shared.loaded;
  const rl = experiment.stages.rl!;
  const { agent, world } = experiment;
  const paradigm = trainedParadigm(agent.paradigm);
  const device = await shared.engine.kind();
  const record = await runStage<RlStageResult>({
    name: "rl",
    inputs: { version: VERSION, from: from.key, tasks: tasks.key, rl, agent, world, seed: experiment.seed, device },
    seed: experiment.seed,
    progress: shared.progress,
    async run(ctx) {
      const engine = await shared.engine.get();
      const { model, tokenizer } = await openModel(engine, from.result.model);
      const generator = localGenerator(model);
      const policyWith = (constrained: boolean) => localAgent(generator, { model, tokenizer }, agent, constrained);
      const policies = { constrained: policyWith(true), free: policyWith(false) };
      const policy = agent.constrained ? policies.constrained : policies.free;
      const worlds = new TaskWorlds(shared.catalog, faultRates(world.faultRate));
      const retriever = await retrieverOf(shared.catalog, agent.retriever, shared.progress);
      const settings = episodeSettings(agent);
      const sessions = new Map<object, Session>();
      const { evaluateEvery, rewards, renaming = 0, constrained = agent.constrained ? 1 : 0, ...rest } = rl;
      const trained = readTasks(tasks, "train");
      const worldOf = renamedWorlds(trained, shared.catalog, tokenizer, renaming);
      /** Episodes that were played under other names. */
      const renamed = new Map<object, RenamedWorld>();
      const constants = rewardConstants(rewards);
      try {
        const result = await runRl(
          {
            model,
            tokenizer,
            policy,
            generator,
            environment: {
              tasks: trained,
              heldout: evaluateEvery === undefined ? [] : readTasks(tasks, "heldout").slice(0, HELDOUT_ON_THE_WAY),
              async play(task, player) {
                const session = worlds.open(task, player.seed);
                const own = environment({ catalog: shared.catalog, retriever, session });
                // What is held out is asked as it is.
                const other = task.split === "train" ? worldOf(player.prompt) : null;
                const asked = inShare(player.prompt, CONSTRAINED_SALT, constrained) ? "constrained" : "free";
                const trajectory = await runParadigm(paradigm, {
                  ...player,
                  policy: task.split === "train" ? policies[asked] : policy,
                  task: other ? { id: task.id, request: other.request(task.request) } : task,
                  settings,
                  open: () => other?.environment(own) ?? own,
                });
                sessions.set(trajectory, session);
                if (other) renamed.set(trajectory, other);
                return trajectory;
              },
              score(task, played) {
                const session = sessions.get(played) ?? null;
                const trajectory = renamed.get(played)?.original(played) ?? played;
                const score = scoreToolEnv(task, trajectory, session, constants);
                played.verdicts = trajectory.verdicts;
                session?.close();
                sessions.delete(played);
                renamed.delete(played);
                return rewards?.scheme === "toolrl"
                  ? scoreToolRL(
                      trajectory,
                      task.calls.map((c) => ({ name: c.tool, arguments: c.arguments })),
                    )
                  : score.rewards!;
              },
            },
            ...rest,
            concurrency: LOCAL_CONCURRENCY,
            ...(evaluateEvery === undefined ? {} : { evaluateEvery }),
          },
          ctx,
        );
        // The last weights: to take the best of the looks on the way would be to choose by tasks that the evaluation asks again.
        return { model: result.last, steps: result.steps, episodes: result.episodes, newTokens: result.newTokens };
      } finally {
        generator.close();
        model.dispose();
      }
    },
  });
  return shared.done(record);
}
