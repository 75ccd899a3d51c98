"""Talking to a model inside a session, without any screen.

Read in this order: `runner` is one message and its answer, from the user's words to the store; `request` makes a
context what any model takes; `models` finds and opens the model; `chats` holds all chats of one app.
"""
