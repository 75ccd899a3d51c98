"""The dashboard at `/`: pages rendered here, kept up to date by htmx, drawn by uPlot, all of it from this server.

Read `routes.py` (every page and action, as a table), then a page such as `sessions.py`. `frame.py` is what stands
around each page, `pieces.py` and `drawings.py` what they are made of, `sending.py` the only way out: there control
characters become visible and the headers are set that keep a hostile transcript a text. `saw.py` and `measures.py`
compute the lines of the charts. `static/` has the style, the script, and under `vendor/` the two libraries.
"""
