// Colors of boxes: by placement, or by a figure from the least to the most.
import { interpolateRgb, piecewise } from "d3-interpolate";
import { bytes, counted, time } from "./page.js";
import { isModule } from "./tree.js";

const CIVIDIS = piecewise(interpolateRgb, ["#00224e", "#424e6c", "#7d7c78", "#bbaf71", "#ffea46"]); // safe for color-blind readers
export const EXACT = 200; // decibels from which a result counts as exact: they would leave no colors for errors

export const MEASURES = {
  placement: null,
  time: { key: "t", text: time, title: "time on this machine" },
  macs: { key: "c", text: counted, title: "multiply-accumulates" },
  weights: { key: "w", text: bytes, title: "bytes of weights" },
  cycles: { key: "y", text: (v) => `${counted(v)} cycles`, title: "cycles on the device, estimated" },
  error: { key: "e", text: (v) => `${v.toFixed(1)} dB`, title: "error introduced (SQNR; less is worse)", inverse: true },
};
const exact = (m, value) => m.inverse && value >= EXACT;

const hues = new Map(); // a backend has one color in all graphs of a page
const hueOf = (name) => {
  if (name === "cpu") return "--c4";
  if (!hues.has(name)) hues.set(name, ["--c0", "--c1", "--c2", "--c3"][hues.size % 4]);
  return hues.get(name);
};

export class Colors {
  constructor(graph) {
    this.graph = graph;
    this.places = [...new Set(graph.nodes.map((n) => n.p))];
    this.hues = new Map(this.places.map((p) => [p, hueOf(graph.texts[p])]));
    this.ranges = new Map();
    this.by = "placement";
  }

  range(m) {
    if (!this.ranges.has(m.key)) {
      let low = Infinity, high = -Infinity;
      for (const { [m.key]: v } of this.graph.nodes) if (v !== undefined && !exact(m, v)) { low = Math.min(low, v); high = Math.max(high, v); }
      this.ranges.set(m.key, low <= high ? [low, high] : [0, 0]);
    }
    return this.ranges.get(m.key);
  }

  // Background, its opacity and the color of text; `css` gives the value of a variable of the style sheet.
  of(item, css) {
    const m = MEASURES[this.by], data = isModule(item) ? item : item.node;
    if (!m) {
      const place = isModule(item) ? [...item.places].sort((a, b) => b[1] - a[1])[0][0] : item.node.p;
      return [css(this.hues.get(place)), 0.5, css("--text")];
    }
    const value = data[m.key];
    if (value === undefined) return [css("--panel"), 1, css("--text")];
    const [low, high] = this.range(m);
    let part = exact(m, value) || high === low ? 1 : Math.min(Math.max((value - low) / (high - low), 0), 1);
    if (m.inverse) part = 1 - part;
    const shade = CIVIDIS(Math.sqrt(part)), [r, g, b] = shade.match(/\d+/g).map(Number);
    return [shade, 1, 0.2126 * r + 0.7152 * g + 0.0722 * b > 125 ? "#111" : "#fff"];
  }

  // Text and color of each entry of the legend.
  legend() {
    const m = MEASURES[this.by], { texts } = this.graph;
    if (!m) return this.places.map((p) => [texts[p] + (texts[p] === "cpu" ? " (dashed)" : ""), `color-mix(in srgb, var(${this.hues.get(p)}) 50%, var(--bg))`]);
    const [low, high] = this.range(m);
    const steps = [0, 0.5, 1].map((part) => [m.text(low + (high - low) * (m.inverse ? 1 - part * part : part * part)), CIVIDIS(part)]);
    return [...steps, ["none, or not known", "var(--panel)"]];
  }
}
