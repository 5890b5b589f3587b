(function () {
  "use strict";
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var config = { displayModeBar: false, responsive: true, displaylogo: false };
  var plots = Object.keys(figures).map(function (id) {
    var place = document.getElementById(id);
    figures[id].layout.showlegend = false; // the page has legends of its own
    Plotly.newPlot(place, figures[id].data, figures[id].layout, config);
    return place;
  });
  function fit() {
    plots.forEach(function (plot) { Plotly.Plots.resize(plot); });
  }
  var folded = [];
  window.addEventListener("beforeprint", function () {
    folded = Array.prototype.slice.call(document.querySelectorAll("section.basis details:not([open])"));
    folded.forEach(function (one) { one.open = true; });
    fit();
  });
  window.addEventListener("afterprint", function () {
    folded.forEach(function (one) { one.open = false; });
    fit();
  });
})();
