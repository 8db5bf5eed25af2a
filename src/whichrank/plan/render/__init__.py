"""An answer as text for a terminal, Markdown, a self-contained HTML page, or JSON."""
