// The layout of a graph: each open module by itself, from the inside out. Edges enter and leave an open module through ports
// in its frame, so that they go around what is in it.
import { byBarycenter, byDagre, GAP_Y, ranksOf } from "./layered.js";
import { crossings } from "./routes.js";
import { isModule, shown } from "./tree.js";

const PAD = 20, TITLE = 22, NARROWEST = 90, PORT = [1, 0];
// dagre's time grows with the boxes of a module and the rows that its edges pass. These are limits within which nobody
// notices it: of one module, and of all modules of a drawing (`total`). Its layout may be so much wider than the fast one,
// or `wide` pixels in any case.
const LIMITS = { boxes: 120, length: 250, total: 300, wider: 1.7, wide: 1200 };

export { GAP_Y };

export const layout = (tree, measure) => {
  const { insides, edges } = edgesOf(tree);
  const budget = { left: LIMITS.total };
  tree.arranged ??= new Map();
  const inside = (box) => insides.get(box) ?? { ports: new Map(), links: new Map() };
  const place = (box) => {
    for (const child of box.children) {
      if (isModule(child) && child.open) place(child);
      else [child.w2, child.h2] = measure(child);
    }
    arrange(box, inside(box), tree.arranged, budget);
  };
  if (tree.root.children.length) place(tree.root);
  const boxes = [];
  const absolute = (box, dx, dy) => box.children.forEach((c) => {
    c.ax = dx + c.x;
    c.ay = dy + c.y;
    boxes.push(c);
    if (isModule(c) && c.open) absolute(c, c.ax, c.ay);
  });
  tree.root.ax = tree.root.ay = 0;
  absolute(tree.root, 0, 0);
  return { boxes, edges: edges.map(({ a, b, links }) => [a, b, lineOf(links)]) };
};

// The edges between boxes in sight, each with its links: through the modules around its start, between two boxes of one
// module, through the modules around its end. Per open module its ports and links.
const edgesOf = (tree) => {
  const insides = new Map(), edges = new Map();
  const link = (module, from, to) => {
    const { links } = insideOf(insides, module);
    if (!links.has(from)) links.set(from, new Map());
    if (!links.get(from).has(to)) links.get(from).set(to, { module, from, to });
    return links.get(from).get(to);
  };
  const connect = (a, b) => {
    let x = a, y = b;
    const before = [], after = [];
    const leave = () => { const out = port(insides, x.parent, a, true); before.push(link(x.parent, x, out)); x = x.parent; };
    const enter = () => { const into = port(insides, y.parent, a, false); after.unshift(link(y.parent, into, y)); y = y.parent; };
    while (x.depth > y.depth) leave();
    while (y.depth > x.depth) enter();
    while (x.parent !== y.parent) { leave(); enter(); }
    return { a, b, links: x === y ? [] : [...before, link(x.parent, x, y), ...after] };
  };
  tree.graph.nodes.forEach((node, to) => (node.i || []).forEach((from) => {
    const a = tree.ops[from] && shown(tree.ops[from]), b = shown(tree.ops[to]);
    if (!a || a === b) return;
    if (!edges.has(a)) edges.set(a, new Map());
    if (!edges.get(a).has(b)) edges.get(a).set(b, connect(a, b));
  }));
  return { insides, edges: [...edges.values()].flatMap((of) => [...of.values()]) };
};

const insideOf = (insides, module) => {
  if (!insides.has(module)) insides.set(module, { ports: new Map(), links: new Map() });
  return insides.get(module);
};

// A port of a module for what one box computes.
const port = (insides, module, source, exit) => {
  const { ports } = insideOf(insides, module), key = exit ? "out" : "in";
  if (!ports.has(source)) ports.set(source, {});
  return (ports.get(source)[key] ??= { exit, first: source.first });
};

