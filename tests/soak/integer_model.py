# SPDX-License-Identifier: Apache-2.0
"""integer_model: a model of three layers whose every activation is an integer.

Attention sums integers (its queries are zero, so every visible token weighs the same) or picks one
token (its keys are the tokens' positions in binary, and a query matches one of them). Either result
is an integer again, up to a rounding far below a half. So a text on paged blocks must equal the
dense run token by token, whatever was in a batch beside it: there is no tolerance and no near tie.

    layer 0  sums all values so far. A value depends on the tenant, the token and its place
    layer 1  picks one earlier token, whose value depends on all tokens before it
    layer 2  sums the last WINDOW values

So a wrong, missing or other tenant's token anywhere in a sequence changes the text. The dense run
is integer arithmetic over the whole text at once, without attention, blocks or positions of chunks.
"""

import numpy as np

import quire

HEADS, DIM, VOCAB, TENANTS = 2, 16, 512, 4
WINDOW = 24
LONGEST = 256  # the positions have 8 bits, each in two elements of a key
_PRIME, _WIDE = 101, 251
_SHARP = 64.0  # scores of the token that is picked and of any other differ by 64: e^-64


class WrongText(Exception):
    """A text, or a sum in it, is not that of the dense run."""


class IntegerModel:
    GROUPS = (quire.Group(layers=2, kv_heads=HEADS, head_dim=DIM, dtype="f32"),
              quire.Group(layers=1, kv_heads=HEADS, head_dim=DIM, dtype="f32",
                          kind=quire.GroupKind.WINDOW, window=WINDOW))

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        self._tokens = random.integers(1, _PRIME, (TENANTS, VOCAB, HEADS, DIM))
        self._places = random.integers(1, _PRIME, (LONGEST, HEADS, DIM))
        self._mixes = random.integers(1, _PRIME, (4, HEADS, DIM))
        bits = (np.arange(LONGEST)[:, None] >> np.arange(DIM) % 8) & 1
        self._codes = (2 * bits - 1).astype(np.float32)

    # What a token adds to a layer: the model's weights, which both runs have in common.

    def _first_values(self, tenants, tokens, positions):
        return self._tokens[tenants, tokens] * self._places[positions] % _PRIME - 50

    def _picked_values(self, sums, tokens):
        return (sums * self._mixes[0] + tokens[:, None, None]) % _PRIME - 50

    def _targets(self, sums, tokens, positions):
        """Which earlier position each head of each token picks."""
        weighed = (sums * np.arange(1, DIM + 1)).sum(axis=-1) + tokens[:, None]
        return weighed % (positions[:, None] + 1)

    def _last_values(self, mixed, positions):
        return (mixed * self._mixes[1] + positions[:, None, None]) % _PRIME - 50

    def _choices(self, sums, mixed):
        return (sums * self._mixes[2] + mixed * self._mixes[3]).sum(axis=(1, 2)) % VOCAB

    # The run on Quire's blocks.

    def forward(self, tenants, tokens, positions, attend):
        """The next token after each token. attend(layer, k, v, q) is attention over blocks."""
        zero = np.zeros((len(tokens), HEADS, DIM), np.float32)
        seen = (positions + 1)[:, None, None]
        values = self._first_values(tenants, tokens, positions)
        sums = _whole(attend(0, _f32(values), _f32(values), zero), seen, "layer 0") % _WIDE

        codes = np.repeat(self._codes[positions][:, None], HEADS, axis=1)
        query = self._codes[self._targets(sums, tokens, positions)] * np.float32(_SHARP)
        picked = attend(1, codes, _f32(self._picked_values(sums, tokens)), query)
        mixed = (sums + 3 * _whole(picked, 1, "layer 1")) % _WIDE

        values = self._last_values(mixed, positions)
        last = attend(2, _f32(-values), _f32(values), zero)
        sums = _whole(last, np.minimum(seen, WINDOW), "layer 2") % _WIDE
        return self._choices(sums, mixed)

    # The dense run.

    def dense(self, tenant, tokens):
        """The next token after each token of a text."""
        tokens, positions = np.asarray(tokens), np.arange(len(tokens))
        sums = np.cumsum(self._first_values(tenant, tokens, positions), axis=0) % _WIDE
        targets = self._targets(sums, tokens, positions)
        picked = self._picked_values(sums, tokens)[targets, np.arange(HEADS)]
        mixed = (sums + 3 * picked) % _WIDE
        total = np.cumsum(self._last_values(mixed, positions), axis=0)
        total[WINDOW:] -= total[:-WINDOW].copy()
        return self._choices(total % _WIDE, mixed)

    def compare(self, tenant, tokens, given):
        """Compares a text with its dense run, but for the client's tokens, whose positions are in
        `given`. Returns how many were compared. Errors: WrongText."""
        wanted = self.dense(tenant, tokens[:-1])
        for position in range(1, len(tokens)):
            if position not in given and tokens[position] != wanted[position - 1]:
                raise WrongText(f"token {position} of tenant {tenant}'s text is "
                                f"{tokens[position]}; the dense run's is {wanted[position - 1]}. "
                                f"The text: {list(map(int, tokens))}")
        return len(tokens) - sum(1 for position in given if position < len(tokens))


def _f32(values):
    return values.astype(np.float32)


def _whole(mean, count, name):
    """The sum of `count` integers, from their mean. Errors: WrongText, it is no integer."""
    total = mean.astype(np.float64) * count
    whole = np.rint(total)
    if not np.abs(total - whole).max() < 0.2:  # also false for NaN
        raise WrongText(f"attention of {name} is not a sum of integers: {total.ravel()[:16]}")
    return whole.astype(np.int64)
