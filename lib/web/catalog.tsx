import type { FC } from "hono/jsx";
import type { JsonSchema, Tool } from "../catalog/types.ts";
import type { CallResult, Write } from "../toolenv/types.ts";
import {
  type CatalogAnswer,
  type CatalogQuery,
  type CatalogView,
  type Facet,
  type Flow,
  type Found,
  PAGE,
} from "./catalog-view.ts";
import { Layout } from "./layout.tsx";
import { Block, Plain, Pre, Scroll, Short } from "./text.tsx";

const search = (q: CatalogQuery, more: Partial<CatalogQuery> = {}): string => {
  const { text, provider, category, offset } = { ...q, offset: 0, ...more };
  const params = new URLSearchParams();
  if (text) params.set("q", text);
  if (provider) params.set("provider", provider);
  if (category) params.set("category", category);
  if (offset) params.set("from", String(offset));
  const query = params.toString();
  return `/catalog${query ? `?${query}` : ""}`;
};

export const toolPath = (name: string, text = ""): string =>
  `/catalog/tools/${encodeURIComponent(name)}${text ? `?q=${encodeURIComponent(text)}` : ""}`;

const Terms: FC<{ terms: Found["terms"]; size: number }> = ({ terms, size }) => (
  <ul class="terms">
    {terms.map((t) => (
      <li>
        <code>
          <Plain text={t.word.startsWith("=") ? t.word.slice(1) : (t.word.split("=")[0] ?? t.word)} />
        </code>{" "}
        {t.word.startsWith("=") ? "as written" : t.word.includes("=") ? "as written and its stem" : "by its stem"} adds{" "}
        <b>{t.adds.toFixed(2)}</b>{" "}
        <span class="soft">
          (in {t.tools.toLocaleString("en")} of {size.toLocaleString("en")} tools)
        </span>
      </li>
    ))}
  </ul>
);

const FacetList: FC<{ title: string; facet: Facet; chosen: string; link: (value: string) => string }> = (p) => (
  <details open={p.chosen !== ""}>
    <summary>
      {p.title}
      {p.chosen ? (
        <>
          {": "}
          <Plain text={p.chosen} />
        </>
      ) : null}
    </summary>
    <ul>
      {p.chosen ? (
        <li>
          <a href={p.link("")}>all</a>
        </li>
      ) : null}
      {p.facet
        .filter((f) => f.value !== "")
        .map((f) => (
          <li>
            <a href={p.link(f.value)} aria-current={f.value === p.chosen ? "true" : undefined}>
              <Plain text={f.value} />
            </a>{" "}
            <span class="soft">{f.count.toLocaleString("en")}</span>
          </li>
        ))}
    </ul>
  </details>
);

export const CatalogPage: FC<{ query: CatalogQuery; answer: CatalogAnswer; size: number }> = ({
  query,
  answer,
  size,
}) => (
  <Layout title="Catalogue" here="/catalog">
    <form class="filters" method="get" action="/catalog" data-live="#results">
      <label class="grow">
        What the tool must do
        <input type="search" name="q" value={query.text} data-key="/" autocomplete="off" maxlength={1000} />
      </label>
      <input type="hidden" name="provider" value={query.provider} />
      <input type="hidden" name="category" value={query.category} />
      <button type="submit">Search</button>
    </form>
    <div id="results">
      <p class="soft" aria-live="polite">
        {answer.total.toLocaleString("en")} of {size.toLocaleString("en")} tools
        {query.text.trim() ? ", best first by BM25F" : ", in catalogue order"}
      </p>
      <div class="with-facets">
        <div class="facets">
          <FacetList
            title="Provider"
            facet={answer.providers}
            chosen={query.provider}
            link={(provider) => search(query, { provider })}
          />
          <FacetList
            title="Category"
            facet={answer.categories}
            chosen={query.category}
            link={(category) => search(query, { category })}
          />
        </div>
        <div>
          <ol class="tools" start={query.offset + 1}>
            {answer.found.map(({ tool, score, terms }) => (
              <li>
                <p>
                  <a href={toolPath(tool.name, query.text)}>{tool.name}</a> <span class="soft">{tool.api}</span>
                </p>
                <p>
                  <Short text={tool.description} most={220} />
                </p>
                {score === null ? null : (
                  <details class="why">
                    <summary>score {score.toFixed(2)}</summary>
                    <Terms terms={terms} size={size} />
                  </details>
                )}
              </li>
            ))}
          </ol>
          <nav class="pages" aria-label="Pages">
            {query.offset > 0 ? (
              <a rel="prev" data-key="p" href={search(query, { offset: Math.max(0, query.offset - PAGE) })}>
                previous {PAGE}
              </a>
            ) : null}
            {query.offset + PAGE < answer.total ? (
              <a rel="next" data-key="n" href={search(query, { offset: query.offset + PAGE })}>
                next {PAGE}
              </a>
            ) : null}
          </nav>
        </div>
      </div>
    </div>
  </Layout>
);

