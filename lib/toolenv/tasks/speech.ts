/** English for what the environment knows: services, entities, fields and values, as a person would put them. */
import type { Json, JsonSchema, Tool } from "../../catalog/types.ts";
import { isOrdinary } from "../compare.ts";
import { type FieldClass, fieldClass } from "../fields.ts";
import type { Rng } from "../hash.ts";
import { capital, humanise, isPlural, pluralPhrase, singular, splitWords, withArticle } from "../words.ts";

const CASED: Record<string, string> = Object.fromEntries(
  "GitHub GitLab YouTube PayPal LinkedIn DocuSign SendGrid Twilio Stripe Xero Zoom Vimeo Linode DigitalOcean BigCommerce WordPress HubSpot Mailchimp OpenAI Avaza Telnyx Bunq Adyen Zuora Magento Loket Visma Mist Plaid Slack Spotify Trello Asana Netlify Vercel Box Dropbox Figma Notion Jira eBay BrowserStack CircleCI TravisCI PagerDuty WhatsApp VTEX IBKR XKCD NASA BBC BritBox ClickMeter ClickSend CallFire AppVeyor Zendesk CloudFlare Squareup NetBox Rubrik Bitbucket Discourse DeepL"
    .split(" ")
    .map((n) => [n.toLowerCase(), n]),
);
const FAMILIES: Record<string, string> = {
  "googleapis.com": "Google",
  "amazonaws.com": "AWS",
  "azure.com": "Azure",
  "microsoft.com": "Microsoft",
};

/** Products whose API is named after something else. */
const PRODUCTS: Record<string, string> = {
  dfareporting: "Campaign Manager",
  youtube: "YouTube",
  dlp: "Data Loss Prevention",
  sqladmin: "Cloud SQL",
  cloudresourcemanager: "Resource Manager",
  androidpublisher: "Play Developer",
  adexchangebuyer2: "Ad Exchange",
  email: "SES",
  elasticmapreduce: "EMR",
  monitoring: "CloudWatch",
  streams: "DynamoDB Streams",
};

const cased = (word: string): string =>
  CASED[word] ?? (word.length <= 3 || /\d/.test(word) ? word.toUpperCase() : capital(word));

/** Words of an API's name, digits kept with their letters: "ec2" stays one word. */
const brandWords = (text: string) => (/^[a-z]+\d+$/.test(text) ? [text] : splitWords(text));

/** The service's name: "Xero", "Google Calendar", "AWS CodeDeploy". */
export function brand(tool: Tool): string {
  const family = FAMILIES[tool.provider];
  const host = tool.provider.split(".");
  const plain = /^(www|api)$/.test(host[0] ?? "");
  // "api.video" is one name.
  const label = (!plain ? host[0] : host.length > 2 ? host[1] : host.join("-")) ?? tool.provider;
  const product = family && PRODUCTS[tool.api.slice(tool.provider.length + 1).split("/")[0] ?? ""];
  if (product) return `${family} ${product}`;
  const base = family ?? label.split(/[-_]/).map(cased).join(" ");
  const part =
    tool.api
      .slice(tool.provider.length)
      .replace(/^[/:]+/, "")
      .split("/")[0] ?? "";
  const known = new Set(base.toLowerCase().split(" "));
  const words = brandWords(part.replace(/^(azsadmin|twilio|azure|github|api\.github)[-_.]?/i, "")).filter(
    (w) =>
      !known.has(w) &&
      !/^(v?\d+|v|api|com|rest|service|services|net|client|management|admin|arm|open|public|the)$/.test(w) &&
      w !== label.toLowerCase(),
  );
  if (!words.length || words.length > 3) return base;
  words.splice(0, words.length, ...new Set(words));
  return `${base} ${words.map(cased).join(" ")}`;
}

/** Whether every word can be read by people: ordinary English, or a word of the given text. */
export function readable(phrase: string, near: string): boolean {
  const words = splitWords(phrase);
  if (!words.length || words.length > 4) return false;
  const seen = (w: string) => {
    const around = wordsAround(near);
    return around.has(w) || around.has(singular(w));
  };
  return words.every((w) => w.length > 1 && !/\d/.test(w) && (isOrdinary(w) || SHORT.has(w) || seen(w)));
}
const aroundCache = new Map<string, ReadonlySet<string>>();
function wordsAround(near: string): ReadonlySet<string> {
  let around = aroundCache.get(near);
  if (!around) {
    const words: string[] =
      near
        .replace(/[^A-Za-z0-9 ]/g, " ")
        .match(/\S+/g)
        ?.flatMap(splitWords) ?? [];
    around = new Set(words.flatMap((w) => [w, singular(w)]));
    if (aroundCache.size > 5000) aroundCache.clear();
    aroundCache.set(near, around);
  }
  return around;
}
const SHORT = new Set(
  "id url sku vat iban bic ip vm dns sms isbn ean upc iso crm api ui pdf zip tax app repo org email username".split(
    " ",
  ),
);

