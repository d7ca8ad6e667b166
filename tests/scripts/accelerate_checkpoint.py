"""Saves the state of a training with Hugging Face Accelerate, and continues from it with the same bits.

accelerate launch --config_file accelerate_single.yaml accelerate_checkpoint.py FOLDER
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

STEPS = 4


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where the state is saved")
    parser.add_argument("--optimizer", choices=("SGD", "Adagrad", "Adam", "AdamW", "RMSprop"), default="AdamW")
    args = parser.parse_args()

    accelerator = Accelerator()
    set_seed(0)
    inputs, targets = torch.randn(2 * STEPS, 8, 16), torch.randint(4, (2 * STEPS, 8))

    def new_training():
        layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4)
        model = torch.nn.Sequential(*layers)
        optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
        return accelerator.prepare(model, optimizer, scheduler)

    def train(training, steps):
        model, optimizer, scheduler = training
        for x, y in zip(inputs[steps], targets[steps], strict=True):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        return loss.detach(), [p.detach().clone() for p in model.parameters()], scheduler.get_last_lr()

    first = new_training()
    train(first, slice(0, STEPS))
    accelerator.save_state(args.folder)
    public = {t.dtype for t in accelerator.unwrap_model(first[0]).state_dict().values()}
    expected = train(first, slice(STEPS, None))

    accelerator.free_memory()
    second = new_training()
    accelerator.load_state(args.folder)
    found = train(second, slice(STEPS, None))
    same = torch.equal(expected[0], found[0]) and all(map(torch.equal, expected[1], found[1]))
    print(f"stored {sorted({str(p.dtype) for p in expected[1]})}, saved {sorted(map(str, public))}")
    print(f"same bits: {same}, same learning rate: {expected[2] == found[2]}")


if __name__ == "__main__":
    main()
