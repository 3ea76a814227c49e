/** Endpoints of an experiment: the policy `openai` and the judge, with their response cache and what they were. */
import { join } from "node:path";
import { type ChatEndpoint, chatEndpoint, EndpointError } from "../agents/openai/client.ts";
import { openaiPolicy } from "../agents/openai.ts";
import { NATIVE_SYSTEMS } from "../agents/prompts.ts";
import { ConfigError } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import type { Policy } from "../paraact/types.ts";
import { resultsRoot } from "./stages.ts";

/** The first of these variables that is set; null for a server that asks for no key. */
function keyVariable(...names: string[]): string | null {
  return names.find((name) => process.env[name]) ?? null;
}

/** Answers are kept here by content, so that a run which is killed or repeated asks for nothing twice. */
export function responseCache(): string {
  return join(resultsRoot(), "responses");
}

/** The judge that an experiment names, or null. */
export function judgeEndpoint(experiment: Experiment): ChatEndpoint | null {
  const judge = experiment.stages.evaluate?.judge;
  if (!judge) return null;
  return chatEndpoint({
    baseURL: judge.baseUrl,
    model: judge.model,
    keyVariable: keyVariable("JUDGE_API_KEY", "OPENAI_API_KEY"),
    concurrency: judge.concurrency,
    cacheDir: responseCache(),
  });
}

/** Faults of an endpoint that say nothing of the model: after all retries it is down, overloaded, refuses the key, or lacks the model. */
function outOfOrder(error: unknown): boolean {
  if (!(error instanceof EndpointError)) return false;
  return error.status === null || error.status >= 500 || [401, 402, 403, 404, 408, 409, 429].includes(error.status);
}

/** The policy openai, and the first fault of its endpoint that ends an evaluation: such a reply is no result. */
export function endpointPolicy(experiment: Experiment): { policy: Policy; broken(): Error | null; used(): string } {
  const { baseUrl, model, concurrency, native } = experiment.policy;
  const baseURL = baseUrl ?? process.env.OPENAI_BASE_URL;
  if (!baseURL || !model)
    throw new ConfigError([
      "the policy openai needs policy.baseUrl and policy.model, such as --set policy.baseUrl=http://127.0.0.1:8000/v1 --set policy.model=Qwen/Qwen3-4B",
    ]);
  const endpoint = chatEndpoint({
    baseURL,
    model,
    keyVariable: keyVariable("OPENAI_API_KEY"),
    concurrency,
    cacheDir: responseCache(),
  });
  const { paradigm } = experiment.agent;
  if (native && paradigm !== "paraact" && paradigm !== "eae" && paradigm !== "ete")
    throw new ConfigError([`policy.native: ${paradigm} has no native surface. Use paraact, eae or ete.`]);
  const surface =
    native && (paradigm === "paraact" || paradigm === "eae" || paradigm === "ete")
      ? {
          native: {
            system: NATIVE_SYSTEMS[paradigm],
            searches: paradigm !== "ete",
            plans: paradigm === "paraact",
            parallel: paradigm === "paraact",
          },
        }
      : {};
  const inner = openaiPolicy({ endpoint, ...surface });
  let fault: Error | null = null;
  return {
    policy: {
      name: inner.name,
      async reply(request) {
        // Once the endpoint is out of order, episodes that are under way end at once.
        if (fault) throw fault;
        try {
          return await inner.reply(request);
        } catch (error) {
          if (outOfOrder(error)) fault ??= error as Error;
          throw error;
        }
      },
    },
    broken: () => fault,
    used() {
      const { requests, cached, retries, promptTokens, completionTokens, estimated } = endpoint.stats();
      return `${model} at ${baseURL}: ${requests} requests, ${cached} answers from the cache, ${retries} retries, ${promptTokens} + ${completionTokens} tokens${estimated ? " (partly estimated)" : ""}`;
    },
  };
}
