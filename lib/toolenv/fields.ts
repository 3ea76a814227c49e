/** What a field means, from its name, type, format and description: the class decides its values and how people ask for it. */
import type { JsonSchema } from "../catalog/types.ts";
import { splitWords } from "./words.ts";

export type FieldClass =
  | "id"
  | "email"
  | "phone"
  | "first_name"
  | "last_name"
  | "person"
  | "username"
  | "company"
  | "job"
  | "street"
  | "city"
  | "region"
  | "postcode"
  | "country"
  | "country_code"
  | "latitude"
  | "longitude"
  | "currency"
  | "amount"
  | "percent"
  | "count"
  | "rating"
  | "year"
  | "duration"
  | "bytes"
  | "pixels"
  | "date"
  | "datetime"
  | "time"
  | "timezone"
  | "language"
  | "locale"
  | "url"
  | "image_url"
  | "ip"
  | "mac"
  | "hostname"
  | "color"
  | "version"
  | "status"
  | "name"
  | "title"
  | "text"
  | "file"
  | "path"
  | "mime"
  | "code"
  | "tag"
  | "category"
  | "arn"
  | "secret"
  | "paging"
  | "flag"
  | "other";

/** Rules in order; the first that holds decides. `w` is the name's words joined by one space. */
const TEXT_RULES: [RegExp, FieldClass][] = [
  [/\b(arn)$/, "arn"],
  [
    /\b(secret|password|token|signature|credential|api key|access key|private key|nonce|hash|checksum|etag|digest|md5|sha\d*|fingerprint|cursor|cookie|thumbprint|certificate)$/,
    "secret",
  ],
  [
    /\be? ?mail( address)?$|\bemail\b(?!.*(id|type|status|template|subject|body|name|text|list|groups?|signup|sent|count|enabled|domain))/,
    "email",
  ],
  [/\b(phone|mobile|fax|telephone|cell|msisdn)( number| no)?$|^phone/, "phone"],
  [/^(user ?name|login|nick ?name|screen name)$|\b(user name|username|(?<!last )login)$/, "username"],
  [/^(given|first|fore) ?name$|\b(first|given|middle) name$/, "first_name"],
  [/\b(last|family|maiden) name$|^surname$/, "last_name"],
  [
    /^full name$|\b(contact|customer|owner|author|employee|recipient|sender|creator|manager|assignee|driver|patient|cardholder|account holder|signer|user|person|member|guest|player|artist|teacher|student|agent) ?name$|^(author|artist|assignee|reporter|created by|updated by|modified by|owner|manager|recipient|sender)$/,
    "person",
  ],
  [
    /\b(company|organi[sz]ation|business|vendor|supplier|merchant|employer|brand|publisher|bank|legal|carrier|manufacturer) ?name$|^(company|organi[sz]ation|vendor|supplier|merchant|employer|brand|publisher|manufacturer|carrier)$/,
    "company",
  ],
  [/^(job|job title|position|profession|occupation|designation)$/, "job"],
  [/\b(street|address line ?\d?|line ?\d|address ?\d|street address)$|^street|^address$/, "street"],
  [/\b(city|town|locality)( name)?$/, "city"],
  [/\b(country|nation)( name)?$/, "country"],
  [/\b(country) (code|iso|id|iso2|alpha 2)$|^country iso/, "country_code"],
  [/^(state|province|county|region)$|\b(province|state code|region name|state name)$/, "region"],
  [/\b(zip|postal|post)( ?code)?$|^zip ?code/, "postcode"],
  [/\b(currency)( code| iso)?$/, "currency"],
  [/\b(time ?zone|tz|timezone)( name| id| code)?$/, "timezone"],
  [/\b(language|lang)( code| tag)?$/, "language"],
  [/\blocale$/, "locale"],
  [
    /\b(avatar|image|photo|picture|logo|icon|thumbnail|thumb)( (url|uri|link|src))$|^(avatar|image|photo|picture|logo|icon|thumbnail)$/,
    "image_url",
  ],
  [/\b(url|uri|href|link|website|webhook|endpoint|homepage|web ?site|permalink|callback|self)$|^urls?\b/, "url"],
  [/\b(ip|ip ?address|ipv4|ip addr)$/, "ip"],
  [/\bmac( address)?$/, "mac"],
  [/\b(host ?name|domain|host|domain name|fqdn|server name)$/, "hostname"],
  [/\b(colou?r|hex)$/, "color"],
  [/\bversion$/, "version"],
  [/\b(status|state|phase|stage|condition|outcome|result)$|^(lifecycle|health)/, "status"],
  [/\b(file ?name)$|^file$/, "file"],
  [/\b(path|folder|directory)$/, "path"],
  [/\b(mime|content|media) type$/, "mime"],
  [/\b(birth ?date|birthday|date|day|dob|date of birth)$|^date\b/, "date"],
  [
    /\b(at|on|timestamp|date time|datetime|time|modified|created|updated|since|until|expires|expiry|expiration)$|\bdate time\b|^(time|created|updated|modified)\b/,
    "datetime",
  ],
  [
    /\b(sku|isbn|ean|upc|barcode|gtin|reference|ref|code|number|no|serial|imei|vin|iban|bic|swift|vat|tax id|account number|symbol|ticker)$/,
    "code",
  ],
  [/\b(id|uuid|guid|sid|uid|key|identifier|slug|ids|urn|handle|oid|xid|fk)$/, "id"],
  [
    /^(title|subject|headline|heading|caption|label|topic|summary|display name|friendly name)$|\b(title|subject|headline|display name|friendly name)$/,
    "title",
  ],
  [/^name$|\bname$/, "name"],
  [
    /\b(description|comments?|notes?|message|body|text|content|details|reason|remarks?|instructions|summary|about|bio|abstract|overview|question|answer|feedback|memo|purpose)$/,
    "text",
  ],
  [
    /\b(category|group|department|genre|segment|section|class|industry|sector|kind|type|role|level|tier|plan|priority|severity|method|mode|source|channel|scope|gender|unit|format|origin)$/,
    "category",
  ],
  [/\b(tags?|labels?|keywords?)$/, "tag"],
  [/\b(amount|price|total|balance|cost|fee|rate|value)$/, "amount"],
  [/\b(percent|percentage)$/, "percent"],
  [/\b(duration)$/, "duration"],
];
const NUMBER_RULES: [RegExp, FieldClass][] = [
  [
    /^(limit|offset|page|per page|page size|max results|count per page|page number|skip|top|start index|page index)$/,
    "paging",
  ],
  [/\b(lat|latitude)$/, "latitude"],
  [/\b(lng|lon|long|longitude)$/, "longitude"],
  [/\b(percent|percentage|pct|ratio|probability|confidence|discount rate|tax rate|rate|progress)$/, "percent"],
  [/\b(rating|score|stars|rank|level|priority)$/, "rating"],
  [
    /^total (?!.*(cost|fee|sale|tax|payment|earning|charge|credit|debit|saving|price))([a-z]+ )*[a-z]{3,}[^s]s$/,
    "count",
  ],
  [
    /\b(amount|price|total|balance|cost|fee|fees|revenue|budget|salary|tax|subtotal|payment|paid|due|discount|spend|credit|debit|charge|income|wage|value)\b/,
    "amount",
  ],
  [/\byear$/, "year"],
  [/\b(id|uid|sid|key|fk|number|no|code)$/, "id"],
  [
    /\b(at|timestamp|date|created|updated|modified|expires|expiration|epoch|time)$|\b(time|date)\b.*\b(ms|millis)$/,
    "datetime",
  ],
  [/\b(duration|seconds|minutes|hours|days|timeout|ttl|interval|delay|elapsed|runtime|age|period)\b/, "duration"],
  [/\b(bytes|size|length|memory|storage|capacity|quota)$/, "bytes"],
  [/\b(width|height|depth)$/, "pixels"],
  [
    /\b(count|quantity|qty|items|total count|num|visits|views|likes|followers|members|users|downloads|uses|stock|attempts|retries|votes|points)\b|(?<![usi])s$/,
    "count",
  ],
];
const FORMATS: Record<string, FieldClass> = {
  email: "email",
  uuid: "id",
  guid: "id",
  uri: "url",
  url: "url",
  date: "date",
  "date-time": "datetime",
  dateTime: "datetime",
  datetime: "datetime",
  "google-datetime": "datetime",
  "iso-datetime": "datetime",
  "unix-time": "datetime",
  unixtime: "datetime",
  ipv4: "ip",
  ip: "ip",
  hostname: "hostname",
  password: "secret",
  byte: "secret",
  base64url: "secret",
  binary: "secret",
  phone: "phone",
  "google-duration": "duration",
  duration: "duration",
  time: "time",
};

