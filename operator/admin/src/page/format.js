// Numbers for people, and elements whose content is only ever text.
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

function element(name, attributes = {}, ...content) {
  const it = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
  it.append(...content);
  return it;
}

function drawn(name, attributes = {}, ...content) {
  const it = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
  it.append(...content);
  return it;
}

/** Sets a text only if it differs, so a page that stands still is not read again. */
function say(it, text) {
  if (it.textContent !== text) it.textContent = text;
}

function scaled(value, units, step) {
  let unit = 0;
  while (value >= step * 0.99995 && unit < units.length - 1) {
    value /= step;
    unit++;
  }
  const digits = value >= 100 || value === 0 || (unit === 0 && Number.isInteger(value)) ? 0 : value >= 10 ? 1 : 2;
  return [value.toFixed(digits), units[unit]];
}

const count = (value) => String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
const rate = (value) => (value >= 100000 ? scaled(value, ["", "k", "M", "G"], 1000).join("\u202f") :
  value > 0 && value < 9.95 ? value.toFixed(1) : count(value));
const bytes = (value) => scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"], 1000).join("\u202f");
const whole = (value, units) => {
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value * 1.0001) / 3));
  const unit = units[power];
  return Number((value / 1000 ** power).toPrecision(3)) + (unit && "\u202f" + unit);
};
const percent = (share) => (share === null || share === undefined ? "–" : (share * 100).toFixed(1) + "\u202f%");

function span(milliseconds) {
  const seconds = Math.floor(milliseconds / 1000);
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  let rest = seconds;
  const said = [];
  for (const [length, unit] of parts) {
    const times = Math.floor(rest / length);
    rest -= times * length;
    if (times > 0 && said.length < 2) said.push(times + "\u202f" + unit);
  }
  return said.join(" ") || "0\u202fs";
}
