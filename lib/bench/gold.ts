/** The policy that replays a task's gold calls, one a turn, and its reference answer: a benchmark's scoring must give it full marks. */
import { valueWords } from "../agents/scripted.ts";
import { isFailure, readExchanges } from "../agents/solver.ts";
import { renderReply } from "../paraact/render.ts";
import { escapeTagsInText } from "../paraact/tags.ts";
import type { Policy } from "../paraact/types.ts";
import type { Task } from "../toolenv/types.ts";

/** Times that a call is made before the next one is. */
const TRIES = 3;

/** Play it with `callsNeedRetrieval: false`: it searches for nothing. A call that failed is made again, twice at most. */
export function goldPolicy(task: Task, answer?: string): Policy {
  const calls = [...task.calls].sort((a, b) => a.step - b.step);
  const facts = task.facts.map((f) => `The ${f.label.replace(/^(the|an?)\s+/i, "")} is ${valueWords(f.value)}.`);
  return {
    name: "gold",
    async reply(request) {
      let next = 0;
      let tries = 0;
      for (const { responses } of readExchanges(request.messages)) {
        if (isFailure(responses[0]?.result ?? null) && ++tries < TRIES) continue;
        next++;
        tries = 0;
      }
      const call = calls[next];
      const text = call
        ? renderReply({
            kind: "call",
            think: "The next gold call.",
            plan: null,
            calls: [{ name: call.tool, arguments: call.arguments }],
          })
        : renderReply({
            kind: "answer",
            think: "The reference answer.",
            answer: escapeTagsInText(answer?.trim() || facts.join(" ") || "It is done."),
          });
      return { text, finish: "stop", usage: { promptTokens: 0, completionTokens: 0, estimated: true } };
    },
  };
}
