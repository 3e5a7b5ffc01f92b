// Layered layouts of the boxes of one module. Sizes are [width, height], edges [from, to], ranks are rows from top to bottom.
// A layout has the left and the upper edge of every box, the [top, bottom] of every row, and for each edge the points that it
// passes between the rows of its ends.
import { graphlib, layout as dagreLayout } from "@dagrejs/dagre";

export const GAP_X = 28, GAP_Y = 34;
const SIDE = 6, SPREAD = 24; // between a line and a box; more for longer lines, so that they are not one
const FAR = 200; // rows that are searched for a free lane

// The rank of a box is one more than that of any box that it reads; one that more boxes read than it reads is just above
// those. `entries` come first and `exits` last.
export const ranksOf = (count, edges, entries, exits) => {
  const reads = new Array(count).fill(0), left = new Array(count).fill(0), rank = new Array(count).fill(0);
  const readers = Array.from({ length: count }, () => []);
  for (const [from, to] of edges) { left[to] += 1; reads[to] += 1; readers[from].push(to); }
  const order = [...left.keys()].filter((box) => !left[box]);
  const start = entries.length ? 1 : 0, ports = new Set(entries);
  for (const box of order) if (!ports.has(box)) rank[box] = start;
  for (let at = 0; at < order.length; at += 1) {
    for (const reader of readers[order[at]]) {
      rank[reader] = Math.max(rank[reader], rank[order[at]] + 1);
      left[reader] -= 1;
      if (!left[reader]) order.push(reader);
    }
  }
  for (const box of order.reverse()) {
    if (ports.has(box) || readers[box].length <= reads[box]) continue;
    rank[box] = Math.max(rank[box], readers[box].reduce((least, reader) => Math.min(least, rank[reader]), Infinity) - 1);
  }
  const last = exits.length ? 1 + rank.reduce((most, r, box) => (exits.includes(box) ? most : Math.max(most, r)), 0) : 0;
  exits.forEach((box) => { rank[box] = last; });
  return rank.map((r, box) => (left[box] ? 0 : r)); // of a cycle, which no program has
};

const rowsOf = (rank) => {
  const rows = [];
  rank.forEach((r, box) => (rows[r] ??= []).push(box));
  return Array.from(rows, (row) => row || []);
};

const heightsOf = (rows, sizes) => {
  let top = 0;
  return rows.map((row) => {
    const bottom = top + row.reduce((most, box) => Math.max(most, sizes[box][1]), 0), range = [top, bottom];
    top = bottom + GAP_Y;
    return range;
  });
};

// Rows sorted by the middle of what their boxes read; a line goes beside a box that is in its way. Fast at any size.
export const byBarycenter = (sizes, edges, rank) => {
  const rows = rowsOf(rank), heights = heightsOf(rows, sizes), x = [], wish = [], sources = sizes.map(() => []);
  for (const [from, to] of edges) if (rank[from] < rank[to]) sources[to].push(from);
  for (const row of rows) {
    for (const box of row) {
      const from = sources[box];
      wish[box] = from.length ? from.reduce((sum, s) => sum + x[s] + sizes[s][0] / 2, 0) / from.length : 0;
    }
    row.sort((a, b) => wish[a] - wish[b] || a - b);
    let right = 0;
    row.forEach((box) => { x[box] = right; right += sizes[box][0] + GAP_X; });
    const shift = row.reduce((sum, box) => sum + wish[box] - x[box] - sizes[box][0] / 2, 0) / row.length;
    row.forEach((box) => { x[box] += shift; });
  }
  return { x, y: rank.map((r) => heights[r][0]), heights, bends: lanes(sizes, edges, rank, rows, heights, x) };
};

// An edge that passes rows does so in one vertical lane, where no box is: below its start, above its end, between them, or
// beside what is in all those rows.
const lanes = (sizes, edges, rank, rows, heights, x) => {
  const right = x.reduce((most, left, box) => Math.max(most, left + sizes[box][0]), -Infinity);
  const center = (box) => x[box] + sizes[box][0] / 2;
  return edges.map(([from, to]) => {
    const between = rows.slice(rank[from] + 1, Math.min(rank[to], rank[from] + 1 + FAR));
    if (!between.length) return [];
    const boxes = between.flat(), far = rank[to] - rank[from] > FAR;
    const isFree = (lane) => boxes.every((box) => lane < x[box] - SIDE || lane > x[box] + sizes[box][0] + SIDE);
    const top = heights[rank[from] + 1][0], bottom = heights[rank[to] - 1][1];
    const beside = () => (far ? right : boxes.reduce((most, box) => Math.max(most, x[box] + sizes[box][0]), -Infinity)) + 2 * SIDE + Math.min((bottom - top) / 40, SPREAD);
    const lane = (far ? [] : [center(from), center(to), (center(from) + center(to)) / 2]).find(isFree) ?? beside();
    return [[lane, top], [lane, bottom]];
  });
};

// dagre's order and positions: fewer crossings, for more time and width.
export const byDagre = (sizes, edges, rank) => {
  const graph = new graphlib.Graph();
  graph.setGraph({ nodesep: GAP_X, ranksep: GAP_Y, edgesep: 14, ranker: "none" });
  sizes.forEach(([width, height], box) => graph.setNode(String(box), { width, height, rank: 2 * rank[box] })); // labels are between
  edges.forEach(([from, to]) => graph.setEdge(String(from), String(to), {}));
  dagreLayout(graph);
  const heights = heightsOf(rowsOf(rank), sizes);
  const bends = edges.map(([from, to]) => {
    const { points } = graph.edge(String(from), String(to));
    return points.slice(1, -1).flatMap(({ x }, i) => (i % 2 ? heights[rank[from] + (i + 1) / 2].map((y) => [x, y]) : []));
  });
  return { x: sizes.map(([width], box) => graph.node(String(box)).x - width / 2), y: rank.map((r) => heights[r][0]), heights, bends };
};
