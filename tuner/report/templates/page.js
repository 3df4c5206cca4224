"use strict";
// Sorting and filtering. Without scripts the page has the same content.
(function () {
    function value(row, index) {
        const cell = row.cells[index];
        return cell ? cell.textContent.trim() : "";
    }

    function sort(table, index, header) {
        const body = table.tBodies[0];
        const falling = header.getAttribute("aria-sort") === "ascending";
        const rows = Array.from(body.rows).map(function (row, place) {
            const text = value(row, index).replace(/ \(model\)$/, "");
            return { row: row, place: place, text: text, number: text === "" ? NaN : Number(text) };
        });
        rows.sort(function (a, b) {
            const x = Number.isNaN(a.number), y = Number.isNaN(b.number);
            let order = x && y ? a.text.localeCompare(b.text) : x ? 1 : y ? -1 : a.number - b.number;
            if (falling && x === y) { order = -order; }
            return order || a.place - b.place;
        });
        for (const header of table.tHead.rows[0].cells) { header.removeAttribute("aria-sort"); }
        header.setAttribute("aria-sort", falling ? "descending" : "ascending");
        body.append.apply(body, rows.map(function (each) { return each.row; }));
    }

    function makeSortable(table) {
        Array.from(table.tHead.rows[0].cells).forEach(function (header, index) {
            if (header.querySelector(".hide")) { return; }
            const button = document.createElement("button");
            button.type = "button";
            button.append.apply(button, Array.from(header.childNodes));
            header.append(button);
            button.addEventListener("click", function () { sort(table, index, header); });
        });
    }

    function makeFilter(tools) {
        const input = tools.querySelector("input");
        const status = tools.querySelector("[role=status]");
        const rows = Array.from(document.getElementById(input.dataset.table).tBodies[0].rows);
        const texts = rows.map(function (row) { return row.textContent.replace(/\s+/g, " ").toLowerCase(); });
        tools.hidden = false;
        input.addEventListener("input", function () {
            const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
            let shown = 0;
            rows.forEach(function (row, i) {
                const passes = words.every(function (word) { return texts[i].includes(word); });
                row.hidden = !passes;
                shown += passes ? 1 : 0;
            });
            status.textContent = words.length ? shown + " of " + rows.length : "";
        });
    }

    function openTarget() {
        const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
        if (target && target.tagName === "DETAILS") {
            target.open = true;
            target.scrollIntoView();
        }
    }

    document.querySelectorAll("section > .scroll > table.sortable").forEach(makeSortable);
    document.querySelectorAll("details").forEach(function (details) {
        details.addEventListener("toggle", function () {
            const table = details.querySelector("table.sortable");
            if (details.open && table && !table.querySelector("button")) { makeSortable(table); }
        });
    });
    document.querySelectorAll(".tools").forEach(makeFilter);
    window.addEventListener("hashchange", openTarget);
    openTarget();
}());
