// Lines of edges: from the lower edge of a box to the upper edge of another one.

// How hard a drawing is to follow: how often lines cross each other, and boxes that they do not end at. An edge is
// [a, b, points]; boxes have ax, ay, w2 and h2.
export const tangle = (edges, boxes) => {
  const pieces = edges.flatMap(([a, b, points], edge) => points.slice(1).map((to, i) => ({
    edge, a, b, from: points[i], to, top: Math.min(points[i][1], to[1]), end: Math.max(points[i][1], to[1]),
  }))).sort((p, q) => p.top - q.top);
  let crossings = 0;
  pieces.forEach((p, at) => {
    for (let i = at + 1; i < pieces.length && pieces[i].top < p.end; i += 1) if (pieces[i].edge !== p.edge && cross(p, pieces[i])) crossings += 1;
    for (const box of boxes) if (box !== p.a && box !== p.b && hits(p, box)) crossings += 1;
  });
  return crossings;
};

const side = ([ax, ay], [bx, by], [x, y]) => (bx - ax) * (y - ay) - (by - ay) * (x - ax);
const cross = (p, q) => side(p.from, p.to, q.from) * side(p.from, p.to, q.to) < 0 && side(q.from, q.to, p.from) * side(q.from, q.to, p.to) < 0;
const hits = (p, box) => {
  const top = Math.max(p.top, box.ay + 1), end = Math.min(p.end, box.ay + box.h2 - 1);
  if (top >= end) return false;
  const at = (y) => p.from[0] + ((p.to[0] - p.from[0]) * (y - p.from[1])) / (p.to[1] - p.from[1]);
  const [left, right] = [at(top), at(end)].sort((m, n) => m - n);
  return left < box.ax + box.w2 - 1 && right > box.ax + 1;
};

// Draws a line with a canvas or with what else has its methods: it is vertical at each point, and ends with an arrow.
export const drawLine = (pen, points) => {
  let [x, y] = points[0];
  pen.moveTo(x, y);
  for (const [nextX, nextY] of points) {
    const middle = (y + nextY) / 2;
    if (nextX === x) pen.lineTo(nextX, nextY);
    else pen.bezierCurveTo(x, middle, nextX, middle, nextX, nextY);
    [x, y] = [nextX, nextY];
  }
  pen.moveTo(x - 4, y - 6);
  pen.lineTo(x, y);
  pen.lineTo(x + 4, y - 6);
};
