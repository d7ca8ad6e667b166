"""Sentences for the language tasks of these scripts, made of a table that scikit-learn ships: measurements of tumours,
each malignant or benign. A row becomes a report such as "radius is huge . texture is small . ..."
"""

import random

import numpy
from sklearn.datasets import load_breast_cancer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

LEVELS = ("tiny", "small", "medium", "large", "huge")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def reports(measurements=10, seed=0):
    """Returns a list of pairs for each row, in random order, (measurement, level), and the list of labels."""
    table = load_breast_cancer()
    borders = numpy.quantile(table.data, [0.2, 0.4, 0.6, 0.8], axis=0)
    rows = [
        [
            (str(table.feature_names[i]).removeprefix("mean "), LEVELS[int((row[i] > borders[:, i]).sum())])
            for i in range(measurements)
        ]
        for row in table.data
    ]
    order = numpy.random.default_rng(seed).permutation(len(rows))
    return [rows[i] for i in order], [int(table.target[i]) for i in order]


def sentence(facts):
    """The text of a report."""
    return " ".join(f"{name} is {level} ." for name, level in facts)


def questions(rows, facts=6, seed=0):
    """A question about each report, of the first `facts` facts: a list of {question, context, answer, start}, where
    `start` is the position of the answer in the context, in characters."""
    random_numbers = random.Random(seed)
    result = []
    for row in rows:
        name, level = random_numbers.choice(row[:facts])
        context = sentence(row[:facts])
        start = context.index(f"{name} is ") + len(f"{name} is ")
        result.append({"question": f"what is {name} ?", "context": context, "answer": level, "start": start})
    return result


def found_answers(examples, offsets, start_logits, end_logits):
    """The parts of the contexts from the likeliest first to the likeliest last token. `offsets` has where each token
    starts and ends, in characters of its sentence."""
    pairs = zip(start_logits.argmax(-1).tolist(), end_logits.argmax(-1).tolist(), strict=True)
    return [e["context"][o[s][0] : o[t][1]] for e, o, (s, t) in zip(examples, offsets, pairs, strict=True)]


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
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=words_to_tokens, model_input_names=inputs, **names)
