"""The live page of `decodesim app`: controls, answers simulated as they change, and what can be taken away.

controls.py declares what can be changed, settings.py makes a scenario of it, answers.py simulates, cards.py
and layout.py show, callbacks.py connects, guard.py keeps strangers out.
"""