/** The class that a format alone speaks for. */
export const formatClass = (format: string | undefined): FieldClass | undefined =>
  format ? FORMATS[format] : undefined;

const classes = new WeakMap<JsonSchema, Map<string, FieldClass>>();

/** The meaning of a field. `name` is the last name on the way to it. */
export function fieldClass(name: string, schema: JsonSchema): FieldClass {
  let byName = classes.get(schema);
  if (!byName) {
    byName = new Map();
    classes.set(schema, byName);
  }
  let known = byName.get(name);
  if (!known) {
    known = classify(name, schema);
    byName.set(name, known);
  }
  return known;
}

function classify(name: string, s: JsonSchema): FieldClass {
  if (s.type === "boolean") return "flag";
  const words = splitWords(name).join(" ");
  if (s.type === "number" || s.type === "integer") {
    if (s.format && FORMATS[s.format] === "datetime") return "datetime";
    return NUMBER_RULES.find(([r]) => r.test(words))?.[1] ?? "other";
  }
  if (s.type === "object" || s.type === "array") return "other";
  if (
    !s.format &&
    /^(next|previous|prev) ?(page)? ?(token|url|link|uri)?$|\b(page|continuation|next|skip) token$|^(cursor|marker|next|previous)$/.test(
      words,
    )
  )
    return "paging";
  const byFormat = s.format ? FORMATS[s.format] : undefined;
  if (byFormat && byFormat !== "id")
    return byFormat === "url" && /avatar|image|photo|picture|logo|icon|thumb/.test(words) ? "image_url" : byFormat;
  if (s.enum)
    return /\b(status|state|phase|stage)$/.test(words) ? "status" : /currency/.test(words) ? "currency" : "category";
  if (byFormat) return byFormat;
  const rule = TEXT_RULES.find(([r]) => r.test(words))?.[1];
  const about = s.description ?? "";
  // "modified" is when, unless it is said to be by whom.
  if (
    rule === "datetime" &&
    /\b(by|who|user|person|name|author)\b/i.test(about) &&
    !/time|date\b|when|timestamp|ISO.?8601|RFC.?3339|UTC|\b(at|on)\b/i.test(about) &&
    !/\b(at|time|timestamp|date)$/.test(words)
  )
    return "person";
  if (rule === "region" && words === "state" && !/\b(province|address|US|two.letter|CA)\b/.test(about)) return "status";
  if (rule) return rule;
  if (/ISO.?8601|RFC.?3339|YYYY-MM-DDT/i.test(about)) return "datetime";
  if (/YYYY-MM-DD/i.test(about)) return "date";
  if (/\be-?mail address\b/i.test(about)) return "email";
  return "other";
}
