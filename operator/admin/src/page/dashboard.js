// What is shown of a sample, and where samples come from.
const WORDS = { hits: "hits", misses: "misses", bypasses: "bypasses" };
const CLASSES = ["content", "network_headers", "application_headers", "overhead", "other"];
const words = (label) => label.replaceAll("_", " ");
// Events that come no more often than this make a connection that is lost (the server sends one each second).
const SILENCE_MS = 6000, AGAIN_MS = 2000;
const REASONS = [["bypass_", "passes"], ["fill_refused_", "not kept: watcher"], ["fill_not_shared_", "not kept: private"],
  ["fill_aborted_", "not kept: card"]];

let points = [], shown = null, before = null, paused = false, lost = null, heard = 0, stream = null, charts = null;

function busOf(point, name) {
  const found = (point.bus_bytes_per_s ?? []).find(([other]) => other === name);
  return found ? found[1] : 0;
}

function begin(mode) {
  const [hits, misses, bypasses] = mode === "serve" ? ["blocks found", "blocks missed", "blocks refused"]
    : mode === "forward" ? ["bytes from the card", "bytes from main memory", "–"] : Object.values(WORDS);
  if (mode === "forward") say($("requests").querySelector("h2"), "Bytes of payload per second");
  if (mode === "serve") say($("requests").querySelector("h2"), "Blocks per second");
  charts = [
    new Chart($("requests"), [
      { name: hits, color: 0, get: (point) => point.hits_per_s },
      { name: misses, color: 1, get: (point) => point.misses_per_s },
      { name: bypasses, color: 2, get: (point) => point.bypasses_per_s },
    ], { stacked: true, show: rate, tick: (value) => whole(value, ["", "k", "M", "G"]) }),
    new Chart($("rate"), [{ name: "hit rate", color: 0, get: (point) => point.hit_rate }],
      { stacked: false, show: percent, tick: (value) => value * 100 + "\u202f%", most: 1 }),
    new Chart($("bus"), CLASSES.map((name, color) => ({ name: words(name), color, get: (point) => busOf(point, name) })),
      { stacked: true, show: bytes, tick: (value) => whole(value, ["B", "kB", "MB", "GB", "TB"]) }),
  ];
}

function tile(name, value, note) {
  const it = element("div", {}, element("dt", {}, name), element("dd", { class: "value" }, value));
  if (note) it.append(element("dd", { class: "note" }, note));
  return it;
}

function meter(share, label) {
  const width = (Math.max(0, Math.min(1, share)) * 100).toFixed(2) + "%";
  const attributes = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return drawn("svg", { class: "meter", ...attributes }, drawn("rect", { x: 0, y: 0, width, height: 6, rx: 3 }));
}

/** Sums of what the cards count. */
function total(sample) {
  const sum = {};
  for (const card of sample.cards) {
    for (const [name, value] of Object.entries(card)) {
      if (typeof value === "number") sum[name] = (sum[name] ?? 0) + value;
    }
  }
  return sum;
}

function grown(then, now, seconds) {
  return seconds > 0 && then !== undefined ? (now >= then ? now - then : now) / seconds : 0;
}

function state(sample) {
  if (sample.bypass_on) return ["Bypass on: everything passes to the server", "warn"];
  if (sample.watcher.unavailable) return ["Not caching: nothing is watched", "bad"];
  if (sample.not_caching) return ["Not caching: " + sample.not_caching, "bad"];
  return ["Caching", "good"];
}

function showState() {
  const [text, kind] = lost ? ["Connection lost", "bad"] : shown ? state(shown) : ["Connecting", ""];
  say($("state"), text);
  $("state").className = "state " + kind;
  document.body.classList.toggle("stale", Boolean(lost));
  if (lost) say($("banner"), lost);
  $("banner").hidden = !lost;
}

function showTiles(sample, point) {
  const sum = total(sample), looked = (sum.hits ?? 0) + (sum.misses ?? 0) + (sum.bypasses ?? 0);
  const memory = tile("Card memory", bytes(sum.memory_used_bytes ?? 0), "of " + bytes(sum.memory_bytes ?? 0));
  memory.append(meter((sum.memory_used_bytes ?? 0) / (sum.memory_bytes || 1)));
  $("tiles").replaceChildren(
    tile("Requests", point ? rate(point.requests_per_s) + "/s" : "–",
      sample.mode === "serve" ? count(sample.counters.requests ?? 0) + " so far" : count(looked) + " so far"),
    tile(sample.mode === "serve" ? "Blocks found" : sample.mode === "forward" ? "From the card" : "Hit rate", percent(point?.hit_rate),
      percent(looked ? sum.hits / looked : null) + " in all"),
    tile("From the card", point ? bytes(point.sent_bytes_per_s) + "/s" : "–", bytes(sum.sent_bytes ?? 0) + " so far"),
    tile("Kept off the bus", point ? bytes(point.saved_bytes_per_s) + "/s" : "–", bytes(sum.saved_bytes ?? 0) + " so far"),
    tile(sample.mode === "serve" ? "Blocks kept" : sample.mode === "forward" ? "Entries in use" : "Replies kept", count(sum.entries ?? 0), count(sum.evictions ?? 0) + " evicted"),
    memory,
    tile("Connections", count(sample.connections), count(sum.retransmits ?? 0) + " sent again"),
    tile("Watcher", sample.watcher.unavailable ? "absent" : "watching", sample.watcher.kind ? "by " + sample.watcher.kind : ""),
  );
}

