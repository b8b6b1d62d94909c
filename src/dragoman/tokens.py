"""The ids that every vocabulary begins with: the one thing that text and model both must know."""

PAD = 0  # fills the shorter sentences of a batch; never looked at, never produced
UNKNOWN = 1  # stands for what the vocabulary cannot spell
START = 2  # opens every prefix
END = 3  # closes every source and every target

RESERVED_TOKENS = 4