const typeName = (s: JsonSchema): string =>
  s.type === "array" ? `list of ${s.items ? typeName(s.items) : "anything"}` : (s.format ?? s.type ?? "anything");

const Field: FC<{ name: string; schema: JsonSchema; required: boolean; value: string }> = (p) => {
  const { schema } = p;
  const field = `p.${p.name}`;
  const id = `field-${p.name}`;
  const about = schema.description ? `${id}-about` : undefined;
  const label = (
    <>
      <span>
        {p.name} <span class="soft">{`${typeName(schema)}${p.required ? ", required" : ""}`}</span>
      </span>
    </>
  );
  const choices = schema.enum?.map((v) => (typeof v === "string" ? v : JSON.stringify(v)));
  const input =
    choices || schema.type === "boolean" ? (
      <select id={id} name={field} aria-describedby={about}>
        <option value=""></option>
        {(choices ?? ["true", "false"]).map((v) => (
          <option value={v} selected={v === p.value}>
            {v}
          </option>
        ))}
      </select>
    ) : schema.type === "object" || schema.type === "array" || schema.type === undefined ? (
      <textarea id={id} name={field} rows={2} aria-describedby={about} spellcheck={false}>
        {p.value}
      </textarea>
    ) : (
      <input
        id={id}
        name={field}
        type="text"
        inputmode={schema.type === "number" || schema.type === "integer" ? "decimal" : "text"}
        value={p.value}
        aria-describedby={about}
        autocomplete="off"
      />
    );
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {input}
      {schema.description ? (
        <p class="soft" id={about}>
          <Short text={schema.description} most={240} />
        </p>
      ) : null}
    </div>
  );
};

const Tools: FC<{ tools: { tool: Tool; param?: string }[] }> = ({ tools }) => (
  <>
    {tools.slice(0, 12).map(({ tool, param }, i) => (
      <>
        {i > 0 ? ", " : ""}
        <a href={toolPath(tool.name)}>{tool.name}</a>
        {param ? <span class="soft"> ({param})</span> : null}
      </>
    ))}
    {tools.length > 12 ? ` and ${tools.length - 12} more` : ""}
  </>
);

const FlowPart: FC<{ flow: Flow }> = ({ flow }) => {
  const { op, resource, needs, takers } = flow;
  return (
    <>
      <p>
        {op.type === null ? (
          `${op.kind}: no resource could be told from its interface.`
        ) : (
          <>
            <b>{op.kind}</b> of the resource <b>{op.type}</b>
            {resource?.parent ? ` (in a ${resource.parent})` : ""}
            {resource?.idField ? (
              <>
                , known by its field <code>{resource.idField}</code>
              </>
            ) : null}
            {op.at === null ? "" : `; the answer holds ${op.many ? "a list of them" : "one"}`}
            {op.at && op.at.length > 0 ? (
              <>
                {" under "}
                <code>{op.at.join(".")}</code>
              </>
            ) : null}
          </>
        )}
      </p>
      <ul>
        {needs.map(({ ref, role, givers }) => (
          <li>
            needs <code>{ref.param}</code>: {role === "names it" ? "says which" : role} <b>{ref.type}</b>.{" "}
            {givers.length > 0 ? (
              <>
                Given by <Tools tools={givers.map((tool) => ({ tool }))} />.
              </>
            ) : (
              "No tool of this API gives it."
            )}
          </li>
        ))}
        {takers.length > 0 ? (
          <li>
            what it gives is taken by <Tools tools={takers} />.
          </li>
        ) : null}
      </ul>
    </>
  );
};

