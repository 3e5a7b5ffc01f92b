// What all parts of the page use: elements, colors of the style sheet, numbers with units.
export const byId = (id) => document.getElementById(id);

export const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svgElement = (tag, attributes = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const fill = (element, attributes, children) => {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
};

export const button = (text, label, action) => {
  const element = make("button", { type: "button", "aria-label": label }, text);
  element.addEventListener("click", action);
  return element;
};

const units = (value, names, base) => {
  let power = 0;
  while (value >= base && power < names.length - 1) { value /= base; power += 1; }
  return `${value >= 100 || !power ? Math.round(value) : value.toPrecision(3)} ${names[power]}`;
};
export const bytes = (n) => units(n, ["B", "KiB", "MiB", "GiB"], 1024);
export const counted = (n) => units(n, ["", "K", "M", "G", "T"], 1000).trim();
const figure = (value) => (value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3));
const TIMES = [[1000, "s"], [1, "ms"], [1e-3, "µs"], [1e-6, "ns"]]; // milliseconds of a unit
const unitOf = (ms) => TIMES.find(([one]) => ms >= one) ?? TIMES[TIMES.length - 1];
export const time = (ms) => {
  if (!ms) return "0 s";
  const [one, unit] = unitOf(ms);
  return `${figure(ms / one)} ${unit}`;
};
// A time with as many digits as tell it from one that is `step` away; the unit is that of the largest.
export const timeTick = (ms, step, most) => {
  const [one, unit] = unitOf(most);
  return `${(ms / one).toFixed(Math.max(0, Math.ceil(-Math.log10(step / one) - 1e-9)))} ${unit}`;
};

export const dark = matchMedia("(prefers-color-scheme: dark)");
const still = matchMedia("(prefers-reduced-motion: reduce)");
export const duration = () => (still.matches ? 0 : 250); // milliseconds of a movement
// A zoom whose steps are small: d3 takes every wheel with Ctrl for a touchpad, and a mouse's notch for ten steps of one.
export const steady = (zoom) => {
  const delta = zoom.wheelDelta();
  return zoom.wheelDelta((event) => Math.max(-MOST, Math.min(delta(event), MOST)));
};
const MOST = 0.5; // powers of two
const styles = new Map(); // a lookup costs more than drawing a box: until the scheme changes, values are stored
dark.addEventListener("change", () => styles.clear());
export const css = (name) => {
  if (!styles.has(name)) styles.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return styles.get(name);
};

// Actions when another part of the page comes into sight, or its size changes.
const actions = [];
export const onShow = (action) => actions.push(action);
export const shownAgain = () => actions.forEach((action) => action());
addEventListener("resize", shownAgain);
