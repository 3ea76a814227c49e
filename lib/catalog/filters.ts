/** What the catalogue leaves out, and why. Each rule has a name under which it is counted. */
import { snakeCase } from "./naming.ts";
import type { Operation } from "./openapi.ts";
import { squash } from "./text.ts";
import type { ParameterPlace } from "./types.ts";

/** Every reason an operation may be dropped for, in the order in which they are asked. */
export const REASONS = [
  "deprecated",
  "generated_navigation",
  "aws_twin",
  "no_description",
  "too_short",
  "only_the_id",
  "not_english",
  "no_parameters",
  "duplicate_path",
  "duplicate_interface",
  "duplicate_words",
] as const;
export type Reason = (typeof REASONS)[number];

/** Copies and versions of APIs that the source holds elsewhere, by path under api/. */
const VERSION_COPIES = [
  /^github\.com\/(?:ghes-|ghec|github\.ae)/,
  /^microsoft\.com\/graph-beta/,
  /^netboxdemo\.com/,
  /^twilio\.com\/(?:.*_)?(?:chat_v1|ip_messaging_v1|ip_messaging_v2|preview)\.json$/,
];

/** Whether a file of the source is a version copy of another. */
export function isVersionCopy(file: string): boolean {
  return VERSION_COPIES.some((pattern) => pattern.test(file));
}

/** The first reason to drop an operation that its text gives, or null. Schemas are not read for it. */
export function dropReason(op: Operation): Reason | null {
  if (op.raw.deprecated === true) return "deprecated";
  if (isGeneratedNavigation(op)) return "generated_navigation";
  if (isAwsTwin(op)) return "aws_twin";
  if (op.description === "") return "no_description";
  const words = op.description.match(/[\p{L}\p{N}]+/gu) ?? [];
  if (words.length < 3 || op.description.length < 15) return "too_short";
  const said = squash(op.description);
  if (said === squash(op.operationId ?? "") || said === squash(op.name) || said === squash(`${op.method} ${op.path}`))
    return "only_the_id";
  return isEnglish(op.description) ? null : "not_english";
}

/** Microsoft Graph's OData generator writes one operation a navigation property; only those with documentation behind them are real calls. */
function isGeneratedNavigation(op: Operation): boolean {
  if (op.document.api !== "microsoft.com/graph") return false;
  if (op.path.endsWith("/$count") || op.path.endsWith("/$ref")) return true;
  return op.raw.externalDocs === undefined || /navigation propert/i.test(op.description);
}

/** AWS query protocols list each action under GET and POST: reads stay as GET, the others as POST. */
function isAwsTwin(op: Operation): boolean {
  const match = op.document.provider === "amazonaws.com" ? op.operationId?.match(/^(GET|POST)_([A-Z].*)$/) : null;
  if (!match) return false;
  const reads =
    /^(?:Describe|List|Get|Search|Batch(?:Get|Describe)|Check|Lookup|Query|Scan|Test|Validate|Estimate)/.test(
      match[2]!,
    );
  const twin = op.item[match[1] === "GET" ? "post" : "get"];
  return twin !== undefined && (match[1] === "GET") !== reads;
}

const ENGLISH = new Set(
  "the a an of to in for and or is are be by with from on that this as it its at all you your can if will not use used which when any has have one new get list create update delete return returns retrieve retrieves user data given specified info information about".split(
    " ",
  ),
);
const FOREIGN = new Set(
  "der die das und für ein eine einen mit von zur zum den dem des ist werden wird nicht auf la el los las del una uno para por con que se su es le les une du au aux pour dans sur avec est sont pas un et ou qui het een van voor met op te niet zijn wordt deze o os um uma da dos do das não em na no ao il lo gli di che per sono della dei nel jest dla lub ze się".split(
    " ",
  ),
);

/** Whether a text reads as English: Latin script, and no more foreign function words than English ones. */
export function isEnglish(text: string): boolean {
  const ascii = !/[^\x20-\x7e]/.test(text);
  const latin = text.match(/[A-Za-z]/g)?.length ?? 0;
  if (latin === 0 || (!ascii && latin < (text.match(/\p{L}/gu)?.length ?? 0) * 0.9)) return false;
  let english = 0;
  let foreign = 0;
  for (const word of text.toLowerCase().match(ascii ? /[a-z]+/g : /\p{L}+/gu) ?? []) {
    if (ENGLISH.has(word)) english++;
    else if (FOREIGN.has(word)) foreign++;
  }
  const accented = ascii ? 0 : (text.match(/[À-ÿ]/g)?.length ?? 0);
  if (accented >= 2 && accented > english) return false;
  return foreign < 2 || foreign < english;
}

