// What the page says about a selected box.
import { EXACT } from "./colors.js";
import { bytes, counted, make, svgElement, time } from "./page.js";
import { isModule } from "./tree.js";

const HINT = "Select an operator to see its shapes, quantization, source and rules. Double-click or Enter opens and closes a module.";

const bars = ([title, low, high, counts, values, sampled]) => {
  const most = Math.max(...counts, 1), wide = 240 / counts.length;
  const rects = counts.map((count, i) => svgElement("rect", { x: i * wide, y: 70 - (68 * count) / most, width: wide - 1, height: (68 * count) / most }));
  const svg = svgElement("svg", { viewBox: "0 0 240 70", preserveAspectRatio: "none", role: "img", "aria-label": `Histogram of ${title}` }, ...rects);
  const part = sampled < values ? `, ${sampled.toLocaleString("en")} of ${values.toLocaleString("en")} sampled` : "";
  return make("dd", {}, svg, `${low.toPrecision(4)} to ${high.toPrecision(4)}${part}`);
};

const ofModule = (item, { texts }) => [
  ["operators", String(item.count)],
  ["runs on", [...item.places].map(([p, n]) => `${texts[p]}: ${n}`).join(", ")],
  ["MACs", item.c && counted(item.c)],
  ["weights", item.w && bytes(item.w)],
  ["time of its products here", item.t && time(item.t)],
  ["cycles on the device, estimated", item.y && counted(item.y)],
];

const ofOperator = ({ node }, { texts }) => [
  ["name", node.n],
  ["module", texts[node.m]],
  ["runs on", texts[node.p]],
  ...(node.s || []).map((s) => ["result", s]),
  ...(node.q || []).map((q) => ["quantization", q]),
  ["source", node.l === undefined ? "" : texts[node.l]],
  ...(node.r || []).map((r) => ["not delegated", texts[r]]),
  ["MACs", node.c && node.c.toLocaleString("en")],
  ["result bytes", node.b && bytes(node.b)],
  ["weights", node.w && bytes(node.w)],
  ["time here", node.t && time(node.t)],
  ["error it introduces", node.e !== undefined ? (node.e >= EXACT ? "none" : `${node.e.toFixed(1)} dB SQNR`) : ""],
  ["cycles", node.y && node.y.toLocaleString("en")],
];

export const describe = (item, graph) => {
  if (!item) return [make("p", {}, HINT)];
  const list = make("dl");
  for (const [name, value] of isModule(item) ? ofModule(item, graph) : ofOperator(item, graph)) {
    if (value !== undefined && value !== "") list.append(make("dt", {}, name), make("dd", {}, value));
  }
  if (!isModule(item)) (item.node.h || []).forEach((h) => list.append(make("dt", {}, h[0]), bars(h)));
  return [make("h4", {}, isModule(item) ? item.path : graph.texts[item.node.o]), list];
};
