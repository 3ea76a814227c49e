/** Coherent details of one entity: the e-mail address fits the name, the postcode's city fits its country, updates follow creation. */
import { faker } from "@faker-js/faker/locale/en";
import { hash2 } from "../engine/random.ts";
import { hashText, KEY, Rng } from "./hash.ts";

const data = faker.definitions;
const all = (entry: unknown): string[] => {
  if (Array.isArray(entry)) return entry.filter((x): x is string => typeof x === "string");
  return entry && typeof entry === "object" ? Object.values(entry).flatMap(all) : [];
};
const plain = (words: string[]) => words.filter((w) => /^[A-Z][a-z]{2,9}$/.test(w));
const FIRST = plain([
  ...all(data.person.first_name?.female).slice(0, 900),
  ...all(data.person.first_name?.male).slice(0, 900),
]);
const LAST = plain(all(data.person.last_name));
const JOBS = {
  descriptor: all(data.person.job_descriptor),
  area: all(data.person.job_area),
  type: all(data.person.job_type),
};
const PRODUCTS = data.commerce?.product_name as
  | { adjective?: string[]; material?: string[]; product?: string[] }
  | undefined;
const STREETS = all(data.location.street_suffix);
const TITLES = {
  dish: all(data.food?.dish),
  song: all(data.music?.song_name),
  album: all(data.music?.album),
  artist: all(data.music?.artist),
  book: all(data.book?.title),
};
export const COLORS = all(data.color?.human);
export const DEPARTMENTS = all(data.commerce?.department);

const NAMES = new Set([...FIRST, ...LAST].map((n) => n.toLowerCase()));
/** Whether a lower-case word is a person's first or last name. */
export function isPersonName(word: string): boolean {
  return NAMES.has(word);
}

/** city | region | region code | country | code | currency | time zone | latitude | longitude | first digits of a postcode */
const PLACES = `Lisbon|Lisboa|11|Portugal|PT|EUR|Europe/Lisbon|38.72|-9.14|11
Porto|Porto|13|Portugal|PT|EUR|Europe/Lisbon|41.15|-8.61|40
Madrid|Madrid|MD|Spain|ES|EUR|Europe/Madrid|40.42|-3.70|28
Valencia|Valencia|VC|Spain|ES|EUR|Europe/Madrid|39.47|-0.38|46
Lyon|Rhone|69|France|FR|EUR|Europe/Paris|45.76|4.84|69
Nantes|Loire|44|France|FR|EUR|Europe/Paris|47.22|-1.55|44
Ghent|East Flanders|VOV|Belgium|BE|EUR|Europe/Brussels|51.05|3.72|90
Utrecht|Utrecht|UT|Netherlands|NL|EUR|Europe/Amsterdam|52.09|5.12|35
Hamburg|Hamburg|HH|Germany|DE|EUR|Europe/Berlin|53.55|9.99|20
Leipzig|Saxony|SN|Germany|DE|EUR|Europe/Berlin|51.34|12.37|41
Vienna|Vienna|9|Austria|AT|EUR|Europe/Vienna|48.21|16.37|10
Zurich|Zurich|ZH|Switzerland|CH|CHF|Europe/Zurich|47.38|8.54|80
Turin|Piedmont|TO|Italy|IT|EUR|Europe/Rome|45.07|7.69|10
Athens|Attica|I|Greece|GR|EUR|Europe/Athens|37.98|23.73|10
Krakow|Lesser Poland|MA|Poland|PL|PLN|Europe/Warsaw|50.06|19.94|30
Prague|Prague|PR|Czechia|CZ|CZK|Europe/Prague|50.08|14.44|11
Copenhagen|Hovedstaden|84|Denmark|DK|DKK|Europe/Copenhagen|55.68|12.57|21
Gothenburg|Vastra Gotaland|O|Sweden|SE|SEK|Europe/Stockholm|57.71|11.97|41
Bergen|Vestland|46|Norway|NO|NOK|Europe/Oslo|60.39|5.32|50
Tampere|Pirkanmaa|11|Finland|FI|EUR|Europe/Helsinki|61.50|23.76|33
Dublin|Leinster|L|Ireland|IE|EUR|Europe/Dublin|53.35|-6.26|20
Bristol|England|ENG|United Kingdom|GB|GBP|Europe/London|51.45|-2.59|10
Leeds|England|ENG|United Kingdom|GB|GBP|Europe/London|53.80|-1.55|12
Glasgow|Scotland|SCT|United Kingdom|GB|GBP|Europe/London|55.86|-4.25|21
Toronto|Ontario|ON|Canada|CA|CAD|America/Toronto|43.65|-79.38|35
Vancouver|British Columbia|BC|Canada|CA|CAD|America/Vancouver|49.28|-123.12|60
Austin|Texas|TX|United States|US|USD|America/Chicago|30.27|-97.74|787
Denver|Colorado|CO|United States|US|USD|America/Denver|39.74|-104.99|802
Portland|Oregon|OR|United States|US|USD|America/Los_Angeles|45.52|-122.68|972
Seattle|Washington|WA|United States|US|USD|America/Los_Angeles|47.61|-122.33|981
Boston|Massachusetts|MA|United States|US|USD|America/New_York|42.36|-71.06|021
Chicago|Illinois|IL|United States|US|USD|America/Chicago|41.88|-87.63|606
Atlanta|Georgia|GA|United States|US|USD|America/New_York|33.75|-84.39|303
Mexico City|CDMX|CMX|Mexico|MX|MXN|America/Mexico_City|19.43|-99.13|060
Bogota|Cundinamarca|DC|Colombia|CO|COP|America/Bogota|4.71|-74.07|110
Santiago|Santiago|RM|Chile|CL|CLP|America/Santiago|-33.45|-70.67|832
Curitiba|Parana|PR|Brazil|BR|BRL|America/Sao_Paulo|-25.43|-49.27|800
Nairobi|Nairobi|30|Kenya|KE|KES|Africa/Nairobi|-1.29|36.82|001
Accra|Greater Accra|AA|Ghana|GH|GHS|Africa/Accra|5.60|-0.19|002
Cape Town|Western Cape|WC|South Africa|ZA|ZAR|Africa/Johannesburg|-33.92|18.42|80
Dubai|Dubai|DU|United Arab Emirates|AE|AED|Asia/Dubai|25.20|55.27|001
Pune|Maharashtra|MH|India|IN|INR|Asia/Kolkata|18.52|73.86|411
Bengaluru|Karnataka|KA|India|IN|INR|Asia/Kolkata|12.97|77.59|560
Singapore|Singapore|SG|Singapore|SG|SGD|Asia/Singapore|1.35|103.82|04
Osaka|Osaka|27|Japan|JP|JPY|Asia/Tokyo|34.69|135.50|530
Busan|Busan|26|South Korea|KR|KRW|Asia/Seoul|35.18|129.08|46
Melbourne|Victoria|VIC|Australia|AU|AUD|Australia/Melbourne|-37.81|144.96|30
Auckland|Auckland|AUK|New Zealand|NZ|NZD|Pacific/Auckland|-36.85|174.76|10`
  .split("\n")
  .map((line) => {
    const [city, region, regionCode, country, code, currency, zone, lat, lon, post] = line.split("|") as [
      string,
      string,
      string,
      string,
      string,
      string,
      string,
      string,
      string,
      string,
    ];
    return { city, region, regionCode, country, code, currency, zone, lat: Number(lat), lon: Number(lon), post };
  });