/** Labels that read as half a sentence, or that speak of the transport and not of the thing. */
export const AWKWARD =
  /^(to|from|by|of|in|is|has|can|all|no|not|or|and|with|for|if|on|at|as|should|was|use|uses|the|my|do|does)\b|\b(at|on|by|to|of|in|for|or|and|with|id|ID|sid|ms|is)$|\b(record|object|schema|resource) (type|version)$|^(total|page|pages|current page|total pages|total size|page size|version|api version|API version|total count|total items|kind|object)$|^(xml|json|http|etag)\b|\bdeleted?\b|\bdeletion\b/;

/** Classes of response fields that people ask for. */
const ASKED = new Set<FieldClass>(
  "email phone first_name last_name person username company job city region postcode country country_code currency amount percent count rating year date datetime status name title version code street hostname ip duration".split(
    " ",
  ) as FieldClass[],
);

/** A response field as the object of "tell me …", or null where nobody would ask for it. */
export function factLabel(name: string, schema: JsonSchema, value: Json, near: string): string | null {
  if (value === null || typeof value === "object" || typeof value === "boolean" || value === "") return null;
  const cls = fieldClass(name, schema);
  if (!ASKED.has(cls) && !(cls === "category" && schema.enum)) return null;
  if (typeof value === "number" && (cls === "datetime" || cls === "duration" || cls === "code")) return null;
  if (typeof value === "string" && (value.length > 60 || (value.length < 2 && !schema.enum))) return null;
  if ((cls === "status" || cls === "category") && typeof value === "string" && !/[a-z]{2}/i.test(value)) return null;
  // A bare number as a status or a name says nothing.
  if (
    (cls === "status" || cls === "category" || cls === "name" || cls === "title" || cls === "version") &&
    typeof value === "number"
  )
    return null;
  const words = splitWords(name).filter((w, i, all) => w !== all[i - 1]);
  if (!readable(words.join(" "), near)) return null;
  if (cls === "datetime" || cls === "date") return momentLabel(words, cls);
  if (
    words.length === 1 &&
    /^(value|total|count|number|code|key|type|kind|state|no|ref|reference|size|rate)$/.test(words[0] as string) &&
    cls !== "status"
  )
    return words[0] === "type" || words[0] === "state" ? words[0] : null;
  // "the cleared of a transaction"
  if (words.length === 1 && /ed$/.test(words[0] as string)) return null;
  const phrase = humanise(words.join(" ")).replace(/^zip$/i, "zip code");
  if (AWKWARD.test(phrase)) return null;
  if (cls === "email") return words.length === 1 ? "email address" : phrase;
  if (words[0] === "phone" && words.length === 1) return "phone number";
  const counted = cls === "count" ? /^(.+) (?:counts?|total)$/.exec(phrase)?.[1] : undefined;
  if (counted && /(ful|ed|ive|able)$/.test(counted)) return null;
  if (counted) return `number of ${pluralPhrase(counted)}`;
  if (cls === "count" && isPlural(words.at(-1) ?? "") && !/count|quantity/.test(phrase)) {
    const most = /^(max|maximum|min|minimum) /.exec(phrase)?.[1]?.slice(0, 3);
    const of = phrase.replace(/^(num|number|no|total|n|max|maximum|min|minimum) (of )?/, "");
    return `${most ? `${most}imum ` : ""}number of ${of}`;
  }
  if (cls === "duration" || (cls === "count" && /^\d/.test(phrase))) return null;
  return phrase;
}

/** "completed" → "completion date"; other participles stand as they are: "joined date". */
const OF_ACT: Record<string, string> = {
  published: "publication",
  completed: "completion",
  uploaded: "upload",
  started: "start",
  starts: "start",
  begins: "start",
  ended: "end",
  ends: "end",
  finishes: "end",
  finished: "end",
  expires: "expiry",
  expired: "expiry",
  closed: "closing",
  issued: "issue",
};
function momentLabel(words: readonly string[], cls: FieldClass): string | null {
  if (words[0] === "date" && words[1] === "of" && words.length === 3) return words.join(" ");
  const w = words.filter((x) => !/^(at|on|date|time|timestamp|datetime|utc|ts|dt)$/.test(x));
  const core = w.join(" ");
  if (/delet/.test(core) || AWKWARD.test(core)) return null;
  if (/^creat(ed|ion)?$/.test(core) || core === "inserted") return "creation date";
  if (/^(last )?(updat(ed|e)?|modif(ied|y|ication)?|chang(ed|e)|edited)$/.test(core)) return "last update date";
  if (core === "") return words.includes("date") ? "date" : null;
  if (/\b(month|day|year)$/.test(core)) return humanise(core);
  const act = OF_ACT[core];
  if (act) return `${act} date`;
  const last = words.at(-1) ?? "";
  if (/^(at|on)$/.test(last)) return w.length === 1 ? `${humanise(core)} date` : null;
  if (last === "date" || last === "time")
    return `${humanise(core)} ${last === "time" && cls === "datetime" ? "time" : last}`;
  return cls === "date" || /(birthday|deadline|start|end|due|expiration|expiry)/.test(core)
    ? core === "birthday"
      ? core
      : `${humanise(core)} date`
    : null;
}

