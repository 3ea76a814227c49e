/** The random baseline: a few words of the request as a search, a random tool in view with random arguments, a random value as the answer. */
import type { Json, JsonObject, JsonSchema } from "../catalog/types.ts";
import { hash2 } from "../engine/random.ts";
import type { Policy } from "../paraact/types.ts";
import { answerReply, callReply, leaves, scriptedReply, searchReply } from "./baselines.ts";
import { requestText } from "./scripted.ts";
import { readExchanges } from "./solver.ts";

/** Draws whole numbers below n, one after the other, from a seed. */
function drawer(seed: number): (n: number) => number {
  let counter = 0;
  return (n) => hash2(seed, counter++) % n;
}

function randomValue(schema: JsonSchema, words: readonly string[], draw: (n: number) => number): Json {
  if (schema.enum && schema.enum.length > 0) return schema.enum[draw(schema.enum.length)]!;
  switch (schema.type) {
    case "integer":
    case "number": {
      const low = schema.minimum ?? 0;
      return low + draw(Math.max(1, Math.min(100, (schema.maximum ?? low + 99) - low + 1)));
    }
    case "boolean":
      return draw(2) === 1;
    case "array":
      return schema.items ? [randomValue(schema.items, words, draw)] : [];
    case "object":
      return randomObject(schema.properties ?? {}, schema.required ?? [], words, draw);
    case "null":
      return null;
    default:
      return words[draw(words.length)] ?? "x";
  }
}

function randomObject(
  properties: Record<string, JsonSchema>,
  required: readonly string[],
  words: readonly string[],
  draw: (n: number) => number,
): JsonObject {
  const chosen = Object.entries(properties).filter(([key]) => required.includes(key) || draw(4) === 0);
  return Object.fromEntries(chosen.map(([key, schema]) => [key, randomValue(schema, words, draw)]));
}

/** A lower bound: valid in form, blind in content. The same seed and episode give the same replies. */
export function randomPolicy(seed: number): Policy {
  return {
    name: "random",
    async reply(request) {
      const draw = drawer(hash2(seed, request.seed));
      const text = requestText(request.messages);
      const words = text.match(/[\p{L}\p{N}_-]+/gu) ?? ["anything"];
      const turns = readExchanges(request.messages);
      if (request.toolsInView.length === 0 && turns.length === 0) {
        const query = Array.from({ length: 3 }, () => words[draw(words.length)]).join(" ");
        return scriptedReply(searchReply(request, "Search for something.", query));
      }
      const tool = request.toolsInView[draw(Math.max(1, request.toolsInView.length))];
      if (tool && !turns.some((t) => t.reply.kind === "call")) {
        const { properties, required } = tool.parameters;
        const call = { name: tool.name, arguments: randomObject(properties, required, words, draw) };
        return scriptedReply(callReply(request, "Call something.", call));
      }
      const found = leaves(turns.at(-1)?.responses[0]?.result ?? null);
      return scriptedReply(
        answerReply("Say something.", String(found[draw(Math.max(1, found.length))]?.[1] ?? "nothing")),
      );
    },
  };
}