export interface ToolProps {
  tool: Tool;
  flow: Flow | null;
  size: number;
  text: string;
  why: ReturnType<CatalogView["explain"]>;
  token: string;
  seed: number;
  values: Record<string, string>;
  called: { result: CallResult; writes: Write[] } | null;
}

const Schema: FC<{ label: string; value: unknown }> = ({ label, value }) => (
  <details>
    <summary>{label}</summary>
    <Pre label={label} text={JSON.stringify(value, null, 2)} />
  </details>
);

/** One tool: its interface, its place in the data flow, why a search finds it, and a form that calls it in a world. */
export const ToolPage: FC<ToolProps> = ({ tool, flow, size, text, why, token, seed, values, called }) => (
  <Layout title={tool.name} here="/catalog">
    <p class="links">
      <a href={`/catalog?q=${encodeURIComponent(text)}`}>search</a>
      <a href={`/catalog?provider=${encodeURIComponent(tool.provider)}`}>all of {tool.provider}</a>
    </p>
    <p>
      <Plain text={tool.description} />
    </p>
    <p>
      <code>
        {tool.method} {tool.path}
      </code>{" "}
      <span class="soft">
        {tool.api}
        {tool.category ? ` · ${tool.category}` : ""} · from {tool.source}
        {tool.licence ? ` · licence: ${tool.licence}` : ""}
      </span>
    </p>
    {called ? (
      <section class="result" aria-live="polite">
        <h2>Answer</h2>
        <p>
          <span class={called.result.outcome === "ok" ? "status done" : "status failed"}>{called.result.outcome}</span>{" "}
          {called.result.status} · {Math.round(called.result.latencyMs)} ms of virtual time
          {called.writes.length > 0 ? ` · ${called.writes.length} changes to the world` : ""}
        </p>
        <Block label="Body" text={JSON.stringify(called.result.body, null, 2)} open={true} />
        {called.writes.length > 0 ? (
          <Block label="Changes" text={JSON.stringify(called.writes, null, 2)} open={true} />
        ) : null}
      </section>
    ) : null}
    <h2>Call it in a world</h2>
    <form method="post" action={`/catalog/tools/${encodeURIComponent(tool.name)}`} class="call-form">
      <input type="hidden" name="token" value={token} />
      {Object.entries(tool.parameters.properties).map(([name, schema]) => (
        <Field
          name={name}
          schema={schema}
          required={tool.parameters.required.includes(name)}
          value={values[name] ?? ""}
        />
      ))}
      <div class="field">
        <label for="seed">seed of the world</label>
        <input id="seed" name="seed" type="number" min={0} max={4294967295} value={String(seed)} />
      </div>
      <p class="buttons">
        <button type="submit">Call</button>{" "}
        <span class="soft">Each call is made in a fresh session. Nothing outside this process is reached.</span>
      </p>
    </form>
    <h2>Place in the data flow</h2>
    {flow ? <FlowPart flow={flow} /> : <p class="soft">Its interface tells nothing of resources.</p>}
    {text.trim() === "" ? null : (
      <>
        <h2>Why a search finds it</h2>
        <p>
          <Plain text={text} />:{" "}
          {why
            ? `rank ${why.rank.toLocaleString("en")}, score ${why.score.toFixed(2)}`
            : "no word of the query is in it."}
        </p>
        {why ? <Terms terms={why.terms} size={size} /> : null}
      </>
    )}
    <h2>Interface</h2>
    {Object.keys(tool.parameters.properties).length === 0 ? (
      <p class="soft">No parameters.</p>
    ) : (
      <Scroll label="Parameters">
        <table>
          <thead>
            <tr>
              {["Parameter", "Type", "Place", "Required", "Meaning"].map((c) => (
                <th scope="col">{c}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {Object.entries(tool.parameters.properties).map(([name, s]) => (
              <tr>
                <th scope="row">
                  <code>{name}</code>
                </th>
                <td>{typeName(s)}</td>
                <td>{tool.places[name] ?? "–"}</td>
                <td>{tool.parameters.required.includes(name) ? "yes" : "no"}</td>
                <td class="wide">
                  <Short text={s.description ?? "–"} most={200} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    )}
    <Schema label="Parameters (JSON Schema)" value={tool.parameters} />
    {tool.response ? <Schema label="Response (JSON Schema)" value={tool.response} /> : null}
    {tool.example === null ? null : <Schema label="Recorded example of the response" value={tool.example} />}
  </Layout>
);