export type Place = (typeof PLACES)[number];

const WORDS = {
  proper:
    "Aurora Bluebird Cedar Delta Ember Falcon Granite Harbor Indigo Juniper Kestrel Lantern Meridian Nimbus Orchard Pioneer Quartz Riverside Summit Tandem Umber Vista Willow Zephyr Beacon Copper Driftwood Evergreen Foxglove Horizon Ironwood Larkspur Maple Northstar Oakridge Pinecrest Redwood Silverline Thistle Westgate".split(
      " ",
    ),
  thing:
    "Launch Review Rollout Pilot Update Migration Refresh Campaign Plan Drive Program Initiative Workshop Series Audit Upgrade Survey Kickoff".split(
      " ",
    ),
  season: "Spring Summer Autumn Winter Q1 Q2 Q3 Q4 Annual Weekly Monthly Regional Global Internal".split(" "),
  tech: "web api auth billing cache worker search mail ingest report sync edge media queue audit batch metrics gateway".split(
    " ",
  ),
  site: "prod staging dev test eu us west east core lab".split(" "),
  company:
    "Labs Logistics Foods Systems Partners Studio Supply Energy Health Media Robotics Textiles Travel Works Analytics Bank".split(
      " ",
    ),
  sentence: [
    "Needs a second look before the end of the month.",
    "Agreed with the customer on the phone.",
    "Moved from the old system last year.",
    "Please keep the team informed of any change.",
    "Waiting for a reply from the supplier.",
    "Used for the yearly report.",
    "Set up for the new office.",
    "Reviewed and approved by finance.",
    "Replaces the earlier version.",
    "Shared with the partners in the region.",
    "Contains the figures for the last quarter.",
    "Planned together with the operations team.",
  ],
  tag: "urgent internal archived vip beta seasonal partner renewal trial priority legacy export".split(" "),
};

const COMPANIES = [...WORDS.proper, ...LAST.slice(0, 80)];

