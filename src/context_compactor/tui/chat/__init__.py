"""Talking to a model inside a session, without any screen.

Read in this order: `talk` is one thing said and its answer, from the user's words to the store; `sent` makes a context
what any model takes; `models` finds and opens the model; `hearing` is what has come of an answer so far. `saying` is
what is to be seen of it, and `chats` all talk of one app.
"""
