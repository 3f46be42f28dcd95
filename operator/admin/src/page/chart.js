// Curves and stacked areas over the last few minutes.
const WINDOW_MS = 300000, WINDOW_MS_MIN = 60000, HEIGHT = 200, LEFT = 58, RIGHT = 8, TOP = 8, BOTTOM = 20;
// Points further apart are not joined.
const GAP_MS = 2600;

/** The least of 1, 2, 2.5, 5 times a power of ten that is not below. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].find((step) => step * power >= value * 0.9999) * power;
}

class Chart {
  /** series: [{name, get(point), color}]; show: value as text; tick: the same at the axis; most: a fixed top, or null. */
  constructor(figure, series, { stacked, show, tick, most }) {
    Object.assign(this, { figure, series, stacked, show, tick, most, points: [], at: null });
    const title = figure.querySelector("h2").textContent;
    this.legend = element("ul", { class: "legend" });
    this.svg = drawn("svg", { "aria-hidden": "true" });
    this.tip = element("div", { class: "tip" });
    this.tip.hidden = true;
    this.live = element("div", { class: "hidden", "aria-live": "polite" });
    this.plot = element("div", { class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart",
      "aria-label": title + " over the last minutes; arrow keys read values" }, this.svg, this.tip);
    figure.append(this.legend, this.plot, this.live);
    this.values = series.map((one) => {
      const value = element("b");
      if (series.length > 1) {
        this.legend.append(element("li", {}, this.swatch(one.color), element("span", {}, one.name), value));
      }
      return value;
    });
    new ResizeObserver(() => this.draw()).observe(this.plot);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerdown", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.choose(null));
    this.plot.addEventListener("blur", () => this.choose(null));
    this.plot.addEventListener("keydown", (event) => this.press(event));
  }

  swatch(color) {
    return drawn("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" },
      drawn("rect", { class: "s" + color, x: 1, y: 1, width: 12, height: 12, rx: 2 }));
  }

  update(points) {
    this.points = points;
    const last = points[points.length - 1];
    this.series.forEach((one, index) => say(this.values[index], last ? this.show(one.get(last)) : ""));
    this.draw();
  }

  point(event) {
    if (!this.points.length) return;
    const box = this.plot.getBoundingClientRect();
    const time = this.time(event.clientX - box.left);
    let best = 0;
    this.points.forEach((point, index) => {
      if (Math.abs(point.unix_ms - time) < Math.abs(this.points[best].unix_ms - time)) best = index;
    });
    this.choose(this.points[best].unix_ms);
  }

  press(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return this.choose(null);
    if (!(event.key in steps) || !this.points.length) return;
    event.preventDefault();
    const from = this.at === null ? this.points.length : this.points.findIndex((point) => point.unix_ms >= this.at);
    const to = Math.max(0, Math.min(this.points.length - 1, from + steps[event.key]));
    this.choose(this.points[to].unix_ms);
    const point = this.points[to];
    say(this.live, this.clock(point.unix_ms) + ": " +
      this.series.map((one) => one.name + " " + this.show(one.get(point))).join(", "));
  }

  clock(time) {
    return new Date(time).toLocaleTimeString();
  }

  choose(at) {
    this.at = at;
    this.draw();
  }

  time(x) {
    return this.end - this.span * (1 - (x - LEFT) / (this.width - LEFT - RIGHT));
  }

  draw() {
    this.width = this.plot.clientWidth;
    if (!this.width) return;
    const { points, series, width } = this;
    this.end = points.length ? points[points.length - 1].unix_ms : Date.now();
    this.span = Math.max(WINDOW_MS_MIN, Math.min(WINDOW_MS, this.end - (points[0]?.unix_ms ?? this.end)));
    const x = (time) => LEFT + (width - LEFT - RIGHT) * (1 - (this.end - time) / this.span);
    const sums = points.map((point) => {
      let sum = 0;
      return series.map((one) => {
        const value = one.get(point) ?? null;
        if (!this.stacked) return [0, value];
        sum += value ?? 0;
        return [sum - (value ?? 0), sum];
      });
    });
    const highest = this.most ?? Math.max(...sums.flat().map(([, top]) => top ?? 0), 0);
    const step = nice(Math.max(highest, 1e-9) / 4), top = this.most ?? Math.max(step * Math.ceil(highest / step), step);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const parts = [];
    for (let value = 0; value <= top * 1.0001; value += this.most ? top / 4 : step) {
      parts.push(drawn("path", { class: "grid", d: `M${LEFT} ${y(value).toFixed(1)}H${width - RIGHT}` }));
      if (highest > 0 || value === 0) {
        parts.push(drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, this.tick(value)));
      }
    }
    const lengths = [15000, 30000, 60000, 120000];
    const length = lengths.find((one) => this.span / one <= (width < 480 ? 3.2 : 5.2)) ?? lengths[3];
    // Behind the first label, and not under the last.
    for (let age = length; x(this.end - age) > LEFT + 14; age += length) {
      const text = length < 60000 ? `−${age / 1000} s` : `−${age / 60000} min`;
      parts.push(drawn("text", { x: x(this.end - age), y: HEIGHT - 4, "text-anchor": "middle" }, text));
    }
    parts.push(drawn("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, "now"));
    series.forEach((one, index) => {
      for (const run of this.runs(sums, index)) {
        const line = run.map((at) => `${x(points[at].unix_ms).toFixed(1)} ${y(Math.min(sums[at][index][1], top)).toFixed(1)}`);
        if (this.stacked) {
          const back = run.map((at) => `${x(points[at].unix_ms).toFixed(1)} ${y(sums[at][index][0]).toFixed(1)}`).reverse();
          parts.push(drawn("path", { class: "area s" + one.color, d: "M" + [...line, ...back].join("L") + "Z" }));
        } else {
          parts.push(drawn("path", { class: "line s" + one.color, d: "M" + line.join("L") }));
        }
      }
    });
    const chosen = this.at === null ? undefined : points.find((point) => point.unix_ms >= this.at);
    if (chosen) parts.push(drawn("path", { class: "cursor", d: `M${x(chosen.unix_ms).toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}` }));
    this.svg.replaceChildren(...parts);
    this.tell(chosen, chosen && x(chosen.unix_ms));
  }

  /** Indices of points that are joined. */
  runs(sums, index) {
    const runs = [];
    this.points.forEach((point, at) => {
      if (sums[at][index][1] === null) return;
      const last = runs[runs.length - 1];
      const before = last && last[last.length - 1];
      const joined = last && point.unix_ms - this.points[before].unix_ms < GAP_MS && sums[at - 1][index][1] !== null;
      if (joined) last.push(at); else runs.push([at]);
    });
    return runs.filter((run) => run.length > 1);
  }

  tell(point, x) {
    this.tip.hidden = !point;
    if (!point) return;
    const lines = this.series.map((one) => element("div", {}, this.swatch(one.color), one.name,
      element("b", {}, this.show(one.get(point))))).reverse();
    this.tip.replaceChildren(element("div", {}, this.clock(point.unix_ms)), ...lines);
    const wide = this.tip.offsetWidth;
    const left = x + 12 + wide <= this.width ? x + 12 : Math.max(0, x - 12 - wide);
    this.tip.style.transform = `translate(${left.toFixed(0)}px, 6px)`;
  }
}
