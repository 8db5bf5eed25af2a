"""Samples from a policy and trains it, with the right switches for each."""

import torch


class Policy:
    def __init__(self, model):
        self.model = model
        self.train_mode()

    def train_mode(self):
        self.model.config.use_cache = False
        self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.model.train()

    def sample_mode(self):
        self.model.gradient_checkpointing_disable()
        self.model.config.use_cache = True
        self.model.eval()

    @torch.no_grad()
    def sample(self, prompts, length):
        self.sample_mode()
        tokens = self.model.generate(prompts, max_new_tokens=length, do_sample=True)
        self.train_mode()
        return tokens
