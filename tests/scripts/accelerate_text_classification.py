"""Trains BERT to classify reports, with Hugging Face Accelerate. One process or many, fp32 or bf16, as it is launched:

accelerate launch --config_file accelerate_single.yaml accelerate_text_classification.py
accelerate launch --config_file accelerate_distributed.yaml accelerate_text_classification.py
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sentences import reports, sentence, tokenizer
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


def get_dataloaders(batch_size):
    rows, labels = reports()
    tokenize = tokenizer()
    texts = [sentence(row) for row in rows]
    encoded = tokenize(texts)["input_ids"]
    examples = [{"input_ids": ids, "labels": label} for ids, label in zip(encoded, labels, strict=True)]

    def collate(batch):
        return tokenize.pad(batch, padding="longest", return_tensors="pt")

    train = DataLoader(examples[:448], batch_size=batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    evaluation = DataLoader(examples[448:], batch_size=64, collate_fn=collate)
    return train, evaluation, len(tokenize)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=16, help="of each process")
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    accelerator = Accelerator()
    set_seed(1)
    train, evaluation, words = get_dataloaders(args.batch_size)
    config = BertConfig(
        vocab_size=words,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        initializer_range=0.1,
    )
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = args.epochs * len(train)
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=steps // 10, num_training_steps=steps)
    model, optimizer, train, evaluation, scheduler = accelerator.prepare(model, optimizer, train, evaluation, scheduler)
    accelerator.print(
        f"{accelerator.num_processes} processes, {accelerator.mixed_precision}, backend {accelerator.state.backend}, "
        f"optimized: {hasattr(accelerator.unwrap_model(model), 'params_attr')}"
    )

    for epoch in range(args.epochs):
        model.train()
        losses = []
        for batch in train:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(accelerator.reduce(loss.detach().float(), "mean").item())
        model.eval()
        correct = total = 0
        for batch in evaluation:
            with torch.no_grad():
                logits = model(**batch).logits
            predicted, labels = accelerator.gather_for_metrics((logits.argmax(-1), batch["labels"]))
            correct, total = correct + int((predicted == labels).sum()), total + len(labels)
        mean = sum(losses) / len(losses)
        accelerator.print(f"epoch {epoch}: loss {mean:.4f}, accuracy {correct / total:.4f} of {total}")
    accelerator.wait_for_everyone()  # PyTorch may hang or abort if a rank ends just after a collective
    accelerator.end_training()


if __name__ == "__main__":
    main()
