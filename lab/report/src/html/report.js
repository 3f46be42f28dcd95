"use strict";
(() => {
  const doc = document, root = doc.documentElement, svgNs = "http://www.w3.org/2000/svg";
  const make = (name, props, ...children) => {
    const it = Object.assign(doc.createElement(name), props);
    it.append(...children);
    return it;
  };

  // Numbers are written by the rules of unit.rs.
  const PARTS = {
    bytes: [[1, " B"], [1024, " KB"], [1048576, " MB"], [1073741824, " GB"], [1099511627776, " TB"], [1125899906842624, " PB"]],
    seconds: [[1e-9, " ns"], [1e-6, " µs"], [1e-3, " ms"], [1, " s"]],
  };
  const rounded = (size, decimals) => { const power = 10 ** decimals; return Math.round(size * power) / power; };
  const plain = (size, decimals) => {
    if (size >= 1e15 || (size > 0 && size < 1e-6)) return size.toExponential(2).replace("e+", "e");
    const [whole, rest] = rounded(size, decimals).toFixed(decimals).split(".");
    return whole.replace(/\B(?=(\d{3})+$)/g, " ") + (rest ? "." + rest : "");
  };
  const decimals = (size, digits) =>
    Math.min(12, Math.max(0, digits - 1 - (size > 0 ? Math.floor(Math.log10(size)) : 0)));
  const significant = (size, digits) => {
    const text = plain(size, decimals(size, digits));
    return text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
  };
  const inParts = (size, parts, next) => {
    if (size === 0) return "0" + (parts[0][0] === 1 ? parts[0] : parts[parts.length - 1])[1];
    let at = Math.max(0, parts.findLastIndex((part) => part[0] <= size));
    const count = size / parts[at][0];
    if (at + 1 < parts.length && rounded(count, decimals(count, 3)) >= next) at++;
    return significant(size / parts[at][0], 3) + parts[at][1];
  };
  const percentDecimals = (size) => {
    const rest = size < 50 ? size : 100 - size;
    return rest <= 0 || rest >= 0.1 ? 1 : Math.min(5, decimals(rest, 2));
  };
  const format = (value, unit) => {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value), sign = value < 0 ? "−" : "";
    if (unit === "bytes") return sign + inParts(size, PARTS.bytes, 1024);
    if (unit === "seconds") return sign + inParts(size, PARTS.seconds, 1000);
    if (unit === "percent") return sign + plain(size, percentDecimals(size)) + " %";
    if (unit === "count" && (size % 1 === 0 || size >= 1000)) return sign + plain(size, 0);
    return sign + significant(size, 4);
  };

  // Where a value is drawn; axis is {s: scale, a: min, b: max, f: from, t: to} in the drawing's own pixels.
  const along = (axis, value) => (axis.s === "linear" ? value : Math.log(value));
  const place = (axis, value) =>
    axis.f + ((along(axis, value) - along(axis, axis.a)) / (along(axis, axis.b) - along(axis, axis.a))) * (axis.t - axis.f);

  const themeButton = doc.querySelector(".theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const showTheme = () => themeButton.setAttribute("aria-pressed", String(isDark()));
  themeButton.hidden = false;
  themeButton.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; showTheme(); });
  dark.addEventListener("change", showTheme);
  showTheme();

  for (const figure of doc.querySelectorAll("figure")) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot"), series = data.series;
    const off = new Set();
    const tip = make("div", { className: "tip", hidden: true });
    const live = make("p", { className: "hide" });
    live.setAttribute("aria-live", "polite");
    live.setAttribute("role", "status");
    plot.append(tip);
    plot.after(live);
    plot.tabIndex = 0;
    plot.setAttribute("role", "application");
    plot.setAttribute("aria-roledescription", "plot");
    plot.setAttribute("aria-label", data.title + ". Left and right arrow keys read the values; the table below has all of them.");

    const swatches = [...figure.querySelectorAll(".legend svg")];
    let xs = [], at = -1;
    const collect = () => {
      const all = series.flatMap((one, index) => (off.has(index) ? [] : one.points.map((point) => point[0])));
      xs = [...new Set(all)].sort((a, b) => a - b);
    };
    collect();

    // A line between two points has values, too; they are marked as such.
    const valueAt = (one, x) => {
      const points = one.points;
      let low = 0, high = points.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (points[middle][0] < x) low = middle + 1; else high = middle;
      }
      if (low < points.length && points[low][0] === x) return { point: points[low], y: points[low][1] };
      const before = points[low - 1], after = points[low];
      if (!before || !after || one.style === "points" || one.style === "bars") return null;
      if (before[1] === null || after[1] === null) return null;
      if (one.style === "steps") return { y: before[1] };
      const view = drawing();
      const share = (place(view.x, x) - place(view.x, before[0])) / (place(view.x, after[0]) - place(view.x, before[0]));
      const pixel = place(view.y, before[1]) + share * (place(view.y, after[1]) - place(view.y, before[1]));
      const along01 = (pixel - view.y.f) / (view.y.t - view.y.f);
      const value = along(view.y, view.y.a) + along01 * (along(view.y, view.y.b) - along(view.y, view.y.a));
      return { y: view.y.s === "linear" ? value : Math.exp(value), about: true };
    };

    const views = [...plot.querySelectorAll(":scope > svg")].map((svg) => ({ svg, ...JSON.parse(svg.dataset.axes) }));
    const drawing = () => views.find((view) => view.svg.getBoundingClientRect().width > 0) || views[0];
    const nameOf = (x) => (data.names.length ? data.names[Math.round(x)] || "" : format(x, data.xUnit));

    const clear = () => {
      at = -1;
      tip.hidden = true;
      for (const view of views) view.cursor?.remove();
    };
    const show = (index, speak) => {
      if (!xs.length) return clear();
      at = Math.min(xs.length - 1, Math.max(0, index));
      const x = xs[at], view = drawing();
      for (const other of views) other.cursor?.remove();
      const cursor = (view.cursor = doc.createElementNS(svgNs, "g"));
      const draw = (name, attributes) => {
        const it = doc.createElementNS(svgNs, name);
        for (const key in attributes) it.setAttribute(key, attributes[key]);
        cursor.append(it);
      };
      const left = place(view.x, x);
      cursor.setAttribute("class", "cursor");
      draw("path", { d: `M${left} ${view.y.t}V${view.y.f}`, stroke: "var(--axis)", "stroke-width": 1 });
      const lines = [], words = [];
      series.forEach((one, number) => {
        const value = off.has(number) ? null : valueAt(one, x);
        if (!value || value.y === null) return;
        const spread = value.point && value.point.length > 2
          ? ` (${format(value.point[2] ?? value.y, data.yUnit)} to ${format(value.point[3] ?? value.y, data.yUnit)})` : "";
        const text = (value.about ? "≈ " : "") + format(value.y, data.yUnit) + spread;
        const height = place(view.y, value.y);
        if (height >= view.y.t - 1 && height <= view.y.f + 1 && one.style !== "bars")
          draw("circle", { cx: left, cy: height, r: 4.5, fill: `var(--${one.colour})`, stroke: "var(--bg)", "stroke-width": 1.5 });
        let dot = swatches[number]?.cloneNode(true);
        if (!dot) (dot = make("i")).style.background = `var(--${one.colour})`;
        lines.push([value.y, make("div", {}, dot, make("span", { textContent: one.name }), make("em", { textContent: text }))]);
        words.push(`${one.name} ${text}`);
      });
      view.svg.append(cursor);
      lines.sort((a, b) => b[0] - a[0]);
      tip.replaceChildren(make("b", { textContent: nameOf(x) }), ...lines.map((line) => line[1]));
      tip.hidden = false;
      const scale = view.svg.getBoundingClientRect().width / view.svg.viewBox.baseVal.width;
      const room = plot.clientWidth, wide = tip.offsetWidth, middle = left * scale;
      // In a narrow window it stands below the plot, which it would hide.
      const below = room < 480, right = middle + 14 + wide <= room;
      tip.classList.toggle("below", below);
      tip.style.left = below ? "0" : Math.max(0, right ? middle + 14 : middle - 14 - wide) + "px";
      tip.style.top = (below ? plot.clientHeight : view.y.t * scale + 4) + "px";
      if (speak) live.textContent = `${data.x ? data.x + " " : ""}${nameOf(x)}: ${words.join(", ") || "no values"}`;
    };

    plot.addEventListener("keydown", (event) => {
      const far = event.shiftKey ? 10 : 1, now = at < 0 ? -1 : at;
      const target = { ArrowRight: now + far, ArrowLeft: at < 0 ? xs.length - 1 : now - far, Home: 0, End: xs.length - 1 }[event.key];
      if (event.key === "Escape") return clear();
      if (target === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      show(target, true);
    });
    plot.addEventListener("blur", clear);
    const follow = (event) => {
      const view = drawing(), box = view.svg.getBoundingClientRect();
      const pixel = ((event.clientX - box.left) / box.width) * view.svg.viewBox.baseVal.width;
      let best = -1, distance = Infinity;
      xs.forEach((x, index) => {
        const far = Math.abs(place(view.x, x) - pixel);
        if (far < distance) [best, distance] = [index, far];
      });
      show(best, false);
    };
    plot.addEventListener("pointermove", follow);
    plot.addEventListener("pointerdown", follow);
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && doc.activeElement !== plot) clear(); });

    for (const item of figure.querySelectorAll(".legend li")) {
      const index = Number(item.dataset.series);
      const button = make("button", { type: "button" }, ...item.firstElementChild.childNodes);
      button.setAttribute("aria-pressed", "true");
      item.replaceChildren(button);
      button.addEventListener("click", () => {
        if (!off.delete(index)) off.add(index);
        button.setAttribute("aria-pressed", String(!off.has(index)));
        for (const part of plot.querySelectorAll(`g[data-series="${index}"]`)) part.classList.toggle("off", off.has(index));
        collect();
        clear();
      });
    }

    const scale = figure.querySelector(".scale");
    if (scale) {
      scale.hidden = false;
      const buttons = [...scale.querySelectorAll("button")];
      for (const button of buttons) {
        button.addEventListener("click", () => {
          plot.classList.toggle("islinear", button.value === "linear");
          for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
          clear();
        });
      }
    }
    addEventListener("resize", clear);
  }
})();
