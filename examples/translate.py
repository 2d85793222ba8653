"""Trains a small English-French translator: a recurrent encoder, and a decoder with additive attention.

    python examples/translate.py
    python examples/translate.py --cell lstm --backend torch

It prints translations of the sentences in translate.tsv and their BLEU, and draws the weights of one to `--heatmap`.
The attention runs in a kernel of attn, or with `--backend torch` in PyTorch's own operations: the same seed gives the
same losses.
"""

from __future__ import annotations

import argparse
import collections
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

import attn

PAD, BEGIN, END, UNKNOWN = range(4)


class Vocabulary:
    """Words and their numbers."""

    def __init__(self, sentences: list[list[str]]):
        self.words = [
            "<pad>",
            "<begin>",
            "<end>",
            "<unknown>",
            *sorted({word for words in sentences for word in words}),
        ]
        self._numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def numbers(self, words: list[str]) -> list[int]:
        """The words' numbers, and an <end>."""
        return [self._numbers.get(word, UNKNOWN) for word in words] + [END]


def split(sentence: str) -> list[str]:
    """Lower-case words and punctuation; what is elided (j', l') is a word of its own."""
    return re.findall(r"[\w-]+'?|[^\w\s]", sentence.lower())


@dataclass
class Pairs:
    """Sentences in two languages as numbers, (count, longest), with their lengths (count,); each ends with <end>."""

    source: torch.Tensor
    source_lengths: torch.Tensor
    target: torch.Tensor
    target_lengths: torch.Tensor

    def rows(self, rows: torch.Tensor) -> Pairs:
        """These sentences, as long as the longest of them."""
        source_lengths, target_lengths = self.source_lengths[rows], self.target_lengths[rows]
        source, target = self.source[rows, : source_lengths.max()], self.target[rows, : target_lengths.max()]
        return Pairs(source, source_lengths, target, target_lengths)


def read_pairs(path: Path) -> list[tuple[list[str], list[str]]]:
    """The words of each line: English, a tab, French."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(split(english), split(french)) for english, french in (line.split("\t") for line in lines)]


def as_tensors(sentences: list[list[str]], vocabulary: Vocabulary) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = [torch.tensor(vocabulary.numbers(words)) for words in sentences]
    return pad_sequence(numbers, batch_first=True, padding_value=PAD), torch.tensor([len(each) for each in numbers])


class TorchAdditiveAttention(attn.nn.AdditiveAttention):
    """The same layer, with the same parameters, in PyTorch's operations."""

    def forward(
        self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, valid_lens: torch.Tensor | None = None
    ) -> torch.Tensor:
        hidden = torch.tanh(self.W_q(queries)[:, :, None] + self.W_k(keys)[:, None])
        padding = torch.arange(keys.shape[1]) >= valid_lens[:, None, None]
        weights = torch.softmax(self.w_v(hidden)[..., 0].masked_fill(padding, -torch.inf), -1)
        self.attention_weights = weights.detach()
        return weights @ values


class Translator(nn.Module):
    """The encoder and the decoder."""

    def __init__(
        self, source: Vocabulary, target: Vocabulary, cell: str, backend: str, hiddens: int = 128, embedded: int = 64
    ):
        super().__init__()
        attention = {"attn": attn.nn.AdditiveAttention, "torch": TorchAdditiveAttention}[backend]
        self.source, self.target = source, target
        self.encoder = attn.nn.Seq2SeqEncoder(len(source), embedded, hiddens, 1, cell=cell)
        self.decoder = attn.nn.Seq2SeqAttentionDecoder(
            len(target), embedded, hiddens, 1, cell=cell,
            attention=attention(hiddens, query_size=hiddens, key_size=hiddens),
        )  # fmt: skip

    def loss(self, batch: Pairs) -> torch.Tensor:
        """The mean cross entropy of the target's words, without padding. The decoder is given the words before."""
        state = self.decoder.init_state(self.encoder(batch.source, batch.source_lengths), batch.source_lengths)
        given = torch.cat((torch.full_like(batch.target[:, :1], BEGIN), batch.target[:, :-1]), 1)
        scores, _ = self.decoder(given, state)
        losses = nn.functional.cross_entropy(scores.flatten(0, 1), batch.target.flatten(), reduction="none")
        counts = torch.arange(batch.target.shape[1]) < batch.target_lengths[:, None]
        return (losses * counts.flatten()).sum() / counts.sum()

    @torch.no_grad()
    def translate(self, sentences: list[list[str]], longest: int = 20) -> tuple[list[list[str]], torch.Tensor]:
        """The most likely word at each step, until <end>; and the weights (sentence, step, word of the source)."""
        self.eval()
        source, lengths = as_tensors(sentences, self.source)
        state = self.decoder.init_state(self.encoder(source, lengths), lengths)
        token, tokens, weights = torch.full((len(sentences), 1), BEGIN), [], []
        for _ in range(longest):
            scores, state = self.decoder(token, state)
            token = scores.argmax(-1)
            tokens.append(token)
            weights += self.decoder.attention_weights
        translations = []
        for numbers in torch.cat(tokens, 1).tolist():
            numbers = numbers[: numbers.index(END)] if END in numbers else numbers
            translations.append([self.target.words[number] for number in numbers])
        return translations, torch.cat(weights, 1)


