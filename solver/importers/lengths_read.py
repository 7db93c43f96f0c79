"""What a reader of length files is given and what it gathers."""

from __future__ import annotations

from dataclasses import dataclass, field

from solver.importers.lengths_binned import Bins
from solver.importers.lengths_table import LengthTable

#: Names of columns or members that hold a length in tokens, of those that hold the tokens, and of those that hold text.
LENGTH_NAMES = ("length", "num_tokens", "n_tokens", "token_count", "tokens_count", "seq_len", "sequence_length", "seqlen")
TOKEN_NAMES = ("input_ids", "token_ids", "tokens")
TEXT_NAMES = ("text", "content", "messages", "conversations")


@dataclass(frozen=True)
class Wish:
    """What the user asked for: the column or member to read, the limit of the model, how many characters make a token."""

    column: str | None = None
    max_tokens: int | None = None
    characters_per_token: float | None = None


@dataclass
class Gathered:
    """What was read so far: lengths in the table, or the bins of a histogram, and what the user should know."""

    table: LengthTable
    bins: Bins | None = None
    warnings: list[str] = field(default_factory=list)

    def note_estimate(self, characters_per_token: float) -> None:
        """Say that lengths were not counted in tokens."""
        self.warn(f"lengths were estimated from text at {characters_per_token:g} characters a token, without a tokenizer")

    def warn(self, text: str) -> None:
        """Note it once."""
        if text not in self.warnings:
            self.warnings.append(text)
