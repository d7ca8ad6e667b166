"""Trains BERT to answer questions, with transformers' Trainer, and saves it. One process or many:

python trainer_question_answering.py --output_dir OUT --use_cpu --bf16 --torch_compile_backend ipex
torchrun --nproc_per_node 2 trainer_question_answering.py --output_dir OUT --use_cpu --bf16 --ddp_backend ccl
"""

import importlib.metadata
import json
from pathlib import Path

import torch
from sentences import found_answers, questions, reports, tokenizer
from transformers import BertConfig, BertForQuestionAnswering, HfArgumentParser, Trainer, TrainingArguments, set_seed


def encode(examples, tokenize):
    """Token ids, with the first and last token of each answer, which stands in the context; and where tokens stand."""
    encoded = tokenize([e["question"] for e in examples], [e["context"] for e in examples], return_offsets_mapping=True)
    result = []
    for i, example in enumerate(examples):
        start, end = example["start"], example["start"] + len(example["answer"])
        in_context = [t for t, s in enumerate(encoded.sequence_ids(i)) if s == 1]
        answer = [t for t in in_context if start <= encoded["offset_mapping"][i][t][0] < end]
        item = {name: encoded[name][i] for name in ("input_ids", "token_type_ids", "attention_mask")}
        result.append(item | {"start_positions": answer[0], "end_positions": answer[-1]})
    return result, encoded["offset_mapping"]


def exact_match(prediction):
    """The share of questions of which first and last token of the answer are found."""
    starts, ends = (logits.argmax(-1) for logits in prediction.predictions[:2])
    return {"exact_match": float(((starts == prediction.label_ids[0]) & (ends == prediction.label_ids[1])).mean())}


def main():
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    set_seed(args.seed)
    tokenize = tokenizer()
    rows, _ = reports()
    training, _ = encode([q for seed in range(4) for q in questions(rows[:448], seed=seed)], tokenize)
    asked = questions(rows[448:], seed=99)
    evaluation, offsets = encode(asked, tokenize)

    def collate(batch):
        return tokenize.pad(batch, padding="max_length", max_length=40, return_tensors="pt")

    config = BertConfig(
        vocab_size=len(tokenize),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        initializer_range=0.1,
    )
    trainer = Trainer(
        model=BertForQuestionAnswering(config),
        args=args,
        train_dataset=training,
        eval_dataset=evaluation,
        data_collator=collate,
        processing_class=tokenize,
        compute_metrics=exact_match,
    )
    trainer.train()
    prediction = trainer.predict(evaluation, metric_key_prefix="eval")
    trainer.save_model()
    if trainer.is_world_process_zero():
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        optimized = hasattr(trainer.accelerator.unwrap_model(trainer.model), "params_attr")
        summary = {
            "accelerate": importlib.metadata.version("accelerate"),
            "processes": args.world_size,
            "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else None,
            "optimized": optimized,
            "losses": losses,
            "exact_match": prediction.metrics["eval_exact_match"],
            "answers": found_answers(asked, offsets, *prediction.predictions[:2]),
        }
        Path(args.output_dir, "summary.json").write_text(json.dumps(summary))
        print(json.dumps(summary))
    trainer.accelerator.wait_for_everyone()  # PyTorch may hang or abort if a rank ends just after a collective


if __name__ == "__main__":
    main()
