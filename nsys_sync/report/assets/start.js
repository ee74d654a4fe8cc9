/** Runs last: the page has been painted and its table works; now the timeline. */
requestAnimationFrame(() => setTimeout(() => { late.timeline = timelineFigure(table.open); }));
