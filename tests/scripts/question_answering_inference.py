"""Answers questions with the model that trainer_question_answering.py saved, optimized for inference in bf16:

python question_answering_inference.py OUT --dtype bf16
"""

import argparse
import json

import intel_extension_for_pytorch as ipex
import torch
from sentences import found_answers, questions, reports
from transformers import AutoModelForQuestionAnswering, AutoTokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="the output_dir of trainer_question_answering.py")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="bf16")
    args = parser.parse_args()

    bf16 = args.dtype == "bf16"
    tokenize = AutoTokenizer.from_pretrained(args.folder)
    model = AutoModelForQuestionAnswering.from_pretrained(args.folder, dtype=torch.float32).eval()
    model = ipex.optimize(model, dtype=torch.bfloat16 if bf16 else torch.float32)
    rows, _ = reports()
    asked = questions(rows[448:], seed=99)
    pairs = [q["question"] for q in asked], [q["context"] for q in asked]
    batch = tokenize(*pairs, padding=True, return_tensors="pt", return_offsets_mapping=True)
    offsets = batch.pop("offset_mapping").tolist()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        result = model(**batch)
    answers = found_answers(asked, offsets, result.start_logits, result.end_logits)
    correct = sum(answer == question["answer"] for answer, question in zip(answers, asked, strict=True))
    print(json.dumps({"answers": answers, "correct": correct, "of": len(asked)}))


if __name__ == "__main__":
    main()
