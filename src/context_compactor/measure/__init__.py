"""How full is the context, and is it time to compact?

Read in this order:

1. `tokens` counts a text, `families` knows which models count alike, `media` weighs images and documents.
2. `count` adds up messages and remembers every text it has seen.
3. `windows` and `budget` say how much room there is, and who says so.
4. `calibrate` learns from reported usage how far our counts are off.
5. `usage` puts it together: tokens by section, level, forecast.
6. `triggers` decides when to compact; `overflow` reads what providers say when it is too late.
"""
