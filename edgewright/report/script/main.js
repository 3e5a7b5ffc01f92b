// The page's script: tabs, sorting, charts, graphs, print. Everything here is also in the page's tables.
import { addCharts } from "./charts.js";
import { Graph } from "./graph.js";
import { byId } from "./page.js";
import { addSorting } from "./tables.js";
import { addChooser, addTabs, current, panels, show, tabs } from "./tabs.js";

const addGraphs = () => {
  const data = JSON.parse(byId("data").textContent);
  document.querySelectorAll(".graph").forEach((place) => {
    const graph = data[place.dataset.key];
    if (graph && graph.nodes.length) place.graph = new Graph(place, graph);
  });
};

const addPrint = () => {
  let opened = [];
  addEventListener("beforeprint", () => {
    document.querySelectorAll(".graph").forEach((place) => { if (place.graph) place.append(place.graph.sheet()); });
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((d) => { d.open = true; });
    panels.forEach((p) => { p.hidden = false; });
  });
  addEventListener("afterprint", () => {
    opened.forEach((d) => { d.open = false; });
    document.querySelectorAll(".sheet").forEach((drawing) => drawing.remove());
    show(current());
  });
};

document.documentElement.classList.add("js");
addTabs();
addSorting();
addCharts();
addGraphs();
addChooser();
addPrint();
show(Math.max(tabs.findIndex((tab) => tab.hash === location.hash), 0));
