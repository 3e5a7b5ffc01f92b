// A graph that is panned, zoomed, searched and opened module by module.
import { select } from "d3-selection";
import "d3-transition";
import { zoom, zoomIdentity, zoomTransform } from "d3-zoom";
import { Colors, MEASURES } from "./colors.js";
import { describe } from "./detail.js";
import { layout } from "./layout.js";
import { button, dark, duration, make, onShow, steady } from "./page.js";
import { paint } from "./paint.js";
import { sheet } from "./sheet.js";
import { buildTree, isModule, openSome } from "./tree.js";

const OPEN = [80, 2000]; // boxes that are open first; if a single module has more, as many
const ZOOM = [0.02, 4], STEP = 60, READABLE = 0.7, FIRST = 0.85;
const HITS = 12;
const KEYS = "Graph. Arrow keys pan, plus and minus zoom, 0 fits, N and P select the next and previous operator, Enter opens or closes a module, slash searches.";

export class Graph {
  constructor(place, graph) {
    this.graph = graph;
    this.tree = buildTree(graph);
    this.colors = new Colors(graph);
    this.drawn = { boxes: [], edges: [] };
    this.selected = null;
    this.canvas = make("canvas", { tabindex: "0", role: "application", "aria-label": KEYS });
    this.context = this.canvas.getContext("2d");
    this.detail = make("div", { class: "detail", "aria-live": "polite", tabindex: "0", role: "region", "aria-label": `Selected operator of the ${graph.title}` });
    this.key = make("div", { class: "key" });
    this.hits = make("ul", { class: "hits", "aria-label": "Search results" });
    place.append(this.tools(), this.hits, make("div", { class: "bench" }, this.canvas, this.detail), this.key);
    openSome(this.tree, ...OPEN);
    this.describe();
    this.legend(); // in print also of a graph that was not shown on the screen
    this.addPointers();
    this.addKeys();
    onShow(() => this.start());
    dark.addEventListener("change", () => this.request());
  }

  // ------------------------------------------------------------------------------------------------------ drawing

  get boxes() { return this.drawn.boxes.length; }
  get edges() { return this.drawn.edges; }
  get view() { return zoomTransform(this.canvas); }

  lines = (item) => (isModule(item)
    ? [item.name, `${item.count} operators`]
    : [(item.label ? `${item.label}: ` : "") + this.graph.texts[item.node.o].replace(/^aten::|\.out$/g, ""), (item.node.s || [""])[0].split(" scale")[0]]);

  measure = (item) => {
    this.context.font = "13px system-ui, sans-serif";
    const width = Math.max(...this.lines(item).map((line) => this.context.measureText(line).width));
    return [Math.min(Math.max(width + 20, 70), 320), 44];
  };

  get scene() {
    const onCpu = (item) => !isModule(item) && this.graph.texts[item.node.p] === "cpu";
    return { ...this.drawn, selected: this.selected, colors: this.colors, lines: this.lines, onCpu };
  }

  sheet() { return sheet(this.graph, this.measure, this.scene); }

  request() {
    this.pending ??= requestAnimationFrame(() => { this.pending = undefined; paint(this.context, this.view, this.scene); });
  }

  arrange() { this.drawn = layout(this.tree, this.measure); this.request(); }

  // The graph is arranged when it is first in sight: before, the canvas has no size.
  start() {
    const scale = devicePixelRatio || 1, { width, height } = this.canvas.getBoundingClientRect();
    if (!width) return;
    Object.assign(this.canvas, { width: width * scale, height: height * scale });
    if (this.ready) this.request();
    else { this.ready = true; this.arrange(); this.fit(0); }
  }

  legend() {
    this.key.replaceChildren(...this.colors.legend().map(([name, color]) => {
      const entry = make("span", {}, name);
      entry.style.setProperty("--k", color);
      return entry;
    }));
    this.request();
  }

  // ----------------------------------------------------------------------------------------------- pan and zoom

  addPointers() {
    this.zoom = steady(zoom()).scaleExtent(ZOOM).clickDistance(5).on("zoom", () => this.request())
      // The page scrolls past a graph that nobody uses.
      .filter((event) => (event.type === "wheel" ? event.ctrlKey || document.activeElement === this.canvas : !event.ctrlKey && !event.button));
    select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("click", (e) => this.select(this.at(e)));
    this.canvas.addEventListener("dblclick", (e) => this.toggle(this.at(e)));
  }

  at({ offsetX, offsetY }) {
    const [x, y] = this.view.invert([offsetX, offsetY]);
    return this.drawn.boxes.findLast((b) => x >= b.ax && x <= b.ax + b.w2 && y >= b.ay && y <= b.ay + b.h2) || null;
  }

  // The canvas, whose transform changes at once or in a movement.
  moving(milliseconds) {
    const canvas = select(this.canvas);
    return milliseconds ? canvas.transition().duration(milliseconds) : canvas.interrupt();
  }

  pan(x, y) { this.moving(0).call(this.zoom.translateBy, x / this.view.k, y / this.view.k); }
  scale(factor) { this.moving(0).call(this.zoom.scaleBy, factor); }

