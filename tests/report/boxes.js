// Returns boxes of plots, headings, texts and tables that cover each other, or reach beyond the page.
() => {
    const scrolls = [...document.querySelectorAll('.scroll, .wide .plot, pre')];
    const clip = (node, box) => {
        // what is cut off by a box that scrolls cannot cover anything
        let { left, top, right, bottom } = box;
        for (const scroll of scrolls) if (scroll !== node && scroll.contains(node)) {
            const outer = scroll.getBoundingClientRect();
            left = Math.max(left, outer.left); top = Math.max(top, outer.top);
            right = Math.min(right, outer.right); bottom = Math.min(bottom, outer.bottom);
        }
        return { left, top, right, bottom };
    };
    const found = [];
    const folded = (node) => { const box = node.closest('details:not([open])'); return box && !node.matches('summary'); };
    const add = (node, name, box) => {
        if (folded(node)) return;
        const { left, top, right, bottom } = clip(node, box);
        if (right - left > 1 && bottom - top > 1) found.push({ node, name, left, top, right, bottom });
    };
    for (const node of document.querySelectorAll('.plot svg')) if (node.parentNode.offsetParent) add(node, 'plot ' + node.closest('figure').id, node.getBoundingClientRect());
    for (const node of document.querySelectorAll('h1, h2, h3, h4, figcaption, table, p, dl, summary, ul, .verdict, .slider'))
        if (node.offsetParent) add(node, node.tagName + ' ' + node.textContent.trim().slice(0, 30), node.getBoundingClientRect());
    const covered = [];
    for (let i = 0; i < found.length; i++) for (let j = i + 1; j < found.length; j++) {
        const [one, other] = [found[i], found[j]];
        if (one.node.contains(other.node) || other.node.contains(one.node)) continue;
        const width = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const height = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (width > 1 && height > 1) covered.push(`${one.name} and ${other.name}: ${width.toFixed()} x ${height.toFixed()} px`);
    }
    const wide = found.filter((one) => one.left < -1 || one.right > document.documentElement.clientWidth + 1).map((one) => one.name);
    return { covered, wide, n: found.length, width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight };
}
