"""Sentences for the language tasks of these scripts, made of a table that scikit-learn ships: measurements of tumours, each
malignant or benign. A row becomes a report such as "mean radius is very high . mean texture is low . ..."
"""

import random

import numpy
from sklearn.datasets import load_breast_cancer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

LEVELS = ("very low", "low", "average", "high", "very high")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def reports(measurements=10, seed=0):
    """Returns a list of pairs for each row, in random order, (measurement, level), and the list of labels."""
    table = load_breast_cancer()
    borders = numpy.quantile(table.data, [0.2, 0.4, 0.6, 0.8], axis=0)
    rows = [
        [(str(table.feature_names[i]), LEVELS[int((row[i] > borders[:, i]).sum())]) for i in range(measurements)]
        for row in table.data
    ]
    order = numpy.random.default_rng(seed).permutation(len(rows))
    return [rows[i] for i in order], [int(table.target[i]) for i in order]


def sentence(facts):
    """The text of a report."""
    return " ".join(f"{name} is {level} ." for name, level in facts)


def questions(rows, facts=5, seed=0):
    """Questions about some facts of each row, in random order: a list of {question, context, answer, start}, where `start` is
    the position of the answer in the context, in characters."""
    random_numbers = random.Random(seed)
    result = []
    for row in rows:
        chosen = random_numbers.sample(row, facts)
        name, level = random_numbers.choice(chosen)
        context = sentence(chosen)
        start = context.index(f"{name} is ") + len(f"{name} is ")
        result.append({"question": f"what is {name} ?", "context": context, "answer": level, "start": start})
    return result


def tokenizer():
    """A tokenizer with one token for each word."""
    words = {word for row in reports()[0] for word in sentence(row).split()} | {"what", "?"}
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *sorted(words)])}
    words_to_tokens = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words_to_tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words_to_tokens.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=words_to_tokens, model_max_length=128, **names)