def bleu(predicted: list[str], reference: list[str], longest: int = 2) -> float:
    """BLEU of one sentence as in "Dive into Deep Learning": exp(min(0, 1 - length_ref / length)) · Π p_n^(1/2^n).

    p_n is the part of the prediction's n-grams that the reference has, for n up to `longest`.
    """
    if not predicted:
        return 0.0
    score = math.exp(min(0.0, 1 - len(reference) / len(predicted)))
    for n in range(1, min(longest, len(predicted), len(reference)) + 1):
        found, wanted = (
            collections.Counter(zip(*(words[start:] for start in range(n)))) for words in (predicted, reference)
        )
        score *= ((found & wanted).total() / found.total()) ** (0.5**n)
    return score


def train(model: Translator, pairs: Pairs, epochs: int, steps: int | None, batch_size: int, rate: float) -> list[float]:
    """Adam on shuffled batches, with the gradient's norm clipped to 1. Returns the loss of each step."""
    optimiser = torch.optim.Adam(model.parameters(), rate)
    per_epoch = math.ceil(len(pairs.source) / batch_size)
    total = min(epochs * per_epoch, steps or epochs * per_epoch)
    losses: list[float] = []
    model.train()
    with tqdm(total=total, unit="step") as progress:
        while len(losses) < total:
            for rows in torch.randperm(len(pairs.source)).split(batch_size)[: total - len(losses)]:
                loss = model.loss(pairs.rows(rows))
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                losses.append(loss.item())
                progress.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
                progress.update()
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).with_suffix(".tsv"), help="lines of English, a tab, French"
    )
    parser.add_argument("--cell", choices=["gru", "lstm"], default="gru")
    parser.add_argument("--backend", choices=["attn", "torch"], default="attn", help="what computes the attention")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.005, help="learning rate of Adam")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--sentence", default="The young woman writes a letter to her mother.", help="what the heatmap shows"
    )
    parser.add_argument("--heatmap", type=Path, default=Path("translate.png"))
    parser.add_argument("--losses", type=Path, help="write the loss of each step, one a line")
    parser.add_argument("--threads", type=int, default=1, help="more than one slows matrices as small as these down")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    attn.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    english, french = map(list, zip(*read_pairs(arguments.data)))
    model = Translator(Vocabulary(english), Vocabulary(french), arguments.cell, arguments.backend)
    pairs = Pairs(*as_tensors(english, model.source), *as_tensors(french, model.target))
    start = time.perf_counter()
    losses = train(model, pairs, arguments.epochs, arguments.steps, arguments.batch_size, arguments.rate)
    print(f"{len(losses)} steps in {time.perf_counter() - start:.1f} s: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    if arguments.losses:
        arguments.losses.write_text("".join(f"{loss}\n" for loss in losses))

    translations, _ = model.translate(english)
    scores = [bleu(*each) for each in zip(translations, french)]
    for words, translation, score in list(zip(english, translations, scores))[:: len(english) // 8]:
        print(f"{' '.join(words)} => {' '.join(translation)}  (BLEU {score:.2f})")
    print(f"BLEU of the {len(english)} training sentences: {sum(scores) / len(scores):.3f}")

    words = split(arguments.sentence)
    (translation,), weights = model.translate([words])
    labels = {"keys": [*words, "<end>"], "queries": [*translation, "<end>"]}
    figure = attn.plot.heatmaps(
        weights[0, : len(translation) + 1], xlabel="English", ylabel="French", figsize=(4.5, 4), **labels
    )
    figure.savefig(arguments.heatmap, dpi=120)
    print(f"{arguments.heatmap}: {' '.join(words)} => {' '.join(translation)}")


if __name__ == "__main__":
    main()