const GOOGLE_STANDARD = new Set(
  "alt fields key oauth_token prettyprint pp quotauser userip $.xgafv access_token callback uploadtype upload_protocol bearer_token".split(
    " ",
  ),
);

const CREDENTIAL =
  /^(?:authorization|authentication|auth|authtoken|auth_token|bearer|bearer_token|cookie|access_?key|access_?key_?id|secret|secret_?key|client_?secret|app_?key|app_?token|app_?secret|api_?token|api_?secret|user_?key|user_?token|session_?token|access_?token|oauth_?token|api_?key|apikey|subscription_?key|signature|jwt|.*_api_key|.*_auth_token|.*_access_token|.*_user_token|.*_dev_token|.*_app_key|.*_app_token|.*_application_key|.*_account_token|.*_server_token|.*_authkey|.*_auth_key|.*_auth_secret|.*_authorization|.*_security_token|ocp_apim_subscription_key)$/;
const BOILERPLATE_HEADER =
  /^(?:accept|accept_.*|content_type|content_length|content_md5|content_encoding|user_agent|host|origin|referer|if_match|if_none_match|if_modified_since|if_unmodified_since|consistency_level|prefer|api_version|.*_api_version|version|idempotency_key|.*_idempotency_key|request_id|.*_request_id|client_request_id|return_client_request_id|ocp_date|.*_correlation_id|correlation_id|traceparent|x_amz_.*|x_amzn_.*|x_api2_?crm_.*|x_fields|x_sds_.*|x_rate_limit.*|wm_.*|x_ms_.*|x_goog_.*|x_requested_with|x_forwarded_.*|x_twilio_.*|erp_api_background|date|x_date|x_timestamp|expect|connection|cache_control|range|api_integration_code|impersonation_resource_id|user_name|x_client_.*|x_device_.*|x_app_.*|x_provider_.*)$/;

/** Snake case of parameter names seen before: the same few thousand names come half a million times. */
const snakes = new Map<string, string>();

function snakeOf(name: string): string {
  let known = snakes.get(name);
  if (known === undefined) {
    if (snakes.size >= 50_000) snakes.clear();
    known = snakeCase(name);
    snakes.set(name, known);
  }
  return known;
}

/**
 * Parameters that an agent never fills: credentials, protocol headers, Google's standard query parameters, API versions, AWS's constants.
 * `credentials` are the names (lower case) that the document's security schemes define.
 */
export function droppedParameter(
  name: string,
  place: ParameterPlace,
  raw: { description?: unknown; required?: unknown },
  provider: string,
  credentials: ReadonlySet<string>,
): boolean {
  if (place === "path") return false;
  const snake = snakeOf(name);
  const lower = name.toLowerCase();
  const said = typeof raw.description === "string" ? raw.description.slice(0, 300) : "";
  if (place === "body")
    return /^(?:api_?key|apikey|access_?token|client_?secret|api_?secret|auth_?token|oauth_?token|authorization)$/.test(
      snake,
    );
  if (credentials.has(lower) || CREDENTIAL.test(snake)) return true;
  if (
    /^(?:token|key|app_?id|user_?id|session|sid|hash|x_.*)$/.test(snake) &&
    /\b(?:api[ -]?key|licen[cs]e key|api token|access token|auth(?:entication|orization)? (?:token|key|header)|bearer|oauth)\b/i.test(
      said,
    )
  )
    return true;
  if (provider === "googleapis.com" && GOOGLE_STANDARD.has(lower)) return true;
  if (
    provider === "amazonaws.com" &&
    /^(?:Action|Version|SignatureMethod|SignatureVersion|Timestamp|AWSAccessKeyId)$/.test(name)
  )
    return true;
  if (provider === "amazonaws.com" && snake.startsWith("x_amz")) return true;
  if (/^(?:api_version|\$?format|callback|jsonp|pretty|pretty_print|_?pretty)$/.test(snake)) return true;
  return (
    place === "header" &&
    (BOILERPLATE_HEADER.test(snake) ||
      /^(?:token|x_token|x_.*_token|x_.*_key|x_.*_secret|x_api_.*|.*_api_key|.*_api_token)$/.test(snake))
  );
}
