// Charts over time or over instructions, whose horizontal axis zooms. They are in the page as SVG, with positions in percent.
import { ticks } from "d3-array";
import { pointer, select } from "d3-selection";
import "d3-transition";
import { zoom, zoomIdentity, zoomTransform } from "d3-zoom";
import { button, bytes, duration, make, onShow, steady, svgElement, time, timeTick } from "./page.js";
import { addTips, showTips } from "./tips.js";

const LABEL = 30, TICK = { time: 110, instruction: 60 }; // pixels that a name, and a tick with its text, have at least
const STEP = 60, FINEST = 1e5;

class Strip {
  constructor(chart) {
    this.chart = chart;
    this.plot = chart.closest(".plot");
    this.total = Number(chart.dataset.total);
    this.isTime = chart.dataset.unit === "time";
    this.items = [...chart.querySelectorAll("[data-s]")].map((shape) => ({ shape, start: Number(shape.dataset.s), length: Number(shape.dataset.l), name: shape.dataset.n }));
    this.live = (chart.dataset.live || "").split(" ").filter(Boolean).map((pair) => pair.split(":").map(Number));
    chart.querySelectorAll(".cut.wide").forEach((label) => label.classList.remove("wide")); // that is known here
    this.height = Number(chart.getAttribute("height"));
    this.tickY = chart.querySelector(".tick").getAttribute("y");
    this.cursor = svgElement("line", { class: "cursor", y1: 0, y2: Number(this.tickY) - 12, visibility: "hidden" });
    chart.append(this.cursor);
    this.addPointers();
    if (this.zoom.scaleExtent()[1] > 1) this.addKeys();
    addTips(chart, (event) => this.about(event));
    onShow(() => this.fit());
    addEventListener("beforeprint", () => { if (this.width) this.draw(zoomIdentity); }); // one never in sight is as Python drew it
    addEventListener("afterprint", () => { if (this.width) this.draw(); });
  }

  get view() { return zoomTransform(this.chart); }

  // ------------------------------------------------------------------------------------------------------ drawing

  // Positions at the current width; another width begins with everything in sight.
  fit() {
    const { width } = this.chart.getBoundingClientRect();
    if (!width || width === this.width) return;
    this.width = width;
    this.zoom.extent([[0, 0], [width, this.height]]).translateExtent([[0, -Infinity], [width, Infinity]]);
    select(this.chart).call(this.zoom.transform, zoomIdentity);
  }

  draw({ k, x } = this.view) {
    const offset = x / (this.width || 1), percent = (value) => 100 * ((value / this.total) * k + offset);
    for (const { shape, start, length, name } of this.items) {
      const left = Math.max(percent(start), 0), right = Math.min(percent(start + length), 100);
      shape.style.display = right <= 0 || left >= 100 ? "none" : "";
      shape.setAttribute("x", `${left}%`);
      shape.setAttribute("width", `${Math.max(right - left, 0.05)}%`);
      if (name !== undefined) this.label(shape, name, ((right - left) * this.width) / 100 > LABEL);
    }
    this.drawTicks((-offset * this.total) / k, this.total / k);
    this.plot.classList.toggle("zoomed", k > 1);
  }

  label(shape, name, fits) {
    const text = shape.querySelector("text");
    if (!fits) text?.remove();
    else if (!text) shape.append(svgElement("text", { x: 4, y: shape.dataset.y }, name));
  }

  drawTicks(start, length) {
    this.chart.querySelectorAll(".tick").forEach((tick) => tick.remove());
    const half = this.isTime ? 0 : 0.5; // an instruction has a column
    const values = ticks(start, start + length, Math.max(Math.floor((this.width || 1) / TICK[this.chart.dataset.unit]), 2))
      .filter((value) => (this.isTime || Number.isInteger(value)) && value + half >= start && value + half <= Math.min(start + length, this.total));
    const step = values.length > 1 ? values[1] - values[0] : length;
    for (const value of values) {
      const part = (value + half - start) / length, anchor = part < 0.05 ? "start" : part > 0.95 ? "end" : "middle";
      const text = this.isTime ? timeTick(value / 1e3, step / 1e3, (start + length) / 1e3) : `#${value}`;
      this.chart.append(svgElement("text", { class: "tick", x: `${100 * part}%`, y: this.tickY, "text-anchor": anchor }, text));
    }
  }

