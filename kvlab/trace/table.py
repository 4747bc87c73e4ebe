"""A small table that shows itself in a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in rows; the first of a row is its heading. `kind` is a CSS class for a page's style."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    kind: str = "kvlab-table"

    def as_html(self) -> str:
        """A table with headings for rows and columns; every text is escaped."""
        start = 'style="text-align:start;vertical-align:top"'  # a notebook would align to the end
        head = "".join(f'<th scope="col" {start}>{escape(name)}</th>' for name in self.head)
        body = "".join(
            f'<tr><th scope="row" {start}>{escape(first)}</th>'
            + "".join(f"<td {start}>{escape(text)}</td>" for text in rest)
            + "</tr>"
            for first, *rest in self.rows
        )
        note = f'<p class="kvlab-note">{escape(self.note)}</p>' if self.note else ""
        return (
            f'<table class="{escape(self.kind)}"><caption>{escape(self.caption)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"
        )

    def as_markdown(self) -> str:
        """The same as a Markdown table."""
        lines = [self.head, ("---",) * len(self.head), *self.rows]
        text = "\n".join(f"| {' | '.join(plain(one) for one in row)} |" for row in lines)
        return f"{text}\n\n{plain(self.note)}" if self.note else text

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        return {"text/html": self.as_html(), "text/plain": self.as_markdown()}


def plain(text: str) -> str:
    """Text that cannot end a cell of a Markdown table or start a tag in it."""
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ")
