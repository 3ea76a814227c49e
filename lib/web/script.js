// Comfort only: every page works without it. Filters answer while one types, a running run redraws itself, keys follow links.

/** Fetches an address of this server and puts its element `selector` in place of ours. */
async function refresh(url, selector, signal) {
  const response = await fetch(url, { signal, headers: { accept: "text/html" } });
  if (!response.ok) return false;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const [fresh, old] = [page.querySelector(selector), document.querySelector(selector)];
  if (!fresh || !old) return false;
  old.replaceChildren(...fresh.childNodes);
  if (fresh.id === "live" && !fresh.dataset.events) old.removeAttribute("data-events");
  return true;
}

for (const form of document.querySelectorAll("form[data-live]")) {
  let running = new AbortController();
  let timer = 0;
  const show = () => {
    const params = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value !== "") params.append(name, value);
    const url = `${form.action}?${params}`;
    running.abort();
    running = new AbortController();
    refresh(url, form.dataset.live, running.signal)
      .then((done) => done && history.replaceState(null, "", url))
      .catch((error) => {
        if (error.name !== "AbortError") form.submit();
      });
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(show, 120);
  });
}

const live = document.querySelector("[data-events]");
if (live) {
  const events = new EventSource(live.dataset.events);
  let busy = false;
  let again = false;
  const update = async () => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    do {
      again = false;
      await refresh(location.href, `#${live.id}`).catch(() => false);
    } while (again);
    busy = false;
    live.dataset.updates = String(Number(live.dataset.updates ?? 0) + 1);
  };
  events.addEventListener("change", update);
  events.addEventListener("end", () => {
    events.close();
    update();
  });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!target) return;
  event.preventDefault();
  if (target.matches("input")) target.focus();
  else target.click();
});