/** What a moment is to its entity, by the field's words. */
type Moment = "birth" | "created" | "updated" | "start" | "end" | "other";
const MOMENTS: [Moment, RegExp][] = [
  ["birth", /birth|dob/],
  ["created", /creat|register|join|open|issue|added|since|posted|signed|insert/],
  ["updated", /updat|modif|chang|edit|last|seen|accessed/],
  ["start", /start|begin|from|valid from|published|sent/],
  ["end", /end|finish|complet|stop|to$|until|due|expir|renew|deadline|clos/],
];
const moments = new Map<string, { kind: Moment; shift: number; hour: number }>();
/** What a moment is, and the hashes that its draws start from. */
function momentOf(words: string): { kind: Moment; shift: number; hour: number } {
  let m = moments.get(words);
  if (m === undefined) {
    const kind = MOMENTS.find(([, r]) => r.test(words))?.[0] ?? "other";
    m = { kind, shift: hashText(`moment ${words}`), hour: hashText(`hour ${words}`) };
    if (moments.size > 20_000) moments.clear();
    moments.set(words, m);
  }
  return m;
}

/** 2025-01-06, the first day that entities are made on; nothing in a world is later than about two years after it. */
const EPOCH = Date.UTC(2025, 0, 6);
const DAY = 86_400_000;

/** The details of one entity, drawn lazily from its key. */
export class Persona {
  readonly seed: number;
  /** `key(seed)`, which every draw starts from. */
  readonly #key: number;
  #place: Place | undefined;
  constructor(seed: number) {
    this.seed = seed;
    this.#key = hash2(KEY, seed);
  }
  rng(part: string): Rng {
    return this.#rng(hashText(part));
  }
  #rng(part: number): Rng {
    return new Rng(hash2(this.#key, part));
  }
  get first(): string {
    return this.rng("first").pick(FIRST);
  }
  get last(): string {
    return this.rng("last").pick(LAST);
  }
  get person(): string {
    return `${this.first} ${this.last}`;
  }
  get username(): string {
    return (
      `${this.first}${this.rng("username").pick([".", "_", ""])}${this.last}`.toLowerCase() +
      this.rng("digits").int(2, 99)
    );
  }
  get email(): string {
    return `${this.first}.${this.last}@${this.domain}`.toLowerCase();
  }
  get domain(): string {
    return `${this.company.toLowerCase().replace(/[^a-z0-9]+/g, "")}.${this.rng("suffix").pick(["com", "org", "net", "io"])}`;
  }
  get company(): string {
    const r = this.rng("company");
    return `${r.pick(COMPANIES)} ${r.pick(WORDS.company)}`;
  }
  get place(): Place {
    this.#place ??= this.rng("place").pick(PLACES);
    return this.#place;
  }
  get street(): string {
    const r = this.rng("street");
    return `${r.int(2, 240)} ${r.pick(LAST)} ${r.pick(STREETS)}`;
  }
  get postcode(): string {
    const { post } = this.place;
    return post + String(this.rng("post").int(0, 10 ** (5 - post.length) - 1)).padStart(5 - post.length, "0");
  }
  get phone(): string {
    const r = this.rng("phone");
    return `+1${r.int(201, 989)}${r.int(200, 989)}${String(r.int(0, 9999)).padStart(4, "0")}`;
  }
  get job(): string {
    const r = this.rng("job");
    return `${r.pick(JOBS.descriptor)} ${r.pick(JOBS.area)} ${r.pick(JOBS.type)}`;
  }
  get product(): string {
    const r = this.rng("product");
    return `${r.pick(PRODUCTS?.adjective ?? ["Plain"])} ${r.pick(PRODUCTS?.material ?? ["Cotton"])} ${r.pick(PRODUCTS?.product ?? ["Shirt"])}`;
  }
  /** A proper name for a project, a campaign, a group … */
  get proper(): string {
    const r = this.rng("proper");
    return r.chance(0.55)
      ? `${r.pick(WORDS.proper)} ${r.pick(WORDS.thing)}`
      : `${r.pick(WORDS.season)} ${r.pick(WORDS.proper)} ${r.pick(WORDS.thing)}`;
  }
  /** The title of a dish, a song, an album, an artist or a book. */
  work(kind: keyof typeof TITLES): string {
    return this.rng(kind).pick(TITLES[kind]).replace(/"/g, "'");
  }
  /** A name for a machine, a queue, a store … */
  get slug(): string {
    const r = this.rng("slug");
    return `${r.pick(WORDS.tech)}-${r.pick(WORDS.site)}-${String(r.int(1, 99)).padStart(2, "0")}`;
  }
  get sentence(): string {
    return this.rng("sentence").pick(WORDS.sentence);
  }
  get tag(): string {
    return this.rng("tag").pick(WORDS.tag);
  }
  /** Milliseconds since 1970 for a moment named by a field's words: created before updated before expiry. */
  moment(words: string): number {
    const r = this.rng("moments");
    const created = EPOCH + r.int(0, 300) * DAY + r.int(6 * 60, 20 * 60) * 60_000 + r.int(0, 59) * 1000;
    const { kind, shift, hour } = momentOf(words);
    if (kind === "birth") return created - r.int(22, 60) * 365 * DAY;
    if (kind === "created") return created;
    if (kind === "start") return created + 30 * DAY;
    const later = this.#rng(shift).int(1, 27) * DAY + this.#rng(hour).int(0, 500) * 60_000;
    return kind === "end" ? created + 35 * DAY + later : created + later;
  }
}
