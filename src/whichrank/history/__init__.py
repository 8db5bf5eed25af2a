"""When it keeps happening: incidents over many runs, and what is behind them. docs/history.md.

incident   what is kept of a report         kept    report -> runs and incidents
runs       several runs in a folder         columns a history in arrays
location, data, timing, common -> model     why     patterns, each with its posterior
confounding                                 answer  the answer in words and tables
node, rundirs                             what `whichrank run` left: a node's part in a run, and how parts make a run
store, schema, parts, export              a history that is kept (SQLAlchemy, imported there only)
"""
