// Tables that are sorted by the heads of their columns.
import { make } from "./page.js";

const sort = (head, index) => {
  const body = head.closest("table").tBodies[0];
  const descending = head.getAttribute("aria-sort") === "descending" ||
    (!head.hasAttribute("aria-sort") && !head.classList.contains("n")) ? 1 : -1;
  for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending === 1 ? "ascending" : "descending");
  const key = (row) => {
    const cell = row.cells[index];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  const rows = [...body.rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === ""); // what is not known comes last
    return descending * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  });
  body.append(...rows.map(([, row]) => row));
};

export const addSorting = () => {
  document.querySelectorAll("thead th").forEach((head) => {
    const control = make("button", { type: "button" }, head.textContent);
    head.dataset.text = head.textContent; // for print: browsers do not draw buttons in heads that they repeat on each page
    head.replaceChildren(control);
    control.addEventListener("click", () => sort(head, head.cellIndex));
  });
};