  fit(milliseconds = duration()) {
    const { width, height } = this.canvas.getBoundingClientRect(), { w2, h2 } = this.tree.root;
    const whole = Math.min(width / (w2 + 20), height / (h2 + 20), 1.2);
    const k = Math.max(whole, Math.min(FIRST, width / (w2 + 20))); // readable: long graphs start at their top
    const view = zoomIdentity.translate((width - w2 * k) / 2, whole < k ? 4 : (height - h2 * k) / 2).scale(k);
    this.moving(milliseconds).call(this.zoom.transform, view);
  }

  center(item) {
    const { width, height } = this.canvas.getBoundingClientRect(), k = Math.max(this.view.k, READABLE);
    const view = zoomIdentity.translate(width / 2, height / 2).scale(k).translate(-item.ax - item.w2 / 2, -item.ay - item.h2 / 2);
    this.moving(0).call(this.zoom.transform, view);
  }

  // ---------------------------------------------------------------------------------------- selection and modules

  describe() {
    this.detail.replaceChildren(...describe(this.selected, this.graph));
    if (this.selected && isModule(this.selected)) { // on a phone, nobody expects a double click
      const open = this.selected.open ? "close" : "open";
      this.detail.append(make("p", { class: "tools" }, button(open, `${open} ${this.selected.path}`, () => this.toggle(this.selected))));
    }
  }

  select(item, center) {
    this.selected = item;
    this.describe();
    if (item && center) {
      let closed = false;
      for (let m = item.parent; m; m = m.parent) if (!m.open) { m.open = true; closed = true; }
      if (closed) this.arrange();
      this.center(item);
    }
    this.request();
  }

  toggle(item) {
    if (!item || !isModule(item)) return;
    item.open = !item.open;
    this.arrange();
    if (item === this.selected) this.describe();
  }

  openAll() { this.tree.modules.forEach((m) => { m.open = true; }); this.arrange(); this.fit(0); }

  closeAll() { this.tree.modules.forEach((m) => { m.open = m === this.tree.root; }); this.arrange(); this.fit(0); }

  step(by) {
    const items = this.drawn.boxes.filter((b) => !(isModule(b) && b.open)).sort((a, b) => a.first - b.first);
    const now = items.indexOf(this.selected);
    this.select(items[Math.min(Math.max(now + by, 0), items.length - 1)], true);
  }

  addKeys() {
    const actions = {
      ArrowLeft: () => this.pan(STEP, 0), ArrowRight: () => this.pan(-STEP, 0), ArrowUp: () => this.pan(0, STEP), ArrowDown: () => this.pan(0, -STEP),
      "+": () => this.scale(1.25), "=": () => this.scale(1.25), "-": () => this.scale(0.8), 0: () => this.fit(),
      n: () => this.step(1), p: () => this.step(-1), Enter: () => this.toggle(this.selected), "/": () => this.search.focus(), Escape: () => this.select(null),
    };
    this.canvas.addEventListener("keydown", (e) => {
      const action = actions[e.key];
      if (!action || e.ctrlKey || e.metaKey) return;
      e.preventDefault();
      action();
    });
  }

  // ------------------------------------------------------------------------------------------- search and tools

  tools() {
    this.search = make("input", { type: "search", placeholder: "name, operator, module, rule", "aria-label": "Search the graph" });
    this.search.addEventListener("input", () => this.find());
    this.search.addEventListener("keydown", (e) => { if (e.key === "Enter") this.hits.querySelector("button")?.click(); });
    const color = make("select", { "aria-label": "Color by" });
    for (const [key, m] of Object.entries(MEASURES)) {
      if (!m || this.graph.nodes.some((n) => n[m.key] !== undefined)) color.append(make("option", { value: key }, `color: ${m ? m.title : "where it runs"}`));
    }
    color.addEventListener("change", () => { this.colors.by = color.value; this.legend(); });
    return make("div", { class: "tools" }, this.search, color,
      button("+", "Zoom in", () => this.scale(1.25)), button("−", "Zoom out", () => this.scale(0.8)), button("fit", "Fit the graph", () => this.fit()),
      button("open all", "Open all modules", () => this.openAll()), button("close all", "Close all modules", () => this.closeAll()));
  }

  find() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.hits.replaceChildren();
    if (!words.length) return;
    const { texts } = this.graph, wanted = words.join(" ");
    const found = this.tree.ops.filter(({ node }) => {
      const text = [node.n, ...[node.o, node.m, node.p, ...(node.r || []), node.l].map((i) => texts[i] ?? "")].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    // conv2 is found before the conv2d of conv1
    const named = ({ node }) => [node.n, texts[node.m], texts[node.m].split(".").pop()].some((name) => name.toLowerCase() === wanted);
    const matches = [...found.filter(named), ...found.filter((op) => !named(op))];
    for (const op of matches.slice(0, HITS)) {
      const { node } = op;
      this.hits.append(make("li", {}, button(`${texts[node.m] || op.name}: ${texts[node.o]}`, `Go to ${op.name}`, () => this.select(op, true))));
    }
    this.hits.append(make("li", {}, matches.length > HITS ? `and ${matches.length - HITS} more` : matches.length ? "" : "nothing found"));
  }
}
