"""The dashboard at `/`: pages rendered here, kept up to date by htmx, drawn by uPlot, all of it from this server.

Read `routes.py` (every page and action, as a table), then a page such as `sessions.py` beside its template in
`templates/`: a view function gathers values, the template of the same name shows them. `rendering.py` has the template
environment and its filters, `layout.py` is the only way out: there control characters become visible and the headers
are set that keep a hostile transcript a text. `caches.py` keeps lists and numbers for a moment. `static/` has the
style, the script, and under `vendor/` the two libraries.
"""
