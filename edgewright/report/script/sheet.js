// The graph for print: as SVG, in columns as in a newspaper, since paper does not scroll. Colors are variables, since paper is
// white whatever the screen is.
import { GAP_Y, layout } from "./layout.js";
import { make, svgElement } from "./page.js";
import { drawLine } from "./routes.js";
import { buildTree, isModule, openSome } from "./tree.js";

const PRINTED = 60, PAPER = [700, 500]; // boxes; pixels of a page, with a heading

const textAt = (text, x, y, most, style) => { // shortened: a printed text does not shrink as a canvas's does
  const fits = Math.floor(most / (style === "small" ? 5.4 : 6.6));
  return svgElement("text", { x, y, class: style }, text.length > fits ? `${text.slice(0, fits - 1)}…` : text);
};

// What a canvas draws, as the path of an SVG.
class Pen {
  d = "";
  add(command, points) { this.d += command + points.map(Math.round); }
  moveTo(...points) { this.add("M", points); }
  lineTo(...points) { this.add("L", points); }
  bezierCurveTo(...points) { this.add("C", points); }
}

export const sheet = (graph, measure, scene) => {
  const paper = buildTree(graph);
  openSome(paper, PRINTED, 2 * PRINTED);
  const { boxes, edges } = layout(paper, measure);
  const solid = boxes.filter((b) => !(isModule(b) && b.open));
  const body = drawing(boxes.filter((b) => isModule(b) && b.open), edges, solid, scene);
  const wide = paper.root.w2 + 40, scale = Math.min(0.62, PAPER[0] / wide);
  const columns = cut(solid, paper.root.h2, PAPER[1] / scale).map(([top, end]) =>
    svgElement("svg", { viewBox: `0 ${top} ${wide} ${end - top}`, width: wide * scale, height: (end - top) * scale }, body.cloneNode(true)));
  return make("div", { class: "sheet", role: "img", "aria-label": `Graph of the ${graph.title}` }, ...columns);
};

const drawing = (frames, edges, solid, scene) => {
  const body = svgElement("g"), pen = new Pen();
  for (const b of frames) body.append(svgElement("rect", { x: b.ax, y: b.ay, width: b.w2, height: b.h2, class: "frame" }), textAt(b.name, b.ax + 8, b.ay + 16, b.w2 - 12, "bold"));
  edges.forEach(([, , points]) => drawLine(pen, points));
  body.append(svgElement("path", { d: pen.d, class: "wire" }));
  for (const b of solid) {
    const [back, alpha, front] = scene.colors.of(b, (name) => `var(${name})`), [first, second] = scene.lines(b);
    const box = svgElement("rect", { x: b.ax, y: b.ay, width: b.w2, height: b.h2, rx: isModule(b) ? 3 : 9, class: scene.onCpu(b) ? "box oncpu" : "box" });
    box.style.fill = back;
    box.style.fillOpacity = alpha;
    const title = textAt(first, b.ax + 10, b.ay + (second ? 18 : 26), b.w2 - 16, isModule(b) ? "bold" : ""), type = textAt(second, b.ax + 10, b.ay + 34, b.w2 - 16, "small");
    title.style.fill = type.style.fill = front;
    body.append(box, title, type);
  }
  return body;
};

// Ranges of at most `most` pixels, between which no box is cut.
const cut = (solid, height, most) => {
  const rows = solid.map((b) => [b.ay, b.ay + b.h2]).sort((a, b) => a[0] - b[0]), ranges = [];
  for (let top = 0; top < height;) {
    let end = Math.min(top + most, height);
    if (end < height) {
      const above = Math.min(end, ...rows.filter(([from, to]) => from < end && to > end).map(([from]) => from - GAP_Y / 2));
      if (above > top) end = above;
    }
    ranges.push([top, end]);
    top = end;
  }
  return ranges;
};