// Gives the children and ports of a module their positions, its links their bends, and the module its size.
const arrange = (box, { ports, links }, arranged, budget) => {
  const children = [...box.children].sort((a, b) => a.first - b.first);
  const gates = [...ports.values()].flatMap(({ in: into, out }) => [into, out].filter(Boolean));
  const items = [...children, ...gates], at = new Map(items.map((item, i) => [item, i]));
  const sizes = items.map((item) => (item.exit === undefined ? [item.w2, item.h2] : PORT));
  const list = [...links.values()].flatMap((of) => [...of.values()]), edges = list.map(({ from, to }) => [at.get(from), at.get(to)]);
  const entries = gates.filter((g) => !g.exit).map((g) => at.get(g)), exits = gates.filter((g) => g.exit).map((g) => at.get(g));
  const key = JSON.stringify([sizes, edges, entries.length]); // blocks of a network are often the same
  const chosen = arranged.get(key) ?? choose(sizes, edges, entries, exits, budget);
  if (!chosen.hurried) arranged.set(key, chosen);
  const { x, y, heights, bends, rank, left, right } = chosen;
  const dx = PAD - left, dy = entries.length ? TITLE - 14 : PAD + TITLE;
  items.forEach((item, i) => { item.x = x[i] + dx; item.y = (entries.length && !rank[i] ? 0 : y[i] + dy); });
  list.forEach((link, i) => {
    const [from, to] = edges[i];
    Object.assign(link, { below: heights[rank[from]][1] + dy, above: heights[rank[to]][0] + dy, bends: bends[i].map(([px, py]) => [px + dx, py + dy]) });
  });
  box.w2 = Math.max(right - left + 2 * PAD, NARROWEST);
  box.h2 = heights[heights.length - 1][1] + dy + (exits.length ? 0 : PAD);
};

// The fast layout, or dagre's if its lines cross less and it is not much wider.
const choose = (sizes, edges, entries, exits, budget) => {
  const rank = ranksOf(sizes.length, edges, entries, exits);
  const ours = judge(byBarycenter(sizes, edges, rank), sizes, edges, rank);
  const length = edges.reduce((sum, [from, to]) => sum + rank[to] - rank[from], 0);
  if (sizes.length > LIMITS.boxes || length > LIMITS.length) return ours;
  if (length > budget.left) return { ...ours, hurried: true };
  if (!ours.crossings()) return ours;
  budget.left -= length;
  const theirs = judge(byDagre(sizes, edges, rank), sizes, edges, rank);
  const width = (made) => made.right - made.left;
  return theirs.crossings() < ours.crossings() && width(theirs) < Math.max(LIMITS.wide, LIMITS.wider * width(ours)) ? theirs : ours;
};

const judge = (made, sizes, edges, rank) => {
  const { x, heights, bends } = made;
  const range = [...x, ...x.map((v, i) => v + sizes[i][0]), ...bends.flatMap((points) => points.map(([px]) => px))];
  const [left, right] = range.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
  const center = (i) => x[i] + sizes[i][0] / 2;
  const lines = () => edges.map(([from, to], i) => [[center(from), heights[rank[from]][1]], ...bends[i], [center(to), heights[rank[to]][0]]]);
  let counted;
  return { ...made, rank, left, right, crossings: () => (counted ??= crossings(lines())) };
};

// The points of an edge in the drawing: it begins and ends at boxes, and passes ports in between.
const lineOf = (links) => {
  const points = [];
  const add = (x, y) => {
    const last = points.length - 1;
    if (last > 0 && points[last][0] === x && points[last - 1][0] === x) points[last] = [x, y]; // straight on
    else if (last < 0 || points[last][0] !== x || points[last][1] !== y) points.push([x, y]);
  };
  const center = (item, module) => module.ax + item.x + (item.w2 ?? PORT[0]) / 2;
  links.forEach(({ module, from, to, below, above, bends }, i) => {
    const start = i && from.exit === undefined ? points[points.length - 1][0] : center(from, module); // of a frame, at its port
    const next = links[i + 1], end = next && to.exit === undefined ? center(next.from, next.module) : center(to, module);
    if (!i) add(start, module.ay + from.y + from.h2);
    add(start, module.ay + below);
    bends.forEach(([x, y]) => add(module.ax + x, module.ay + y));
    add(end, module.ay + above);
    if (to.exit !== true) add(end, module.ay + to.y);
  });
  return points;
};
