"""Fine-tune a small GPT-2 with Hugging Face's Trainer; interrupted anywhere, it ends with the same weights.

The model is made from its configuration, and the texts from a rule, so nothing is downloaded. Try it::

    spotwright run train_huggingface.py --interrupt-every 20s
    spotwright rehearse --must-resume --budget 5m -- python train_huggingface.py
"""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from spotwright.checkpoint.huggingface import SpotCallback

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=48)
parser.add_argument("--output", default="model")
options = parser.parse_args()

set_seed(7)
config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)

data = []
for start in range(96):
    text = (start + torch.arange(16)) % 64
    data.append({"input_ids": text, "attention_mask": torch.ones_like(text), "labels": text})

args = TrainingArguments(
    output_dir=options.output,
    max_steps=options.steps,
    per_device_train_batch_size=8,
    save_steps=8,
    save_total_limit=2,
    logging_steps=1,
    report_to="none",
    use_cpu=True,
)
trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[SpotCallback()])
trainer.train(resume_from_checkpoint=True)
trainer.save_model(options.output)
