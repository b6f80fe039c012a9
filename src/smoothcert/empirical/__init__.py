"""Empirical accuracy: how many inputs of a certify run a smoothed classifier still gets right under attack.

No attack is known to be the strongest, so the fraction that survives one only bounds the robust accuracy from
above, as the certified accuracy bounds it from below. An adversary counts only if fresh votes show at level α
that the smoothed classifier is wrong there: an input is never called broken on a doubt.
"""