/** Replaces the rows of a table, or shows what stands for an empty one. */
function fill(id, rows) {
  const none = $(id + "-none");
  $(id).hidden = Boolean(none) && !rows.length;
  if (none) none.hidden = Boolean(rows.length);
  $(id).tBodies[0].replaceChildren(...rows);
}

function showHottest(sample) {
  const all = (sample.hottest ?? []).slice(0, 12), most = Math.max(...all.map((object) => object.hits_per_s), 0);
  fill("hot", all.map((object) => element("tr", {},
    element("th", { scope: "row" }, element("span", { class: "host" }, object.host), object.target,
      ...(object.is_dynamic ? [" ", element("span", { class: "kind" }, "dynamic")] : []), meter(object.hits_per_s / (most || 1))),
    element("td", { class: "number" }, rate(object.hits_per_s)),
    element("td", { class: "number wide" }, bytes(object.body_bytes)))));
}

function showReasons(sample, seconds) {
  const reasons = [];
  for (const [name, value] of Object.entries(sample.counters)) {
    const kind = value > 0 && REASONS.find(([prefix]) => name.startsWith(prefix));
    if (!kind) continue;
    const perSecond = grown(before?.counters[name], value, seconds);
    reasons.push({ reason: words(name.slice(kind[0].length)), kind: kind[1], value, perSecond });
  }
  reasons.sort((a, b) => b.perSecond - a.perSecond || b.value - a.value);
  const most = Math.max(...reasons.map((one) => one.perSecond), 0);
  fill("why", reasons.slice(0, 12).map((one) => element("tr", {},
    element("th", { scope: "row" }, one.reason, " ", element("span", { class: "kind" }, one.kind), meter(one.perSecond / (most || 1))),
    element("td", { class: "number" }, rate(one.perSecond)),
    element("td", { class: "number" }, count(one.value)))));
}

function showCards(sample, seconds) {
  fill("cards", sample.cards.map((card) => {
    const then = before?.cards.find((other) => other.id === card.id) ?? {};
    const of = (name) => grown(then[name], card[name], seconds);
    const looked = of("hits") + of("misses") + of("bypasses");
    const number = (text, more = "") => element("td", { class: "number" + more }, text);
    const memory = bytes(card.memory_used_bytes) + " of " + bytes(card.memory_bytes);
    return element("tr", {}, element("th", { scope: "row" }, card.id), number(rate(of("hits"))),
      number(percent(looked ? of("hits") / looked : null)), number(count(card.entries)),
      element("td", {}, memory, meter(card.memory_used_bytes / (card.memory_bytes || 1))),
      number(count(card.flows), " wide"), number(rate(of("evictions")), " wide"), number(rate(of("retransmits")), " wide"),
      number(count(card.drops), " wide"));
  }));
}

function showAbout(sample) {
  const facts = [["Addresses", sample.urls.join(", ")], ["Published", sample.published.join(", ") || "nowhere"],
    ["Running for", span(sample.uptime_ms)], ["Process", String(sample.pid)],
    ["Watcher", sample.watcher.unavailable ?? (sample.watcher.kind || "–")]];
  for (const database of sample.databases) {
    const kept = database.in_step ? "pages are kept" : "pages are not kept: nothing is heard of its relay";
    facts.push(["Database", `${database.database}: ${kept}; ${count(database.events)} events`]);
  }
  if (sample.restarts) facts.push(["Started again", count(sample.restarts) + " times"]);
  $("about").replaceChildren(...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  say($("version"), "nicache " + sample.version);
}

function show(sample, point) {
  if (!charts) begin(sample.mode);
  before = shown && shown.pid === sample.pid && shown.uptime_ms < sample.uptime_ms ? shown : null;
  shown = sample;
  const seconds = before ? (sample.uptime_ms - before.uptime_ms) / 1000 : 0;
  say($("name"), sample.name);
  if (document.title !== sample.name + " – nicache") document.title = sample.name + " – nicache";
  say($("serves"), sample.serves);
  showState();
  showTiles(sample, point);
  for (const chart of charts) chart.update(points);
  showHottest(sample);
  showReasons(sample, seconds);
  showCards(sample, seconds);
  showAbout(sample);
}

function hear(event) {
  heard = Date.now();
  const told = JSON.parse(event.data);
  lost = told.error ? "The card does not answer: " + told.error : null;
  if (told.point && !(points.length && points[points.length - 1].unix_ms >= told.point.unix_ms)) {
    points.push(told.point);
    points = points.filter((point) => point.unix_ms > told.point.unix_ms - WINDOW_MS);
  }
  if (told.sample && !paused) show(told.sample, told.point); else showState();
}

async function connect() {
  try {
    const reply = await fetch("/api/history");
    if (!reply.ok) throw new Error(reply.statusText);
    points = await reply.json();
    heard = Date.now();
    stream = new EventSource("/api/events");
    stream.onmessage = hear;
    // It would come again by itself, but not after every kind of failure, and without what was missed.
    stream.onerror = () => lose();
  } catch {
    lose();
  }
}

function lose() {
  stream?.close();
  stream = null;
  lost = "Connection lost. What is shown is old; connecting again …";
  showState();
  setTimeout(connect, AGAIN_MS);
}

setInterval(() => {
  if (stream && Date.now() - heard > SILENCE_MS) lose();
}, 1000);

$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
});
connect();
