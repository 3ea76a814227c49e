import { defaultLimits } from "../agents/grammar/protocol.ts";
import { localPolicy } from "../agents/local.ts";
import type { ScriptedParadigm } from "../agents/scripted.ts";
import { ConfigError } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import { createGenerator } from "../model/generator.ts";
import type { Model } from "../model/model.ts";
import type { LoadedTokenizer } from "../model/tokenizer.ts";
import type { Generator } from "../model/types.ts";
import { type EpisodeSettings, PAPER_LIMITS, PARAACT_SETTINGS } from "../paraact/episode.ts";
import { PARAACT_SYSTEM, PARAACT_SYSTEM_SHORT } from "../paraact/prompt.ts";
import type { Policy } from "../paraact/types.ts";

/** How the experiment's agent plays ParaAct. Other paradigms take their own system prompt. */
export function episodeSettings(agent: Omit<Experiment["agent"], "extractive" | "wholeValues">): EpisodeSettings {
  return {
    ...PARAACT_SETTINGS,
    system: agent.prompt === "short" ? PARAACT_SYSTEM_SHORT : PARAACT_SYSTEM,
    schemaStyle: agent.schemas,
    limits: {
      ...PAPER_LIMITS,
      turns: agent.maxTurns,
      toolsPerSearch: agent.k,
      responseChars: agent.responseChars,
      newTokensPerTurn: agent.maxNewTokens,
      newTokens: agent.maxTrajectoryTokens,
      ...(agent.actionsPerTurn === undefined ? {} : { actionsPerTurn: agent.actionsPerTurn }),
    },
  };
}

/** A policy whose turns hold at most `width` searches or calls: the rest of a reply's actions is left for the next turn. */
export function narrowed(policy: Policy, width: number | undefined): Policy {
  if (width === undefined) return policy;
  return {
    ...policy,
    async reply(request) {
      const said = await policy.reply(request);
      let seen = 0;
      const text = said.text.replaceAll(/<(search_tool|tool_call)>.*?<\/\1>/gs, (block) =>
        ++seen <= width ? block : "",
      );
      return { ...said, text };
    },
  };
}

/** The paradigm whose demonstrations teach a paradigm: Reflexion and DFSDT are the flat agent played several times. */
export function taughtParadigm(paradigm: Experiment["agent"]["paradigm"]): Experiment["agent"]["paradigm"] {
  return paradigm === "reflexion" || paradigm === "dfsdt" ? "eae" : paradigm;
}

/** The scripted solvers speak three of the paradigms; the others have no script of their own. */
export function scriptedParadigm(paradigm: Experiment["agent"]["paradigm"]): ScriptedParadigm {
  if (paradigm === "paraact" || paradigm === "eae" || paradigm === "ete") return paradigm;
  throw new ConfigError([
    `agent.paradigm: there is no scripted solver for ${paradigm}, so it has no demonstrations and no upper bound. Use paraact, eae or ete, or another policy.`,
  ]);
}

/** Tokens of an answer's reply around the answer's own text: the thought and the tags. */
const ANSWER_FRAME = 24;

/** Episodes of a local model that run at once: what is decoded together. */
export const LOCAL_CONCURRENCY = 32;

/** What a local model's policies decode with, all of them together. Close it when done. */
export function localGenerator(model: Model): Generator {
  return createGenerator(model, {
    maxBatch: LOCAL_CONCURRENCY,
    cacheTokens: LOCAL_CONCURRENCY * Math.min(model.config.max_position_embeddings, 2048),
  });
}

/** The policy of a local model, with or without schema-constrained decoding. */
export function localAgent(
  generator: Generator,
  { model, tokenizer }: { model: Model; tokenizer: LoadedTokenizer },
  agent: Experiment["agent"],
  constrained: boolean,
): Policy {
  return localPolicy({
    generator,
    tokenizer,
    contextTokens: model.config.max_position_embeddings,
    ...(constrained
      ? {
          constraint: {
            protocol: agent.paradigm === "paraact" ? "paraact" : agent.paradigm === "ete" ? "ete" : "eae",
            copyStrings: true,
            extract: agent.extractive,
            whole: agent.wholeValues,
            // A character is a token at the most, so that an answer that has begun can always be closed within the turn's budget.
            limits: { answer: Math.max(40, Math.min(defaultLimits.answer, agent.maxNewTokens - ANSWER_FRAME)) },
            followPlan: true,
          },
        }
      : {}),
  });
}