  // --------------------------------------------------------------------------------------------------- pan and zoom

  addPointers() {
    this.zoom = steady(zoom()).scaleExtent([1, this.isTime ? FINEST : Math.max(this.total / 4, 1)]).clickDistance(5).on("zoom", () => this.draw());
    // The page scrolls past a chart that nobody uses, also under a finger.
    this.zoom.filter((event) => {
      if (event.type === "wheel") return event.ctrlKey || document.activeElement === this.plot;
      return !event.ctrlKey && !event.button && (this.view.k > 1 || event.touches?.length > 1);
    });
    select(this.chart).call(this.zoom).on("dblclick.zoom", null);
    this.chart.addEventListener("click", (event) => this.focus(this.items.find(({ shape }) => shape.contains(event.target))));
    this.chart.addEventListener("pointerleave", () => this.cursor.setAttribute("visibility", "hidden"));
  }

  // Zooms to a rectangle, and again to everything.
  focus(item) {
    const again = !item || this.focused === item;
    this.focused = again ? null : item;
    const k = again ? 1 : Math.min(this.total / Math.max(item.length, 1e-3), this.zoom.scaleExtent()[1]);
    const middle = again ? 0 : (item.start + item.length / 2) / this.total;
    this.move(again ? zoomIdentity : zoomIdentity.translate(this.width * (0.5 - middle * k), 0).scale(k));
  }

  move(view) {
    const chart = select(this.chart), milliseconds = duration();
    (milliseconds ? chart.transition().duration(milliseconds) : chart.interrupt()).call(this.zoom.transform, view);
  }

  addKeys() {
    const chart = select(this.chart), title = this.chart.getAttribute("aria-label");
    const scale = (factor) => chart.interrupt().call(this.zoom.scaleBy, factor);
    const pan = (by) => chart.interrupt().call(this.zoom.translateBy, by / this.view.k, 0);
    const all = () => this.focus(null);
    const actions = { "+": () => scale(1.5), "=": () => scale(1.5), "-": () => scale(1 / 1.5), 0: all, Escape: all, ArrowLeft: () => pan(STEP), ArrowRight: () => pan(-STEP) };
    this.plot.classList.add("zooms");
    this.plot.setAttribute("tabindex", "0");
    this.plot.setAttribute("role", "group");
    this.plot.setAttribute("aria-label", `${title}. Plus and minus zoom, arrow keys pan, 0 shows everything.`);
    this.plot.addEventListener("keydown", (event) => {
      const action = actions[event.key];
      if (!action || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      action();
    });
    this.plot.after(make("div", { class: "tools" }, button("+", `Zoom into ${title}`, () => scale(1.5)),
      button("−", `Zoom out of ${title}`, () => scale(1 / 1.5)), button("all", `Show all of ${title}`, all)));
  }

  // ----------------------------------------------------------------------------------------------------- the cursor

  about(event) {
    const [at] = pointer(event, this.chart), value = (this.view.invertX(at) / this.width) * this.total;
    if (!(value >= 0 && value <= this.total)) return [];
    this.cursor.setAttribute("x1", at);
    this.cursor.setAttribute("x2", at);
    this.cursor.setAttribute("visibility", "visible");
    if (this.isTime) return [`at ${time(value / 1e3)}`];
    const instruction = Math.min(Math.floor(value), this.total - 1);
    const live = this.live.findLast(([first]) => first <= instruction);
    return [`instruction #${instruction}${live ? `: ${bytes(live[1])} live` : ""}`];
  }
}

export const addCharts = () => {
  showTips();
  document.querySelectorAll(".chart").forEach((chart) => {
    if (chart.dataset.total) chart.strip = new Strip(chart);
    else addTips(chart);
  });
};
