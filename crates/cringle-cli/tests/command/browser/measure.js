(() => {
  document.querySelectorAll('details').forEach(one => { one.open = true });
  const area = node => {
    const { left, top, right, bottom } = node.getBoundingClientRect();
    return { left: left + scrollX, top: top + scrollY, right: right + scrollX, bottom: bottom + scrollY };
  };
  const beyond = node => {
    const { left, right, width } = node.getBoundingClientRect();
    return width > 0 && (left < -1 || right > innerWidth + 1);
  };
  const free = [...document.body.querySelectorAll('*')].filter(node => !node.closest('.scroll > *'));
  const text = node => ({
    text: node.textContent,
    pixels: parseFloat(getComputedStyle(node).fontSize) * node.getScreenCTM().a,
    area: area(node),
  });
  const color = node => getComputedStyle(node.querySelector('.mark, .line')).stroke;
  return {
    width: document.documentElement.scrollWidth,
    inner_width: innerWidth,
    outside: free.filter(beyond).map(node => node.outerHTML.slice(0, 200)),
    scrolling: [...document.querySelectorAll('.scroll:has(table)')].filter(one => one.scrollWidth > one.clientWidth).length,
    background: getComputedStyle(document.body).backgroundColor,
    figures: [...document.querySelectorAll('figure')].map(figure => ({
      title: figure.querySelector('figcaption').textContent,
      area: area(figure),
      colors: [...figure.querySelectorAll('g.series')].map(color),
      texts: [...figure.querySelectorAll('svg text')].map(text),
      legend: [...figure.querySelectorAll('.legend > g')].map(area),
      rows: [...figure.querySelectorAll('svg:has(text.label)')].flatMap(svg => {
        const of = what => [...svg.querySelectorAll(what)].map(area);
        const values = of('text.value'), series = of('g.series');
        return of('text.label').map((label, n) => [label, series[n], values[n]]);
      }),
    })),
  };
})()
