// Lines of edges: from the lower edge of a box to the upper edge of another one.

// How often lines cross each other, except where they meet.
export const crossings = (lines) => {
  const pieces = lines.flatMap((points, line) => points.slice(1).map((to, i) => {
    const from = points[i];
    return { line, from, to, top: Math.min(from[1], to[1]), end: Math.max(from[1], to[1]) };
  })).sort((p, q) => p.top - q.top);
  let count = 0;
  pieces.forEach((p, at) => {
    for (let i = at + 1; i < pieces.length && pieces[i].top < p.end; i += 1) if (pieces[i].line !== p.line && cross(p, pieces[i])) count += 1;
  });
  return count;
};

const side = ([ax, ay], [bx, by], [x, y]) => (bx - ax) * (y - ay) - (by - ay) * (x - ax);
const cross = (p, q) => side(p.from, p.to, q.from) * side(p.from, p.to, q.to) < 0 && side(q.from, q.to, p.from) * side(q.from, q.to, p.to) < 0;

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