/** Classes of arguments that a person can state. */
const STATED = new Set<FieldClass>(
  "email phone first_name last_name person username company job street city region postcode country country_code currency amount percent count rating year date datetime status name title text version code timezone language locale url color hostname duration".split(
    " ",
  ) as FieldClass[],
);

/** The words for an argument of a create, an update or a filter; null where a person would not state it. */
export function argumentLabel(name: string, schema: JsonSchema, value: Json, near: string): string | null {
  const cls = fieldClass(name, schema);
  // "Timers.Inactive" is a part of something.
  if (typeof value === "object" || value === "" || /[.[]/.test(name)) return null;
  if (typeof value === "string" && value.length > 70) return null;
  if (cls === "flag" || (!STATED.has(cls) && !schema.enum)) return null;
  if (typeof value === "number" && (cls === "datetime" || cls === "id")) return null;
  const words = splitWords(name).filter((w, i, all) => w !== all[i - 1]);
  if (!readable(words.join(" "), `${near} ${schema.description ?? ""}`)) return null;
  const last = words.at(-1);
  if (cls === "datetime" && (last === "at" || last === "on")) return `${humanise(words.slice(0, -1).join(" "))} date`;
  if (
    words.length === 1 &&
    /^(value|key|kind|data|body|action|object|format|version|mode|scope|source|method|op|operation|options?|settings|flags|params|content|from|to|by|in)$/.test(
      words[0] as string,
    )
  )
    return null;
  // Nobody speaks of how a text is written down, or calls a thing c3Enk5cehyduJUNK.
  if (/\b(encoding|format|charset|mime|index)\b/.test(words.join(" "))) return null;
  if (typeof value === "string" && /^(?=.*[a-z])(?=.*[A-Z])(?=.*\d)\w{12,}$/.test(value)) return null;
  // The service itself says who made or changed something, and when.
  if (AWKWARD.test(words.join(" ")) || /\b(creat|modif|updat|delet)/.test(words.join(" "))) return null;
  if (words.length === 1 && cls === "email") return "email address";
  if (words[0] === "phone" && words.length === 1) return "phone number";
  return humanise(words.join(" ")) + ((cls === "date" || cls === "datetime") && /ed$/.test(last ?? "") ? " date" : "");
}

/** A value in a sentence: words in quotation marks, codes, numbers, addresses and dates bare. */
export function spoken(value: Json): string {
  if (typeof value !== "string") return String(value);
  return /^[\w.@:/+#-]+$/.test(value) && (/[\d@/]/.test(value) || /^[A-Z_]+$/.test(value)) ? value : `"${value}"`;
}

const IN =
  /\b(account|organi[sz]ation|org|workspace|team|project|group|folder|board|list|site|space|library|catalog|catalogue|store|shop|category|collection|league|region|zone|location|company|tenant|department|calendar|environment|channel|room|database|cluster|network|vault|registry|repository|repo|app|application|namespace|drive|course|class|section|portfolio|playlist|album|notebook|vpc|queue|resource group|subscription|warehouse|domain|network|realm|server|instance|area|city|country|offering|budget|district)\b/;
const FOR =
  /\b(user|customer|contact|member|person|employee|patient|client|player|student|agent|owner|supplier|vendor|candidate|subscriber|worker|driver|profile|username)\b/;

/** The preposition between a thing and its owner: "tasks in project 4", "orders for customer 7", "comments of post 2". */
export function belonging(ownerType: string): string {
  return IN.test(ownerType) ? "in" : FOR.test(ownerType) ? "for" : "of";
}

/** How a person points at an entity by a key: "invoice INV-5", "the app called "web"". */
export function mention(type: string, keyField: string, value: Json, rng: Rng): string {
  const noun = humanise(type);
  if (keyField === "" || /id$|uuid|guid|sid|key|number|code/.test(keyField)) {
    const text = String(value);
    // An identifier that reads like a name is quoted as one.
    if (/\s/.test(text)) return rng.pick([`the ${noun} "${text}"`, `the ${noun} called "${text}"`]);
    return rng.pick([`${noun} ${text}`, `the ${noun} with ID ${text}`, `${noun} ${text}`]);
  }
  if (/slug|handle/.test(keyField)) return `${noun} ${value}`;
  if (keyField.includes("email")) return `the ${noun} with the email address ${value}`;
  return rng.pick([
    `the ${noun} called ${spoken(value)}`,
    `the ${noun} named ${spoken(value)}`,
    `the ${noun} ${spoken(value)}`,
  ]);
}

export const several = (type: string): string => pluralPhrase(humanise(type));
export const one = (type: string): string => withArticle(humanise(type));
