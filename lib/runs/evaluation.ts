/** `bun run eval`: one policy on one benchmark, as an experiment of its own, so that results are stored, cached and compared like any other. */

import type { Loaded } from "../config/load.ts";
import { check } from "../config/load.ts";
import type { Experiment } from "../config/schema.ts";
import type { ResponsesSettings } from "./benchmarks.ts";

type Evaluate = NonNullable<Experiment["stages"]["evaluate"]>;

export interface EvaluationRequest {
  benchmark: "toolenv" | "toolbench" | "apibank";
  policy: Evaluate["policies"][number];
  /** The local policy's model folder. */
  model?: string;
  agent: Partial<Experiment["agent"]>;
  /** The endpoint of the policy openai. */
  endpoint: Partial<Experiment["policy"]>;
  judge?: { baseUrl: string; model: string; concurrency?: number };
  responses?: Partial<ResponsesSettings>;
  limit?: number;
  groups?: string[];
  trials?: number;
  seed?: number;
  device?: string;
  /** ToolEnv: how many held-out tasks are made, and the share of calls that a fault hits. */
  tasks?: number;
  faultRate?: number;
}

/** Held-out ToolEnv tasks where no number is asked for. */
const HELDOUT = 200;

/** The experiment that an evaluation is. Throws ConfigError for settings that don't fit. */
export function evaluationOf(request: EvaluationRequest): Loaded {
  const { benchmark, policy, model, limit, groups, responses, judge } = request;
  const settings = {
    name: `eval-${benchmark}`,
    description: `${policy} on ${benchmark}`,
    seed: request.seed ?? 1,
    device: request.device ?? "auto",
    world: { seed: 1, faultRate: request.faultRate ?? 0 },
    tasks: {
      // Nothing is trained: no training tasks are made.
      train: { count: 0 },
      heldout: {
        count: request.tasks ?? HELDOUT,
        seed: 12,
        shapes: { single: 1, parallel: 1, chain: 1, diamond: 1, fan_in: 1, fan_out: 1, mixed: 1 },
      },
    },
    ...(model === undefined ? {} : { model: { from: model } }),
    agent: request.agent,
    policy: request.endpoint,
    stages: {
      evaluate: {
        benchmarks: {
          [benchmark]: {
            ...(limit === undefined ? {} : { limit }),
            ...(groups === undefined ? {} : { groups }),
            ...(responses === undefined ? {} : { responses }),
          },
        },
        policies: [policy],
        trials: request.trials ?? 1,
        ...(judge ? { judge } : {}),
      },
    },
  };
  return { experiment: check(settings, []), cell: cellOf(request) };
}

/** What tells evaluations of a benchmark apart in tables. */
function cellOf({ policy, agent, endpoint, model }: EvaluationRequest): string {
  const who =
    policy === "openai"
      ? endpoint.model
      : policy === "local"
        ? model?.replace(/\/+$/, "").split("/").at(-1)
        : undefined;
  return [agent.paradigm ?? "paraact", who].filter(Boolean).join(" ");
}
